"""The sweeps against the emulated DGX H100 over real HTTPS: two independent readings of Redfish agree."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from metalyard.plan.model import SitePlan
from metalyard.redfish import tasks
from metalyard.redfish.operations import configure, discover, firmware
from metalyard.secrets import FileSecretStore
from metalyard.sweep import Context, HostResult
from metalyard.virtual.bmc.firmware import firmware_image
from metalyard.virtual.bmc.server import BmcFleet
from metalyard.virtual.bmc.standalone import SwitchedMachine, fleet
from metalyard.virtual.hardware import Hardware

NODES = ("gpu-1", "gpu-2", "gpu-3")
BIOS_IMAGE = "nvfw_DGX_HostBIOS_1.6.7.fwpkg"


@dataclass
class Rack:
    """Running emulators, and one call per sweep."""

    plan: SitePlan
    fleet: BmcFleet
    machines: dict[str, SwitchedMachine]
    hardware: dict[str, Hardware]
    store: FileSecretStore
    progress: list[str] = field(default_factory=list)

    async def sweep(self, operation: Any, *, check: bool = False, **options: Any) -> dict[str, HostResult]:
        results: dict[str, HostResult] = {}
        options.setdefault("states", dict.fromkeys(NODES, "discovered"))
        context = Context(
            plan=self.plan,
            nodes=self.plan.nodes,
            secrets=self.store,
            report=lambda result: results.update({result.host: result}),
            check=check,
            options={"firmware_dir": self.plan.root, **options},
            progress=lambda host, text: self.progress.append(text),
        )
        await operation(context)
        assert set(results) == set(NODES)
        assert all(not self.fleet.bmc(node).state.sessions for node in NODES)
        return results


@pytest.fixture
async def rack(tmp_path: Path) -> AsyncIterator[Rack]:
    (tmp_path / "factory").touch(mode=0o600)
    (tmp_path / "factory").write_text("factory-password")
    firmware_image(tmp_path / BIOS_IMAGE, ["HostBIOS_0"], "1.6.7")
    async with fleet(tmp_path, NODES) as (running, machines, hardware):
        plan = SitePlan.model_validate(
            {
                "schema": 1,
                "site": "t",
                "baseline": "2026.11-h100",
                "bmc": {
                    "user": "admin",
                    "factory_user": "admin",
                    "factory_password": {"file": "factory"},
                    "tls": {"ca": "ca.pem"},
                    "ntp_servers": ["10.231.0.1"],
                    "timeout": 5,
                },
                "maas": {"url": "http://127.0.0.1/MAAS", "key": {"env": "UNUSED"}},
                "racks": [{"name": "r1"}],
                "nodes": [
                    {
                        "name": node,
                        "rack": "r1",
                        "unit": 1 + 9 * number,
                        "serial": hardware[node].serial,
                        "profile": "dgx-h100",
                        "bmc": {"address": running.url(node).removeprefix("https://")},
                        "boot_mac": hardware[node].boot_mac,
                        "address": f"10.0.0.{number + 1}/24",
                    }
                    for number, node in enumerate(NODES)
                ],
                "root": tmp_path,
            }
        )
        yield Rack(plan, running, machines, hardware, FileSecretStore(tmp_path / "secrets"))


def ok(results: dict[str, HostResult], *but: str) -> None:
    for result in results.values():
        if result.host not in but:
            assert not result.failed, result.message
            assert not result.unreachable, result.message


async def test_the_whole_way_and_a_second_run_that_changes_nothing(rack: Rack) -> None:
    rack.hardware["gpu-2"].firmware["HostBIOS_0"] = "1.5.1"
    rack.hardware["gpu-2"].gpus[5].on_bus = False
    found = await rack.sweep(discover)
    ok(found)
    facts = found["gpu-2"].data["facts"]
    assert facts["serial"] == rack.hardware["gpu-2"].serial
    assert {kind: len(facts[kind]) for kind in ("cpus", "gpus", "dimms", "drives")} == {
        "cpus": 2,
        "gpus": 8,
        "dimms": 32,
        "drives": 8,
    }
    assert [gpu["state"] for gpu in facts["gpus"]].count("UnavailableOffline") == 1
    assert facts["firmware"]["HostBIOS_0"] == "1.5.1"
    configured = await rack.sweep(configure)
    ok(configured)
    assert all(result.changed and not result.data["pending"] for result in configured.values())
    updated = await rack.sweep(firmware)
    ok(updated)
    assert [node for node in NODES if updated[node].changed] == ["gpu-2"]
    assert (await rack.sweep(discover))["gpu-2"].data["facts"]["bios_version"] == "1.6.7"
    for operation in (discover, configure, firmware):
        again = await rack.sweep(operation)
        ok(again)
        assert not any(result.changed for result in again.values())
        assert not any(result.diff for result in again.values())
    passwords = {str((rack.store.read(f"bmc/{node}") or {})["password"]) for node in NODES}
    assert len(passwords) == 3
    assert {machine.power_state for machine in rack.machines.values()} == {"Off"}


async def test_another_serial_is_set_aside(rack: Rack) -> None:
    rack.hardware["gpu-3"].serial = "1660623999999"
    found = await rack.sweep(discover)
    ok(found, "gpu-3")
    assert found["gpu-3"].aside
    assert "1660623999999" in found["gpu-3"].message
    assert "1660623000003" in found["gpu-3"].message


@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_connection_breaks_as_the_password_changes(rack: Rack, when: str) -> None:
    accounts = "/redfish/v1/AccountService/Accounts/.*"
    rack.fleet.inject("gpu-1", {"kind": "reset", "path": accounts, "verb": "PATCH", "when": when, "count": 1})
    found = await rack.sweep(discover)
    assert found["gpu-1"].unreachable
    assert "Whether the new password was taken is not known" in found["gpu-1"].message
    ok(found, "gpu-1")
    ok(await rack.sweep(discover))
    ok(await rack.sweep(configure))


async def test_faults_that_pass_are_passed_over(rack: Rack) -> None:
    ok(await rack.sweep(discover))
    rack.fleet.inject("gpu-1", {"kind": "unavailable", "verb": "GET", "seconds": 1, "count": 2, "skip": 5})
    rack.fleet.inject("gpu-2", {"kind": "reset", "verb": "GET", "count": 3, "skip": 9})
    rack.fleet.inject("gpu-3", {"kind": "truncate", "path": "/redfish/v1/Systems/DGX", "count": 1})
    found = await rack.sweep(discover)
    ok(found)
    assert found["gpu-3"].data["facts"]["gaps"] == []


async def test_faults_that_stay_are_that_nodes_and_clear(rack: Rack) -> None:
    ok(await rack.sweep(discover))
    rack.fleet.inject("gpu-1", {"kind": "truncate", "path": "/redfish/v1/Systems/DGX"})
    rack.fleet.inject("gpu-2", {"kind": "status", "path": ".*/Memory/.*", "status": 500})
    rack.store.write("bmc/gpu-3", {"user": "admin", "password": "not-the-One-1"})
    found = await rack.sweep(discover)
    assert "can't be read (/redfish/v1/Systems/DGX: no whole JSON object)" in found["gpu-1"].message
    assert found["gpu-2"].data["facts"]["dimms"] == []
    assert len(found["gpu-2"].data["facts"]["gaps"]) >= 32
    assert "takes none of the known passwords" in found["gpu-3"].message


@pytest.mark.parametrize("quirk", ["require_if_match", "refuse_if_match_on_actions", "boot_settings_only"])
async def test_quirks_are_met(rack: Rack, quirk: str) -> None:
    for node in NODES:
        bmc = rack.fleet.bmc(node)
        bmc.quirks = bmc.quirks.model_copy(update={quirk: True})
    ok(await rack.sweep(discover))
    ok(await rack.sweep(configure))


async def test_a_task_that_is_lost_is_settled_by_the_version(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "APPEARS", 2.0)
    rack.hardware["gpu-1"].firmware["HostBIOS_0"] = "1.5.1"
    ok(await rack.sweep(discover))
    rack.fleet.inject("gpu-1", {"kind": "lost_task", "path": "/redfish/v1/UpdateService/.*", "verb": "POST"})
    found = await rack.sweep(firmware)
    ok(found)
    assert found["gpu-1"].changed
