"""The BMC itself: its restart, time servers, event log and event subscriptions."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from metalyard.virtual.bmc import events
from metalyard.virtual.bmc.messages import RedfishError
from metalyard.virtual.bmc.service import Answer, Bmc, Call
from metalyard.virtual.bmc.state import Subscription
from metalyard.virtual.bmc.tree import Resource

SUBSCRIPTIONS = 8
"""Most event destinations at once."""


async def reset(bmc: Bmc, call: Call, resource: Resource) -> None:
    """Manager.Reset: answers, and is gone a moment later."""
    body = call.body or {}
    if "ResetType" not in body:
        raise RedfishError(400, "ActionParameterMissing", "Manager.Reset", "ResetType")
    kind = body["ResetType"]
    if kind not in bmc.model.constants["manager_reset_types"]:
        raise RedfishError(400, "ActionParameterValueNotInList", kind, "ResetType", "Manager.Reset")
    if bmc.updating:
        raise RedfishError(409, "ResourceInUse", headers={"Retry-After": "5"})
    bmc.start_job(_go_away(bmc))


async def _go_away(bmc: Bmc) -> None:
    await asyncio.sleep(0.1)  # the answer has to leave first
    bmc.away.set()


async def patch_network_protocol(bmc: Bmc, call: Call, resource: Resource) -> None:
    """NTP servers; other writable settings go to the overlay. All or nothing."""
    body: dict[str, Any] = dict(call.body or {})
    ntp = body.pop("NTP", {})
    if "NTPServers" in ntp:
        present = bmc.render(resource)["NTP"]["NTPServers"]
        bmc.state.kept.ntp_servers = _servers(ntp["NTPServers"], present, int(bmc.model.constants["ntp_servers"]))
    if "ProtocolEnabled" in ntp:
        bmc.state.kept.ntp_enabled = ntp["ProtocolEnabled"]
    for name, value in body.items():
        bmc.state.kept.overlay.setdefault(resource.path, {}).setdefault(name, {}).update(value)
    bmc.state.save()


def _servers(wanted: list[Any], present: list[str], limit: int) -> list[str]:
    """The array after a PATCH: ``{}`` keeps the element in its place, null and "" remove it."""
    related = ["#/NTP/NTPServers"]
    made = []
    for number, server in enumerate(wanted):
        if server == {} and number < len(present):
            made.append(present[number])
            continue
        if server in (None, "", {}):
            continue
        if not isinstance(server, str) or not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?", server):
            raise RedfishError(400, "PropertyValueFormatError", server, "NTPServers", related=related)
        made.append(server)
    if len(made) > limit:
        raise RedfishError(400, "PropertyValueError", "NTPServers", related=related)
    return made


async def clear_log(bmc: Bmc, call: Call, resource: Resource) -> None:
    """LogService.ClearLog: the log begins anew, and says so."""
    bmc.state.kept.log = []
    bmc.state.kept.next_event = 1
    bmc.state.log("Event Logging Disabled", "Log Area Reset/Cleared")


async def subscribe(bmc: Bmc, call: Call, resource: Resource) -> Answer:
    """A further destination of events."""
    body = call.body or {}
    for name in ("Destination", "Protocol"):
        if name not in body:
            raise RedfishError(400, "CreateFailedMissingReqProperties", name, related=[f"#/{name}"])
    for name in body:
        if name not in ("Destination", "Protocol", "Context", "EventFormatType", "RegistryPrefixes", "ResourceTypes"):
            raise RedfishError(400, "PropertyUnknown", name, related=[f"#/{name}"])
    if body["Protocol"] != "Redfish":
        raise RedfishError(400, "PropertyValueNotInList", body["Protocol"], "Protocol", related=["#/Protocol"])
    if body.get("EventFormatType", "Event") != "Event":
        raise RedfishError(
            400, "PropertyValueNotInList", body["EventFormatType"], "EventFormatType", related=["#/EventFormatType"]
        )
    destination = body["Destination"]
    if not isinstance(destination, str) or not re.fullmatch(r"https?://[^\s/]+(/\S*)?", destination):
        raise RedfishError(400, "PropertyValueFormatError", destination, "Destination", related=["#/Destination"])
    context = body.get("Context", "")
    if not isinstance(context, str):
        raise RedfishError(400, "PropertyValueTypeError", context, "Context", related=["#/Context"])
    if len(bmc.state.kept.subscriptions) >= SUBSCRIPTIONS:
        raise RedfishError(400, "CreateLimitReachedForResource")
    taken = {one.id for one in bmc.state.kept.subscriptions}
    number = next(str(n) for n in range(1, SUBSCRIPTIONS + 2) if str(n) not in taken)
    bmc.state.kept.subscriptions.append(Subscription(id=number, destination=destination, context=context))
    bmc.state.save()
    path = f"{resource.path}/{number}"
    made = bmc.render(bmc.resources()[path])
    return Answer(201, made, {"Location": path, "ETag": str(made["@odata.etag"])})


async def unsubscribe(bmc: Bmc, call: Call, resource: Resource) -> None:
    """No more events there."""
    bmc.state.kept.subscriptions = [one for one in bmc.state.kept.subscriptions if one.id != resource.item.id]
    bmc.state.save()


async def test_event(bmc: Bmc, call: Call, resource: Resource) -> None:
    """EventService.SubmitTestEvent: one event to every destination."""
    body = call.body or {}
    text = body.get("Message", "Test event")
    severity = body.get("Severity", "OK")
    bmc.start_job(events.deliver(bmc, str(text), str(severity), "/redfish/v1/EventService"))
