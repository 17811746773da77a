"""The host behind a BMC: which system it is, its power, its boot mode, its time servers, and tasks."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from bmc_double import ROOT, SYSTEM, BmcDouble, Reply, collection, refusal

from metalyard.redfish import boot, power, tasks
from metalyard.redfish.client import Answer, Bmc
from metalyard.redfish.errors import BmcError, CredentialsError, DeadlineError, TaskFailedError
from metalyard.redfish.facts import read_facts
from metalyard.redfish.layout import read_layout
from metalyard.redfish.ntp import read_time_servers, set_time_servers

RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
TASK = "/redfish/v1/TaskService/Tasks/7"
NTP = "/redfish/v1/Managers/1/NetworkProtocol"
LOST = aiohttp.ServerDisconnectedError()


@pytest.fixture
def double() -> BmcDouble:
    return BmcDouble()


@pytest.fixture
async def bmc(double: BmcDouble) -> Bmc:
    client = double.client()
    await client.login("admin", "factory-Pass-1")
    return client


def kinds(double: BmcDouble) -> list[str]:
    return [request.body["ResetType"] for request in double.sent("POST", "Reset")]


def task(state: str, **more: Any) -> Reply:
    return Reply(200, {"@odata.id": TASK, "Id": "7", "Name": "Work", "TaskState": state, **more})


# Layout


async def test_the_host_is_the_system_that_can_be_reset(double: BmcDouble, bmc: Bmc) -> None:
    board = "/redfish/v1/Systems/HGX_Baseboard_0"
    double.resources["/redfish/v1/Systems"] = collection(board, SYSTEM)
    double.resources[board] = {"Id": "HGX_Baseboard_0"}
    layout = await read_layout(bmc)
    assert layout.host[0] == SYSTEM
    assert [path for path, _ in layout.others] == [board]
    assert layout.manager is not None
    assert layout.manager[0] == "/redfish/v1/Managers/1"


@pytest.mark.parametrize("missing", [True, False])
async def test_a_bmc_without_a_system_says_what_to_do(double: BmcDouble, bmc: Bmc, missing: bool) -> None:
    if missing:
        del double.resources[ROOT]["Systems"]
    else:
        double.resources["/redfish/v1/Systems"] = collection()
    with pytest.raises(BmcError, match=f"no host system .Systems is {'missing' if missing else 'empty'}") as caught:
        await read_layout(bmc)
    assert "Reset the BMC" in caught.value.next_step


async def test_gpus_that_are_pcie_devices_only(double: BmcDouble, bmc: Bmc) -> None:
    devices = "/redfish/v1/Chassis/1/PCIeDevices"
    double.resources["/redfish/v1/Chassis/1"]["PCIeDevices"] = {"@odata.id": devices}
    double.resources[devices] = collection(*[f"{devices}/GPU{n}" for n in range(1, 9)], f"{devices}/NIC1")
    for n in range(1, 9):
        double.resources[f"{devices}/GPU{n}"] = {"Id": f"GPU{n}", "Model": "H100", "SerialNumber": f"S{n}"}
    double.resources[f"{devices}/GPU3"]["Status"] = {"State": "Absent"}
    facts = await read_facts(bmc)
    assert [gpu["id"] for gpu in facts["gpus"]] == [f"GPU{n}" for n in (1, 2, 4, 5, 6, 7, 8)]
    assert double.sent("GET", "NIC1") == []


async def test_facts_name_what_could_not_be_read(double: BmcDouble, bmc: Bmc) -> None:
    double.resources[SYSTEM]["Memory"] = {"@odata.id": f"{SYSTEM}/Memory"}
    double.resources[f"{SYSTEM}/Memory"] = collection(f"{SYSTEM}/Memory/1", f"{SYSTEM}/Memory/2")
    double.resources[f"{SYSTEM}/Memory/1"] = {"Id": "1", "CapacityMiB": 65536, "SerialNumber": "A"}
    double.always("GET", f"{SYSTEM}/Memory/2", Reply(500))
    facts = await read_facts(bmc)
    assert [dimm["size_mib"] for dimm in facts["dimms"]] == [65536]
    assert f"{SYSTEM}/Memory/2: HTTP 500" in facts["gaps"]
    assert facts["serials"] == {"system": "SN-1", "chassis": "CH-1", "chassis 1": "CH-1"}
    assert {"kind": "dimm", "part": "1", "serial": "A", "model": None, "firmware": None} in facts["parts"]


# Power


async def test_allowed_values_inline_from_action_info_or_unknown(double: BmcDouble, bmc: Bmc) -> None:
    document = double.resources[SYSTEM]
    assert await power.allowed(bmc, document, "#ComputerSystem.Reset") == ("On", "ForceOff", "ForceRestart")
    action = document["Actions"]["#ComputerSystem.Reset"]
    del action["ResetType@Redfish.AllowableValues"]
    assert await power.allowed(bmc, document, "#ComputerSystem.Reset") is None
    action["@Redfish.ActionInfo"] = f"{SYSTEM}/ResetActionInfo"
    parameters = [{"Name": "Other"}, {"Name": "ResetType", "AllowableValues": ["On"]}]
    double.resources[f"{SYSTEM}/ResetActionInfo"] = {"Parameters": parameters}
    assert await power.allowed(bmc, document, "#ComputerSystem.Reset") == ("On",)


async def test_what_is_so_already_is_not_done(double: BmcDouble, bmc: Bmc) -> None:
    layout = await read_layout(bmc)
    assert not await power.switch_on(bmc, layout)
    assert await power.switch_off(bmc, layout)
    assert not await power.switch_off(bmc, layout)
    assert await power.switch_on(bmc, layout)
    assert kinds(double) == ["ForceOff", "On"]


async def test_a_restart_that_fails_after_it_was_accepted_is_done_as_off_and_on(double: BmcDouble, bmc: Bmc) -> None:
    double.on("POST", RESET, Reply(202, {"@odata.type": "#Task.v1_4_2.Task", "@odata.id": TASK}))
    said = [{"MessageId": "Base.1.12.ActionNotSupported", "Message": "power state of chassis did not change"}]
    double.on("GET", TASK, task("Running"), task("Exception", TaskStatus="OK", Messages=said))
    await power.restart(bmc, await read_layout(bmc))
    assert kinds(double) == ["ForceRestart", "ForceOff", "On"]


async def test_a_host_that_allows_no_restart_is_switched_off_and_on(double: BmcDouble, bmc: Bmc) -> None:
    action = double.resources[SYSTEM]["Actions"]["#ComputerSystem.Reset"]
    action["ResetType@Redfish.AllowableValues"] = ["On", "ForceOff"]
    await power.restart(bmc, await read_layout(bmc))
    assert kinds(double) == ["ForceOff", "On"]


async def test_a_host_that_hangs_on_restart_is_switched_off_and_on(double: BmcDouble, bmc: Bmc) -> None:
    double.resources[ROOT]["Vendor"] = "Lenovo"
    double.resources[SYSTEM]["Model"] = "ThinkSystem SR675 V3"
    await power.restart(bmc, await read_layout(bmc))
    assert kinds(double) == ["ForceOff", "On"]


async def test_a_host_that_is_off_is_only_switched_on(double: BmcDouble, bmc: Bmc) -> None:
    double.resources[SYSTEM]["PowerState"] = "Off"
    await power.restart(bmc, await read_layout(bmc))
    assert kinds(double) == ["On"]


async def test_on_just_after_off_is_asked_again_on_409(double: BmcDouble, bmc: Bmc) -> None:
    double.resources[SYSTEM]["PowerState"] = "Off"
    double.on("POST", RESET, refusal(409, "Base.1.8.ResourceInUse"), refusal(409, "Base.1.8.ResourceInUse"))
    assert await power.switch_on(bmc, await read_layout(bmc))
    double.resources[SYSTEM]["PowerState"] = "Off"
    double.always("POST", RESET, refusal(409, "Base.1.8.ResourceInUse"))
    with pytest.raises(DeadlineError, match="in conflict with its state"):
        await power.switch_on(bmc, await read_layout(bmc))


async def test_a_power_state_that_never_comes_has_a_deadline(double: BmcDouble, bmc: Bmc) -> None:
    double.always("POST", RESET, Reply(204))
    with pytest.raises(DeadlineError, match="Systems 1 is On 300 s after it was told to be Off"):
        await power.switch_off(bmc, await read_layout(bmc))
    assert bmc.pace.time == pytest.approx(300)


async def test_a_bmc_that_resets_is_waited_for(double: BmcDouble, bmc: Bmc) -> None:
    layout = await read_layout(bmc)
    double.on("POST", ".*Manager.Reset", LOST)
    double.on("GET", ROOT, *[LOST] * 12, refusal(503, "SYS518", Retry_After="5"))
    double.on("GET", "/redfish/v1/Systems", Reply(200, {"Members": []}))
    await power.reset_bmc(bmc, layout)
    assert kinds(double) == ["ForceRestart"]


async def test_a_bmc_that_stays_away_has_a_deadline(double: BmcDouble, bmc: Bmc) -> None:
    layout = await read_layout(bmc)
    double.on("POST", ".*Manager.Reset", Reply(204))
    double.always("GET", ROOT, LOST)
    with pytest.raises(DeadlineError, match="did not come back within 900 s"):
        await power.reset_bmc(bmc, layout)


async def test_a_bmc_that_comes_back_with_another_password_is_not_tried_on(double: BmcDouble, bmc: Bmc) -> None:
    layout = await read_layout(bmc)

    def reset(request: Any) -> Reply:
        double.sessions.clear()
        double.accounts["1"]["password"] = "factory-again-1"
        return Reply(204)

    double.on("POST", ".*Manager.Reset", reset)
    with pytest.raises(CredentialsError):
        await power.reset_bmc(bmc, layout)
    assert double.accounts["1"]["failed"] == 1


async def test_a_machine_that_nobody_can_cut_from_power_asks_a_person(bmc: Bmc) -> None:
    with pytest.raises(BmcError, match="needs the machine's power cut") as caught:
        await power.ac_cycle(bmc, await read_layout(bmc))
    assert "PDU" in caught.value.next_step


# Tasks


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer(202, {"@odata.type": "#Task.v1_4_3.Task", "@odata.id": TASK}), TASK),
        (Answer(202, {}, "/redfish/v1/TaskService/TaskMonitors/7"), TASK),
        (Answer(202, {}, "/redfish/v1/TaskService/Tasks/7/Monitor"), TASK),
        (Answer(202, {}, f"https://bmc.test{TASK}"), TASK),
        (Answer(200, {}, "/redfish/v1/Systems/1"), None),
        (Answer(204, {}), None),
    ],
)
def test_the_task_and_not_its_monitor_is_polled(answer: Answer, expected: str | None) -> None:
    assert tasks.task_of(answer) == expected


async def test_a_task_is_followed_through_every_state_to_its_end(double: BmcDouble, bmc: Bmc) -> None:
    double.on("GET", TASK, task("New"), task("Starting"), task("Running", PercentComplete=40), task("Odd"))
    double.on("GET", TASK, refusal(503, "SYS518", Retry_After="1"), LOST, LOST, LOST, LOST, task("Completed"))
    told: list[str] = []
    outcome = await tasks.follow(bmc, TASK, deadline=600, report=told.append)
    assert outcome.state == "Completed"
    assert "Work: Running, 40 %" in told
    assert any("answer again" in text for text in told)


@pytest.mark.parametrize("state", ["Exception", "Killed", "Cancelled", "CompletedWithErrors"])
async def test_a_task_that_fails_says_why(double: BmcDouble, bmc: Bmc, state: str) -> None:
    said = [{"MessageId": "Update.1.0.TransferFailed", "Message": "Transfer of image failed"}]
    double.on("GET", TASK, task(state, Messages=said, TaskStatus="OK"))
    with pytest.raises(TaskFailedError, match=f"Work. ended as {state}: Transfer of image failed"):
        await tasks.follow(bmc, TASK, deadline=60)


async def test_a_completed_task_with_a_critical_status_failed(double: BmcDouble, bmc: Bmc) -> None:
    double.on("GET", TASK, task("Completed", TaskStatus="Critical"))
    with pytest.raises(TaskFailedError):
        await tasks.follow(bmc, TASK, deadline=60)


async def test_a_task_that_is_not_there_yet_is_waited_for_and_one_that_went_is_told(
    double: BmcDouble, bmc: Bmc
) -> None:
    double.on("GET", TASK, Reply(404), Reply(404), task("Running"), Reply(404))
    outcome = await tasks.follow(bmc, TASK, deadline=600)
    assert outcome.gone
    assert (await tasks.follow(bmc, TASK, deadline=600)).gone  # never seen at all
    assert bmc.pace.time < 120


async def test_a_task_that_never_ends_has_a_deadline(double: BmcDouble, bmc: Bmc) -> None:
    double.always("GET", TASK, task("Running"))
    with pytest.raises(DeadlineError, match=r"did not end within 90 s \(last: Running\)"):
        await tasks.follow(bmc, TASK, deadline=90)


# Time servers


@pytest.mark.parametrize("servers", [[], ["old.test"], [" 10.0.0.1", "", None], None])
async def test_time_servers_are_set_and_switched_on(double: BmcDouble, bmc: Bmc, servers: Any) -> None:
    double.resources[NTP] = {"NTP": {"NTPServers": servers, "ProtocolEnabled": False}}
    layout = await read_layout(bmc)
    now = await read_time_servers(bmc, layout)
    assert not now.right(["10.0.0.1"])
    after = await set_time_servers(bmc, layout, now, ["10.0.0.1"])
    assert after.right(["10.0.0.1"])
    assert double.resources[NTP]["NTP"] == {"NTPServers": ["10.0.0.1"], "ProtocolEnabled": True}


async def test_time_servers_that_the_bmc_did_not_keep_are_an_error(double: BmcDouble, bmc: Bmc) -> None:
    double.resources[NTP] = {"NTP": {"NTPServers": [], "ProtocolEnabled": True}}
    double.on("PATCH", NTP, Reply(200))
    layout = await read_layout(bmc)
    with pytest.raises(BmcError, match=r"accepted the time servers 10\.0\.0\.1 and has"):
        await set_time_servers(bmc, layout, await read_time_servers(bmc, layout), ["10.0.0.1"])


async def test_ilo_keeps_them_elsewhere(double: BmcDouble, bmc: Bmc) -> None:
    double.resources[ROOT]["Vendor"] = "HPE"
    double.resources[NTP] = {"Id": "NetworkProtocol"}
    clock = "/redfish/v1/Managers/1/DateTime"
    double.resources["/redfish/v1/Managers/1"]["Oem"] = {"Hpe": {"Links": {"DateTimeService": {"@odata.id": clock}}}}
    double.resources[clock] = {"StaticNTPServers": ["0.0.0.0", ""]}  # noqa: S104
    layout = await read_layout(bmc)
    now = await read_time_servers(bmc, layout)
    assert now.servers == ()
    await set_time_servers(bmc, layout, now, ["10.0.0.1"])
    assert double.resources[clock] == {"StaticNTPServers": ["10.0.0.1"]}


async def test_a_bmc_without_a_place_for_time_servers(double: BmcDouble, bmc: Bmc) -> None:
    with pytest.raises(BmcError, match="no place for time servers"):
        await read_time_servers(bmc, await read_layout(bmc))


# Boot


@pytest.mark.parametrize(
    ("shown", "wanted", "right"),
    [
        ({"BootSourceOverrideMode": "UEFI"}, "uefi", True),
        ({"BootSourceOverrideMode": "Legacy"}, "uefi", False),
        ({"BootSourceOverrideMode": "UEFI"}, "legacy", False),
        ({"BootSourceOverrideMode": None, "BootSourceOverrideMode@Redfish.AllowableValues": ["UEFI"]}, "uefi", True),
        (
            {"BootSourceOverrideMode": None, "BootSourceOverrideMode@Redfish.AllowableValues": ["UEFI", "Legacy"]},
            "uefi",
            False,
        ),
        ({}, "uefi", True),
        ({}, "legacy", False),
    ],
)
async def test_the_boot_mode(double: BmcDouble, bmc: Bmc, shown: dict, wanted: Any, right: bool) -> None:
    double.resources[SYSTEM]["Boot"] = shown
    layout = await read_layout(bmc)
    now = await boot.read_boot(bmc, layout)
    assert boot.mode_is_right(now, wanted) is right
    if not right and shown:
        assert (await boot.set_mode(bmc, layout, now, wanted)).mode == boot.MODES[wanted]
    elif not right:
        with pytest.raises(BmcError, match="can't boot in mode Legacy"):
            await boot.set_mode(bmc, layout, now, wanted)


async def test_the_override_takes_the_first_target_there_is_with_its_mode(double: BmcDouble, bmc: Bmc) -> None:
    double.resources[SYSTEM]["Boot"] = {
        "BootSourceOverrideMode": "Legacy",
        "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Hdd", "Pxe"],
    }
    layout = await read_layout(bmc)
    assert await boot.override_once(bmc, layout, ["UefiHttp", "Pxe"]) == "Pxe"
    assert double.sent("PATCH")[-1].body == {
        "Boot": {
            "BootSourceOverrideTarget": "Pxe",
            "BootSourceOverrideEnabled": "Once",
            "BootSourceOverrideMode": "UEFI",
        }
    }
    with pytest.raises(BmcError, match="offers none of the boot targets UefiHttp"):
        await boot.override_once(bmc, layout, ["UefiHttp"])


async def test_ami_takes_the_override_at_the_settings_object(double: BmcDouble, bmc: Bmc) -> None:
    double.resources[ROOT]["Vendor"] = "AMI"
    double.resources[SYSTEM]["@Redfish.Settings"] = {"SettingsObject": {"@odata.id": f"{SYSTEM}/SD"}}
    double.resources[f"{SYSTEM}/SD"] = {"Boot": {"BootSourceOverrideTarget@Redfish.AllowableValues": ["Pxe"]}}
    await boot.override_once(bmc, await read_layout(bmc), ["Pxe"])
    assert [request.path for request in double.sent("PATCH")] == [f"{SYSTEM}/SD"]
