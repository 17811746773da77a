"""The servers: TLS, faults on the wire, restarts, and what they do with requests that are no good."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from bmc_bench import FACTORY, PASSWORD, eventually

from metalyard.virtual.bmc import BmcFleet, firmware_image
from metalyard.virtual.bmc.standalone import SwitchedMachine, fleet
from metalyard.virtual.bmc.tls import Authority, ensure_authority, fingerprint

SYSTEM = "/redfish/v1/Systems/DGX"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"


class Rack:
    """Two BMCs on the wire, and a client that is logged in by password."""

    def __init__(self, running: BmcFleet, machines: dict[str, SwitchedMachine], home: Path) -> None:
        self.fleet, self.machines, self.home = running, machines, home
        context = ssl.create_default_context(cafile=str(home / "ca.pem"))
        self.client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, force_close=True),
            headers={"Authorization": aiohttp.encode_basic_auth("admin", PASSWORD)},
            timeout=aiohttp.ClientTimeout(total=5),
        )

    async def ask(self, method: str, path: str, node: str = "gpu-1", **given: Any) -> tuple[int, str]:
        async with self.client.request(method, self.fleet.url(node) + path, **given) as answer:
            return answer.status, await answer.text()


@pytest.fixture
async def rack(tmp_path: Path) -> AsyncIterator[Rack]:
    async with fleet(tmp_path, ["gpu-1", "gpu-2"], keep=True) as (running, machines, _):
        for node in ("gpu-1", "gpu-2"):
            account = running.bmc(node).state.kept.accounts[0]
            account.password, account.change_required = PASSWORD, False
            running.bmc(node).state.save()
        made = Rack(running, machines, tmp_path)
        try:
            yield made
        finally:
            await made.client.close()


async def test_each_bmc_has_a_certificate_of_its_own(rack: Rack) -> None:
    prints = {fingerprint(rack.home / f"{node}.pem") for node in ("gpu-1", "gpu-2")}
    assert len(prints) == 2
    assert (await rack.ask("GET", SYSTEM))[0] == 200
    _, first = await rack.ask("GET", SYSTEM)
    _, second = await rack.ask("GET", SYSTEM, "gpu-2")
    assert json.loads(first)["SerialNumber"] != json.loads(second)["SerialNumber"]


async def test_a_client_with_another_authority_is_not_convinced(rack: Rack, tmp_path: Path) -> None:
    other = ensure_authority(tmp_path / "other")
    context = ssl.create_default_context(cafile=str(other.path))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as client:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await client.get(rack.fleet.url("gpu-1") + "/redfish/v1/")


async def test_faults_of_the_answer(rack: Rack) -> None:
    rack.fleet.inject("gpu-1", {"kind": "status", "status": 500, "path": SYSTEM, "verb": "get", "count": 2, "skip": 1})
    statuses = [(await rack.ask("GET", SYSTEM + slash))[0] for slash in ("", "/", "", "")]
    assert statuses == [200, 500, 500, 200]
    rack.fleet.inject("gpu-1", {"kind": "truncate", "path": SYSTEM, "count": 1})
    status, text = await rack.ask("GET", SYSTEM)
    assert status == 200
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        json.loads(text)
    rack.fleet.inject("gpu-1", {"kind": "unavailable", "seconds": 7, "count": 1})
    async with rack.client.get(rack.fleet.url("gpu-1") + SYSTEM) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (503, "7")
    assert (await rack.ask("GET", SYSTEM))[0] == 200
    assert (await rack.ask("GET", SYSTEM, "gpu-2"))[0] == 200
    assert rack.fleet.faults("gpu-1") == []


async def test_a_reset_connection_before_and_after_the_deed(rack: Rack) -> None:
    machine = rack.machines["gpu-1"]
    rack.fleet.inject("gpu-1", {"kind": "reset", "verb": "POST", "count": 1})
    with pytest.raises(aiohttp.ClientError):
        await rack.ask("POST", RESET, json={"ResetType": "On"})
    await asyncio.sleep(0.1)
    assert machine.boots == []
    rack.fleet.inject("gpu-1", {"kind": "reset", "verb": "POST", "count": 1, "when": "after"})
    with pytest.raises(aiohttp.ClientError):
        await rack.ask("POST", RESET, json={"ResetType": "On"})
    await eventually(lambda: machine.power_state == "On")
    assert len(machine.boots) == 1


async def test_a_hang_lasts_until_the_client_has_had_enough(rack: Rack) -> None:
    fault = rack.fleet.inject("gpu-1", {"kind": "hang", "path": SYSTEM})
    with pytest.raises(TimeoutError):
        await rack.ask("GET", SYSTEM, timeout=aiohttp.ClientTimeout(total=0.3))
    assert (await rack.ask("GET", "/redfish/v1/Managers"))[0] == 200
    assert rack.fleet.clear("gpu-1", fault) == 1
    assert (await rack.ask("GET", SYSTEM))[0] == 200


async def test_a_hang_does_not_keep_the_rack_from_stopping(tmp_path: Path) -> None:
    async with asyncio.timeout(5):
        async with fleet(tmp_path) as (running, machines, _):
            rack = Rack(running, machines, tmp_path)
            running.inject("gpu-1", {"kind": "hang"})
            waiting = asyncio.create_task(rack.ask("GET", "/redfish/v1/"))
            await asyncio.sleep(0.2)
        await asyncio.wait([waiting])
        assert waiting.exception() is not None or waiting.result()[0] == 503
        await rack.client.close()


async def test_a_delay(rack: Rack) -> None:
    rack.fleet.inject("gpu-1", {"kind": "delay", "seconds": 0.3, "count": 1})
    started = asyncio.get_running_loop().time()
    assert (await rack.ask("GET", SYSTEM))[0] == 200
    assert asyncio.get_running_loop().time() - started >= 0.3


async def test_a_stale_inventory_shows_the_past(rack: Rack, tmp_path: Path) -> None:
    bios = "/redfish/v1/UpdateService/FirmwareInventory/HostBIOS_0"
    rack.fleet.inject("gpu-1", {"kind": "stale", "path": ".*/FirmwareInventory/.*", "count": 2})
    rack.fleet.bmc("gpu-1").state.kept.firmware["HostBIOS_0"] = "9.9.9"
    rack.fleet.bmc("gpu-1").state.save()
    seen = [json.loads((await rack.ask("GET", bios))[1])["Version"] for _ in range(3)]
    assert seen == ["1.6.7", "1.6.7", "9.9.9"]


async def test_a_lost_task(rack: Rack) -> None:
    rack.fleet.inject("gpu-1", {"kind": "lost_task", "path": ".*Reset", "verb": "POST", "count": 1})
    status, text = await rack.ask("POST", RESET, json={"ResetType": "On"})
    assert status == 202
    assert (await rack.ask("GET", json.loads(text)["@odata.id"]))[0] == 404
    await eventually(lambda: rack.machines["gpu-1"].power_state == "On")


@pytest.mark.parametrize(
    "wrong",
    [{"kind": "nonsense"}, {"kind": "status", "status": 200}, {"kind": "hang", "path": "("}, {"kind": "hang", "x": 1}],
)
async def test_a_fault_that_makes_no_sense_is_refused(rack: Rack, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong.keys() - {"kind"}), "kind")):
        rack.fleet.inject("gpu-1", wrong)


async def test_the_bmc_goes_away_and_comes_back(rack: Rack, tmp_path: Path) -> None:
    url = rack.fleet.url("gpu-1")
    login = {"UserName": "admin", "Password": PASSWORD}
    async with rack.client.post(f"{url}/redfish/v1/SessionService/Sessions", json=login) as answer:
        token = answer.headers["X-Auth-Token"]
    reset = "/redfish/v1/Managers/BMC/Actions/Manager.Reset"
    assert (await rack.ask("POST", reset, json={"ResetType": "ForceRestart"}))[0] == 204
    gone = False
    async with asyncio.timeout(5):
        while True:
            try:
                status, _ = await rack.ask("GET", SYSTEM)
            except aiohttp.ClientError:
                gone = True
            else:
                if gone:
                    break
            await asyncio.sleep(0.01)
    assert status == 200
    assert rack.fleet.url("gpu-1") == url
    async with rack.client.get(url + SYSTEM, headers={"X-Auth-Token": token}) as answer:
        assert answer.status == 401, "sessions do not survive the restart"


async def test_mains_power_makes_everything_staged_live(rack: Rack, tmp_path: Path) -> None:
    image = firmware_image(tmp_path / "cpld.fwpkg", ["CPLDMB_0"], "0.3.0.0")
    form = aiohttp.FormData()
    form.add_field("UpdateParameters", "{}", content_type="application/json")
    form.add_field("UpdateFile", image.read_bytes(), filename="cpld.fwpkg", content_type="application/octet-stream")
    status, text = await rack.ask("POST", "/redfish/v1/UpdateService/upload", data=form)
    assert status == 202, text
    await eventually(lambda: "CPLDMB_0" in rack.fleet.bmc("gpu-1").state.kept.staged)
    await rack.ask("POST", RESET, json={"ResetType": "On"})
    await rack.fleet.ac_cycle("gpu-1")
    assert rack.machines["gpu-1"].power_state == "Off"
    _, text = await rack.ask("GET", "/redfish/v1/UpdateService/FirmwareInventory/CPLDMB_0")
    assert json.loads(text)["Version"] == "0.3.0.0"


async def test_bodies_that_are_no_good(rack: Rack) -> None:
    as_json = {"Content-Type": "application/json"}
    assert (await rack.ask("POST", RESET, data=b"{", headers=as_json))[0] == 400
    assert (await rack.ask("POST", RESET, data=b"[]", headers=as_json))[0] == 400
    assert (await rack.ask("POST", RESET, data=b"\xff", headers=as_json))[0] == 400
    assert (await rack.ask("POST", RESET, data=b"a=b", headers={"Content-Type": "text/plain"}))[0] == 415
    assert (await rack.ask("PATCH", SYSTEM, data=b"", headers=as_json))[0] == 400
    assert (await rack.ask("POST", RESET, data=b" " * 2_000_000, headers=as_json))[0] == 413
    assert (await rack.ask("PUT", SYSTEM, json={}))[0] == 405


async def test_events_reach_those_that_subscribed(rack: Rack) -> None:
    heard: list[dict[str, Any]] = []
    arrived = asyncio.Event()

    async def listen(request: web.Request) -> web.Response:
        heard.append(await request.json())
        if len(heard) == 1:
            return web.Response(status=500)
        arrived.set()
        return web.Response()

    runner = web.ServerRunner(web.Server(listen))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        destination = f"http://127.0.0.1:{runner.addresses[0][1]}/events"
        body = {"Destination": destination, "Protocol": "Redfish", "Context": "rack"}
        assert (await rack.ask("POST", "/redfish/v1/EventService/Subscriptions", json=body))[0] == 201
        test = "/redfish/v1/EventService/Actions/EventService.SubmitTestEvent"
        assert (await rack.ask("POST", test, json={"Message": "hello"}))[0] == 204
        async with asyncio.timeout(5):
            await arrived.wait()
        assert (heard[1]["Context"], heard[1]["Events"][0]["Message"]) == ("rack", "hello")
    finally:
        await runner.cleanup()


async def test_an_address_that_is_taken_is_named(rack: Rack, tmp_path: Path) -> None:
    port = int(rack.fleet.url("gpu-1").rpartition(":")[2])
    with pytest.raises(OSError, match=f"gpu-9: can't listen on 127.0.0.1:{port}"):
        async with fleet(tmp_path / "second", ["gpu-9"], port=port):
            pass


async def test_the_factory_password_works_on_a_new_rack(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (running, machines, _):
        rack = Rack(running, machines, tmp_path)
        account = "/redfish/v1/AccountService/Accounts/1"
        headers = {"Authorization": aiohttp.encode_basic_auth("admin", FACTORY)}
        assert (await rack.ask("GET", SYSTEM, headers=headers))[0] == 403
        assert (await rack.ask("PATCH", account, headers=headers, json={"Password": PASSWORD}))[0] == 200
        assert (await rack.ask("GET", SYSTEM))[0] == 200
        await rack.client.close()


async def test_the_command_runs_until_it_is_told_to_stop(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "metalyard.virtual.bmc", "--home", str(tmp_path), "--port", "0"]
    refused = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE, env={})
    _, text = await refused.communicate()
    assert (refused.returncode, b"METALYARD_BMC_PASSWORD is not set" in text) == (2, True)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env={"METALYARD_BMC_PASSWORD": FACTORY}
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(20):
            line = (await process.stdout.readline()).decode()
        url = re.findall(r"https://[0-9.:]+", line)[0]
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as client,
            client.get(f"{url}/redfish/v1/") as answer,
        ):
            assert (await answer.json())["Vendor"] == "AMI"
        process.terminate()
        async with asyncio.timeout(10):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()


def test_the_authority_and_its_leaves_are_kept(tmp_path: Path) -> None:
    first = ensure_authority(tmp_path)
    assert ensure_authority(tmp_path).certificate == first.certificate
    assert (tmp_path / "ca-key.pem").stat().st_mode & 0o777 == 0o600
    pair = (tmp_path / "a.pem", tmp_path / "a-key.pem")

    def issue(authority: Authority, *addresses: str) -> bytes:
        authority.issue("a", list(addresses), *pair)
        return pair[0].read_bytes()

    leaf = issue(first, "127.77.1.1")
    assert issue(first, "127.77.1.1") == leaf
    moved = issue(first, "127.77.1.2")
    assert moved != leaf
    pair[1].write_bytes(b"damaged")
    assert issue(first, "127.77.1.2") != moved
    (tmp_path / "ca.pem").write_text("damaged")
    with pytest.raises(ValueError, match="the rack's authority can't be read"):
        ensure_authority(tmp_path)
