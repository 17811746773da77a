"""Statuses, user data and subnets: data and pure functions."""

import pytest
import yaml

from metalyard.maas import statuses
from metalyard.maas.errors import MaasError
from metalyard.maas.site import Changes, subnet_of
from metalyard.maas.statuses import TABLE, Move, after
from metalyard.maas.userdata import build, digest, public_key
from metalyard.plan.model import SitePlan
from metalyard.virtual.maas.status import NAMES


def plan(folder, user="metalyard"):
    return SitePlan.model_validate(
        {
            "schema": 1,
            "site": "hall",
            "baseline": "b",
            "bmc": {"factory_password": {"env": "X"}},
            "maas": {"url": "http://maas.example/MAAS", "key": {"env": "X"}},
            "ssh": {"user": user, "key": "id"},
            "racks": [{"name": "r"}],
            "nodes": [
                {
                    "name": "gpu-1",
                    "rack": "r",
                    "unit": 1,
                    "serial": "S",
                    "profile": "p",
                    "bmc": {"address": "10.0.0.1"},
                    "boot_mac": "0c:42:a1:00:00:01",
                    "address": "10.0.1.1/24",
                }
            ],
            "root": folder,
        }
    )


def test_every_status_has_its_row():
    assert {number: row.name for number, row in TABLE.items()} == NAMES
    for row in TABLE.values():
        assert bool(row.next_step) is (row.move is Move.STOP), row.name


def test_an_unknown_status_stops():
    assert after(99).move is Move.STOP
    assert after(99).next_step


def test_what_is_waited_for_moves_by_itself():
    passing = {"Commissioning", "Deploying", "Releasing", "Disk erasing", "Exiting rescue mode", "Testing"}
    assert {row.name for row in TABLE.values() if row.move is Move.WAIT} == passing
    assert TABLE[statuses.DEPLOYED].ours
    assert TABLE[statuses.ALLOCATED].ours


def test_user_data_is_the_same_for_the_same_plan(tmp_path):
    site = plan(tmp_path)
    first = build(site, site.nodes[0], "ssh-ed25519 AAAA me")
    assert first == build(site, site.nodes[0], "ssh-ed25519 AAAA me")
    assert digest(first) == digest(first)
    assert digest(first) != digest(build(site, site.nodes[0], "ssh-ed25519 BBBB me"))
    assert first.splitlines()[0] == b"#cloud-config"
    data = yaml.safe_load(first)
    assert data["hostname"] == "gpu-1"
    assert data["users"][0]["name"] == "metalyard"
    assert data["users"][0]["lock_passwd"] is True
    assert data["ssh_pwauth"] is False
    assert data["disable_root"] is True
    assert yaml.safe_load(data["write_files"][0]["content"]) == {"site": "hall", "node": "gpu-1"}


def test_root_may_be_the_account(tmp_path):
    site = plan(tmp_path, "root")
    assert yaml.safe_load(build(site, site.nodes[0], "k k"))["disable_root"] is False


@pytest.mark.parametrize("content", [None, "", "one\ntwo\n", "-----BEGIN OPENSSH PRIVATE KEY-----\n", "lonely\n"])
def test_a_public_key_that_is_none(tmp_path, content):
    if content is not None:
        (tmp_path / "id.pub").write_text(content)
    with pytest.raises(MaasError, match=r"id\.pub") as caught:
        public_key(plan(tmp_path))
    assert "ssh.key" in caught.value.next_step


def test_the_public_key(tmp_path):
    (tmp_path / "id.pub").write_text("ssh-ed25519 AAAA me\n")
    assert public_key(plan(tmp_path)) == "ssh-ed25519 AAAA me"


def test_the_narrowest_subnet_counts():
    subnets = [{"id": 1, "cidr": "10.0.0.0/8"}, {"id": 2, "cidr": "10.0.1.0/24"}, {"id": 3, "cidr": "fd00::/64"}]
    assert subnet_of(subnets, "10.0.1.7/24")["id"] == 2
    assert subnet_of(subnets, "10.9.1.7/24")["id"] == 1
    assert subnet_of(subnets, "192.0.2.1/24") is None


def test_a_diff_says_before_and_after():
    changes = Changes("gpu-1")
    assert changes.diff() == []
    changes.note("pool", "default", "h100")
    changes.note("tag", "", "h100")
    diff = changes.diff()[0]
    assert diff["before"] == "pool: default\n"
    assert diff["after"] == "pool: h100\ntag: h100\n"
