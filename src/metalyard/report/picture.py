"""The rack picture's geometry: boxes, units and cables as numbers that a template draws. Pure.

Coordinates are SVG user units; y grows downwards, rack units count from the floor up.
"""

from __future__ import annotations

from dataclasses import dataclass

from metalyard.plan.model import SitePlan
from metalyard.report.cables import CableView
from metalyard.report.data import NodeView
from metalyard.report.words import Word

UNIT = 11
"""Height of one rack unit."""
WIDTH = 150
"""Width of a rack's mounting space."""
GUTTER = 92
"""Space between racks, where cables run in lanes."""
MARGIN = 34
HEADER = 52
"""Space above a line of racks: the overhead tray, then the rack's name."""
TRAY = 8
LANE = 5
LANES = 9
PORTS_BELOW = 46
"""Where port labels start below a box's upper edge, under its name and state."""
A_ROW = 6
"""Racks side by side before the next line starts."""
NODE_UNITS = 8
"""Height of an eight-GPU node where nothing above it leaves less: the plan names the lowest unit only."""


@dataclass(frozen=True)
class Box:
    """A node or a switch in its rack. ``word`` is None for a switch, which has no state."""

    name: str
    x: float
    y: float
    width: float
    height: float
    unit: int
    word: Word | None
    state: str = ""
    title: str = ""


@dataclass(frozen=True)
class RackBox:
    """A rack's frame with what is in it."""

    name: str
    about: str
    x: float
    y: float
    width: float
    height: float
    ticks: tuple[tuple[int, float], ...]
    """Unit number and the y of its lower edge."""
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class Wire:
    """One line of a cable with a finding: to the planned end, or to where it was seen."""

    path: str
    kind: str
    tone: str
    title: str


@dataclass(frozen=True)
class Label:
    """A port's name beside the end of a wire."""

    text: str
    x: float
    y: float
    anchor: str


@dataclass(frozen=True)
class Picture:
    """All racks, and a text that says the same without the picture."""

    width: float
    height: float
    racks: tuple[RackBox, ...]
    wires: tuple[Wire, ...]
    labels: tuple[Label, ...]
    text: str


def draw(plan: SitePlan, nodes: tuple[NodeView, ...], cables: tuple[CableView, ...]) -> Picture:
    """The elevation of the racks that hold the nodes, and of those that a cable with a finding leads to."""
    needed = _racks_of(plan, nodes, cables)
    racks = [rack for rack in plan.racks if rack.name in needed]
    lines = [racks[start : start + A_ROW] for start in range(0, len(racks), A_ROW)]
    views = {node.name: node for node in nodes}
    drawn: list[RackBox] = []
    top = 0.0
    for line in lines:
        tallest = max(rack.units for rack in line) * UNIT
        for column, rack in enumerate(line):
            x = MARGIN + column * (WIDTH + GUTTER)
            y = top + HEADER + tallest - rack.units * UNIT
            about = ", ".join(text for text in (rack.row and f"row {rack.row}", rack.power) if text)
            drawn.append(_rack(plan, rack.name, about, rack.units, x, y, views))
        top += HEADER + tallest + MARGIN
    columns = min(len(racks), A_ROW)
    width = 2 * MARGIN + columns * WIDTH + max(0, columns - 1) * GUTTER + (GUTTER - MARGIN if cables else 0)
    wires, labels = _wires(drawn, cables)
    return Picture(width, top or MARGIN, tuple(drawn), wires, labels, _text(drawn, cables))


def _racks_of(plan: SitePlan, nodes: tuple[NodeView, ...], cables: tuple[CableView, ...]) -> set[str]:
    home = {node.name: node.rack for node in plan.nodes} | {switch.name: switch.rack for switch in plan.switches}
    ends = (end.partition(":")[0] for cable in cables for end in (cable.planned, cable.seen) if end)
    return {node.rack for node in nodes} | {home[name] for name in ends if name in home}


def _rack(plan: SitePlan, name: str, about: str, units: int, x: float, y: float, views: dict[str, NodeView]) -> RackBox:
    things = [(node.unit, node.name, NODE_UNITS) for node in plan.nodes if node.rack == name and node.name in views]
    things += [(switch.unit, switch.name, 1) for switch in plan.switches if switch.rack == name]
    things.sort()
    boxes = []
    for position, (unit, thing, tall) in enumerate(things):
        above = things[position + 1][0] if position + 1 < len(things) else units + 1
        height = max(1, min(tall, above - unit)) * UNIT
        bottom = y + (units - unit + 1) * UNIT
        node = views.get(thing)
        title = f"{thing}: {node.word.label}" + (f", {node.reason}" if node.reason else "") if node else thing
        boxes.append(
            Box(
                name=thing,
                x=x + 3,
                y=bottom - height + 1,
                width=WIDTH - 6,
                height=height - 2,
                unit=unit,
                word=node.word if node else None,
                state=str(node.state) if node else "",
                title=title,
            )
        )
    ticks = tuple((unit, y + (units - unit + 1) * UNIT) for unit in range(1, units + 1) if unit == 1 or unit % 6 == 0)
    return RackBox(name, about, x, y, WIDTH, units * UNIT, ticks, tuple(boxes))


