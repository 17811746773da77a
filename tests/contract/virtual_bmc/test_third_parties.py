"""Clients of others on an emulated BMC: sushy (what Ironic uses) and DMTF's libraries do their whole errand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redfish
import redfish_utilities
import sushy
from emulated_bmc import FACTORY, PASSWORD, USER, Running
from sushy.auth import SessionAuth
from sushy.resources.system.system import System

from metalyard.virtual.bmc import firmware_image

RESET = "/redfish/v1/Systems/DGX/Actions/ComputerSystem.Reset"


def eventually(question: Callable[[], bool], what: str, seconds: float = 10.0) -> None:
    """Wait for it, with a deadline."""
    end = time.monotonic() + seconds
    while not question():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.05)


@pytest.fixture
def system(bmc: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    # requests prefers this variable to the CA that it is given.
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bmc.ca))
    auth = SessionAuth(USER, PASSWORD)
    root = sushy.Sushy(bmc.url, auth=auth, verify=str(bmc.ca))
    yield root.get_system("/redfish/v1/Systems/DGX")
    # Left to the garbage collector, sushy logs out when the BMC is gone, and waits for it.
    auth.close()


def test_sushy_reads_the_system(bmc: Running, system: System) -> None:
    assert system.json["SerialNumber"] == bmc.hardware.serial
    assert system.manufacturer == "NVIDIA"
    assert system.memory_summary.size_gib == 2048
    assert len(system.processors.get_members()) == 2
    assert system.power_state == sushy.PowerState.OFF
    drives = [drive for storage in system.storage.get_members() for drive in storage.drives]
    assert {drive.serial_number for drive in drives} == {drive.serial for drive in bmc.hardware.drives}


def test_sushy_sets_a_boot_override_and_resets(bmc: Running, system: System) -> None:
    allowed = system.get_allowed_reset_system_values()
    assert {value.value for value in allowed} == {"ForceOff", "ForceRestart", "GracefulShutdown", "On"}
    system.set_system_boot_options(
        target=sushy.BOOT_SOURCE_TARGET_PXE, enabled=sushy.BOOT_SOURCE_ENABLED_ONCE, mode=sushy.BOOT_SOURCE_MODE_UEFI
    )
    system.refresh()
    assert system.boot.target == sushy.BOOT_SOURCE_TARGET_PXE
    assert system.boot.enabled == sushy.BOOT_SOURCE_ENABLED_ONCE
    system.reset_system(sushy.RESET_ON)
    eventually(lambda: bmc.machine.power_state == "On", "the machine is on")
    assert [boot.target for boot in bmc.machine.boots] == ["Pxe"]
    system.refresh(force=True)
    assert system.boot.enabled == sushy.BOOT_SOURCE_ENABLED_DISABLED
    system.reset_system(sushy.RESET_FORCE_OFF)
    eventually(lambda: bmc.machine.power_state == "Off", "the machine is off")


def test_sushy_sets_bios_attributes(bmc: Running, system: System) -> None:
    assert system.bios.attributes["SubNumaClustering"] == "Enabled"
    system.bios.set_attribute("SubNumaClustering", "Disabled")
    assert system.bios.pending_attributes["SubNumaClustering"] == "Disabled"
    system.reset_system(sushy.RESET_ON)
    eventually(lambda: bmc.machine.power_state == "On", "the machine is on")
    system.refresh(force=True)
    assert system.bios.attributes["SubNumaClustering"] == "Disabled"


@pytest.fixture
def client(bmc: Running) -> redfish.rest.v1.HttpClient:
    made = redfish.redfish_client(
        base_url=bmc.url, username=USER, password=PASSWORD, cafile=str(bmc.ca), timeout=10, max_retry=1
    )
    made.login(auth="session")
    return made


def test_dmtf_client_changes_the_factory_password(delivered: Running) -> None:
    made = redfish.redfish_client(
        base_url=delivered.url, username=USER, password=FACTORY, cafile=str(delivered.ca), timeout=10, max_retry=1
    )
    with pytest.raises(redfish.rest.v1.RedfishPasswordChangeRequiredError) as required:
        made.login(auth="session")
    account = required.value.args[1]
    assert account == "/redfish/v1/AccountService/Accounts/1"
    assert made.get("/redfish/v1/Systems").status == 403
    assert made.patch(account, body={"Password": PASSWORD}).status == 200
    assert made.get("/redfish/v1/Systems").status == 200
    made.logout()
    made = redfish.redfish_client(
        base_url=delivered.url, username=USER, password=PASSWORD, cafile=str(delivered.ca), timeout=10, max_retry=1
    )
    made.login(auth="session")
    assert made.get("/redfish/v1/Systems/DGX").dict["SerialNumber"] == delivered.hardware.serial
    made.logout()


def test_dmtf_utilities_drive_power_and_boot(bmc: Running, client: redfish.rest.v1.HttpClient) -> None:
    redfish_utilities.set_system_boot(client, "DGX", ov_target="UefiHttp", ov_enabled="Once", ov_mode="UEFI")
    assert redfish_utilities.get_system_boot(client, "DGX")["BootSourceOverrideTarget"] == "UefiHttp"
    answer = redfish_utilities.system_reset(client, "DGX", "On")
    assert redfish_utilities.poll_task_monitor(client, answer, silent=True).status == 200
    assert bmc.machine.power_state == "On"
    assert [boot.target for boot in bmc.machine.boots] == ["UefiHttp"]
    client.logout()


def test_dmtf_utilities_set_bios_and_read_it_back(bmc: Running, client: redfish.rest.v1.HttpClient) -> None:
    redfish_utilities.set_system_bios(client, {"SubNumaClustering": "Disabled"}, "DGX")
    current, future = redfish_utilities.get_system_bios(client, "DGX")
    assert (current["SubNumaClustering"], future["SubNumaClustering"]) == ("Enabled", "Disabled")
    client.post(RESET, body={"ResetType": "On"})
    eventually(lambda: bmc.machine.power_state == "On", "the machine is on")
    current, future = redfish_utilities.get_system_bios(client, "DGX")
    assert (current["SubNumaClustering"], future["SubNumaClustering"]) == ("Disabled", "Disabled")
    client.logout()


def test_dmtf_utilities_push_firmware(bmc: Running, client: redfish.rest.v1.HttpClient, tmp_path: Path) -> None:
    image = firmware_image(tmp_path / "bios.fwpkg", ["HostBIOS_0"], "1.7.0")
    member = "/redfish/v1/UpdateService/FirmwareInventory/HostBIOS_0"
    answer = redfish_utilities.multipart_push_update(client, str(image), targets=[member])
    assert answer.status == 202
    task = answer.dict["@odata.id"]
    eventually(lambda: client.get(task).dict["TaskState"] == "Completed", "the image is written")
    assert client.get(member).dict["Version"] == "1.6.7"
    client.post(RESET, body={"ResetType": "On"})
    eventually(lambda: client.get(member).dict["Version"] == "1.7.0", "the BIOS is live after the reset")
    client.logout()


def test_dmtf_utilities_manage_accounts_and_the_manager(bmc: Running, client: redfish.rest.v1.HttpClient) -> None:
    redfish_utilities.add_user(client, "auditor", "auditors-password", "ReadOnly")
    assert {user["UserName"] for user in redfish_utilities.get_users(client)} == {USER, "auditor"}
    redfish_utilities.delete_user(client, "auditor")
    redfish_utilities.set_manager_network_protocol(
        client, "BMC", {"NTP": {"NTPServers": ["192.0.2.123"], "ProtocolEnabled": True}}
    )
    ntp = client.get("/redfish/v1/Managers/BMC/NetworkProtocol").dict["NTP"]
    assert (ntp["NTPServers"], ntp["ProtocolEnabled"]) == (["192.0.2.123"], True)
    logs = redfish_utilities.get_log_entries(
        client, container_type=redfish_utilities.log_container.MANAGER, container_id="BMC", log_service_id="SEL"
    )
    assert isinstance(logs, list)
    client.logout()
