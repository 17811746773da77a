"""The simulated InfiniBand fabric: the plan's cables, after cable faults, as a topology for ibsim; and its services.

ibsim 0.12 (Debian 13's, see :mod:`.packages`) with Debian's opensm and infiniband-diags. The SM sits on the first
switch, as an embedded one does, so that the fabric holds exactly the plan's adapters. ibsim numbers an
adapter's port GUID one above its node GUID; on ConnectX both are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from metalyard.plan.model import Cable, SitePlan
from metalyard.virtual.hardware import Hardware

WIDTHS = {"1x": 1, "2x": 16, "4x": 2, "8x": 4, "12x": 8}
"""Width to its bit in PortInfo's LinkWidthEnabled."""

SPEEDS = {"FDR": 1, "EDR": 2, "HDR": 4, "NDR": 8}
"""Speed to its bit in PortInfo's LinkSpeedExtEnabled."""

LANE_GBPS = {"FDR": 14, "EDR": 25, "HDR": 50, "NDR": 100, "XDR": 200}
"""Gb/s of one lane, as a rate is named."""

PORTS_OF_ADAPTER = 1


class TopologyError(ValueError):
    """The cables can't be built: two in one port, or an end that is nowhere in the plan."""


@dataclass(frozen=True)
class PhysicalCable:
    """One cable as it is really plugged: its ends in the plan's writing, and what its link comes up with."""

    label: str
    ends: tuple[str, str]
    width: str = "4x"
    speed: str = "NDR"

    def at(self, end: str) -> bool:
        """Whether one of its ends is there."""
        return end in self.ends


def as_planned(plan: SitePlan) -> list[PhysicalCable]:
    """The InfiniBand cables as the plan wants them."""
    ethernet = {switch.name for switch in plan.switches if switch.kind == "ethernet"}
    return [_planned(cable) for cable in plan.cables if not any(end.split(":")[0] in ethernet for end in cable.ends)]


def _planned(cable: Cable) -> PhysicalCable:
    return PhysicalCable(cable.label or "-".join(cable.ends), cable.ends, cable.width, cable.speed)


def swap(cables: list[PhysicalCable], one: str, two: str) -> list[PhysicalCable]:
    """The same cables with the plugs at two places exchanged: each lands where the other was.

    ``one`` and ``two`` are ends (``gpu-1:mlx5_0``); raises :class:`TopologyError` where no cable is plugged in.
    """
    for place in (one, two):
        if not any(cable.at(place) for cable in cables):
            raise TopologyError(f"no cable is plugged into {place}")
    places = {one: two, two: one}
    return [
        replace(cable, ends=(places.get(cable.ends[0], cable.ends[0]), places.get(cable.ends[1], cable.ends[1])))
        for cable in cables
    ]


def unplug(cables: list[PhysicalCable], place: str) -> list[PhysicalCable]:
    """The cables without the one at ``place``; raises :class:`TopologyError` where there is none."""
    left = [cable for cable in cables if not cable.at(place)]
    if len(left) == len(cables):
        raise TopologyError(f"no cable is plugged into {place}")
    return left


def degrade(
    cables: list[PhysicalCable], place: str, *, width: str | None = None, speed: str | None = None
) -> list[PhysicalCable]:
    """The cables with the one at ``place`` coming up narrower or slower."""
    if width is not None and width not in WIDTHS:
        raise TopologyError(f"width {width!r}: expected one of {', '.join(WIDTHS)}")
    if speed is not None and speed not in SPEEDS:
        raise TopologyError(f"speed {speed!r}: expected one of {', '.join(SPEEDS)}")
    if not any(cable.at(place) for cable in cables):
        raise TopologyError(f"no cable is plugged into {place}")
    return [
        replace(cable, width=width or cable.width, speed=speed or cable.speed) if cable.at(place) else cable
        for cable in cables
    ]


def topology(plan: SitePlan, cables: Iterable[PhysicalCable]) -> str:
    """ibsim's topology file: every switch and adapter of the plan, linked by these cables."""
    switches = {switch.name: switch for switch in plan.switches if switch.kind == "ib"}
    names = {name: f"S-{_hex(switch.guid, name)}" for name, switch in switches.items()}
    adapters: dict[str, str] = {}
    for node in plan.nodes:
        for device, guid in node.hca_guids.items():
            adapters[f"{node.name}:{device}"] = guid
    plugged: dict[str, tuple[str, PhysicalCable]] = {}
    for cable in cables:
        for end, other in (cable.ends, cable.ends[::-1]):
            if end in plugged:
                raise TopologyError(f"two cables are plugged into {end}: {plugged[end][1].label} and {cable.label}")
            if end not in adapters and end.split(":")[0] not in switches:
                raise TopologyError(f"cable {cable.label} ends at {end}, which the plan does not have")
            plugged[end] = (other, cable)

    def port(number: int, other: str, cable: PhysicalCable) -> str:
        host, _, place = other.partition(":")
        remote = f'"{names[host]}"[{place}]' if host in switches else f'"H-{_hex(adapters[other], other)}"[1]'
        return f"[{number}]\t{remote}\tw={WIDTHS[cable.width]} e={SPEEDS[_known(cable)]}"

    lines = ["# Written by metalyard.virtual.fabric: the plan's cables as they are plugged."]
    for name, switch in switches.items():
        lines += ["", f"switchguid=0x{_hex(switch.guid, name)}", f'Switch\t{switch.ports} "{names[name]}"\t# "{name}"']
        for number in range(1, switch.ports + 1):
            if f"{name}:{number}" in plugged:
                lines.append(port(number, *plugged[f"{name}:{number}"]))
    for end, guid in adapters.items():
        node_name, _, device = end.partition(":")
        lines += [
            "",
            f"caguid=0x{_hex(guid, end)}",
            f'Ca\t{PORTS_OF_ADAPTER} "H-{_hex(guid, end)}"\t# "{node_name} {device}"',
        ]
        if end in plugged:
            lines.append(port(1, *plugged[end]))
    return "\n".join(lines) + "\n\n"


