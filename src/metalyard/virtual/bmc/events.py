"""Events to those that subscribed: each is tried a few times, with a deadline, and then given up."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import aiohttp

from metalyard.virtual.bmc.state import Subscription, timestamp

if TYPE_CHECKING:
    from metalyard.virtual.bmc.service import Bmc

ATTEMPTS = 3
TIMEOUT = 5.0
"""Seconds for one attempt."""


async def deliver(bmc: Bmc, text: str, severity: str, origin: str) -> None:
    """Post one event to every destination; a destination that does not answer is no one else's trouble."""
    event = {
        "EventId": "1",
        "EventTimestamp": timestamp(),
        "EventType": "Alert",
        "MemberId": "1",
        "Message": text,
        "MessageId": "ResourceEvent.1.0.ResourceChanged",
        "OriginOfCondition": {"@odata.id": origin},
        "Severity": severity,
    }
    await asyncio.gather(*(_post(one, event) for one in list(bmc.state.kept.subscriptions)))


async def _post(subscription: Subscription, event: dict[str, Any]) -> None:
    body = {
        "@odata.type": "#Event.v1_4_0.Event",
        "Id": "1",
        "Name": "Event Array",
        "Context": subscription.context,
        "Events": [event],
    }
    timeout = aiohttp.ClientTimeout(total=TIMEOUT)
    async with aiohttp.ClientSession(timeout=timeout) as client:
        for _ in range(ATTEMPTS):
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                # The emulated BMC has no trust store, as most real ones have none for event destinations.
                async with client.post(subscription.destination, json=body, ssl=False) as response:
                    if response.status < 300:
                        return
            await asyncio.sleep(0.5)
