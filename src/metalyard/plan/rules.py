"""Rules that need the whole plan: nothing twice, no reference into the void, both ends of every cable."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial

from metalyard.plan.catalogue import CatalogueError, load_baseline, load_profile
from metalyard.plan.model import HostEntry, Node, SitePlan, Switch

Place = tuple[str | int, ...]
Broken = tuple[Place, str]
"""Where in the plan, and what is wrong there."""


def broken_rules(plan: SitePlan) -> Iterator[Broken]:
    """Every rule that the plan breaks."""
    for rule in (_unique, _secrets, _references, _addresses, _cables, _catalogue):
        yield from rule(plan)


def _unique(plan: SitePlan) -> Iterator[Broken]:
    yield from _twice("nodes", "name", [n.name for n in plan.nodes])
    yield from _twice("racks", "name", [r.name for r in plan.racks])
    yield from _twice("switches", "name", [s.name for s in plan.switches])
    yield from _twice("hosts", "name", [h.name for h in plan.hosts])
    yield from _twice("nodes", "serial", [n.serial for n in plan.nodes])
    yield from _twice("nodes", "boot_mac", [n.boot_mac for n in plan.nodes])
    yield from _twice("nodes", "address", [str(ipaddress.ip_interface(n.address).ip) for n in plan.nodes])
    yield from _twice("switches", "guid", [s.guid for s in plan.switches])
    seen: dict[str, str] = {}
    for i, node in enumerate(plan.nodes):
        first = seen.setdefault(node.bmc.address, node.name)
        if first != node.name:
            yield ("nodes", i, "bmc", "address"), f"{node.bmc.address} is {first}'s already"
    guids: dict[str, str] = {}
    for i, node in enumerate(plan.nodes):
        for device, guid in node.hca_guids.items():
            owner = f"{node.name}:{device}"
            if guids.setdefault(guid, owner) != owner:
                yield ("nodes", i, "hca_guids", device), f"{guid} is {guids[guid]}'s already"
    names = {n.name for n in plan.nodes}
    others: dict[str, Sequence[Switch | HostEntry]] = {"switches": plan.switches, "hosts": plan.hosts}
    for kind, entries in others.items():
        for i, entry in enumerate(entries):
            if entry.name in names:
                yield (kind, i, "name"), f"'{entry.name}' is a node's name already"


def _twice(kind: str, attribute: str, values: list[str | None]) -> Iterator[Broken]:
    first: dict[Hashable, int] = {}
    for i, value in enumerate(values):
        if value is None:
            continue
        if value in first:
            yield (kind, i, attribute), f"'{value}' stands twice; the first is {kind}[{first[value]}]"
        first.setdefault(value, i)


def _secrets(plan: SitePlan) -> Iterator[Broken]:
    places: list[Place] = [("bmc", "factory_password"), ("maas", "key")]
    for place, ref in zip(places, (plan.bmc.factory_password, plan.maas.key), strict=True):
        if (ref.env is None) == (ref.file is None):
            yield place, "expected exactly one of 'env' (a variable's name) and 'file' (a path)"


def _references(plan: SitePlan) -> Iterator[Broken]:
    racks = {rack.name: rack for rack in plan.racks}
    mounted: dict[str, Sequence[Node | Switch]] = {"nodes": plan.nodes, "switches": plan.switches}
    for kind, entries in mounted.items():
        for i, entry in enumerate(entries):
            rack = racks.get(entry.rack)
            if rack is None:
                yield (kind, i, "rack"), f"no rack '{entry.rack}' in this plan; known are {', '.join(sorted(racks))}"
            elif entry.unit > rack.units:
                yield (kind, i, "unit"), f"unit {entry.unit} is above the {rack.units} units of rack {rack.name}"
    hosts = {host.name for host in plan.hosts}
    for i, name in enumerate(plan.fabric.hosts):
        if name not in hosts:
            yield ("fabric", "hosts", i), f"no host '{name}' under 'hosts'"


def _addresses(plan: SitePlan) -> Iterator[Broken]:
    if not plan.nodes:
        return
    networks = {str(ipaddress.ip_interface(node.address).network) for node in plan.nodes}
    for i, node in enumerate(plan.nodes):
        address = ipaddress.ip_interface(node.address)
        if address.network.num_addresses == 1:
            yield ("nodes", i, "address"), f"{node.address} lacks its prefix; expected '{address.ip}/24' or the like"
        elif address.network.num_addresses > 2 and address.ip == address.network.network_address:
            yield (
                ("nodes", i, "address"),
                f"{node.address} is the network's own address, of {', '.join(sorted(networks))}",
            )


def _cables(plan: SitePlan) -> Iterator[Broken]:
    ports: dict[str, dict[str, None] | int] = {node.name: dict.fromkeys(node.hca_guids) for node in plan.nodes}
    ports |= {switch.name: switch.ports for switch in plan.switches}
    taken: dict[str, int] = {}
    for i, cable in enumerate(plan.cables):
        if cable.ends[0] == cable.ends[1]:
            yield ("cables", i, "ends"), f"both ends are {cable.ends[0]}"
            continue
        for j, end in enumerate(cable.ends):
            place: Place = ("cables", i, "ends", j)
            owner, colon, port = end.partition(":")
            if not colon or not port:
                yield place, f"'{end}': expected node:device or switch:port, such as gpu-1:mlx5_0 or leaf-1:4"
                continue
            known = ports.get(owner)
            if known is None:
                yield place, f"no node or switch '{owner}' in this plan"
            elif isinstance(known, int):
                if not port.isdigit() or not 1 <= int(port) <= known:
                    yield place, f"{owner} has ports 1 to {known}, not '{port}'"
            elif port not in known:
                yield place, f"{owner} has no HCA '{port}' under hca_guids; known are {', '.join(known) or 'none'}"
            if taken.setdefault(end, i) != i:
                yield place, f"{end} holds cable {plan.cables[taken[end]].label or taken[end]} already"


def _catalogue(plan: SitePlan) -> Iterator[Broken]:
    tried: dict[str, str | None] = {}
    for i, node in enumerate(plan.nodes):
        if node.profile not in tried:
            tried[node.profile] = _refused(partial(load_profile, plan, node.profile))
        if tried[node.profile]:
            yield ("nodes", i, "profile"), str(tried[node.profile])
    if message := _refused(partial(load_baseline, plan)):
        yield ("baseline",), message


def _refused(read: Callable[[], object]) -> str | None:
    try:
        read()
    except CatalogueError as error:
        return str(error)
    return None