def _known(cable: PhysicalCable) -> str:
    if cable.speed not in SPEEDS:
        raise TopologyError(f"cable {cable.label}: the simulator knows {', '.join(SPEEDS)}, not {cable.speed}")
    return cable.speed


def _hex(guid: str | None, name: str) -> str:
    if guid is None:
        raise TopologyError(f"{name} has no GUID in the plan; the simulator needs one")
    return guid.removeprefix("0x")


def sm_host(plan: SitePlan) -> str | None:
    """The simulator's name of the switch that the SM and the tools sit on; None without InfiniBand switches."""
    for switch in plan.switches:
        if switch.kind == "ib":
            return f"S-{_hex(switch.guid, switch.name)}"
    return None


def adapters_see(model: Hardware, cables: Iterable[PhysicalCable]) -> None:
    """Bring the model's adapters to what their cables give them: state and rate."""
    at: Mapping[str, PhysicalCable] = {end: cable for cable in cables for end in cable.ends}
    for hca in model.hcas:
        cable = at.get(f"{model.node}:{hca.device}")
        if cable is None:
            hca.state, hca.physical_state, hca.rate_gbps = "Down", "Polling", 10
        else:
            lanes = int(cable.width.removesuffix("x"))
            hca.state, hca.physical_state = "Active", "LinkUp"
            hca.rate_gbps = LANE_GBPS[cable.speed] * lanes


TOOLS = (
    "iblinkinfo",
    "ibnetdiscover",
    "ibhosts",
    "ibswitches",
    "ibnodes",
    "ibping",
    "ibportstate",
    "ibqueryerrors",
    "ibroute",
    "ibtracert",
    "perfquery",
    "saquery",
    "sminfo",
    "smpdump",
    "smpquery",
)
"""Programs that get a wrapper: without the simulator's variables each would wait for a kernel that is not there."""

TOPOLOGY = "/opt/virtual-rack/topology.net"
"""Where the fabric's host has its topology: in the folder that the rack mounts."""

SOCKET = "metalyard"
LIBRARY = "/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so"

SIMULATOR_UNIT = """\
[Unit]
Description=Simulated InfiniBand fabric

[Service]
# The simulator's console reads commands; a pipe that this service holds open itself never ends.
ExecStartPre=/bin/sh -c 'test -p /run/ibsim.console || mkfifo -m 0600 /run/ibsim.console'
ExecStart=/bin/sh -c 'exec ibsim -s -N {nodes} -S {switches} -P {ports} {topology} 0<>/run/ibsim.console'
Environment=IBSIM_SOCKNAME={socket}
StandardOutput=append:/var/log/ibsim.log
Restart=on-failure

[Install]
WantedBy=multi-user.target
"""

MANAGER_UNIT = """\
[Unit]
Description=Subnet manager of the simulated fabric
Requires=ibsim.service
After=ibsim.service

[Service]
Environment=IBSIM_SOCKNAME={socket} SIM_HOST={host} LD_PRELOAD={library} OSM_CACHE_DIR=/var/cache/opensm
ExecStartPre=/bin/mkdir -p /var/cache/opensm
ExecStart=/usr/sbin/opensm --console off -f /var/log/opensm-virtual.log -F /etc/opensm/virtual.conf
Restart=on-failure
RestartSec=1

[Install]
WantedBy=multi-user.target
"""

MANAGER_CONFIGURATION = """\
# The log is written line by line, so that it can be waited for.
force_log_flush TRUE
"""

WRAPPER = """\
#!/bin/sh
# Runs the real {name} on the simulated fabric.
# The simulator's library keeps a tree of files in the current folder.
work=$(mktemp -d /tmp/{name}.XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 143' TERM INT HUP
cd "$work" || exit 1
LD_PRELOAD={library} IBSIM_SOCKNAME={socket} SIM_HOST={host} /usr/sbin/{name} "$@"
"""


def host_files(plan: SitePlan) -> dict[str, tuple[str, int]]:
    """Files of the fabric's host: path to content and mode."""
    host = sm_host(plan)
    if host is None:
        return {}
    adapters = sum(len(node.hca_guids) for node in plan.nodes)
    switches = [switch for switch in plan.switches if switch.kind == "ib"]
    ports = adapters * (PORTS_OF_ADAPTER + 1) + sum(switch.ports + 1 for switch in switches)
    values = {
        "socket": SOCKET,
        "host": host,
        "library": LIBRARY,
        "topology": TOPOLOGY,
        "nodes": adapters + len(switches) + 16,
        "switches": len(switches) + 16,
        "ports": ports + 64,
    }
    files = {
        "/etc/systemd/system/ibsim.service": (SIMULATOR_UNIT.format(**values), 0o644),
        "/etc/systemd/system/opensm-virtual.service": (MANAGER_UNIT.format(**values), 0o644),
        "/etc/opensm/virtual.conf": (MANAGER_CONFIGURATION, 0o644),
    }
    for name in TOOLS:
        files[f"/usr/local/bin/{name}"] = (WRAPPER.format(name=name, **values), 0o755)
    return files
