"""``metalyard check`` against emulated BMCs and an emulated MAAS: what is right passes, each wrong thing is named."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import subprocess
from contextlib import asynccontextmanager

import pytest

from metalyard.plan import load_plan
from metalyard.runs import preflight
from metalyard.secrets import FileSecretStore
from metalyard.virtual.bmc.standalone import fleet
from metalyard.virtual.maas.region import MaasRegion

KEY = "consumer:token:secret"
NODES = ("gpu-r01-1", "gpu-r01-2")


@asynccontextmanager
async def running(plan, tmp_path):
    """The plan with two BMCs and a region that answer."""
    region = MaasRegion("127.0.0.1", 0, KEY)
    await region.start()
    home = tmp_path / "bmcs"
    home.mkdir()
    try:
        async with fleet(home, NODES) as (bmcs, _machines, _hardware):
            port = region._runner.addresses[0][1]
            nodes = [
                node.model_copy(update={"bmc": node.bmc.model_copy(update={"address": bmcs.url(node.name)[8:]})})
                for node in plan.nodes
                if node.name in NODES
            ]
            tls = plan.bmc.tls.model_copy(update={"ca": home / "ca.pem"})
            yield plan.model_copy(
                update={
                    "nodes": nodes,
                    "bmc": plan.bmc.model_copy(update={"tls": tls}),
                    "maas": plan.maas.model_copy(update={"url": f"http://127.0.0.1:{port}/MAAS"}),
                }
            )
    finally:
        await region.stop()


@pytest.fixture
def plan(site):
    secrets = site / "secrets"
    secrets.mkdir()
    for name, text in (("factory-password", "factory"), ("maas-api-key", KEY)):
        (secrets / name).write_text(text + "\n")
        (secrets / name).chmod(0o600)
    return load_plan(site)


def outcomes(looks):
    return {(look.kind, look.about): look.outcome for look in looks}


async def test_bmcs_and_region_that_answer_pass_without_a_login(plan, tmp_path):
    async with running(plan, tmp_path) as live:
        looks = await preflight.on_the_network(live, live.nodes)
    assert [look.outcome for look in looks] == ["ok"] * 3, looks
    assert "Redfish 1." in looks[0].seen
    assert "administrator 'admin'" in looks[2].seen


async def test_a_bmc_without_trust_a_silent_one_and_a_wrong_key_are_each_named(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "SECONDS", 2.0)
    server = await asyncio.start_server(lambda reader, writer: asyncio.sleep(60), "127.0.0.1", 0)
    silent = server.sockets[0].getsockname()[1]
    async with running(plan, tmp_path) as live, server:
        (site_key := plan.path(plan.maas.key.file)).write_text("consumer:token:other")
        one, two = live.nodes
        pinned = one.model_copy(update={"bmc": one.bmc.model_copy(update={"fingerprint": "0" * 64})})
        mute = two.model_copy(update={"bmc": two.bmc.model_copy(update={"address": f"127.0.0.1:{silent}"})})
        looks = await preflight.on_the_network(live.model_copy(update={"nodes": [pinned, mute]}), [pinned, mute])
    assert [look.outcome for look in looks] == ["failed"] * 3
    assert "SHA-256" in looks[0].seen
    assert f"127.0.0.1:{silent}" in looks[1].seen
    assert "refused the API key" in looks[2].seen
    assert all(look.next_step for look in looks)
    assert "other" not in " ".join(look.seen for look in looks)
    assert site_key.exists()


async def test_the_right_pin_is_taken_instead_of_an_authority(plan, tmp_path):
    async with running(plan, tmp_path) as live:
        node = live.nodes[0]
        host, _, port = node.bmc.address.partition(":")
        pem = await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))
        pin = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
        node = node.model_copy(update={"bmc": node.bmc.model_copy(update={"fingerprint": pin})})
        (look, _) = await preflight.on_the_network(live, [node])
    assert look.outcome == "ok", look


async def test_a_region_that_is_not_there_is_named_by_its_address(plan):
    (look,) = await preflight.on_the_network(plan, [])
    assert look.outcome == "failed"
    assert "127.0.0.1:9" in look.seen


async def test_without_a_key_the_region_is_not_asked(plan):
    plan.path(plan.maas.key.file).unlink()
    (look,) = await preflight.on_the_network(plan, [])
    assert look.outcome == "skipped"


def test_what_lies_on_this_machine(plan, site):
    key = plan.path(plan.ssh.key)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    FileSecretStore(plan.state_dir / "secrets").write("bmc/gpu-r01-1", {"user": "admin", "password": "p"})
    looks = {look.about: look for look in preflight.on_this_machine(plan)}
    assert looks["BMC factory password"].outcome == "ok"
    assert looks["MAAS API key"].outcome == "ok"
    assert looks["key"].outcome == "ok"
    assert looks["database"].outcome == "ok"
    assert looks[str(plan.state_dir / "secrets")].seen == "1 of 8 BMC passwords kept"
    assert looks["bmc.tls.ca"].outcome == "failed"
    assert "factory" not in " ".join(look.seen for look in looks.values()).replace("factory-password", "")


@pytest.mark.parametrize(
    ("break_it", "about", "seen"),
    [
        (lambda plan: plan.path(plan.maas.key.file).write_text("only-one-part"), "MAAS API key", "1 part"),
        (lambda plan: plan.path(plan.maas.key.file).chmod(0o644), "MAAS API key", "read by everybody"),
        (lambda plan: plan.path(plan.bmc.factory_password.file).write_text(""), "BMC factory password", "is empty"),
        (lambda plan: plan.path(plan.ssh.key).chmod(0o644), "key", "read by others"),
        (lambda plan: plan.path(plan.ssh.key).with_suffix(".pub").unlink(), "key", "does not exist"),
        (lambda plan: plan.path(plan.bmc.tls.ca).write_text("no certificate"), "bmc.tls.ca", "no PEM certificate"),
    ],
)
def test_each_wrong_credential_is_named_with_its_cure(plan, break_it, about, seen):
    key = plan.path(plan.ssh.key)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    plan.path(plan.bmc.tls.ca).parent.mkdir()
    break_it(plan)
    look = next(look for look in preflight.on_this_machine(plan) if look.about == about)
    assert look.outcome == "failed"
    assert seen in look.seen
    assert look.next_step


def test_a_secret_store_whose_key_is_lost_fails(plan):
    store = FileSecretStore(plan.state_dir / "secrets")
    store.write("bmc/gpu-r01-1", {"user": "admin", "password": "p"})
    (plan.state_dir / "secrets" / "key").unlink()
    look = next(look for look in preflight.on_this_machine(plan) if look.about.endswith("secrets"))
    assert look.outcome == "failed"
    assert "key is missing" in look.seen


def test_missing_tools_are_named(plan, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    looks = {look.about: look for look in preflight.on_this_machine(plan)}
    assert looks["ssh"].outcome == "failed"
    assert "apt-get install" in looks["ssh"].next_step
