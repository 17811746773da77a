"""The fabric held against the planned cables: what is missing, swapped, in the wrong port, degraded or unknown.

Every finding names both ends as a technician finds them, and the nodes whose service it stands against. A fault between
two switches stands against no node but against the fabric.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from metalyard.fabric.topology import SPEEDS, Device, FoundLink, Port, Topology
from metalyard.plan.cables import CablePlan, End, Link

LANES = {"1x": 1, "2x": 2, "4x": 4, "8x": 8, "12x": 12}
AGGREGATION = "Mellanox Technologies Aggregation Node"
"""NodeDescription of the SHARP engine inside a Quantum switch: a part of it, on a port that has no cable."""


class Fault(StrEnum):
    """What is wrong with a cable or a device."""

    MISSING = "missing"
    SWAPPED = "swapped"
    WRONG_PORT = "wrong port"
    DEGRADED = "degraded"
    UNKNOWN_DEVICE = "unknown device"
    UNPLANNED = "unplanned"
    DUPLICATE_GUID = "duplicate GUID"
    UNSEEN = "unseen"


@dataclass(frozen=True)
class CableFinding:
    """One fault. ``severity`` is ``unknown`` where the fabric could not be seen well enough to say."""

    fault: Fault
    severity: Literal["fail", "watch", "unknown"]
    nodes: tuple[str, ...]
    """Nodes that it stands against; none where it is the fabric's."""
    part: str
    """The cable's label, or the end or device where there is none."""
    ends: tuple[str, ...]
    """The planned ends, in the plan's writing."""
    summary: str
    measured: str
    expected: str
    remedy: str


def compare(cables: CablePlan, topology: Topology) -> tuple[CableFinding, ...]:
    """All faults of the fabric, in the order of the plan's cables and then of the devices."""
    return _Comparison(cables, topology).findings()


def affecting(findings: Iterable[CableFinding], node: str) -> tuple[CableFinding, ...]:
    """The findings that stand against one node."""
    return tuple(finding for finding in findings if node in finding.nodes)


def _place(end: End) -> str:
    return str(end)


