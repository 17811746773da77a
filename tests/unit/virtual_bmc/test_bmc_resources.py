"""The emulated DGX's tree: what it tells of the hardware, and the rules of reading and writing it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bmc_bench import Bench, said

from metalyard.virtual.bmc import hardware_file
from metalyard.virtual.bmc.standalone import dgx_h100
from metalyard.virtual.bmc.tree import load_model
from metalyard.virtual.hardware import save


def links(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, part in value.items():
            if isinstance(part, str) and key in ("@odata.id", "@Redfish.ActionInfo", "Uri", "Members@odata.nextLink"):
                yield part
            else:
                yield from links(part)
    elif isinstance(value, list):
        for part in value:
            yield from links(part)


async def test_every_link_leads_somewhere_and_everything_is_linked(bench: Bench) -> None:
    await bench.reset("On")
    todo, seen = ["/redfish/v1"], set()
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        todo += links(await bench.get(path.removeprefix("/redfish/v1")))
    everything = {
        path
        for path, one in bench.bmc.resources().items()
        if not one.action and not one.record.hidden and one.record.on_get is None
    }
    assert everything == seen


async def test_ids_and_links_are_unique_per_resource(bench: Bench) -> None:
    for path in bench.bmc.resources():
        assert re.fullmatch(r"/redfish/v1(/[A-Za-z0-9_.-]+)*", path), path


async def test_the_tree_follows_the_hardware_at_once(bench: Bench) -> None:
    gpu = "/Systems/HGX_Baseboard_0/Processors/GPU_SXM_6"
    assert (await bench.get(gpu))["Status"]["Health"] == "OK"
    bench.hardware.gpus[5].on_bus = False
    fallen = await bench.get(gpu)
    assert (fallen["Status"]["Health"], fallen["Status"]["State"]) == ("Critical", "UnavailableOffline")
    assert (await bench.get("/Systems/HGX_Baseboard_0"))["Status"]["HealthRollup"] == "Critical"
    devices = await bench.get("/Chassis/DGX/PCIeDevices")
    assert len(devices["Members"]) == 15
    bench.hardware.serial = "1660623009999"
    assert (await bench.get("/Systems/DGX"))["SerialNumber"] == "1660623009999"
    bench.hardware.firmware["HostBIOS_0"] = "1.5.1"
    assert (await bench.get("/Systems/DGX"))["BiosVersion"] == "1.5.1"
    del bench.hardware.dimms[31]
    assert (await bench.get("/Systems/DGX/Memory"))["Members@odata.count"] == 31


def test_hardware_is_followed_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "hardware.json"
    model = dgx_h100()
    save(model, path)
    current = hardware_file(path)
    assert current() is current()
    text = path.read_text()
    path.write_text(text[:100])
    assert current() == model, "a writer that is half through"
    model.gpus[5].on_bus = False
    save(model, path)
    assert current().gpus[5].on_bus is False
    path.write_text("{")
    with pytest.raises(ValueError, match="Expecting"):
        hardware_file(path)()


async def test_serials_stay_text(bench: Bench) -> None:
    assert (await bench.get("/Systems/DGX"))["SerialNumber"] == "1660623000001"
    assert (await bench.get("/Systems/HGX_Baseboard_0/Processors/GPU_SXM_1"))["SerialNumber"] == "1652923000000"


async def test_collections_come_in_pages(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(quirks={"page_size": 10})
    path, members = "/Systems/DGX/Memory", []
    query: dict[str, str] = {}
    for _ in range(10):
        body = (await bench.ask("GET", path, query=query)).body
        assert isinstance(body, dict)
        assert body["Members@odata.count"] == 32
        members += [member["@odata.id"] for member in body["Members"]]
        following = body.get("Members@odata.nextLink")
        if following is None:
            break
        path, _, skip = following.removeprefix("/redfish/v1").partition("?$skip=")
        query = {"$skip": skip}
    assert len(members) == len(set(members)) == 32


async def test_query_parameters(bench: Bench) -> None:
    async def ask(path: str, **query: str) -> Any:
        return await bench.ask("GET", path, query={name.replace("_", "$"): value for name, value in query.items()})

    expanded = (await ask("/Systems", _expand=".")).body
    assert [member["Id"] for member in expanded["Members"]] == ["DGX", "HGX_Baseboard_0"]
    selected = (await ask("/Systems/DGX", _select="SerialNumber,PowerState")).body
    assert set(selected) >= {"SerialNumber", "PowerState"}
    assert "BiosVersion" not in selected
    only = (await bench.ask("GET", "/AccountService/Accounts", query={"only": ""})).body
    assert isinstance(only, dict)
    assert only["UserName"] == "admin"
    assert (await bench.ask("GET", "/Systems", query={"$filter": "x"})).status == 501
    assert (await bench.ask("GET", "/Systems", query={"harmless": "x"})).status == 200
    for wrong in ({"$skip": "-1"}, {"$top": "many"}, {"$expand": "everything"}, {"$expand": ".($levels=9)"}):
        assert (await bench.ask("GET", "/Systems", query=wrong)).status == 400, wrong


async def test_an_etag_changes_with_the_resource_and_not_with_the_clock(bench: Bench) -> None:
    first = (await bench.ask("GET", "/Systems/DGX")).headers["ETag"]
    assert (await bench.ask("GET", "/Systems/DGX")).headers["ETag"] == first
    assert (await bench.ask("GET", "/Systems/DGX", headers={"If-None-Match": first})).status == 304
    stale = await bench.ask("PATCH", "/Systems/DGX", {"AssetTag": "r01"}, headers={"If-Match": '"1"'})
    assert (stale.status, said(stale)) == (412, ["PreconditionFailed"])
    assert (await bench.get("/Systems/DGX"))["AssetTag"] != "r01"
    good = await bench.ask("PATCH", "/Systems/DGX", {"AssetTag": "r01"}, headers={"If-Match": first})
    assert good.status == 200
    assert (await bench.get("/Systems/DGX"))["AssetTag"] == "r01"
    late = await bench.ask("PATCH", "/Systems/DGX", {"AssetTag": "r02"}, headers={"If-Match": first})
    assert late.status == 412


async def test_etag_quirks(make_bench: Callable[..., Bench]) -> None:
    strict = make_bench(quirks={"require_if_match": True, "refuse_if_match_on_actions": True})
    without = await strict.ask("PATCH", "/Systems/DGX", {"AssetTag": "x"})
    assert (without.status, said(without)) == (428, ["PreconditionRequired"])
    assert (await strict.ask("PATCH", "/Systems/DGX", {"AssetTag": "x"}, headers={"If-Match": "*"})).status == 200
    action = await strict.ask(
        "POST", "/Systems/DGX/Actions/ComputerSystem.Reset", {"ResetType": "On"}, headers={"If-Match": "*"}
    )
    assert action.status == 412


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "EmptyJSON"),
        ({"@odata.id": "/x"}, "NoOperation"),
        ({"Unknown": 1}, "PropertyUnknown"),
        ({"SerialNumber": "x"}, "PropertyNotWritable"),
        ({"AssetTag": 5}, "PropertyValueTypeError"),
        ({"AssetTag": "x" * 65}, "StringValueTooLong"),
        ({"IndicatorLED": "Purple"}, "PropertyValueNotInList"),
        ({"Boot": {"BootSourceOverrideTarget": "Tape"}}, "PropertyValueNotInList"),
        ({"Boot": {"BootSourceOverrideMode": "Legacy"}}, "PropertyValueNotInList"),
        ({"Boot": {"BootOrder": ["Boot9999"]}}, "PropertyValueNotInList"),
        ({"Boot": "Pxe"}, "PropertyNotWritable"),
    ],
)
async def test_what_can_not_be_written_is_refused_by_name(bench: Bench, body: dict[str, Any], message: str) -> None:
    before = await bench.get("/Systems/DGX")
    answer = await bench.ask("PATCH", "/Systems/DGX", body)
    assert (answer.status, said(answer)) == (400, [message])
    assert await bench.get("/Systems/DGX") == before


async def test_what_can_be_written_is_when_the_rest_can_not(bench: Bench) -> None:
    answer = await bench.ask("PATCH", "/Systems/DGX", {"AssetTag": "r01", "SerialNumber": "x"})
    assert (answer.status, said(answer)) == (200, ["PropertyNotWritable"])
    assert (await bench.get("/Systems/DGX"))["AssetTag"] == "r01"


async def test_methods_that_are_not_allowed_say_which_are(bench: Bench) -> None:
    answer = await bench.ask("DELETE", "/Systems/DGX")
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD, PATCH")
    answer = await bench.ask("GET", "/Systems/DGX/Actions/ComputerSystem.Reset")
    assert (answer.status, answer.headers["Allow"]) == (405, "POST")


async def test_ntp_servers(bench: Bench) -> None:
    async def patch(servers: list[Any]) -> Any:
        return await bench.ask("PATCH", "/Managers/BMC/NetworkProtocol", {"NTP": {"NTPServers": servers}})

    async def servers() -> Any:
        return (await bench.get("/Managers/BMC/NetworkProtocol"))["NTP"]["NTPServers"]

    assert (await patch(["10.231.0.1", "ntp.example"])).status == 200
    assert await servers() == ["10.231.0.1", "ntp.example"]
    assert (await patch([{}, None])).status == 200
    assert await servers() == ["10.231.0.1"]
    for wrong in (["a", "b", "c"], ["not a host"], [5]):
        assert (await patch(wrong)).status == 400, wrong
        assert await servers() == ["10.231.0.1"]


async def test_the_event_log_can_be_cleared(bench: Bench) -> None:
    await bench.reset("On")
    entries = "/Managers/BMC/LogServices/SEL/Entries"
    assert [entry["SensorType"] for entry in (await bench.get(entries))["Members"]] == ["SystemBoot/Restart"]
    assert (await bench.ask("POST", "/Managers/BMC/LogServices/SEL/Actions/LogService.ClearLog", {})).status == 204
    (left,) = (await bench.get(entries))["Members"]
    assert left["SensorType"] == "Event Logging Disabled"


def test_an_unknown_model_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no BMC model 'abacus'; there are: dgx-h100"):
        load_model("abacus")
