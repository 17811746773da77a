"""The fabric's topology from the text that ``ibnetdiscover`` prints (infiniband-diags of rdma-core).

Strict: every line must be one that the tool prints, and every link must be told from both of its ends, as the tool
always does. Text that was cut anywhere fails one of the two, and :class:`FabricError` names the line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NoReturn

SPEEDS = ("SDR", "DDR", "QDR", "FDR10", "FDR", "EDR", "HDR", "NDR", "XDR")
"""Lane speeds as the tool names them, slowest first; ``???`` is one that it does not know."""
WIDTHS = ("1x", "2x", "4x", "8x", "12x")

_GUID = r"[0-9a-f]{1,16}"
_ID = rf'"(?P<remote_kind>[SHR])-(?P<remote>{_GUID})"\[(?P<remote_port>\d+)\]'
_RATE = r"(?P<width>1x|2x|4x|8x|12x|\?\?)(?P<speed>SDR|DDR|QDR|FDR10|FDR|EDR|HDR|NDR|XDR|\?\?\?)"
_GENERATED = re.compile(r"# Topology file: generated on \S.*")
_MAX_HOPS = re.compile(r"# (Reported max hops discovered|Total MADs used): \d+")
_INITIATED = re.compile(rf"# Initiated from node (?P<node>{_GUID}) port (?P<port>{_GUID})")
_VENDOR = re.compile(r"vendid=0x[0-9a-f]+")
_DEVICE = re.compile(r"devid=0x[0-9a-f]+")
_SYSTEM = re.compile(rf"sysimgguid=0x{_GUID}")
_NODE_GUID = re.compile(rf"(?P<kind>switch|ca|rt)guid=0x(?P<guid>{_GUID})(\((?P<port_guid>{_GUID})\))?")
_SWITCH = re.compile(
    rf'Switch\t(?P<ports>\d+) "S-(?P<guid>{_GUID})"\t\t# "(?P<name>.*)" (base|enhanced) port 0 lid \d+ lmc \d+'
)
_ADAPTER = re.compile(rf'(?P<kind>Ca|Rt)\t(?P<ports>\d+) "[HR]-(?P<guid>{_GUID})"\t\t# "(?P<name>.*)"')
_SWITCH_PORT = re.compile(
    rf'\[(?P<port>\d+)\]\t{_ID}(\((?P<remote_guid>{_GUID})\) )?\t\t# "(?P<remote_name>.*)" lid \d+ {_RATE}'
)
_ADAPTER_PORT = re.compile(
    rf"\[(?P<port>\d+)\]\((?P<port_guid>{_GUID})\) \t{_ID}( \((?P<remote_guid>{_GUID})\) )?"
    rf'\t\t# lid \d+ lmc \d+ "(?P<remote_name>.*)" lid \d+ {_RATE}'
)


class FabricError(ValueError):
    """The text is not the whole output of ``ibnetdiscover``; says which line and what was expected."""


@dataclass(frozen=True)
class Device:
    """A switch, an adapter or a router, by its node GUID (``0x`` and 16 digits)."""

    guid: str
    kind: Literal["switch", "ca", "router"]
    name: str
    """The NodeDescription, such as ``gpu-1 mlx5_0`` or ``MF0;leaf-1:MQM9700/U1``."""
    ports: int
    port_guids: tuple[tuple[int, str], ...] = ()
    """Port number to port GUID, of the ports with a link."""
    line: int = 0

    @property
    def host(self) -> str:
        """The host name in the description: the managed switch's name, or an adapter's host."""
        managed = re.fullmatch(r"MF0;(?P<name>[^:]+):.*", self.name)
        if managed:
            return managed["name"]
        return self.name.split(" ")[0] if self.kind == "ca" else self.name


@dataclass(frozen=True)
class Port:
    """One end of a link that is up: index of its device in :attr:`Topology.devices`, and the port's number."""

    device: int
    number: int


@dataclass(frozen=True)
class FoundLink:
    """One link that is up, with its active width and speed."""

    ends: tuple[Port, Port]
    width: str
    speed: str


@dataclass(frozen=True, eq=False)
class Topology:
    """What the fabric's discovery saw."""

    devices: tuple[Device, ...]
    links: tuple[FoundLink, ...]
    duplicates: tuple[str, ...] = ()
    """GUIDs that more than one device says are its own (node GUIDs among each other, port GUIDs likewise)."""

    def peers(self) -> Iterator[tuple[Port, Port, FoundLink]]:
        """Every link from each of its ends."""
        for link in self.links:
            one, two = link.ends
            yield one, two, link
            if one != two:
                yield two, one, link


@dataclass(frozen=True)
class _Told:
    """What one port line says."""

    line: int
    device: int
    port: int
    remote: str
    remote_kind: str
    remote_port: int
    width: str
    speed: str


def _guid(text: str) -> str:
    return "0x" + text.rjust(16, "0")


def _wrong(line: int, seen: str, expected: str) -> NoReturn:
    shown = seen if len(seen) <= 100 else seen[:100] + "…"
    raise FabricError(f"ibnetdiscover line {line}: saw {shown!r}, expected {expected}; read the fabric again")