class _Comparison:
    """One fabric named in the plan's words: every port that is up has a key such as ``leaf-1:4``."""

    def __init__(self, cables: CablePlan, topology: Topology) -> None:
        self.cables = cables
        self.topology = topology
        self.links = cables.infiniband
        self.planned: dict[str, End] = {end.key: end for link in self.links for end in link.ends}
        self.link_at: dict[str, Link] = {end.key: link for link in self.links for end in link.ends}
        self.homes = self._homes()
        self.unknown: dict[str, Device] = {}
        self.peer: dict[str, str] = {}
        self.found: dict[str, FoundLink] = {}
        for one, two, link in topology.peers():
            self.peer[self._key(one)] = self._key(two)
            self.found[self._key(one)] = link
        self.seen_hosts = {home.host for home in self.homes.values()}

    def _homes(self) -> dict[tuple[int, int], End]:
        """Which port of the plan each found adapter port is, and which switch (number 0) each found switch.

        An adapter is known by its node GUID, or by the port's GUID where no adapter has that as its node GUID: on
        ConnectX both are the same, other adapters number their ports upwards from the node's.
        """
        homes: dict[tuple[int, int], End] = {}
        guids = {switch.guid: switch for switch in self.cables.switches.values() if switch.guid}
        names = {name: switch for name, switch in self.cables.switches.items() if not switch.guid}
        nodes = {device.guid for device in self.topology.devices if device.kind == "ca"}
        for index, device in enumerate(self.topology.devices):
            if device.kind == "switch":
                switch = guids.get(device.guid) or names.get(device.host)
                if switch:
                    homes[index, 0] = switch
                continue
            for number, port_guid in device.port_guids:
                own = self.cables.devices.get(device.guid)
                if own and number == 1:
                    homes[index, number] = own
                elif not own and port_guid in self.cables.devices and port_guid not in nodes:
                    homes[index, number] = self.cables.devices[port_guid]
        return homes

    def _key(self, port: Port) -> str:
        device = self.topology.devices[port.device]
        if device.kind == "switch" and (port.device, 0) in self.homes:
            return f"{self.homes[port.device, 0].host}:{port.number}"
        home = self.homes.get((port.device, port.number))
        if home:
            return home.key
        key = f"?{device.guid}:{port.number}"
        self.unknown[key] = device
        return key

    def _say(self, key: str | None) -> str:
        """A found port in words."""
        if key is None:
            return "no link"
        if key in self.unknown:
            device = self.unknown[key]
            return f"'{device.name}' (GUID {device.guid}, not in the plan) port {key.rpartition(':')[2]}"
        if key in self.planned:
            return _place(self.planned[key])
        host, _, port = key.partition(":")
        switch = self.cables.switches.get(host)
        if switch:
            return f"{host} port {port} (rack {switch.rack}, unit {switch.unit})"
        return next((_place(end) for end in self.cables.devices.values() if end.key == key), key)

    def findings(self) -> tuple[CableFinding, ...]:
        """Everything that is wrong."""
        wrong = [link for link in self.links if self.peer.get(link.ends[0].key) != link.ends[1].key]
        amiss = set(wrong)
        found = list(self._swaps(wrong, amiss))
        explained = {link for _, links in found for link in links}
        left = [link for link in wrong if link not in explained]
        absent = self._absent_nodes(set(left))
        findings = [finding for finding, _ in found]
        findings += absent.values()
        findings += [self._misplaced(link) for link in left if not any(node in absent for node in link.nodes)]
        findings += [finding for link in self.links if link not in amiss for finding in self._rate(link)]
        findings += self._strangers(wrong)
        findings += self._duplicates()
        order = {link.label or link.name: index for index, link in enumerate(self.links)}
        return tuple(sorted(findings, key=lambda finding: order.get(finding.part, len(order))))

    def _swaps(self, wrong: list[Link], amiss: set[Link]) -> Iterable[tuple[CableFinding, tuple[Link, Link]]]:
        """Two cables, each of which is where the other should be: one finding that explains both."""
        done: set[Link] = set()
        for link in wrong:
            if link in done:
                continue
            for end in link.ends:
                far = self.peer.get(end.key)
                other = self.link_at.get(far) if far else None
                if other is None or other == link or other in done or other not in amiss:
                    continue
                there = next(one for one in other.ends if one.key == far)
                if self.peer.get(link.other(end).key) != other.other(there).key:
                    continue
                done |= {link, other}
                yield self._swap(link, other, end, there), (link, other)
                break

    def _swap(self, link: Link, other: Link, end: End, there: End) -> CableFinding:
        """``end`` of ``link`` was found at ``there``, which is where ``other`` belongs."""
        mine, far, across = link.other(end), there, other.other(there)
        return CableFinding(
            fault=Fault.SWAPPED,
            severity="fail",
            nodes=tuple(dict.fromkeys(link.nodes + other.nodes)),
            part=link.label or link.name,
            ends=(*(one.key for one in link.ends), *(one.key for one in other.ends)),
            summary=(
                f"{link.name} and {other.name} are swapped: {_place(end)} is connected to {_place(far)}, and "
                f"{_place(across)} to {_place(mine)}; planned are {_place(end)} to {_place(mine)}, and "
                f"{_place(across)} to {_place(far)}"
            ),
            measured=f"{end.key} to {far.key}, {across.key} to {mine.key}",
            expected=f"{end.key} to {mine.key}, {across.key} to {far.key}",
            remedy=f"Exchange the plugs of the two cables at one side: at {_place(mine)} and {_place(far)}.",
        )

    def _absent_nodes(self, left: set[Link]) -> dict[str, CableFinding]:
        """Nodes of which no planned port is on the fabric, in one finding each instead of one a cable."""
        at: dict[str, list[Link]] = defaultdict(list)
        for link in self.links:
            for node in link.nodes:
                at[node].append(link)
        absent = {}
        for node, links in at.items():
            if len(links) < 2 or node in self.seen_hosts or not all(link in left for link in links):
                continue
            blind = all(self._blind(link) for link in links)
            place = next(end for end in links[0].ends if end.host == node)
            absent[node] = CableFinding(
                fault=Fault.UNSEEN if blind else Fault.MISSING,
                severity="unknown" if blind else "fail",
                nodes=(node,),
                part=node,
                ends=tuple(end.key for link in links for end in link.ends),
                summary=(
                    f"none of the {len(links)} InfiniBand ports of {node} (rack {place.rack}, unit {place.unit}) is on "
                    f"the fabric; planned are {', '.join(f'{one.ends[0].key} to {one.ends[1].key}' for one in links)}"
                ),
                measured="0 ports",
                expected=f"{len(links)} ports",
                remedy=(
                    "Its switches are not on the fabric either: see to them, then read the fabric again."
                    if blind
                    else "See that the node is up and its adapters have their driver (ibstat), then its cables."
                ),
            )
        return absent

    def _blind(self, link: Link) -> bool:
        """Whether nothing can be said of a cable: the switch at its end is not on the fabric itself."""
        return any(end.kind == "switch" and end.host not in self.seen_hosts for end in link.ends)

    def _misplaced(self, link: Link) -> CableFinding:
        """A cable that is not where it belongs, and no swapped pair explains it."""
        one, two = link.ends
        at_one, at_two = self.peer.get(one.key), self.peer.get(two.key)
        if at_one is None and at_two is None:
            return self._missing(link)
        stranger = next((key for key in (at_one, at_two) if key in self.unknown), None)
        told = [
            f"{_place(end)} is connected to {self._say(key)}"
            for end, key in ((one, at_one), (two, at_two))
            if key is not None
        ]
        told += [f"{_place(end)} has no link" for end, key in ((one, at_one), (two, at_two)) if key is None]
        if stranger:
            fault, remedy = (
                Fault.UNKNOWN_DEVICE,
                "If the adapter or switch was replaced, enter its GUID in the plan; otherwise plug the planned one in.",
            )
        else:
            fault, remedy = Fault.WRONG_PORT, f"Plug {link.name} in at {_place(one)} and {_place(two)}."
        return CableFinding(
            fault=fault,
            severity="fail",
            nodes=link.nodes,
            part=link.label or link.name,
            ends=(one.key, two.key),
            summary=f"{link.name} should connect {_place(one)} to {_place(two)}, but " + ", and ".join(told),
            measured="; ".join(
                f"{end.key} to {self._short(key)}" for end, key in ((one, at_one), (two, at_two)) if key is not None
            ),
            expected=f"{one.key} to {two.key}",
            remedy=remedy,
        )

    def _short(self, key: str) -> str:
        return f"{self.unknown[key].name} {self.unknown[key].guid}" if key in self.unknown else key

    def _missing(self, link: Link) -> CableFinding:
        one, two = link.ends
        blind = [end for end in link.ends if end.kind == "switch" and end.host not in self.seen_hosts]
        if blind:
            summary = f"{link} can't be seen, since {blind[0].host} is not on the fabric"
            remedy = f"See that {blind[0].host} is up and connected, then read the fabric again."
        else:
            summary = f"{link.name} from {_place(one)} to {_place(two)} has no link at either end"
            remedy = (
                "See that both ports are up and enabled; then reseat or replace "
                f"{link.name} at {_place(one)} and {_place(two)}."
            )
        return CableFinding(
            fault=Fault.UNSEEN if blind else Fault.MISSING,
            severity="unknown" if blind and link.nodes else "fail",
            nodes=link.nodes,
            part=link.label or link.name,
            ends=(one.key, two.key),
            summary=summary,
            measured="not seen" if blind else "no link",
            expected=f"{one.key} to {two.key}, {link.width} {link.speed}",
            remedy=remedy,
        )

    def _rate(self, link: Link) -> Iterable[CableFinding]:
        """Width and speed of a cable that is where it belongs. Faster or wider than planned is no fault."""
        one, two = link.ends
        found = self.found[one.key]
        unreadable = found.width not in LANES or found.speed not in SPEEDS
        if not unreadable and (
            LANES[found.width] >= LANES[link.width] and SPEEDS.index(found.speed) >= SPEEDS.index(link.speed)
        ):
            return
        seen = f"{found.width} {found.speed}"
        yield CableFinding(
            fault=Fault.UNSEEN if unreadable else Fault.DEGRADED,
            severity="unknown" if unreadable else "fail",
            nodes=link.nodes,
            part=link.label or link.name,
            ends=(one.key, two.key),
            summary=(
                f"{link.name} from {_place(one)} to {_place(two)} runs at {seen}; planned is {link.width} {link.speed}"
            ),
            measured=seen,
            expected=f"{link.width} {link.speed}",
            remedy=(
                "The tool does not know that rate: use infiniband-diags that do, and read the fabric again."
                if unreadable
                else f"Clean and reseat {link.name} at both ends; replace it, then the port, if the rate stays."
            ),
        )

    def _strangers(self, wrong: list[Link]) -> Iterable[CableFinding]:
        """Links that the plan does not know, at ports that it has no cable for."""
        told = {key for link in wrong for end in link.ends for key in (end.key, self.peer.get(end.key)) if key}
        done: set[str] = set()
        hosts = {home.host for home in self.homes.values() if home.kind == "node"}
        for key, far in self.peer.items():
            if key in done or key in told or far in told or self.link_at.get(key) is not None:
                continue
            done |= {key, far}
            devices = [self.unknown[one] for one in (key, far) if one in self.unknown]
            if any(device.name == AGGREGATION for device in devices):
                continue
            nodes = tuple(sorted({one.partition(":")[0] for one in (key, far)} & hosts))
            near, other = (far, key) if key in self.unknown else (key, far)
            yield CableFinding(
                fault=Fault.UNKNOWN_DEVICE if devices else Fault.UNPLANNED,
                severity="watch",
                nodes=nodes,
                part=self._short(near),
                ends=(),
                summary=f"{self._say(near)} is connected to {self._say(other)}; the plan has no cable there",
                measured=f"{self._short(near)} to {self._short(other)}",
                expected="no cable",
                remedy="Enter the cable in the plan if it belongs there, or unplug it.",
            )

    def _duplicates(self) -> Iterable[CableFinding]:
        """GUIDs that more than one device has: routing is undefined for all of them."""
        for guid in self.topology.duplicates:
            owners = [
                (index, device)
                for index, device in enumerate(self.topology.devices)
                if device.guid == guid or guid in {own for _, own in device.port_guids}
            ]
            near = {
                self.peer[self._key(Port(index, number))]
                for index, device in owners
                for number in range(1, device.ports + 1)
                if self._key(Port(index, number)) in self.peer
            }
            keys = {self._key(Port(index, number)) for index, device in owners for number, _ in device.port_guids}
            hosts = {end.host for key in near | keys if (link := self.link_at.get(key)) for end in link.ends}
            nodes = tuple(sorted(hosts & {end.host for end in self.planned.values() if end.kind == "node"}))
            names = ", ".join(f"'{device.name}'" for _, device in owners)
            yield CableFinding(
                fault=Fault.DUPLICATE_GUID,
                severity="fail",
                nodes=nodes,
                part=guid,
                ends=(),
                summary=f"GUID {guid} is that of {len(owners)} devices: {names}; each must have its own",
                measured=f"{len(owners)} devices",
                expected="1 device",
                remedy="Burn the right GUID into the adapter that has the wrong one (flint), or replace it.",
            )
