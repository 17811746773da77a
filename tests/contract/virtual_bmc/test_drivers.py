"""This project's own clients on the emulated BMC: the sweeps of a bring-up, and the power driver that MAAS uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from metalyard.plan import load_plan
from metalyard.plan.model import SitePlan
from metalyard.redfish.operations import configure, discover, firmware
from metalyard.secrets import FileSecretStore
from metalyard.sweep import Context, HostResult
from metalyard.virtual.bmc import firmware_image
from metalyard.virtual.bmc.standalone import fleet
from metalyard.virtual.maas.power import PowerConnError, RedfishDriver

FACTORY = "factory-password"
NODES = ["gpu-1", "gpu-2", "gpu-3"]


def site(home: Path, addresses: dict[str, str]) -> SitePlan:
    """A plan of three nodes; the third one's serial is not what its BMC says."""
    secret = home / "factory"
    secret.write_text(FACTORY)
    secret.chmod(0o600)
    nodes = [
        {
            "name": name,
            "rack": "r1",
            "unit": 1 + 9 * number,
            "serial": "1660623009999" if name == "gpu-3" else str(1660623000001 + number),
            "profile": "dgx-h100",
            "bmc": {"address": addresses[name]},
            "boot_mac": f"0c:42:a1:00:01:{number + 1:02x}",
            "address": f"192.0.2.{number + 1}/24",
        }
        for number, name in enumerate(NODES)
    ]
    plan: dict[str, Any] = {
        "plugin": "metalyard.fleet.site",
        "schema": 1,
        "site": "bench",
        "state": "state",
        "baseline": "2026.11-h100",
        "bmc": {
            "user": "admin",
            "factory_user": "admin",
            "factory_password": {"file": str(secret)},
            "tls": {"ca": str(home / "ca.pem")},
            "ntp_servers": ["192.0.2.123"],
        },
        "maas": {"url": "http://192.0.2.200:5240/MAAS", "key": {"env": "MAAS_KEY"}},
        "racks": [{"name": "r1"}],
        "nodes": nodes,
    }
    (home / "site.yml").write_text(yaml.safe_dump(plan))
    return load_plan(home / "site.yml")


async def sweep(operation: Any, plan: SitePlan, **options: Any) -> dict[str, HostResult]:
    """Run one sweep over the plan's nodes: each one's result."""
    results: dict[str, HostResult] = {}

    def report(result: HostResult) -> None:
        assert result.host not in results
        results[result.host] = result

    store = FileSecretStore(plan.state_dir / "secrets")
    await operation(Context(plan=plan, nodes=plan.nodes, secrets=store, report=report, options=options))
    return results


async def test_the_sweeps_of_a_bring_up(tmp_path: Path) -> None:
    images = tmp_path / "firmware"
    firmware_image(images / "nvfw_DGX_HostBIOS_1.6.7.fwpkg", ["HostBIOS_0"], "1.6.7")
    async with fleet(tmp_path, NODES, password=FACTORY) as (running, _, hardware):
        hardware["gpu-2"].firmware["HostBIOS_0"] = "1.5.1"
        plan = site(tmp_path, {name: running.url(name).removeprefix("https://") for name in NODES})
        states = dict.fromkeys(NODES, "planned")

        found = await sweep(discover, plan)
        assert [found[name].failed for name in NODES] == [False, False, True]
        assert found["gpu-3"].aside
        assert "1660623000003" in found["gpu-3"].message
        assert "1660623009999" in found["gpu-3"].message
        assert len(found["gpu-1"].data["facts"]["gpus"]) == 8

        good = plan.model_copy(update={"nodes": plan.nodes[:2]})
        done = await sweep(configure, good, states=states)
        assert {name: (one.failed, one.changed) for name, one in done.items()} == dict.fromkeys(
            NODES[:2], (False, True)
        ), done
        for name in NODES[:2]:
            kept = running.bmc(name).state.kept
            assert kept.accounts[0].password != FACTORY
            assert kept.ntp_servers == ["192.0.2.123"]
            assert kept.bios["SubNumaClustering"] == "Disabled"

        updated = await sweep(firmware, good, states=states, firmware_dir=str(images))
        assert {name: one.changed for name, one in updated.items()} == {"gpu-1": False, "gpu-2": True}, updated
        assert running.bmc("gpu-2").firmware()["HostBIOS_0"] == "1.6.7"

        for operation in (discover, configure, firmware):
            again = await sweep(operation, good, states=states, firmware_dir=str(images))
            assert not any(one.changed or one.failed for one in again.values()), (operation.__name__, again)


async def test_the_power_driver_of_maas(tmp_path: Path) -> None:
    async with fleet(tmp_path, password=FACTORY) as (running, machines, _):
        account = running.bmc("gpu-1").state.kept.accounts[0]
        account.change_required = False
        driver = RedfishDriver(tmp_path / "ca.pem", speed=20)
        parameters = {
            "power_address": running.url("gpu-1"),
            "power_user": "admin",
            "power_pass": FACTORY,
            "power_verify_ssl": "y",
        }
        try:
            assert await driver.query(parameters) == "off"
            assert await driver.change(parameters, "on") == "on"
            assert await driver.change(parameters, "on") == "on"
            assert [boot.target for boot in machines["gpu-1"].boots] == ["Pxe", "Pxe"]
            assert await driver.change(parameters, "off") == "off"
            with pytest.raises(PowerConnError, match="401"):
                await driver.query({**parameters, "power_pass": "wrong"})
        finally:
            await driver.close()