class _Reader:
    """Walks the lines of the text, which must end with a line's end."""

    def __init__(self, text: str) -> None:
        if not text.endswith("\n"):
            last = text.rsplit("\n", 1)[-1]
            _wrong(text.count("\n") + 1, last, "a whole line: the output was cut")
        self.lines = text[:-1].split("\n")
        self.at = 0

    @property
    def number(self) -> int:
        return self.at + 1

    @property
    def line(self) -> str | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    def accept(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        line = self.line
        match = pattern.fullmatch(line) if line is not None else None
        if match:
            self.at += 1
        return match

    def expect(self, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        match = self.accept(pattern)
        if match is None:
            _wrong(self.number, "the end of the text" if self.line is None else self.line, expected)
        return match


_HASH = re.compile("#")
_EMPTY = re.compile("")
_ANY_PORT = re.compile(r"\[.*")


def _device(reader: _Reader, index: int) -> tuple[Device, list[_Told]]:
    """One record: its identity and its port lines."""
    reader.expect(_VENDOR, "'vendid=0x…', the first line of a device")
    reader.expect(_DEVICE, "'devid=0x…'")
    reader.accept(_SYSTEM)
    number = reader.number
    identity = reader.expect(_NODE_GUID, "'switchguid=0x…', 'caguid=0x…' or 'rtguid=0x…'")
    switch = identity["kind"] == "switch"
    head = reader.expect(_SWITCH if switch else _ADAPTER, "a Switch line" if switch else "a Ca or Rt line")
    if int(head["guid"], 16) != int(identity["guid"], 16):
        _wrong(reader.number - 1, head["guid"], f"the GUID of line {number}, {identity['guid']}")
    told: list[_Told] = []
    port_guids: list[tuple[int, str]] = []
    while (line := reader.line) is not None and _ANY_PORT.fullmatch(line):
        at = reader.number
        match = reader.expect(_SWITCH_PORT if switch else _ADAPTER_PORT, "a port line with link width and speed")
        port = int(match["port"])
        if not 1 <= port <= int(head["ports"]) or port in {one.port for one in told}:
            _wrong(at, f"port {port}", f"each port of 1 to {head['ports']} at most once")
        if not switch:
            port_guids.append((port, _guid(match["port_guid"])))
        told.append(
            _Told(
                line=at,
                device=index,
                port=port,
                remote=_guid(match["remote"]),
                remote_kind=match["remote_kind"],
                remote_port=int(match["remote_port"]),
                width=match["width"],
                speed=match["speed"],
            )
        )
    kind: Literal["switch", "ca", "router"] = "switch" if switch else "ca" if identity["kind"] == "ca" else "router"
    return (
        Device(_guid(identity["guid"]), kind, head["name"], int(head["ports"]), tuple(port_guids), number),
        told,
    )


def _duplicates(devices: list[Device]) -> tuple[str, ...]:
    nodes = Counter(device.guid for device in devices)
    ports = Counter(guid for device in devices for _, guid in device.port_guids)
    return tuple(sorted({guid for counts in (nodes, ports) for guid, count in counts.items() if count > 1}))


def _pair(devices: list[Device], told: list[_Told]) -> tuple[FoundLink, ...]:
    """Join the two tellings of every link. A link told from one end only means that the text is not whole."""
    by_guid: dict[str, list[int]] = {}
    for index, device in enumerate(devices):
        by_guid.setdefault(device.guid, []).append(index)
    by_port = {(one.device, one.port): one for one in told}
    links: list[FoundLink] = []
    for one in told:
        candidates = by_guid.get(one.remote, [])
        if not candidates:
            _wrong(one.line, f"a link to {one.remote}", "a record of that device: the output was cut")
        back = [
            other
            for index in candidates
            if (other := by_port.get((index, one.remote_port))) is not None
            and other.remote == devices[one.device].guid
            and other.remote_port == one.port
        ]
        if not back:
            _wrong(
                one.line,
                f"a link to {one.remote} port {one.remote_port}",
                "the same link in that device's record: the output was cut",
            )
        other = back[0]
        if (other.width, other.speed) != (one.width, one.speed):
            _wrong(one.line, one.width + one.speed, f"{other.width}{other.speed}, as line {other.line} says")
        if (one.device, one.port) <= (other.device, other.port):
            ends = (Port(one.device, one.port), Port(other.device, other.port))
            links.append(FoundLink(ends, one.width, one.speed))
    return tuple(links)


def parse_ibnetdiscover(text: str) -> Topology:
    """Read the whole output of ``ibnetdiscover``. :class:`FabricError` for anything else, with the line."""
    reader = _Reader(text)
    reader.expect(_HASH, "'#', the first line of the output")
    reader.expect(_GENERATED, "'# Topology file: generated on …'")
    reader.expect(_HASH, "'#'")
    while reader.accept(_MAX_HOPS):
        pass
    start = reader.expect(_INITIATED, "'# Initiated from node … port …'")
    devices: list[Device] = []
    told: list[_Told] = []
    while reader.line is not None:
        reader.expect(_EMPTY, "an empty line between devices")
        device, lines = _device(reader, len(devices))
        devices.append(device)
        told += lines
    if _guid(start["node"]) not in {device.guid for device in devices}:
        _wrong(reader.number, "the end of the text", f"a record of {_guid(start['node'])}, where the discovery began")
    links = _pair(devices, told)
    if not links:
        _wrong(reader.number, "no link at all", "at least the link that the discovery began at")
    return Topology(tuple(devices), links, _duplicates(devices))
