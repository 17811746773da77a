"""Recordings of five real BMCs: facts, time servers, boot mode and BIOS are read from each without an error."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from recorded_bmc import Recorded, RecordedBmc

from metalyard.redfish.bios import drift, read_bios
from metalyard.redfish.boot import mode_is_right, read_boot
from metalyard.redfish.client import Bmc
from metalyard.redfish.errors import BmcError
from metalyard.redfish.facts import read_facts
from metalyard.redfish.layout import read_layout
from metalyard.redfish.ntp import read_time_servers
from metalyard.redfish.power import allowed
from metalyard.redfish.tasks import running_update

EXPECTED: dict[str, dict[str, Any]] = {
    "nvidia_viking": {
        "vendor": "NVIDIA",
        "model": "DGXH100",
        "serial": "1663123000052",
        "bios": "1.1.3",
        "bmc": "23.11.20",
        "counts": {"cpus": 2, "gpus": 8, "dimms": 32, "drives": 10, "nics": 12, "interfaces": 5, "psus": 6},
        "firmware": 66,
        "quirks": "dgx",
        "reset": ("ForceOff", "ForceRestart", "GracefulShutdown", "On"),
        "ntp": ("pool.ntp.org", "216.239.35.4"),
    },
    "dell": {
        "vendor": "Dell Inc.",
        "model": "PowerEdge R750",
        "serial": "F54P1G3",
        "bios": "1.8.2",
        "bmc": "6.00.30.00",
        "counts": {"cpus": 2, "gpus": 1, "dimms": 16, "drives": 3, "nics": 4, "interfaces": 5, "psus": 2},
        "firmware": 29,
        "quirks": "idrac",
        "reset": ("On", "ForceOff", "ForceRestart"),
        "ntp": (),
    },
    "hpe": {
        "vendor": "HPE",
        "model": "ProLiant DL385 Gen10 Plus v2",
        "serial": "MXQ302099S",
        "bios": "A42 v2.60 (08/11/2022)",
        "bmc": "iLO 5 v2.72",
        "counts": {"cpus": 2, "gpus": 0, "dimms": 16, "drives": 18, "nics": 3, "interfaces": 7, "psus": 2},
        "firmware": 48,
        "quirks": "ilo",
        "reset": ("On", "ForceOff", "ForceRestart"),
        "ntp": (),
    },
    "lenovo": {
        "vendor": "Lenovo",
        "model": "ThinkSystem SR670 V2",
        "serial": "J105958B",
        "bios": "U8E122J",
        "bmc": "TGBT42S 2.83 2023-07-05",
        "counts": {"cpus": 2, "gpus": 8, "dimms": 16, "drives": 4, "nics": 2, "interfaces": 5, "psus": 4},
        "firmware": 43,
        "quirks": "xcc",
        "reset": ("On", "ForceOff", "ForceRestart"),
        "ntp": (),
    },
    "nvidia_gh200": {
        "vendor": "NVIDIA",
        "model": "P3809",
        "serial": "1580624650610",
        "bios": None,
        "bmc": "GH200-24.05-2",
        "counts": {"cpus": 4, "gpus": 2, "dimms": 2, "drives": 0, "nics": 0, "interfaces": 0, "psus": 0},
        "firmware": 19,
        "quirks": "standard",
        "reset": ("On", "ForceOff", "ForceRestart"),
        "ntp": (),
    },
}


async def test_the_facts_of_each_machine(recorded: Recorded) -> None:
    expected = EXPECTED[recorded.name]
    facts = await read_facts(recorded.bmc)
    assert facts["vendor"] == expected["vendor"]
    assert facts["model"] == expected["model"]
    assert facts["serial"] == expected["serial"]
    assert facts["bios_version"] == expected["bios"]
    assert facts["bmc_version"] == expected["bmc"]
    assert facts["power_state"] == "On"
    assert {kind: len(facts[kind]) for kind in expected["counts"]} == expected["counts"]
    assert len(facts["firmware"]) == expected["firmware"]
    assert facts["gaps"] == []
    assert recorded.bmc.quirks.name == expected["quirks"]
    assert json.loads(json.dumps(facts)) == facts
    for part in facts["parts"]:
        assert set(part) == {"kind", "part", "serial", "model", "firmware"}
        assert part["serial"]
    serials = [(part["kind"], part["part"], part["serial"]) for part in facts["parts"]]
    assert len(set(serials)) == len(serials)


async def test_nothing_is_asked_for_that_is_not_needed(recorded: Recorded) -> None:
    await read_facts(recorded.bmc)
    assert sum(recorded.double.asked.values()) < 200
    assert {path for path, count in recorded.double.asked.items() if count > 1} <= {"/redfish/v1/"}


@pytest.mark.parametrize("tree", ["nvidia_viking"], indirect=True)
async def test_the_parts_of_a_dgx(recorded: Recorded) -> None:
    facts = await read_facts(recorded.bmc)
    assert [gpu["serial"] for gpu in facts["gpus"]][:2] == ["1652923003067", "1652923004435"]
    assert {(gpu["pcie_type"], gpu["pcie_width"], gpu["firmware"]) for gpu in facts["gpus"]} == {
        ("Gen5", 16, "96.00.89.00.01")
    }
    assert {dimm["size_mib"] for dimm in facts["dimms"]} == {65536}
    assert facts["firmware"]["HostBIOS_0"] == "01.01.03"
    assert facts["serials"]["system"] == "1662923610124"
    assert facts["bios"]["BootOption1"] == "Network"
    assert not any("Password" in name for name in facts["bios"])
    devices = await recorded.bmc.members("/redfish/v1/Chassis/DGX/PCIeDevices")
    assert len(devices) == len(set(devices)) > 75  # two pages


async def test_resets_time_servers_boot_and_bios_can_be_read(recorded: Recorded) -> None:
    expected = EXPECTED[recorded.name]
    bmc = recorded.bmc
    layout = await read_layout(bmc)
    resets = await allowed(bmc, layout.host[1], "#ComputerSystem.Reset")
    assert resets is not None
    assert set(expected["reset"]) <= set(resets)
    assert layout.manager is not None
    assert await allowed(bmc, layout.manager[1], "#Manager.Reset")
    servers = await read_time_servers(bmc, layout)
    assert servers.servers == expected["ntp"]
    assert mode_is_right(await read_boot(bmc, layout), "uefi")
    assert not mode_is_right(await read_boot(bmc, layout), "legacy")
    bios = await read_bios(bmc, layout)
    assert bios is not None
    assert len(bios.current) > 30
    assert bios.pending == {}
    now = {name: value for name, value in bios.current.items() if isinstance(value, (str, int, bool))}
    assert drift(bios, now).right
    for name, values in bmc.quirks.boot_mode_attributes.items():
        assert bios.current[name] == values["uefi"]
    assert await running_update(bmc, layout.root) is None


@pytest.mark.parametrize("seed", range(8))
async def test_a_tree_with_holes_gives_gaps_and_no_defect(tree: tuple[str, Path], seed: int) -> None:
    """Keys left out or null anywhere, links dead, JSON cut: less is known, and nothing breaks but with a reason."""
    name, root = tree
    chance = random.Random(f"{name} {seed}")
    double = RecordedBmc(root)
    ordinary = double.request

    def request(method: str, url: Any, **options: Any) -> Any:
        response = ordinary(method, url, **options)
        if method != "GET" or response.status != 200:
            return response
        if chance.random() < 0.02:
            response.status, response._body = 404, b""
        elif chance.random() < 0.02:
            response._body = response._body[: len(response._body) // 2]
        else:
            response._body = json.dumps(_holed(json.loads(response._body), chance)).encode()
        return response

    double.request = request  # type: ignore[method-assign]
    bmc = Bmc(name, "bmc.test", double)
    refused: list[BmcError] = []
    facts: object = None
    with suppress(BmcError):  # without its session there is nothing to read
        await bmc.login("root", "secret-1")
    try:
        facts = await read_facts(bmc)
        layout = await read_layout(bmc)
        await read_time_servers(bmc, layout)
        await read_boot(bmc, layout)
        await read_bios(bmc, layout)
    except BmcError as error:
        refused.append(error)
    assert facts is not None or refused
    assert json.dumps(facts)
    assert all(error.message.startswith(f"{name}: ") and error.next_step for error in refused)


def _holed(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict):
        return {
            key: None if chance.random() < 0.02 else _holed(item, chance)
            for key, item in value.items()
            if chance.random() > 0.02
        }
    if isinstance(value, list):
        return [None if chance.random() < 0.02 else _holed(item, chance) for item in value]
    return value
