"""Which of a BMC's systems is the host, and which manager and chassis belong to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from metalyard.redfish.client import ROOT, Bmc
from metalyard.redfish.documents import dig, link, links, name_of, text
from metalyard.redfish.errors import BmcError
from metalyard.redfish.quirks import quirks_of

Placed = tuple[str, dict[str, Any]]
"""A resource: its URI and its content."""


@dataclass(frozen=True)
class Layout:
    """The host system with its manager and chassis, and the other systems (an HGX baseboard)."""

    root: dict[str, Any]
    host: Placed
    others: list[Placed]
    manager: Placed | None
    chassis: list[Placed]

    @property
    def systems(self) -> list[Placed]:
        """The host first, then the others."""
        return [self.host, *self.others]


async def read_layout(bmc: Bmc) -> Layout:
    """Read it, and set ``bmc.quirks`` by what was found. :class:`BmcError` where the BMC shows no host system."""
    root = await bmc.get(ROOT)
    members = await bmc.members(link(root, "Systems"))
    systems = await bmc.documents(members)
    host = max(systems, key=_host_likeness, default=None)
    if len(systems) < len(members) and (host is None or not _is_host(host)):
        # What is left may be a baseboard. It must not be taken for the machine.
        raise BmcError(
            f"{bmc.node}: the BMC's host system can't be read ({', '.join(bmc.gaps)})",
            "Run the command again. If it stays, reset the BMC, and look for newer firmware of it.",
        )
    if host is None:
        raise BmcError(
            f"{bmc.node}: the BMC shows no host system (Systems is {'empty' if link(root, 'Systems') else 'missing'})",
            "Reset the BMC and run the command again: some show it only after that.",
        )
    bmc.quirks = quirks_of(root, host[1])
    return Layout(
        root=root,
        host=host,
        others=[system for system in systems if system is not host],
        manager=await _manager(bmc, root, host),
        chassis=await _chassis(bmc, root, host),
    )


def _is_host(system: Placed) -> bool:
    return isinstance(dig(system[1], "Actions", "#ComputerSystem.Reset"), dict)


def _host_likeness(system: Placed) -> int:
    """A host can be reset and has a BIOS and a boot source; a baseboard has none of these."""
    document = system[1]
    return 4 * _is_host(system) + 2 * (link(document, "Bios") is not None) + isinstance(dig(document, "Boot"), dict)


async def _manager(bmc: Bmc, root: dict[str, Any], host: Placed) -> Placed | None:
    for path in links(host[1], "Links", "ManagedBy"):
        document = await bmc.find(path)
        if document is not None:
            return path, document
    managers = await bmc.resources(link(root, "Managers"))
    own = [manager for manager in managers if text(manager[1], "ManagerType") in ("BMC", "ManagementController")]
    found = own or managers
    return found[0] if found else None


async def _chassis(bmc: Bmc, root: dict[str, Any], host: Placed) -> list[Placed]:
    found = await bmc.documents(links(host[1], "Links", "Chassis"))
    if found:
        return found
    every = await bmc.resources(link(root, "Chassis"))
    return [chassis for chassis in every if host[0] in links(chassis[1], "Links", "ComputerSystems")] or every[:1]


def described(placed: Placed) -> str:
    """How a message names a resource: its kind and Id (``Systems DGX``)."""
    segments = placed[0].rstrip("/").split("/")
    return f"{segments[-2] if len(segments) > 1 else ''} {name_of(placed[1], placed[0])}".strip()
