"""Firmware: versions, the push as it is on the wire, and an update that did nothing is a failure."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from bmc_double import ROOT, SYSTEM, BmcDouble, JumpingPace, Reply, collection, refusal
from hypothesis import given
from hypothesis import strategies as st

from metalyard.plan.profile import Baseline, FirmwareTarget
from metalyard.redfish.client import Bmc
from metalyard.redfish.errors import BmcError, UnreachableError
from metalyard.redfish.facts import read_inventory
from metalyard.redfish.firmware import compare, image_of, missing_targets, same_version, update
from metalyard.redfish.layout import read_layout

SERVICE = "/redfish/v1/UpdateService"
INVENTORY = f"{SERVICE}/FirmwareInventory"
BIOS = f"{INVENTORY}/BIOS_0"
UPLOAD = f"{SERVICE}/upload"
TASK = "/redfish/v1/TaskService/Tasks/1"


def target(**more: Any) -> FirmwareTarget:
    data = {"component": "BIOS", "match": "^BIOS_", "version": "1.6.7", "image": "bios.fwpkg", "minutes": 1, **more}
    return FirmwareTarget.model_validate(data)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    file = tmp_path / "bios.fwpkg"
    file.write_bytes(bytes(range(256)) * 4096)
    return file


@pytest.fixture
def double() -> BmcDouble:
    made = BmcDouble()
    made.resources[SERVICE] |= {"MultipartHttpPushUri": UPLOAD}
    made.resources[INVENTORY] = collection(BIOS)
    made.resources[BIOS] = {"Id": "BIOS_0", "Version": "01.05.01"}
    return made


@pytest.fixture
async def bmc(double: BmcDouble) -> Bmc:
    client = double.client()
    await client.login("admin", "factory-Pass-1")
    return client


def takes(double: BmcDouble, version: str = "01.06.07") -> None:
    """The upload starts a task; the new version is live after the reset."""
    staged: list[str] = []

    def upload(request: Any) -> Reply:
        staged.append(version)
        return Reply(202, {"@odata.type": "#Task.v1_4_2.Task", "@odata.id": TASK})

    def reset(request: Any) -> Reply:
        double.resources[SYSTEM]["PowerState"] = "Off" if "Off" in request.body["ResetType"] else "On"
        if staged:
            double.resources[BIOS]["Version"] = staged.pop()
        return Reply(204)

    double.on("POST", UPLOAD, upload)
    double.always("POST", ".*Reset", reset)
    double.always("GET", TASK, Reply(200, {"Id": "1", "TaskState": "Completed"}))


async def run(bmc: Bmc, wanted: FirmwareTarget, image: Path | str) -> list[str]:
    told: list[str] = []
    layout = await read_layout(bmc)
    behind = [c for c in compare(await read_inventory(bmc, layout), wanted) if not c.right]
    await update(bmc, layout, wanted, behind, image, told.append)
    return told


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("01.06.07", "1.6.7", True),
        ("1.6.7", "1.6.70", False),
        ("96.00.A5.00.01", "96.00.a5.00.01", True),
        ("96.00.A5.00.01", "96.0.A5.0.1", True),
        ("1.6", "1.6.0", False),
        ("", "1", False),
        (None, "1", False),
        ("HGX-22.10-1-rc57", "HGX-22.10-1-rc58", False),
    ],
)
def test_versions(left: str | None, right: str, expected: bool) -> None:
    assert same_version(left, right) is expected


@given(st.lists(st.integers(0, 999), min_size=1, max_size=5), st.integers(0, 3))
def test_leading_zeros_mean_nothing(numbers: list[int], zeros: int) -> None:
    padded = ".".join("0" * zeros + str(n) for n in numbers)
    assert same_version(padded, ".".join(map(str, numbers)))
    assert not same_version(padded, ".".join(map(str, [*numbers[:-1], numbers[-1] + 1])))


async def test_the_inventory_against_the_baseline(double: BmcDouble, bmc: Bmc) -> None:
    double.resources[f"{INVENTORY}/NIC"] = {"Id": "NIC", "Version": None}
    double.resources[INVENTORY] = collection(BIOS, f"{INVENTORY}/NIC", f"{INVENTORY}/dead")
    inventory = await read_inventory(bmc, await read_layout(bmc))
    assert {name: version for name, (_, version) in inventory.items()} == {"BIOS_0": "01.05.01", "NIC": None}
    assert [c.right for c in compare(inventory, target(version="1.5.1"))] == [True]
    assert [c.right for c in compare(inventory, target(match="NIC"))] == [False]
    baseline = Baseline(name="b", firmware=[target(), target(component="BMC", match="^BMC_0$")])
    assert [t.component for t in missing_targets(inventory, baseline)] == ["BMC"]


async def test_an_update_is_pushed_followed_activated_and_read_back(double: BmcDouble, bmc: Bmc, image: Path) -> None:
    takes(double)
    told = await run(bmc, target(activation="system_reset"), image)
    assert double.resources[BIOS]["Version"] == "01.06.07"
    assert told[0] == "sending BIOS 1.6.7"
    assert told[-1] == "reading the version of BIOS back"
    assert [r.path for r in double.sent("POST", "upload|Reset")] == [UPLOAD, f"{SYSTEM}/Actions/ComputerSystem.Reset"]


@pytest.mark.parametrize("activation", ["bmc_reset", "power_cycle"])
async def test_each_activation_is_its_reset(double: BmcDouble, bmc: Bmc, image: Path, activation: str) -> None:
    takes(double)
    await run(bmc, target(activation=activation), image)
    kinds = [(r.path.split("/")[3], r.body["ResetType"]) for r in double.sent("POST", "Reset")]
    expected = {
        "bmc_reset": [("Managers", "ForceRestart")],
        "power_cycle": [("Systems", "ForceOff"), ("Systems", "On")],
    }
    assert kinds == expected[activation]


async def test_done_but_unchanged_is_a_failure(double: BmcDouble, bmc: Bmc, image: Path) -> None:
    takes(double, version="01.05.01")
    with pytest.raises(BmcError, match=r"is not at 1\.6\.7: BIOS_0 has 01\.05\.01"):
        await run(bmc, target(activation="system_reset"), image)


async def test_an_entry_that_the_update_lost_is_a_failure(double: BmcDouble, bmc: Bmc, image: Path) -> None:
    double.resources[f"{INVENTORY}/BIOS_1"] = {"Id": "BIOS_1", "Version": "1.5.1"}
    double.resources[INVENTORY] = collection(BIOS, f"{INVENTORY}/BIOS_1")
    takes(double)
    double.on("POST", UPLOAD, Reply(200))
    double.on("GET", f"{INVENTORY}/BIOS_1", Reply(200, {"Id": "BIOS_1", "Version": "1.5.1"}))
    double.on("GET", f"{INVENTORY}/BIOS_1", Reply(200, {"Id": "BIOS_1", "Version": "1.5.1"}))
    double.always("GET", f"{INVENTORY}/BIOS_1", Reply(404))
    with pytest.raises(BmcError, match="of 2 entries in the inventory 1 are left"):
        await run(bmc, target(activation="system_reset"), image)


async def test_an_unknown_activation_is_refused(double: BmcDouble, bmc: Bmc, image: Path) -> None:
    takes(double)
    with pytest.raises(BmcError, match="'reboot' of BIOS in the baseline is no activation"):
        await run(bmc, target(activation="reboot"), image)


async def test_an_update_that_is_at_work_is_followed_and_not_started_twice(
    double: BmcDouble, bmc: Bmc, image: Path
) -> None:
    double.resources["/redfish/v1/TaskService/Tasks"] = collection(TASK)
    running = {"Id": "1", "Name": "Firmware Update", "TaskState": "Running"}
    double.on("GET", TASK, *[Reply(200, running)] * 3)

    def ended(request: Any) -> Reply:
        double.resources[BIOS]["Version"] = "1.6.7"
        return Reply(200, running | {"TaskState": "Completed"})

    double.on("GET", TASK, ended)
    await run(bmc, target(), image)
    assert double.sent("POST", UPLOAD) == []


async def test_a_busy_bmc_says_so(double: BmcDouble, bmc: Bmc, image: Path) -> None:
    double.on("POST", UPLOAD, refusal(400, "Base.1.8.ResourceInUse", "The resource is in use"))
    with pytest.raises(BmcError, match="busy with another update"):
        await run(bmc, target(), image)


async def test_a_broken_upload_is_not_repeated(double: BmcDouble, bmc: Bmc, image: Path) -> None:
    double.on("POST", UPLOAD, aiohttp.ServerDisconnectedError())
    with pytest.raises(UnreachableError, match="whether it arrived is not known"):
        await run(bmc, target(), image)
    assert len(double.sent("POST", UPLOAD)) == 1


async def test_an_image_that_is_too_large_is_not_sent(double: BmcDouble, bmc: Bmc, image: Path) -> None:
    double.resources[SERVICE]["MaxImageSizeBytes"] = 1000
    with pytest.raises(BmcError, match="takes at most 1000"):
        await run(bmc, target(), image)
    assert double.sent("POST", UPLOAD) == []


async def test_a_url_is_fetched_by_the_bmc(double: BmcDouble, bmc: Bmc) -> None:
    double.resources[SERVICE]["Actions"] = {"#UpdateService.SimpleUpdate": {"target": f"{SERVICE}/Actions/Simple"}}

    def fetch(request: Any) -> Reply:
        double.resources[BIOS]["Version"] = "1.6.7"
        return Reply(202, {}, {"Location": TASK})

    double.on("POST", f"{SERVICE}/Actions/Simple", fetch)
    double.on("GET", TASK, Reply(200, {"TaskState": "Completed"}))
    await run(bmc, target(), "https://files.test/bios.fwpkg")
    assert double.sent("POST", "Simple")[0].body == {
        "ImageURI": "https://files.test/bios.fwpkg",
        "TransferProtocol": "HTTPS",
        "Targets": [BIOS],
    }


async def test_a_bmc_that_takes_no_image(double: BmcDouble, bmc: Bmc, image: Path) -> None:
    del double.resources[SERVICE]["MultipartHttpPushUri"]
    with pytest.raises(BmcError, match="takes no pushed image"):
        await run(bmc, target(), image)


def test_where_the_image_is(tmp_path: Path, image: Path) -> None:
    assert image_of(target(), tmp_path, "gpu-1") == image
    assert image_of(target(image="https://x.test/a"), None, "gpu-1") == "https://x.test/a"
    for wanted, folder, said in (
        (target(image=None), tmp_path, "names no image"),
        (target(), None, "no folder of images"),
        (target(image="other.bin"), tmp_path, r"other\.bin .* does not exist"),
        (target(image="../secret"), tmp_path, "does not exist"),
    ):
        with pytest.raises(BmcError, match=said):
            image_of(wanted, folder, "gpu-1")


async def test_the_upload_on_the_wire(image: Path, double: BmcDouble) -> None:
    """Through a real server: one form with its length said before, streamed, with a base name and the vendor's part."""
    seen: dict[str, Any] = {}
    content = bytes(range(256)) * 4096

    async def upload(request: web.Request) -> web.Response:
        seen["length"], seen["chunked"] = request.content_length, "Transfer-Encoding" in request.headers
        async for part in await request.multipart():
            seen[part.name] = (part.filename, part.headers.get("Content-Type"), await part.read())
        return web.json_response({}, status=200)

    app = web.Application(client_max_size=2**30)
    app.router.add_post(UPLOAD, upload)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]

    class Through:
        """The upload goes through the real server, everything else to the double."""

        def request(self, method: str, url: Any, **options: Any) -> Any:
            if method == "POST" and url.path == UPLOAD:
                double.resources[BIOS]["Version"] = "1.6.7"
                return session.request(method, f"http://127.0.0.1:{port}{UPLOAD}", **options)
            return double.request(method, url, **options)

    double.resources[ROOT]["Vendor"] = "AMI"
    try:
        async with aiohttp.ClientSession() as session:
            bmc = Bmc("gpu-1", "bmc.test", Through(), pace=JumpingPace())
            await bmc.login("admin", "factory-Pass-1")
            await run(bmc, target(), image)
    finally:
        await runner.cleanup()
    assert seen["length"] > len(content)
    assert not seen["chunked"]
    assert seen["UpdateFile"] == ("bios.fwpkg", "application/octet-stream", content)
    assert seen["UpdateParameters"][1] == "application/json"
    assert seen["UpdateParameters"][2] == f'{{"Targets": ["{BIOS}"]}}'.encode()
    assert seen["OemParameters"][2] == b'{"ImageType": "BIOS"}'
    assert list(itertools.islice(seen, 2, 5)) == ["UpdateParameters", "OemParameters", "UpdateFile"]
