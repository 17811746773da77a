"""Firmware: the inventory against the baseline, the push of what is behind, and the proof that it took."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from metalyard.plan.profile import Baseline, FirmwareTarget
from metalyard.redfish import messages
from metalyard.redfish.client import Answer, Bmc
from metalyard.redfish.documents import dig, link
from metalyard.redfish.errors import BmcError, UnreachableError
from metalyard.redfish.facts import read_inventory
from metalyard.redfish.layout import Layout
from metalyard.redfish.power import ac_cycle, power_cycle, reset_bmc, restart, switch_on
from metalyard.redfish.tasks import follow, running_update, task_of

Inventory = dict[str, tuple[str, str | None]]
"""Id to URI and version."""
Report = Callable[[str], None]

PATIENCE = 3.0
"""A component may take this many times the minutes that the baseline expects."""


@dataclass(frozen=True)
class Component:
    """One inventory entry that the baseline speaks of."""

    component: str
    id: str
    uri: str
    version: str | None
    expected: str

    @property
    def right(self) -> bool:
        """Whether it has the baseline's version. A version that the BMC does not give is not."""
        return same_version(self.version, self.expected)

    def as_dict(self, action: str) -> dict[str, Any]:
        """For the result's data."""
        return {
            "component": self.component,
            "id": self.id,
            "version": self.version,
            "expected": self.expected,
            "action": action,
        }


def same_version(left: str | None, right: str) -> bool:
    """Whether two versions are one: ``01.06.07`` is ``1.6.7``. Letters count, their case does not."""
    return left is not None and _normal(left) == _normal(right)


def _normal(version: str) -> list[str]:
    return [part.lstrip("0") or "0" for part in re.split(r"[.\s]+", version.strip().casefold())]


def compare(inventory: Inventory, target: FirmwareTarget) -> list[Component]:
    """The inventory's entries of one target."""
    pattern = re.compile(target.match)
    return [
        Component(target.component, name, uri, version, target.version)
        for name, (uri, version) in inventory.items()
        if pattern.search(name)
    ]


def missing_targets(inventory: Inventory, baseline: Baseline) -> list[FirmwareTarget]:
    """Targets that no entry matches: their state is unknown."""
    return [target for target in baseline.firmware if not compare(inventory, target)]


def image_of(target: FirmwareTarget, folder: Path | None, node: str) -> Path | str:
    """The image as a file, or as the URL that the BMC fetches itself. :class:`BmcError` where it is missing."""
    if target.image is None:
        raise BmcError(
            f"{node}: {target.component} is behind the baseline's {target.version}, and the baseline names no image",
            "Add the image to the baseline, or update the component by hand.",
        )
    if re.match(r"https?://", target.image):
        return target.image
    if folder is None:
        raise BmcError(
            f"{node}: {target.component} is behind the baseline's {target.version}, and no folder of images is given",
            f"Put {target.image} into a folder and name it with --firmware-dir.",
        )
    file = folder / target.image
    if Path(target.image).name != target.image or not file.is_file():
        raise BmcError(
            f"{node}: the image {file} of {target.component} {target.version} does not exist",
            "Fetch it from the vendor and put it there.",
        )
    return file


async def update(
    bmc: Bmc,
    layout: Layout,
    target: FirmwareTarget,
    behind: Sequence[Component],
    image: Path | str,
    report: Report,
) -> None:
    """Bring the entries to the target's version: push, follow, activate, and read the versions back.

    An update that is at work already is followed first, and may be all that was needed. :class:`BmcError` where the
    versions are not the expected ones in the end: done but unchanged is a failure.
    """
    deadline = max(PATIENCE * target.minutes * 60, 120.0)
    matched = len(compare(await read_inventory(bmc, layout), target))
    at_work = await running_update(bmc, layout.root)
    if at_work is not None:
        report(f"following an update of {target.component} that is at work already")
        await follow(bmc, at_work, deadline=deadline, report=report)
    else:
        if target.activation == "none" or layout.host[1].get("PowerState") == "Off":
            # Adapters are in the inventory, and can be updated, only while the host is on.
            await switch_on(bmc, layout)
        report(f"sending {target.component} {target.version}")
        answer = await _push(bmc, layout, target, behind, image, deadline)
        task = task_of(answer)
        if task is not None:
            await follow(bmc, task, deadline=deadline, report=report)
    await _activate(bmc, layout, target, report)
    await _verify(bmc, layout, target, matched, deadline, report)


