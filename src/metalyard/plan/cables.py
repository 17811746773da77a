"""The planned cables with both ends as a technician finds them: rack, unit, port, label.

``CablePlan.of(plan)`` derives them from the site plan. It is compared by identity, so that what is worked out from one
(such as the comparison with a fabric of ten thousand cables) can be kept and shared by all nodes of a run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from metalyard.plan.model import SitePlan


@dataclass(frozen=True)
class End:
    """One end of a cable. ``port`` is an HCA device of a node (``mlx5_0``) or a port number of a switch."""

    host: str
    port: str
    kind: Literal["node", "switch"]
    rack: str
    unit: int
    guid: str | None = None
    """A node's port GUID, a switch's GUID; ``0x`` and 16 digits."""

    @property
    def key(self) -> str:
        """The end as the plan writes it: ``gpu-1:mlx5_0``, ``leaf-1:4``."""
        return f"{self.host}:{self.port}"

    def __str__(self) -> str:
        port = self.port if self.kind == "node" else f"port {self.port}"
        return f"{self.host} {port} (rack {self.rack}, unit {self.unit})"


@dataclass(frozen=True)
class Link:
    """One cable of the plan."""

    ends: tuple[End, End]
    label: str
    width: str
    speed: str
    medium: Literal["ib", "ethernet"] = "ib"

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes at its ends; none for a cable between two switches."""
        return tuple(dict.fromkeys(end.host for end in self.ends if end.kind == "node"))

    @property
    def name(self) -> str:
        """What a technician looks for: the label, or the two ends where it has none."""
        return f"cable {self.label}" if self.label else f"the cable {self.ends[0].key} to {self.ends[1].key}"

    def other(self, end: End) -> End:
        """The end opposite of ``end``."""
        return self.ends[1] if end == self.ends[0] else self.ends[0]

    def __str__(self) -> str:
        return f"{self.name}: {self.ends[0]} to {self.ends[1]}"


@dataclass(frozen=True, eq=False)
class CablePlan:
    """All planned cables, and the devices that they end at."""

    links: tuple[Link, ...]
    devices: Mapping[str, End]
    """Node port GUID to that port, cabled or not; the name of a port without a cable is known, too."""
    switches: Mapping[str, End]
    """Switch name to its place (port empty); InfiniBand switches only."""

    @classmethod
    def of(cls, plan: SitePlan) -> CablePlan:
        """Derive them. ``ValueError`` names a cable whose end is neither a node's device nor a switch's port."""
        nodes = {node.name: node for node in plan.nodes}
        switches = {switch.name: switch for switch in plan.switches}

        def end(text: str, label: str) -> tuple[End, Literal["ib", "ethernet"]]:
            host, _, port = text.partition(":")
            if host in nodes and port:
                node = nodes[host]
                return End(host, port, "node", node.rack, node.unit, node.hca_guids.get(port)), "ib"
            if host in switches and port.isdecimal():
                switch = switches[host]
                place = End(host, str(int(port)), "switch", switch.rack, switch.unit, switch.guid)
                return place, switch.kind
            raise ValueError(
                f"cable {label or '(no label)'}: its end '{text}' is neither node:device nor switch:port of the plan; "
                "run 'metalyard check'"
            )

        links = []
        for cable in plan.cables:
            (one, medium), (two, other) = (end(text, cable.label) for text in cable.ends)
            ethernet = "ethernet" in (medium, other)
            links.append(
                Link((one, two), cable.label, cable.width, cable.speed, medium="ethernet" if ethernet else "ib")
            )
        devices = {
            guid: End(node.name, device, "node", node.rack, node.unit, guid)
            for node in plan.nodes
            for device, guid in node.hca_guids.items()
        }
        places = {
            switch.name: End(switch.name, "", "switch", switch.rack, switch.unit, switch.guid)
            for switch in plan.switches
            if switch.kind == "ib"
        }
        return cls(tuple(links), devices, places)

    @property
    def infiniband(self) -> tuple[Link, ...]:
        """The cables that the fabric's discovery can see."""
        return tuple(link for link in self.links if link.medium == "ib")

    def of_node(self, node: str) -> tuple[Link, ...]:
        """The cables at one node."""
        return self.by_node.get(node, ())

    @cached_property
    def by_node(self) -> Mapping[str, tuple[Link, ...]]:
        """The cables at each node that has any."""
        grouped: dict[str, list[Link]] = defaultdict(list)
        for link in self.links:
            for node in link.nodes:
                grouped[node].append(link)
        return {node: tuple(links) for node, links in grouped.items()}


def expected_links(plan: SitePlan, nodes: Iterable[str] | None = None) -> dict[str, tuple[Link, ...]]:
    """The expected links per node, for those nodes or all; a node without a cable has an empty tuple."""
    grouped = CablePlan.of(plan).by_node
    names = [node.name for node in plan.nodes] if nodes is None else list(nodes)
    return {name: grouped.get(name, ()) for name in names}
