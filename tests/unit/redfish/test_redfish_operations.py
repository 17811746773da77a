"""The three sweeps over doubles: check mode, a second run, and each node's trouble as its own."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from bmc_double import ROOT, SESSIONS, SYSTEM, BmcDouble, JumpingPace, Reply, collection

from metalyard.plan.lifecycle import State
from metalyard.plan.model import SitePlan
from metalyard.redfish.operations import configure, discover, firmware
from metalyard.secrets import FileSecretStore
from metalyard.sweep import Context, HostResult

BIOS, WAITING = f"{SYSTEM}/Bios", f"{SYSTEM}/Bios/Settings"
NTP = "/redfish/v1/Managers/1/NetworkProtocol"
INVENTORY = "/redfish/v1/UpdateService/FirmwareInventory"
UPLOAD = "/redfish/v1/UpdateService/upload"
PROFILE = """\
name: p
vendor: Example
model: x
gpu: {count: 0}
hca: {count: 0}
cpu: {sockets: 0}
memory: {dimm_count: 0}
drives: {nvme_count: 0}
bios: {SubNumaClustering: Disabled}
"""
BASELINE = """\
name: b
profiles: [p]
firmware:
  - {component: BIOS, match: "^BIOS_0$", version: 1.6.7, image: bios.fwpkg, activation: system_reset, minutes: 1}
