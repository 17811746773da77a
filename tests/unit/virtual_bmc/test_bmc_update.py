"""Firmware of the emulated machine: pushed or fetched, refused when damaged, live after the right reset."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from bmc_bench import Bench, said

from metalyard.virtual.bmc.firmware import ImageError, firmware_image, read_image

INVENTORY = "/UpdateService/FirmwareInventory"
UPLOAD = "/UpdateService/upload"


async def push(bench: Bench, image: bytes, *members: str, **parameters: Any) -> Any:
    targets = [f"/redfish/v1{INVENTORY}/{member}" for member in members]
    body = json.dumps({"Targets": targets, **parameters}).encode()
    return await bench.ask("POST", UPLOAD, parts={"UpdateParameters": body, "UpdateFile": image})


async def version(bench: Bench, member: str) -> str:
    found: str = (await bench.get(f"{INVENTORY}/{member}"))["Version"]
    return found


@pytest.fixture
def bios(tmp_path: Path) -> bytes:
    return firmware_image(tmp_path / "bios.fwpkg", ["HostBIOS_0"], "1.7.0").read_bytes()


async def test_bios_firmware_is_live_after_a_system_reset(bench: Bench, bios: bytes) -> None:
    task = await bench.done(await push(bench, bios, "HostBIOS_0"))
    assert (task["TaskState"], task["PercentComplete"]) == ("Completed", 100)
    assert "Update.1.0.AwaitToActivate" in [entry["MessageId"] for entry in task["Messages"]]
    assert await version(bench, "HostBIOS_0") == "1.6.7"
    await bench.reset("On")
    assert await version(bench, "HostBIOS_0") == "1.7.0"
    assert (await bench.get("/Systems/DGX"))["BiosVersion"] == "1.7.0"
    assert bench.activated == [("HostBIOS_0", "1.7.0")]


async def test_gpu_firmware_needs_the_power_off(bench: Bench, tmp_path: Path) -> None:
    image = firmware_image(tmp_path / "hgx.fwpkg", ["HGX_FW_GPU_SXM_[1-8]"], "96.00.B0.00.01").read_bytes()
    await bench.reset("On")
    await bench.done(await push(bench, image))
    await bench.reset("ForceRestart")
    assert await version(bench, "HGX_FW_GPU_SXM_3") == "96.00.A5.00.01"
    await bench.reset("ForceOff")
    await bench.reset("On")
    assert {await version(bench, f"HGX_FW_GPU_SXM_{number}") for number in range(1, 9)} == {"96.00.B0.00.01"}
    gpu = await bench.get("/Systems/HGX_Baseboard_0/Processors/GPU_SXM_3")
    assert gpu["FirmwareVersion"] == "96.00.B0.00.01"


async def test_bmc_firmware_needs_the_bmc_to_restart(bench: Bench, tmp_path: Path) -> None:
    image = firmware_image(tmp_path / "bmc.fwpkg", ["HostBMC_0"], "24.10.1").read_bytes()
    await bench.done(await push(bench, image, "HostBMC_0"))
    await bench.reset("On")
    assert await version(bench, "HostBMC_0") == "24.09.17"
    bench.bmc.come_back()
    assert await version(bench, "HostBMC_0") == "24.10.1"
    assert (await bench.get("/Managers/BMC"))["FirmwareVersion"] == "24.10.1"


async def test_a_power_supply_needs_nothing(bench: Bench, tmp_path: Path) -> None:
    image = firmware_image(tmp_path / "psu.fwpkg", ["PSU_[0-5]"], "0300").read_bytes()
    await bench.done(await push(bench, image, "PSU_2"))
    assert (await version(bench, "PSU_2"), await version(bench, "PSU_3")) == ("0300", "0204.0201.0202")


async def test_the_same_version_is_skipped_unless_forced(bench: Bench, tmp_path: Path) -> None:
    image = firmware_image(tmp_path / "same.fwpkg", ["HostBIOS_0"], "1.6.7").read_bytes()
    skipped = await bench.done(await push(bench, image, "HostBIOS_0"))
    assert "NvidiaUpdate.1.0.ComponentUpdateSkipped" in [entry["MessageId"] for entry in skipped["Messages"]]
    assert bench.bmc.state.kept.staged == {}
    await bench.done(await push(bench, image, "HostBIOS_0", ForceUpdate=True))
    assert set(bench.bmc.state.kept.staged) == {"HostBIOS_0"}


async def test_an_image_for_something_else_fails_the_task(bench: Bench, bios: bytes) -> None:
    task = await bench.done(await push(bench, bios, "HostBMC_0"))
    assert task["TaskState"] == "Exception"
    assert task["Messages"][-1]["MessageId"] == "Update.1.0.VerificationFailed"
    assert bench.bmc.state.kept.staged == {}


async def test_a_damaged_image_fails_the_task(bench: Bench, bios: bytes) -> None:
    task = await bench.done(await push(bench, bios[:-1], "HostBIOS_0"))
    assert task["TaskState"] == "Exception"
    assert bench.bmc.state.kept.staged == {}


async def test_a_request_without_its_parts_is_refused(bench: Bench, bios: bytes) -> None:
    for parts in ({}, {"UpdateFile": bios}, {"UpdateParameters": b"{}"}):
        answer = await bench.ask("POST", UPLOAD, parts=parts)
        assert (answer.status, said(answer)) == (400, ["PropertyMissing"])
    answer = await bench.ask("POST", UPLOAD, parts={"UpdateParameters": b"{", "UpdateFile": bios})
    assert said(answer) == ["MalformedJSON"]
    answer = await push(bench, bios, "NoSuchMember")
    assert (answer.status, said(answer)) == (400, ["PropertyValueNotInList"])
    answer = await bench.ask("POST", UPLOAD, {})
    assert (answer.status, said(answer)) == (400, ["UnrecognizedRequestBody"])


async def test_one_update_at_a_time(bench: Bench, bios: bytes) -> None:
    first = await push(bench, bios, "HostBIOS_0")
    await bench.until(lambda: bench.get("/TaskService/Tasks/1"), lambda task: task["TaskState"] == "Running")
    second = await push(bench, bios, "HostBIOS_0")
    assert (second.status, said(second)) == (409, ["ResourceInUse"])
    restart = await bench.ask("POST", "/Managers/BMC/Actions/Manager.Reset", {"ResetType": "ForceRestart"})
    assert restart.status == 409
    await bench.done(first)


async def test_simple_update_fetches_the_image(bench: Bench, bios: bytes) -> None:
    async def serve(request: web.Request) -> web.Response:
        if request.path != "/bios.fwpkg":
            raise web.HTTPNotFound
        return web.Response(body=bios)

    server = web.Server(serve)
    runner = web.ServerRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    update = "/UpdateService/Actions/SimpleUpdate"
    try:
        task = await bench.done(
            await bench.ask("POST", update, {"ImageURI": f"{base}/bios.fwpkg", "TransferProtocol": "HTTP"})
        )
        assert task["TaskState"] == "Completed"
        assert set(bench.bmc.state.kept.staged) == {"HostBIOS_0"}
        task = await bench.done(await bench.ask("POST", update, {"ImageURI": f"{base}/nothing"}))
        assert (task["TaskState"], task["Messages"][-1]["MessageId"]) == ("Exception", "Update.1.0.TransferFailed")
    finally:
        await runner.cleanup()
    for body, message in (
        ({}, "ActionParameterMissing"),
        ({"ImageURI": "ftp://x/y", "TransferProtocol": "FTP"}, "ActionParameterValueNotInList"),
        ({"ImageURI": 5}, "ActionParameterValueTypeError"),
    ):
        assert said(await bench.ask("POST", update, body)) == [message]


async def test_staged_firmware_survives_a_kill(make_bench: Callable[..., Bench], tmp_path: Path, bios: bytes) -> None:
    state = tmp_path / "bmc.json"
    first = make_bench(state_path=state)
    await first.done(await push(first, bios, "HostBIOS_0"))
    second = make_bench(state_path=state)
    assert await version(second, "HostBIOS_0") == "1.6.7"
    await second.reset("On")
    assert await version(second, "HostBIOS_0") == "1.7.0"
    third = make_bench(state_path=state)
    assert await version(third, "HostBIOS_0") == "1.7.0"


def test_an_image_cut_anywhere_is_no_image(tmp_path: Path) -> None:
    whole = firmware_image(tmp_path / "x.fwpkg", ["HostBIOS_0"], "1.7.0", size=64).read_bytes()
    assert read_image(whole).version == "1.7.0"
    for length in range(len(whole)):
        with pytest.raises(ImageError):
            read_image(whole[:length])
    with pytest.raises(ImageError):
        read_image(whole + b"x")
    for place in range(len(whole) - 64, len(whole)):
        with pytest.raises(ImageError):
            read_image(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])


def test_an_image_needs_a_target_and_a_version(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one target"):
        firmware_image(tmp_path / "x", [], "1")