async def _push(
    bmc: Bmc,
    layout: Layout,
    target: FirmwareTarget,
    behind: Sequence[Component],
    image: Path | str,
    deadline: float,
) -> Answer:
    path = link(layout.root, "UpdateService")
    service = await bmc.get(path) if path else {}
    try:
        if isinstance(image, str):
            return await _simple_update(bmc, service, target, behind, image)
        multipart = dig(service, "MultipartHttpPushUri")
        if isinstance(multipart, str) and multipart:
            _fits(bmc, service, image)
            return await _multipart(bmc, multipart, target, behind, image, deadline)
        plain = dig(service, "HttpPushUri")
        if isinstance(plain, str) and plain.startswith("/redfish/"):
            _fits(bmc, service, image)
            with image.open("rb") as stream:
                return await bmc.post(plain, stream, limit=deadline)
    except UnreachableError as error:
        raise UnreachableError(
            f"{error.message} while {image} was sent; whether it arrived is not known",
            "Run the same command again: an update that is at work is followed, not started twice.",
        ) from error
    except BmcError as error:
        if set(error.ids) & messages.UPDATE_BUSY:
            raise BmcError(
                f"{bmc.node}: the BMC is busy with another update ({error.message})",
                "Wait until it is through, and run the same command again.",
                status=error.status,
                ids=error.ids,
            ) from error
        raise
    raise BmcError(
        f"{bmc.node}: the BMC takes no pushed image (its UpdateService has no MultipartHttpPushUri)",
        f"Serve {image.name} over HTTPS and name its URL as the image of {target.component} in the baseline.",
    )


def _fits(bmc: Bmc, service: dict[str, Any], image: Path) -> None:
    most = dig(service, "MaxImageSizeBytes")
    size = image.stat().st_size
    if isinstance(most, int) and 0 < most < size:
        raise BmcError(
            f"{bmc.node}: {image} has {size} bytes, and the BMC takes at most {most}",
            "Use the vendor's image of this component alone, in place of a bundle.",
        )


async def _multipart(
    bmc: Bmc, uri: str, target: FirmwareTarget, behind: Sequence[Component], image: Path, deadline: float
) -> Answer:
    """One form, streamed from disk with its length said before: iDRAC refuses chunks, and wants a base name."""
    parameters = {"Targets": [component.uri for component in behind]}
    with image.open("rb") as stream:
        form = aiohttp.FormData(default_to_multipart=True)
        form.add_field("UpdateParameters", json.dumps(parameters), content_type="application/json")
        oem = (bmc.quirks.oem_parameters or {}).get(target.component)
        if oem is not None:
            form.add_field("OemParameters", json.dumps(dict(oem)), content_type="application/json")
        form.add_field("UpdateFile", stream, filename=image.name, content_type="application/octet-stream")
        return await bmc.post(uri, form, limit=deadline)


async def _simple_update(
    bmc: Bmc, service: dict[str, Any], target: FirmwareTarget, behind: Sequence[Component], url: str
) -> Answer:
    action = dig(service, "Actions", "#UpdateService.SimpleUpdate", "target")
    if not isinstance(action, str):
        raise BmcError(
            f"{bmc.node}: the BMC can't fetch {url} itself (its UpdateService has no SimpleUpdate)",
            f"Name a file as the image of {target.component} in the baseline, so that it is pushed.",
        )
    body = {
        "ImageURI": url,
        "TransferProtocol": url.split(":", 1)[0].upper(),
        "Targets": [component.uri for component in behind],
    }
    return await bmc.post(action, body)


async def _activate(bmc: Bmc, layout: Layout, target: FirmwareTarget, report: Report) -> None:
    """The reset that brings the new version into force."""
    if target.activation == "none":
        return
    report(f"activating {target.component} by {target.activation.replace('_', ' ')}")
    if target.activation == "bmc_reset":
        await reset_bmc(bmc, layout)
    elif target.activation == "system_reset":
        await restart(bmc, layout)
    elif target.activation == "power_cycle":
        await power_cycle(bmc, layout)
    elif target.activation == "ac_cycle":
        await ac_cycle(bmc, layout)
    else:
        raise BmcError(
            f"{bmc.node}: '{target.activation}' of {target.component} in the baseline is no activation",
            "Write none, bmc_reset, system_reset, power_cycle or ac_cycle.",
        )


async def _verify(
    bmc: Bmc, layout: Layout, target: FirmwareTarget, matched: int, deadline: float, report: Report
) -> None:
    """Read the versions until they are the expected ones: entries of adapters come late after a start.

    ``matched``: how many entries there were before; one that the update lost is not right.
    """
    seen: list[Component] = []
    report(f"reading the version of {target.component} back")

    async def all_right() -> bool | None:
        nonlocal seen
        bmc.forgive()
        try:
            seen = compare(await read_inventory(bmc, layout), target)
        except UnreachableError:
            return None
        return True if len(seen) >= max(matched, 1) and all(component.right for component in seen) else None

    if await bmc.pace.wait_for(all_right, deadline=deadline) is None:
        wrong = [f"{c.id} has {c.version or 'no version'}" for c in seen if not c.right]
        raise BmcError(
            f"{bmc.node}: {target.component} was updated and activated, and is not at {target.version}: "
            f"{', '.join(wrong) or f'of {matched} entries in the inventory {len(seen)} are left'}",
            "Read the BMC's log for the update's real outcome, and check that the image fits this machine.",
        )
