"""The rack picture: nothing outside its rack, nothing over another, cables between the right boxes."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
import sample_rack

from metalyard.gate.finding import Finding, Outcome
from metalyard.plan import load_plan
from metalyard.report.data import build
from metalyard.report.picture import A_ROW, draw
from metalyard.report.records import NodeRecord, Records

EXAMPLE = sample_rack.PLAN.parents[1] / "example" / "site.yml"


def picture_of(view):
    return draw(view.plan, view.nodes, view.cables)


@pytest.fixture(scope="module")
def picture():
    return picture_of(build(sample_rack.plan(), sample_rack.records(), sample_rack.NOW))


def test_every_box_is_inside_its_rack_and_over_no_other(picture):
    for rack in picture.racks:
        spans = sorted((box.y, box.y + box.height) for box in rack.boxes)
        assert spans[0][0] >= rack.y
        assert spans[-1][1] <= rack.y + rack.height
        assert all(below <= above for (_, below), (above, _) in pairwise(spans))


def test_unit_one_is_at_the_floor(picture):
    rack = picture.racks[0]
    lowest = max(rack.boxes, key=lambda box: box.y)
    assert lowest.name == "gpu-r01-1"
    assert rack.y + rack.height - 2 <= lowest.y + lowest.height <= rack.y + rack.height


def test_a_swapped_pair_is_four_wires_from_its_node(picture):
    assert [wire.kind for wire in picture.wires] == ["planned", "seen"] * 2
    node = next(box for rack in picture.racks for box in rack.boxes if box.name == "gpu-r02-3")
    leaves = {b.name: b for rack in picture.racks for b in rack.boxes if b.name.startswith("leaf")}
    ends = []
    for wire in picture.wires:
        points = [float(number) for number in re.findall(r"-?\d+\.\d", wire.path)]
        assert points[0] == pytest.approx(node.x, abs=0.1)
        assert node.y <= points[1] <= node.y + node.height
        ends.append(next(name for name, box in leaves.items() if box.y <= points[-1] <= box.y + box.height))
    assert ends == ["leaf-1", "leaf-2", "leaf-2", "leaf-1"]


def test_racks_that_a_cable_leads_to_are_drawn_too():
    plan = load_plan(EXAMPLE)
    finding = Finding("fabric.cables", "gpu-r12-1", Outcome.FAIL, "no link", part="R12N1-0", measured="no link")
    records = Records({"gpu-r12-1": NodeRecord("gpu-r12-1", findings=(finding,))})
    view = build(plan, records, sample_rack.NOW, only=["gpu-r12-1"])
    drawn = picture_of(view)
    assert [rack.name for rack in drawn.racks] == ["r12", "r14"]
    assert [wire.kind for wire in drawn.wires] == ["missing"]


def test_a_hall_breaks_into_lines_of_racks():
    plan = sample_rack.plan()
    rack, node = plan.racks[0], plan.nodes[0]
    racks = [rack.model_copy(update={"name": f"x{i}"}) for i in range(A_ROW * 2 + 1)]
    nodes = [node.model_copy(update={"name": f"n{i}", "rack": f"x{i}"}) for i in range(len(racks))]
    hall = plan.model_copy(update={"racks": racks, "nodes": nodes, "switches": [], "cables": []})
    drawn = picture_of(build(hall, Records(), sample_rack.NOW))
    assert len({rack.y for rack in drawn.racks}) == 3
    assert all(rack.x + rack.width < drawn.width and rack.y + rack.height < drawn.height for rack in drawn.racks)


def test_neighbours_that_leave_less_room_make_a_box_lower():
    plan = sample_rack.plan()
    nodes = [n.model_copy(update={"rack": "r01", "unit": 1 + 2 * i}) for i, n in enumerate(plan.nodes)]
    drawn = picture_of(build(plan.model_copy(update={"nodes": nodes}), Records(), sample_rack.NOW))
    boxes = {box.name: box for rack in drawn.racks for box in rack.boxes}
    assert boxes["gpu-r01-1"].height < boxes["gpu-r02-4"].height
