"""The time servers of a BMC: in its manager's NetworkProtocol, or where its vendor keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from metalyard.redfish.client import Bmc
from metalyard.redfish.documents import dig, link
from metalyard.redfish.errors import BmcError
from metalyard.redfish.layout import Layout


@dataclass(frozen=True)
class TimeServers:
    """What is set now, and where. ``enabled`` is None where the BMC has no such switch."""

    path: str
    servers: tuple[str, ...]
    enabled: bool | None
    key: str | None
    """The property that holds NTPServers (``NTP``); None where they stand at the top."""
    property: str

    def right(self, wanted: Sequence[str]) -> bool:
        """Whether nothing is left to do."""
        return self.servers == tuple(wanted) and self.enabled is not False

    def change(self, wanted: Sequence[str]) -> dict[str, Any]:
        """The PATCH that sets the wanted servers."""
        body: dict[str, Any] = {self.property: list(wanted)}
        if self.enabled is not None:
            body["ProtocolEnabled"] = True
        return {self.key: body} if self.key else body

    def text(self) -> str:
        """For a diff."""
        state = "" if self.enabled is not False else " (switched off)"
        return f"ntp servers: {', '.join(self.servers) or 'none'}{state}\n"


async def read_time_servers(bmc: Bmc, layout: Layout) -> TimeServers:
    """:class:`BmcError` where the BMC has no place for time servers."""
    manager = layout.manager[1] if layout.manager else {}
    path = link(manager, "NetworkProtocol")
    document = await bmc.find(path)
    if path and isinstance(dig(document, "NTP"), dict):
        enabled = dig(document, "NTP", "ProtocolEnabled")
        return TimeServers(
            path, _servers(dig(document, "NTP", "NTPServers")), enabled if enabled is not None else True, "NTP",
            "NTPServers",
        )  # fmt: skip
    quirks = bmc.quirks
    path = link(manager, *quirks.ntp_document) if quirks.ntp_document else None
    document = await bmc.find(path)
    if path and isinstance(dig(document, quirks.ntp_property), list):
        return TimeServers(path, _servers(dig(document, quirks.ntp_property)), None, None, quirks.ntp_property)
    raise BmcError(
        f"{bmc.node}: the BMC has no place for time servers (no NTP in its NetworkProtocol)",
        "Set them by DHCP, and leave bmc.ntp_servers in the plan empty.",
    )


async def set_time_servers(bmc: Bmc, layout: Layout, now: TimeServers, wanted: Sequence[str]) -> TimeServers:
    """Set them, and read them back. :class:`BmcError` where the BMC kept others."""
    await bmc.patch(now.path, now.change(wanted))

    async def taken() -> TimeServers | None:
        read = await read_time_servers(bmc, layout)
        return read if read.right(wanted) else None

    after = await bmc.pace.wait_for(taken, deadline=20)
    if after is None:
        read = await read_time_servers(bmc, layout)
        raise BmcError(
            f"{bmc.node}: the BMC accepted the time servers {', '.join(wanted)} and has {', '.join(read.servers)}",
            "Some BMCs take fewer servers, or only addresses: correct bmc.ntp_servers in the plan.",
        )
    return after


def _servers(value: object) -> tuple[str, ...]:
    """Without blanks, empty places, and the zeros that mean an empty place."""
    listed = [str(item).strip() for item in value] if isinstance(value, list) else []
    return tuple(item for item in listed if item and item != "0.0.0.0")  # noqa: S104 - compared, not bound
