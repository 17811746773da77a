"""Firmware updates: an image pushed or fetched, written by a task, live after the reset that it needs."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Coroutine, Iterable
from typing import Any

import aiohttp

from metalyard.virtual.bmc.firmware import Image, ImageError, read_image
from metalyard.virtual.bmc.handlers import tasks
from metalyard.virtual.bmc.messages import RedfishError, message
from metalyard.virtual.bmc.service import Answer, Bmc, Call
from metalyard.virtual.bmc.state import Staged, Task
from metalyard.virtual.bmc.tree import Resource

INVENTORY = "/redfish/v1/UpdateService/FirmwareInventory"
STEPS = 5
FETCH_TIMEOUT = 120.0
"""Seconds to fetch an image."""


async def push_update(bmc: Bmc, call: Call, resource: Resource) -> Answer:
    """An image in a multipart body: UpdateParameters (JSON), UpdateFile, and OemParameters, which may be left out."""
    if call.parts is None:
        raise RedfishError(400, "UnrecognizedRequestBody")
    parts = await call.parts()
    for name in ("UpdateParameters", "UpdateFile"):
        if name not in parts:
            raise RedfishError(400, "PropertyMissing", name, related=[f"#/{name}"])
    try:
        parameters = json.loads(parts["UpdateParameters"])
    except ValueError as error:
        raise RedfishError(400, "MalformedJSON") from error
    if not isinstance(parameters, dict):
        raise RedfishError(400, "UnrecognizedRequestBody")
    targets = _targets(bmc, parameters.get("Targets", []))
    force = parameters.get("ForceUpdate", False) is True
    task = _begin(bmc)
    bmc.start_job(_alone(bmc, _update(bmc, task, parts["UpdateFile"], targets, force)))
    return tasks.accepted(bmc, task)


async def simple_update(bmc: Bmc, call: Call, resource: Resource) -> Answer:
    """UpdateService.SimpleUpdate: the BMC fetches the image itself."""
    body = call.body or {}
    action = "UpdateService.SimpleUpdate"
    uri = body.get("ImageURI")
    if uri is None:
        raise RedfishError(400, "ActionParameterMissing", action, "ImageURI")
    if not isinstance(uri, str):
        raise RedfishError(400, "ActionParameterValueTypeError", uri, "ImageURI", action)
    protocol = body.get("TransferProtocol", "HTTPS" if uri.startswith("https:") else "HTTP")
    if protocol not in ("HTTP", "HTTPS"):
        raise RedfishError(400, "ActionParameterValueNotInList", protocol, "TransferProtocol", action)
    if "://" not in uri:
        uri = f"{protocol.lower()}://{uri}"
    if not uri.startswith(f"{protocol.lower()}://"):
        raise RedfishError(400, "ActionParameterValueNotInList", uri, "ImageURI", action)
    targets = _targets(bmc, body.get("Targets", []))
    task = _begin(bmc)
    work = _fetch_and_update(bmc, task, uri, targets, body.get("ForceUpdate", False) is True)
    bmc.start_job(_alone(bmc, work))
    return tasks.accepted(bmc, task)


def _targets(bmc: Bmc, given: Any) -> list[str]:
    """The components that the request names; empty: every one that the image is for."""
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise RedfishError(400, "PropertyValueTypeError", json.dumps(given), "Targets", related=["#/Targets"])
    known = bmc.firmware()
    named = []
    for uri in given:
        member = uri.removeprefix(f"{INVENTORY}/")
        if member not in known:
            raise RedfishError(400, "PropertyValueNotInList", uri, "Targets", related=["#/Targets"])
        named.append(member)
    return named


def _begin(bmc: Bmc) -> Task:
    if bmc.updating:
        raise RedfishError(409, "ResourceInUse", headers={"Retry-After": "5"})
    bmc.updating = True
    task = bmc.state.new_task("Firmware Update")
    task.state = "Running"
    task.messages = [message("TaskEvent.1.0.TaskStarted", task.id)]
    bmc.state.changed()
    return task


async def _alone(bmc: Bmc, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    finally:
        bmc.updating = False


async def _fetch_and_update(bmc: Bmc, task: Task, uri: str, targets: list[str], force: bool) -> None:
    shown = uri.rpartition("/")[2]
    limit = int(bmc.model.constants["image_limit"])
    data = bytearray()
    try:
        timeout = aiohttp.ClientTimeout(total=FETCH_TIMEOUT)
        # An emulated BMC has no trust store of its own; the image carries a digest that is verified.
        async with aiohttp.ClientSession(timeout=timeout) as client, client.get(uri, ssl=False) as response:
            response.raise_for_status()
            async for chunk in response.content.iter_chunked(65536):
                data += chunk
                if len(data) > limit:
                    raise aiohttp.ClientPayloadError("the image is larger than the BMC takes")
    except (aiohttp.ClientError, TimeoutError, ValueError):
        tasks.fail(bmc, task, "Update.1.0.TransferFailed", shown, bmc.config.node)
        return
    await _update(bmc, task, bytes(data), targets, force)


async def _update(bmc: Bmc, task: Task, data: bytes, targets: list[str], force: bool) -> None:
    try:
        image = read_image(data)
    except ImageError as error:
        bmc.state.log("Version Change", f"Firmware image refused: {error}", severity="Warning")
        tasks.fail(bmc, task, "Update.1.0.VerificationFailed", "image", ", ".join(targets) or bmc.config.node)
        return
    live = bmc.firmware()
    components = targets or [component for component in live if image.fits(component)]
    wrong = [component for component in components if not image.fits(component)]
    if wrong or not components:
        place = ", ".join(wrong) or bmc.config.node
        tasks.fail(bmc, task, "Update.1.0.VerificationFailed", image.version, place)
        return
    for step in range(STEPS):
        tasks.advance(bmc, task, step * 100 // STEPS)
        await asyncio.sleep(bmc.config.timings.update / STEPS)
    task.messages = [*task.messages, *_write(bmc, image, components, live, force)]
    tasks.complete(bmc, task)


def _write(
    bmc: Bmc, image: Image, components: Iterable[str], live: dict[str, str], force: bool
) -> list[dict[str, Any]]:
    """Stage the image for its components, or make it live where no reset is needed."""
    told = []
    for component in components:
        staged = bmc.state.kept.staged.get(component)
        if not force and live[component] == image.version and staged is None:
            told.append(message("NvidiaUpdate.1.0.ComponentUpdateSkipped", component, image.version))
            continue
        activation = activation_of(bmc, component)
        if activation == "none":
            bmc.state.kept.firmware[component] = image.version
            bmc.state.kept.staged.pop(component, None)
            told.append(message("Update.1.0.UpdateSuccessful", component, image.version))
            if bmc.config.on_firmware is not None:
                bmc.config.on_firmware(component, image.version)
        else:
            bmc.state.kept.staged[component] = Staged(version=image.version, activation=activation)
            told.append(message("Update.1.0.AwaitToActivate", image.version, component))
    bmc.state.save()
    return told


def activation_of(bmc: Bmc, component: str) -> str:
    """What makes new firmware of this component live."""
    for pattern, activation in bmc.model.constants["activation"].items():
        if re.fullmatch(pattern, component):
            return str(activation)
    return "none"
