"""Power, boot override and BIOS settings: what a reset of the emulated machine does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bmc_bench import Bench, said

from metalyard.virtual.bmc.standalone import SwitchedMachine
from metalyard.virtual.machine import BootSource

RESET = "/Systems/DGX/Actions/ComputerSystem.Reset"
BIOS = "/Systems/DGX/Bios"


async def test_on_and_off(bench: Bench) -> None:
    assert (await bench.get("/Systems/DGX"))["PowerState"] == "Off"
    assert (await bench.reset("On"))["TaskState"] == "Completed"
    assert (await bench.get("/Systems/DGX"))["PowerState"] == "On"
    assert (await bench.reset("On"))["TaskState"] == "Completed"
    assert len(bench.machine.boots) == 1, "On is no second boot"
    assert (await bench.reset("GracefulShutdown"))["TaskState"] == "Completed"
    assert (await bench.get("/Systems/DGX"))["PowerState"] == "Off"
    await bench.reset("On")
    await bench.reset("ForceOff")
    assert bench.machine.shutdowns == [True, False]


async def test_a_restart_of_a_machine_that_is_off_is_accepted_and_fails(bench: Bench) -> None:
    task = await bench.reset("ForceRestart")
    assert task["TaskState"] == "Exception"
    assert "power state of chassis did not change" in task["Messages"][-1]["Message"]
    assert bench.machine.power_state == "Off"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "ActionParameterMissing"),
        ({"ResetType": "PowerCycle"}, "ActionParameterValueNotInList"),
        ({"ResetType": 1}, "ActionParameterValueTypeError"),
        ({"ResetType": "On", "Delay": 5}, "ActionParameterNotSupported"),
    ],
)
async def test_a_reset_that_makes_no_sense_is_refused(bench: Bench, body: dict[str, Any], message: str) -> None:
    answer = await bench.ask("POST", RESET, body)
    assert (answer.status, said(answer)) == (400, [message])


async def test_the_allowed_resets_are_told(bench: Bench) -> None:
    system = await bench.get("/Systems/DGX")
    info = system["Actions"]["#ComputerSystem.Reset"]["@Redfish.ActionInfo"].removeprefix("/redfish/v1")
    (parameter,) = (await bench.get(info))["Parameters"]
    assert parameter["AllowableValues"] == ["ForceOff", "ForceRestart", "GracefulShutdown", "On"]


async def test_resets_are_carried_out_in_the_order_they_came(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(machine=SwitchedMachine("gpu-1", seconds=0.02))
    accepted = [await bench.ask("POST", RESET, {"ResetType": kind}) for kind in ("On", "ForceOff", "On")]
    for one in accepted:
        assert (await bench.done(one))["TaskState"] == "Completed"
    assert bench.machine.power_state == "On"
    assert len(bench.machine.boots) == 2


async def test_a_busy_machine_may_refuse(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(machine=SwitchedMachine("gpu-1", seconds=0.1), quirks={"busy_conflict": True})
    first = await bench.ask("POST", RESET, {"ResetType": "On"})
    await bench.until(lambda: bench.get("/Systems/DGX"), lambda system: system["PowerState"] == "PoweringOn")
    second = await bench.ask("POST", RESET, {"ResetType": "ForceOff"})
    assert (second.status, said(second)) == (409, ["ResourceInUse"])
    await bench.done(first)


async def test_a_machine_that_breaks_fails_the_task(make_bench: Callable[..., Bench]) -> None:
    class Broken(SwitchedMachine):
        async def power_on(self, boot: BootSource) -> None:
            raise RuntimeError("no such container")

    bench = make_bench(machine=Broken("gpu-1"))
    task = await bench.reset("On")
    assert (task["TaskState"], task["TaskStatus"]) == ("Exception", "Critical")
    log = await bench.get("/Managers/BMC/LogServices/SEL/Entries")
    assert any("no such container" in entry["Message"] for entry in log["Members"])


@pytest.mark.parametrize("path", ["/Systems/DGX", "/Systems/DGX/SD"])
async def test_an_override_for_once_is_used_up(bench: Bench, path: str) -> None:
    boot = {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "UefiHttp"}
    assert (await bench.ask("PATCH", path, {"Boot": boot})).status == 200
    for shown in ("/Systems/DGX", "/Systems/DGX/SD"):
        assert (await bench.get(shown))["Boot"]["BootSourceOverrideTarget"] == "UefiHttp"
    await bench.reset("On")
    after = (await bench.get("/Systems/DGX"))["Boot"]
    assert (after["BootSourceOverrideEnabled"], after["BootSourceOverrideTarget"]) == ("Disabled", "None")
    await bench.reset("ForceRestart")
    assert [source.target for source in bench.machine.boots] == ["UefiHttp", "Pxe"]


async def test_a_continuous_override_stays(bench: Bench) -> None:
    boot = {"BootSourceOverrideTarget": "Hdd"}
    await bench.ask("PATCH", "/Systems/DGX", {"Boot": boot})
    await bench.ask("PATCH", "/Systems/DGX", {"Boot": {"BootSourceOverrideEnabled": "Continuous"}})
    await bench.reset("On")
    await bench.reset("ForceRestart")
    assert [source.target for source in bench.machine.boots] == ["Hdd", "Hdd"]
    await bench.ask("PATCH", "/Systems/DGX", {"Boot": {"BootSourceOverrideEnabled": "Disabled"}})
    await bench.reset("ForceRestart")
    assert bench.machine.boots[-1].target == "Pxe"


async def test_the_boot_order_counts_from_the_next_reset(bench: Bench) -> None:
    order = ["Boot0000", "Boot0003", "Boot0015"]
    assert (await bench.ask("PATCH", "/Systems/DGX/SD", {"Boot": {"BootOrder": order}})).status == 200
    assert (await bench.get("/Systems/DGX"))["Boot"]["BootOrder"][0] == "Boot0003"
    assert (await bench.get("/Systems/DGX/SD"))["Boot"]["BootOrder"] == order
    await bench.reset("On")
    assert (await bench.get("/Systems/DGX"))["Boot"]["BootOrder"] == order
    assert bench.machine.boots[-1].target == "Hdd"


async def test_a_model_may_want_the_override_at_the_settings_only(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(quirks={"boot_settings_only": True})
    boot = {"Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}}
    assert (await bench.ask("PATCH", "/Systems/DGX", boot)).status == 400
    assert (await bench.ask("PATCH", "/Systems/DGX/SD", boot)).status == 200


async def test_bios_values_wait_for_the_reset(bench: Bench) -> None:
    assert (await bench.ask("PATCH", BIOS + "/SD", {"Attributes": {"SubNumaClustering": "Disabled"}})).status == 200
    assert (await bench.get(BIOS))["Attributes"]["SubNumaClustering"] == "Enabled"
    assert (await bench.get(BIOS + "/SD"))["Attributes"]["SubNumaClustering"] == "Disabled"
    await bench.reset("On")
    assert (await bench.get(BIOS))["Attributes"]["SubNumaClustering"] == "Disabled"
    assert bench.bmc.state.kept.bios_pending == {}


async def test_a_host_that_restarts_by_itself_takes_them_too(bench: Bench) -> None:
    await bench.reset("On")
    await bench.ask("PATCH", BIOS + "/SD", {"Attributes": {"SubNumaClustering": "Disabled"}})
    boot = {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Hdd"}
    await bench.ask("PATCH", "/Systems/DGX", {"Boot": boot})
    assert bench.bmc.host_boots().target == "Hdd"
    assert (await bench.get(BIOS))["Attributes"]["SubNumaClustering"] == "Disabled"
    assert bench.bmc.host_boots().target == "Pxe"


async def test_a_value_in_force_is_not_pending(bench: Bench) -> None:
    await bench.ask("PATCH", BIOS + "/SD", {"Attributes": {"SubNumaClustering": "Disabled"}})
    await bench.ask("PATCH", BIOS + "/SD", {"Attributes": {"SubNumaClustering": "Enabled"}})
    assert bench.bmc.state.kept.bios_pending == {}


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"NoSuchThing": 1}, "PropertyUnknown"),
        ({"TpmDevice": "none"}, "PropertyNotWritable"),
        ({"SubNumaClustering": "Maybe"}, "PropertyValueNotInList"),
        ({"NumaNodesPerSocket": "1"}, "PropertyValueTypeError"),
        ({"NumaNodesPerSocket": 9}, "PropertyValueOutOfRange"),
    ],
)
async def test_a_wrong_bios_value_changes_nothing(bench: Bench, attributes: dict[str, Any], message: str) -> None:
    body = {"Attributes": {"SubNumaClustering": "Disabled", **attributes}}
    answer = await bench.ask("PATCH", BIOS + "/SD", body)
    assert (answer.status, said(answer)) == (400, [message])
    assert bench.bmc.state.kept.bios_pending == {}


async def test_bios_defaults(bench: Bench) -> None:
    assert (await bench.ask("POST", BIOS + "/Actions/Bios.ResetBios", {})).status == 204
    assert (await bench.get(BIOS))["Attributes"]["SubNumaClustering"] == "Enabled"
    await bench.reset("On")
    assert (await bench.get(BIOS))["Attributes"]["SubNumaClustering"] == "Disabled"


async def test_the_attribute_registry_knows_every_attribute(bench: Bench) -> None:
    bios = await bench.get(BIOS)
    location = (await bench.get(f"/Registries/{bios['AttributeRegistry']}"))["Location"][0]["Uri"]
    entries = (await bench.get(location.removeprefix("/redfish/v1")))["RegistryEntries"]["Attributes"]
    assert {entry["AttributeName"] for entry in entries} == set(bios["Attributes"])
    assert all(entry["ResetRequired"] for entry in entries)
    (clustering,) = [entry for entry in entries if entry["AttributeName"] == "SubNumaClustering"]
    assert [value["ValueName"] for value in clustering["Value"]] == ["Disabled", "Enabled"]


async def test_what_is_pending_survives_a_kill(make_bench: Callable[..., Bench], tmp_path: Path) -> None:
    state = tmp_path / "bmc.json"
    first = make_bench(state_path=state)
    await first.ask("PATCH", BIOS + "/SD", {"Attributes": {"SubNumaClustering": "Disabled"}})
    boot = {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}
    await first.ask("PATCH", "/Systems/DGX", {"Boot": boot})
    second = make_bench(state_path=state)
    assert (await second.get(BIOS + "/SD"))["Attributes"]["SubNumaClustering"] == "Disabled"
    assert (await second.get("/Systems/DGX"))["Boot"]["BootSourceOverrideTarget"] == "Pxe"