"""


class Doubles:
    """A site of doubles: the connections, the plan, the store, and one call per sweep."""

    def __init__(self, folder: Path, count: int = 2) -> None:
        (folder / "factory").touch(mode=0o600)
        (folder / "factory").write_text("factory-Pass-1")
        (folder / "bios.fwpkg").write_bytes(b"firmware")
        for name, text in (("p", PROFILE), ("b", BASELINE)):
            (folder / "catalogue").mkdir(exist_ok=True)
            (folder / "catalogue" / f"{name}.yml").write_text(text)
        self.names = [f"gpu-{n}" for n in range(1, count + 1)]
        self.bmcs = {name: machine(f"SN-{name}") for name in self.names}
        self.store = FileSecretStore(folder / "secrets")
        self.folder = folder
        self.pace = JumpingPace()
        self.progress: list[str] = []
        self.plan = SitePlan.model_validate(
            {
                "schema": 1,
                "site": "t",
                "baseline": "b",
                "profiles": "catalogue",
                "baselines": "catalogue",
                "bmc": {
                    "user": "admin",
                    "factory_user": "admin",
                    "factory_password": {"file": "factory"},
                    "ntp_servers": ["10.0.0.1"],
                    "deadline": 20,
                },
                "maas": {"url": "http://127.0.0.1/MAAS", "key": {"env": "UNUSED"}},
                "racks": [{"name": "r1"}],
                "nodes": [
                    {
                        "name": name,
                        "rack": "r1",
                        "unit": n,
                        "serial": f"SN-{name}",
                        "profile": "p",
                        "bmc": {"address": f"{name}.test"},
                        "boot_mac": f"0c:42:a1:00:00:0{n}",
                        "address": f"10.0.0.{n}/24",
                    }
                    for n, name in enumerate(self.names, 1)
                ],
                "root": folder,
            }
        )

    def transport(self, node: Any) -> BmcDouble:
        return self.bmcs[node.name]

    async def sweep(self, operation: Any, *, check: bool = False, **options: Any) -> dict[str, HostResult]:
        results: list[HostResult] = []
        options.setdefault("states", dict.fromkeys(self.names, "discovered"))
        options.setdefault("firmware_dir", str(self.folder))
        context = Context(
            plan=self.plan,
            nodes=self.plan.nodes,
            secrets=self.store,
            report=results.append,
            check=check,
            options=options,
            progress=lambda host, text: self.progress.append(f"{host}: {text}"),
        )
        await operation(context, connections=self, pace=self.pace)
        assert sorted(result.host for result in results) == self.names  # each exactly once
        for result in results:
            self.keeps_secrets(result)
        assert all(not bmc.sessions for bmc in self.bmcs.values())
        return {result.host: result for result in results}

    def keeps_secrets(self, result: HostResult) -> None:
        shown = json.dumps([result.message, result.next_step, result.diff, result.data]) + " ".join(self.progress)
        for bmc in self.bmcs.values():
            for account in bmc.accounts.values():
                assert account["password"] not in shown


def machine(serial: str) -> BmcDouble:
    """A double as delivered: old BIOS, one attribute off the profile, no time servers."""
    double = BmcDouble()
    double.resources[SYSTEM] |= {"SerialNumber": serial, "Bios": {"@odata.id": BIOS}}
    double.resources["/redfish/v1/Chassis/1"]["SerialNumber"] = None
    double.resources[BIOS] = {
        "Attributes": {"SubNumaClustering": "Enabled"},
        "@Redfish.Settings": {"SettingsObject": {"@odata.id": WAITING}},
    }
    double.resources[WAITING] = {}
    double.resources[NTP] = {"NTP": {"NTPServers": [], "ProtocolEnabled": True}}
    double.resources["/redfish/v1/UpdateService"]["MultipartHttpPushUri"] = UPLOAD
    double.resources[INVENTORY] = collection(f"{INVENTORY}/BIOS_0")
    double.resources[f"{INVENTORY}/BIOS_0"] = {"Id": "BIOS_0", "Version": "1.5.1"}

    def reset(request: Any) -> Reply:
        off = "Off" in request.body["ResetType"]
        double.resources[SYSTEM]["PowerState"] = "Off" if off else "On"
        if not off:
            double.resources[BIOS]["Attributes"] |= double.resources[WAITING].pop("Attributes", {})
            version = double.resources.pop("staged", None)
            if version:
                double.resources[f"{INVENTORY}/BIOS_0"]["Version"] = version["Version"]
        return Reply(204)

    def upload(request: Any) -> Reply:
        double.resources["staged"] = {"Version": "1.6.7"}
        return Reply(200)

    double.always("POST", ".*ComputerSystem.Reset", reset)
    double.always("POST", UPLOAD, upload)
    return double


@pytest.fixture
def site(tmp_path: Path) -> Doubles:
    return Doubles(tmp_path)


def writes(double: BmcDouble) -> list[str]:
    return [
        f"{request.method} {request.path}"
        for request in double.requests
        if request.method not in ("GET", "HEAD") and not request.path.startswith(SESSIONS)
    ]


# discover


async def test_discover_gives_facts_and_changes_nothing(site: Doubles) -> None:
    found = await site.sweep(discover)
    assert found["gpu-1"].data["facts"]["serial"] == "SN-gpu-1"
    assert not found["gpu-1"].changed
    assert not any(result.failed for result in found.values())
    assert writes(site.bmcs["gpu-1"]) == []
    assert site.store.read("bmc/gpu-1") is None


async def test_another_machine_than_planned_is_set_aside(site: Doubles) -> None:
    site.bmcs["gpu-2"].resources[SYSTEM]["SerialNumber"] = "SN-other"
    found = await site.sweep(discover)
    wrong = found["gpu-2"]
    assert wrong.failed
    assert wrong.aside
    assert "SN-other" in wrong.message
    assert "SN-gpu-2" in wrong.message
    assert "rack r1, unit 2" in wrong.next_step
    assert wrong.data["check"] == "identity"
    assert wrong.data["facts"]["serial"] == "SN-other"
    assert not found["gpu-1"].failed


@pytest.mark.parametrize(("vendor", "aside"), [("Dell", False), ("Example", True)])
async def test_a_service_tag_counts_where_the_vendor_has_one(site: Doubles, vendor: str, aside: bool) -> None:
    site.bmcs["gpu-1"].resources[ROOT]["Vendor"] = vendor
    site.bmcs["gpu-1"].resources[SYSTEM] |= {"SerialNumber": "CNBOARD1", "SKU": "sn-GPU-1"}
    found = await site.sweep(discover)
    assert found["gpu-1"].aside is aside
    if not aside:
        assert found["gpu-1"].data["facts"]["serial"] == "SN-gpu-1"


async def test_a_machine_without_a_serial_is_not_taken_for_the_planned_one(site: Doubles) -> None:
    site.bmcs["gpu-1"].resources[SYSTEM]["SerialNumber"] = "0000000000"
    found = await site.sweep(discover)
    assert found["gpu-1"].aside
    assert "its serial is not given, expected SN-gpu-1" in found["gpu-1"].message


async def test_a_bmc_that_demands_a_change_first_is_changed_but_not_in_check_mode(site: Doubles) -> None:
    for bmc in site.bmcs.values():
        bmc.accounts["1"]["change"] = True
    found = await site.sweep(discover, check=True)
    assert found["gpu-1"].changed
    assert "facts" not in found["gpu-1"].data
    assert writes(site.bmcs["gpu-1"]) == []
    assert site.store.read("bmc/gpu-1") is None
    found = await site.sweep(discover)
    assert found["gpu-1"].changed
    assert found["gpu-1"].data["facts"]["serial"] == "SN-gpu-1"
    assert site.store.read("bmc/gpu-1")["password"] == site.bmcs["gpu-1"].password()
    found = await site.sweep(discover)
    assert not found["gpu-1"].changed


async def test_trouble_of_one_node_is_not_the_others(tmp_path: Path) -> None:
    site = Doubles(tmp_path, 6)
    site.bmcs["gpu-1"].always("GET", ROOT, aiohttp.ServerDisconnectedError())
    site.bmcs["gpu-2"].accounts["1"]["password"] = "somebody-Else-5"
    site.bmcs["gpu-3"].always("GET", SYSTEM, Reply(200, b'{"Id": "1", "Ser'))
    site.bmcs["gpu-4"].always("GET", SYSTEM, Reply(500))
    site.bmcs["gpu-5"].session_limit = 0
    found = await site.sweep(discover)
    assert found["gpu-1"].unreachable
    assert not found["gpu-1"].failed
    assert "takes none of the known passwords" in found["gpu-2"].message
    assert len(site.bmcs["gpu-2"].sent("POST", SESSIONS)) == 1
    assert f"host system can't be read ({SYSTEM}: no whole JSON object)" in found["gpu-3"].message
    assert found["gpu-4"].failed
    assert "no room for another session" in found["gpu-5"].message
    assert not found["gpu-6"].failed
    for name in site.names[:5]:
        assert found[name].next_step
        assert found[name].message.startswith(f"{name}: ")
        assert "unexpected" not in found[name].message


async def test_a_bmc_that_hangs_ends_at_the_stages_deadline(site: Doubles) -> None:
    site.plan = site.plan.model_copy(update={"bmc": site.plan.bmc.model_copy(update={"deadline": 0.3})})

    class Hanging:
        async def __aenter__(self) -> None:
            await asyncio.sleep(60)

        async def __aexit__(self, *_: object) -> None:
            return None

    double = site.bmcs["gpu-1"]
    ordinary = double.request

    def request(method: str, url: Any, **options: Any) -> Any:
        return Hanging() if url.path == SYSTEM else ordinary(method, url, **options)

    double.request = request  # type: ignore[method-assign]
    began = time.monotonic()
    found = await site.sweep(discover)  # asserts, too, that the session was closed
    assert time.monotonic() - began < 5
    assert "not done within the deadline" in found["gpu-1"].message
    assert not found["gpu-2"].failed


async def test_a_demanded_change_holds_firmware_back_and_check_mode_says_so(site: Doubles) -> None:
    site.bmcs["gpu-1"].accounts["1"]["change"] = True
    found = (await site.sweep(firmware, check=True))["gpu-1"]
    assert found.changed
    assert not found.failed
    assert "can't be said yet" in found.message
    found = (await site.sweep(firmware))["gpu-1"]
    assert found.failed
    assert "wants its password changed" in found.message


@pytest.mark.parametrize("operation", [discover, configure, firmware])
async def test_killed_at_any_step_the_next_run_ends_in_the_same_place(tmp_path: Path, operation: Any) -> None:
    class Killed(BaseException):
        pass

    def fuse(site: Doubles, at: int) -> list[str]:
        seen: list[str] = []

        def event(name: str) -> None:
            seen.append(name)
            if len(seen) == at:
                raise Killed

        site.bmcs["gpu-1"].event = event
        return seen

    def fresh(number: int) -> Doubles:
        folder = tmp_path / str(number)
        folder.mkdir()
        return Doubles(folder, 1)

    whole = fresh(0)
    events = fuse(whole, 0)
    await whole.sweep(operation)
    steps = len(events)
    assert steps > 20
    for step in range(1, steps + 1, 3):
        site = fresh(step)
        fuse(site, step)
        with pytest.raises(Killed):
            await site.sweep(operation)
        fuse(site, 0)
        site.bmcs["gpu-1"].sessions.clear()
        result = (await site.sweep(operation))["gpu-1"]
        assert not result.failed, f"killed at step {step}: {result.message}"
        assert not (await site.sweep(operation))["gpu-1"].changed, f"killed at step {step}"
        for path, document in whole.bmcs["gpu-1"].resources.items():
            assert site.bmcs["gpu-1"].resources[path] == document, f"killed at step {step}"


# configure


async def test_configure_brings_a_bmc_to_the_plan_and_a_second_run_changes_nothing(site: Doubles) -> None:
    found = await site.sweep(configure)
    assert found["gpu-1"].changed
    assert not found["gpu-1"].failed, found["gpu-1"].message
    double = site.bmcs["gpu-1"]
    assert double.password() == site.store.read("bmc/gpu-1")["password"] != "factory-Pass-1"
    assert double.resources[NTP]["NTP"]["NTPServers"] == ["10.0.0.1"]
    assert double.resources[BIOS]["Attributes"] == {"SubNumaClustering": "Disabled"}
    assert site.bmcs["gpu-1"].password() != site.bmcs["gpu-2"].password()
    kinds = {entry["before_header"] for entry in found["gpu-1"].diff}
    assert kinds == {"gpu-1: BMC account", "gpu-1: time servers", "gpu-1: BIOS attributes"}
    before = len(writes(double))
    again = await site.sweep(configure)
    assert not again["gpu-1"].changed
    assert again["gpu-1"].diff == []
    assert again["gpu-1"].message == "gpu-1: as planned"
    assert len(writes(double)) == before


async def test_check_mode_says_the_same_and_writes_nothing(site: Doubles) -> None:
    said = await site.sweep(configure, check=True)
    assert writes(site.bmcs["gpu-1"]) == []
    assert site.store.read("bmc/gpu-1") is None
    done = await site.sweep(configure)
    assert said["gpu-1"].changed
    assert [entry["before"] for entry in said["gpu-1"].diff] == [entry["before"] for entry in done["gpu-1"].diff]
    assert [entry["after"] for entry in said["gpu-1"].diff] == [entry["after"] for entry in done["gpu-1"].diff]
    assert not (await site.sweep(configure, check=True))["gpu-1"].changed


@pytest.mark.parametrize("options", [{"reset": "later"}, {"states": {}}, {"states": {"gpu-1": "in_service"}}])
async def test_a_pending_value_is_not_a_change_again(site: Doubles, options: dict[str, Any]) -> None:
    found = (await site.sweep(configure, **options))["gpu-1"]
    assert found.changed
    assert found.data["pending"] == {"SubNumaClustering": "Disabled"}
    assert "waiting for the next reset: SubNumaClustering" in found.message
    again = (await site.sweep(configure, **options))["gpu-1"]
    assert not again.changed
    assert again.data["pending"] == {"SubNumaClustering": "Disabled"}
    assert not any("ComputerSystem.Reset" in write for write in writes(site.bmcs["gpu-1"]))
    applied = (await site.sweep(configure, reset="now"))["gpu-1"]
    assert applied.changed
    assert applied.data["pending"] == {}
    assert site.bmcs["gpu-1"].resources[BIOS]["Attributes"] == {"SubNumaClustering": "Disabled"}


@pytest.mark.parametrize("state", list(State))
async def test_a_node_is_reset_only_before_it_is_provisioned(tmp_path: Path, state: State) -> None:
    site = Doubles(tmp_path, 1)
    found = (await site.sweep(configure, states={"gpu-1": state}))["gpu-1"]
    early = state in (State.PLANNED, State.DISCOVERED, State.BMC_READY, State.FIRMWARE_CURRENT)
    assert bool(found.data["pending"]) is not early


async def test_a_profile_that_wants_an_unknown_attribute_is_told(site: Doubles) -> None:
    site.bmcs["gpu-1"].resources[BIOS]["Attributes"] = {"Other": 1}
    del site.bmcs["gpu-2"].resources[SYSTEM]["Bios"]
    found = await site.sweep(configure)
    assert "this BIOS has no attribute SubNumaClustering, which the profile p wants" in found["gpu-1"].message
    assert "the BMC shows no BIOS attributes" in found["gpu-2"].message


async def test_a_reset_that_is_no_word_is_refused(site: Doubles) -> None:
    assert "reset 'perhaps' is not known" in (await site.sweep(configure, reset="perhaps"))["gpu-1"].message


# firmware


async def test_firmware_is_brought_to_the_baseline_once(site: Doubles) -> None:
    site.bmcs["gpu-2"].resources[f"{INVENTORY}/BIOS_0"]["Version"] = "01.06.07"
    found = await site.sweep(firmware, check=True)
    assert found["gpu-1"].changed
    assert found["gpu-1"].data["components"] == [
        {"component": "BIOS", "id": "BIOS_0", "version": "1.5.1", "expected": "1.6.7", "action": "update"}
    ]
    assert writes(site.bmcs["gpu-1"]) == []
    found = await site.sweep(firmware)
    assert found["gpu-1"].changed
    assert found["gpu-1"].data["components"][0]["action"] == "updated"
    assert found["gpu-1"].data["components"][0]["version"] == "1.6.7"
    assert found["gpu-1"].diff[0]["before"] == "BIOS_0: 1.5.1\n"
    assert not found["gpu-2"].changed
    assert found["gpu-2"].data["components"][0]["action"] == "none"
    again = await site.sweep(firmware)
    assert not again["gpu-1"].changed
    assert again["gpu-1"].message == "gpu-1: firmware is at the baseline b"


async def test_a_node_in_service_is_not_updated_by_the_way(site: Doubles) -> None:
    found = (await site.sweep(firmware, states={"gpu-1": "in_service"}))["gpu-1"]
    assert not found.changed
    assert found.data["components"][0]["action"] == "held"
    assert "held until it may be reset: BIOS_0 1.5.1" in found.message
    assert writes(site.bmcs["gpu-1"]) == []


async def test_an_update_that_did_nothing_fails_with_what_was_done(site: Doubles) -> None:
    site.bmcs["gpu-1"].scripts.insert(0, site.bmcs["gpu-1"].scripts.pop())
    site.bmcs["gpu-1"].scripts[0][2][:] = [Reply(200)] * 3
    found = await site.sweep(firmware)
    assert found["gpu-1"].failed
    assert "is not at 1.6.7: BIOS_0 has 1.5.1" in found["gpu-1"].message
    assert found["gpu-1"].data["components"][0]["action"] == "failed"
    assert not found["gpu-2"].failed


async def test_an_inventory_without_the_component_is_unknown_and_fails(site: Doubles) -> None:
    site.bmcs["gpu-1"].resources[INVENTORY] = collection()
    found = await site.sweep(firmware)
    assert "firmware inventory of 0 entries has none for BIOS" in found["gpu-1"].message


async def test_a_host_that_is_off_shows_its_adapters_once_it_is_on(site: Doubles) -> None:
    double = site.bmcs["gpu-1"]
    double.resources[SYSTEM]["PowerState"] = "Off"

    def listed(request: Any) -> Reply:
        on = double.resources[SYSTEM]["PowerState"] == "On"
        return Reply(200, collection(f"{INVENTORY}/BIOS_0") if on else collection())

    double.always("GET", INVENTORY, listed)
    found = await site.sweep(firmware)
    assert found["gpu-1"].changed, found["gpu-1"].message
    assert double.resources[SYSTEM]["PowerState"] == "Off"


async def test_a_missing_image_and_a_baseline_for_others_are_told(site: Doubles) -> None:
    (site.folder / "bios.fwpkg").unlink()
    found = await site.sweep(firmware)
    assert "bios.fwpkg of BIOS 1.6.7 does not exist" in found["gpu-1"].message
    assert writes(site.bmcs["gpu-1"]) == []


async def test_an_unknown_baseline_fails_every_node(site: Doubles) -> None:
    site.plan = site.plan.model_copy(update={"baseline": "none-such"})
    found = await site.sweep(firmware)
    assert all("no baseline 'none-such'" in result.message and result.failed for result in found.values())