def _wires(racks: list[RackBox], cables: tuple[CableView, ...]) -> tuple[tuple[Wire, ...], tuple[Label, ...]]:
    """Each cable from its node through the gutters: dashed to the planned port, solid to where it was seen."""
    home = {box.name: (rack, box) for rack in racks for box in rack.boxes}
    drawable = [cable for cable in cables if cable.near.partition(":")[0] in home]
    wires: list[Wire] = []
    labels: dict[Label, None] = {}
    for cable in drawable:
        near, _, device = cable.near.partition(":")
        rack, box = home[near]
        siblings = [c for c in drawable if c.near.partition(":")[0] == near]
        below = min(PORTS_BELOW, box.height / 2)
        y = box.y + below + siblings.index(cable) * min(12.0, (box.height - below) / len(siblings))
        for kind, end in (("planned", cable.planned), ("seen", cable.seen)):
            name, _, port = end.partition(":")
            if name not in home:
                continue
            other, target = home[name]
            lane = (len(wires) % LANES - LANES // 2) * LANE
            turns, side = _route(rack, box, y, other, target, lane)
            title = f"{cable.near} {cable.label}: {cable.summary}"
            wires.append(Wire(_rounded(turns), kind if cable.seen else "missing", cable.word.tone, title))
            inside = 5 if side < 0 else -5
            x = box.x if side < 0 else box.x + box.width
            labels[Label(device, x + inside, y + 3, "start" if side < 0 else "end")] = None
            out = 5 if turns[-1][0] > target.x else -5
            labels[Label(port, turns[-1][0] + out, turns[-1][1] - 2, "start" if out > 0 else "end")] = None
    return tuple(wires), tuple(labels)


def _route(
    rack: RackBox, box: Box, y: float, other: RackBox, target: Box, lane: float
) -> tuple[list[tuple[float, float]], int]:
    """Corners of a wire, and the side (-1 left, 1 right) where it leaves its node.

    Racks side by side share the gutter between them; between any others a wire takes the overhead tray.
    """
    side = -1 if other.x < rack.x else 1
    gutter = rack.x + (-GUTTER / 2 if side < 0 else WIDTH + GUTTER / 2) + lane
    start = (box.x if side < 0 else box.x + box.width, y)
    middle = target.y + target.height / 2
    beside = other.y + other.height == rack.y + rack.height and abs(other.x - rack.x) <= WIDTH + GUTTER
    if beside:
        finish = target.x if other.x > rack.x else target.x + target.width
        return [start, (gutter, y), (gutter, middle), (finish, middle)], side
    tray = min(rack.y, other.y) - HEADER + TRAY + lane / 3
    far = other.x + (WIDTH + GUTTER / 2 if side < 0 else -GUTTER / 2) + lane
    finish = target.x + target.width if side < 0 else target.x
    return [start, (gutter, y), (gutter, tray), (far, tray), (far, middle), (finish, middle)], side


def _rounded(points: list[tuple[float, float]], radius: float = 6) -> str:
    """An SVG path through the points with round corners."""
    path = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        path.append(f"L{_towards(corner, before, radius)} Q{corner[0]:.1f} {corner[1]:.1f}")
        path.append(_towards(corner, after, radius))
    path.append(f"L{points[-1][0]:.1f} {points[-1][1]:.1f}")
    return " ".join(path)


def _towards(corner: tuple[float, float], point: tuple[float, float], radius: float) -> str:
    length = abs(point[0] - corner[0]) + abs(point[1] - corner[1])
    part = min(radius, length / 2) / length if length else 0
    return f"{corner[0] + (point[0] - corner[0]) * part:.1f} {corner[1] + (point[1] - corner[1]) * part:.1f}"


def _text(racks: list[RackBox], cables: tuple[CableView, ...]) -> str:
    """The picture in words, for those who do not see it."""
    sentences = []
    for rack in racks:
        inside = [f"{box.name} {box.word.label if box.word else 'switch'}, unit {box.unit}" for box in rack.boxes]
        sentences.append(f"Rack {rack.name}: {'; '.join(inside) or 'empty'}.")
    for cable in cables:
        seen = f", seen at {cable.seen}" if cable.seen else ""
        sentences.append(f"Cable {cable.near}: planned to {cable.planned}{seen}.")
    return " ".join(sentences)
