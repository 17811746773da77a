"""TLS for real: the site's CA, a pin per node, and no way around them."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import ipaddress
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from metalyard.plan.model import SitePlan
from metalyard.redfish.access import new_bmc
from metalyard.redfish.connections import Connections
from metalyard.redfish.errors import UnreachableError, UntrustedError


def _certificate(name: str, issuer: tuple[x509.Certificate, Any] | None) -> tuple[x509.Certificate, Any]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
    )
    return builder.sign(issuer[1] if issuer else key, hashes.SHA256()), key


@dataclass
class Site:
    """A BMC on a real port, with what verifies it."""

    port: int
    folder: Path
    fingerprint: str

    def plan(self, *, ca: str | None = "ca.pem", fingerprint: str | None = None, **node: Any) -> SitePlan:
        return SitePlan.model_validate(
            {
                "schema": 1,
                "site": "t",
                "baseline": "none",
                "bmc": {"factory_password": {"env": "UNUSED"}, "tls": {"ca": ca} if ca else {}, "timeout": 5},
                "maas": {"url": "http://127.0.0.1/MAAS", "key": {"env": "UNUSED"}},
                "racks": [{"name": "r1"}],
                "nodes": [
                    {
                        "name": "gpu-1",
                        "rack": "r1",
                        "unit": 1,
                        "serial": "S",
                        "profile": "p",
                        "bmc": {"address": f"127.0.0.1:{self.port}", "fingerprint": fingerprint, **node},
                        "boot_mac": "0c:42:a1:00:00:01",
                        "address": "10.0.0.1/24",
                    }
                ],
                "root": self.folder,
            }
        )


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    authority = _certificate("Test CA", None)
    certificate, key = _certificate("bmc", authority)
    (tmp_path / "ca.pem").write_bytes(authority[0].public_bytes(serialization.Encoding.PEM))
    (tmp_path / "other.pem").write_bytes(_certificate("Other", None)[0].public_bytes(serialization.Encoding.PEM))
    (tmp_path / "empty.pem").touch()
    (tmp_path / "bmc.pem").write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "bmc.pem")

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"RedfishVersion": "1.11.0"})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    pin = hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()
    yield Site(runner.addresses[0][1], tmp_path, pin)
    await runner.cleanup()


async def read_root(plan: SitePlan) -> dict[str, Any]:
    async with Connections(plan) as connections:
        return await new_bmc(plan.nodes[0], plan, connections).get("/redfish/v1/")


async def test_the_sites_ca_verifies(site: Site) -> None:
    assert (await read_root(site.plan()))["RedfishVersion"] == "1.11.0"


async def test_a_pin_verifies_without_a_ca(site: Site) -> None:
    assert await read_root(site.plan(ca=None, fingerprint=site.fingerprint))


@pytest.mark.parametrize("ca", ["other.pem", None])
async def test_an_unknown_certificate_is_never_taken(site: Site, ca: str | None) -> None:
    with pytest.raises(UntrustedError, match=r"gpu-1: the certificate of the BMC .* is not trusted") as caught:
        await read_root(site.plan(ca=ca))
    assert "bmc.tls.ca" in caught.value.next_step
    assert not caught.value.unreachable


async def test_another_certificate_than_the_pinned_one_is_named(site: Site) -> None:
    with pytest.raises(UntrustedError, match=f"SHA-256 {site.fingerprint}, expected {'ab' * 32}"):
        await read_root(site.plan(fingerprint="ab" * 32))


@pytest.mark.parametrize("ca", ["missing.pem", "empty.pem"])
async def test_a_ca_file_that_can_not_be_used_is_named(site: Site, ca: str) -> None:
    with pytest.raises(UntrustedError, match=rf"the CA file .*{ca} of bmc\.tls\.ca can't be used"):
        await read_root(site.plan(ca=ca))


async def test_one_context_serves_every_node(site: Site) -> None:
    plan = site.plan()
    async with Connections(plan) as connections:
        first = connections.transport(plan.nodes[0])
        second = connections.transport(plan.nodes[0])
        assert first._trust is second._trust  # type: ignore[attr-defined]


async def test_nobody_at_the_address(site: Site, unused_tcp_port: int) -> None:
    plan = site.plan(address=f"127.0.0.1:{unused_tcp_port}")
    began = time.monotonic()
    with pytest.raises(UnreachableError, match="gpu-1: no connection to the BMC at 127") as caught:
        await read_root(plan)
    assert caught.value.unreachable
    assert time.monotonic() - began < 10


async def test_a_server_that_never_answers_has_a_deadline(tmp_path: Path, site: Site) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    plan = site.plan(address=f"127.0.0.1:{port}")
    plan = plan.model_copy(update={"bmc": plan.bmc.model_copy(update={"timeout": 0.5})})
    began = time.monotonic()
    with pytest.raises(UnreachableError):
        await read_root(plan)
    assert time.monotonic() - began < 5
    server.close()


async def test_a_host_name_that_nobody_knows(site: Site) -> None:
    with pytest.raises(UnreachableError, match=r"no connection to the BMC at nowhere\.invalid"):
        await read_root(site.plan(address="nowhere.invalid"))
