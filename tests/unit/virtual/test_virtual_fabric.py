"""The simulated fabric's topology, against what the real ibnetdiscover printed of one, and the gate's comparison."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from metalyard.fabric import compare, parse_ibnetdiscover
from metalyard.plan import load_plan
from metalyard.plan.cables import CablePlan
from metalyard.plan.catalogue import load_baseline, load_profile
from metalyard.virtual import fabric, models

ROOT = Path(__file__).parents[3]
PLAN = load_plan(ROOT / "inventory" / "virtual")
RECORDED = Path(__file__).with_name("data") / "ibnetdiscover-degraded.txt.gz"
"""infiniband-diags 44.0 on ibsim 0.12 with the faults of :func:`degraded`."""


def degraded() -> list[fabric.PhysicalCable]:
    cables = fabric.as_planned(PLAN)
    cables = fabric.degrade(cables, "gpu-r01-4:mlx5_3", speed="HDR")
    cables = fabric.degrade(cables, "gpu-r01-4:mlx5_4", width="1x")
    cables = fabric.swap(cables, "gpu-r02-3:mlx5_0", "gpu-r02-3:mlx5_2")
    return fabric.unplug(cables, "gpu-r01-4:mlx5_7")


def links(text: str) -> set[frozenset[tuple[str, str]]]:
    """Pairs of (node id, port) in a file of ibsim's or ibnetdiscover's format."""
    found, here = set(), ""
    for line in text.splitlines():
        if head := re.match(r'(?:Switch|Ca)\s+\d+ "([^"]+)"', line):
            here = head[1]
        elif port := re.match(r'\[(\d+)\](?:\([0-9a-f]+\))?\s+"([^"]+)"\[(\d+)\]', line):
            found.add(frozenset({(here, port[1]), (port[2], port[3])}))
    return found


def test_every_cable_of_the_plan_is_one_link_seen_from_both_ends():
    text = fabric.topology(PLAN, fabric.as_planned(PLAN))
    assert len(links(text)) == 96
    assert text.count("\nCa\t1 ") == 64
    assert text.count("\nSwitch\t64 ") == 6
    assert len(re.findall(r"^\[\d+\]", text, re.M)) == 192


def test_the_real_tool_sees_the_links_that_were_written():
    seen = links(gzip.decompress(RECORDED.read_bytes()).decode())
    assert seen == links(fabric.topology(PLAN, degraded()))


def test_names_on_the_real_tools_output_are_the_plans():
    text = gzip.decompress(RECORDED.read_bytes()).decode()
    for node in PLAN.nodes:
        for device in set(node.hca_guids) - ({"mlx5_7"} if node.name == "gpu-r01-4" else set()):
            assert f'"{node.name} {device}"' in text
    assert all(f'"{switch.name}"' in text for switch in PLAN.switches)


def test_the_gate_finds_exactly_what_was_done_to_the_cables():
    findings = compare(CablePlan.of(PLAN), parse_ibnetdiscover(gzip.decompress(RECORDED.read_bytes()).decode()))
    assert sorted((finding.fault.value, finding.part, finding.nodes) for finding in findings) == [
        ("degraded", "C028", ("gpu-r01-4",)),
        ("degraded", "C029", ("gpu-r01-4",)),
        ("missing", "C032", ("gpu-r01-4",)),
        ("swapped", "C049", ("gpu-r02-3",)),
    ]


def test_a_swap_exchanges_two_plugs_and_is_its_own_inverse():
    before = fabric.as_planned(PLAN)
    after = fabric.swap(before, "gpu-r02-3:mlx5_0", "gpu-r02-3:mlx5_2")
    ends = {cable.label: cable.ends for cable in after}
    assert ends["C049"] == ("gpu-r02-3:mlx5_2", "leaf-1:13")
    assert ends["C051"] == ("gpu-r02-3:mlx5_0", "leaf-2:13")
    assert fabric.swap(after, "gpu-r02-3:mlx5_0", "gpu-r02-3:mlx5_2") == before
    assert sum(one != two for one, two in zip(before, after, strict=True)) == 2


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda c: fabric.unplug(c, "gpu-r01-1:mlx5_9"), "gpu-r01-1:mlx5_9"),
        (lambda c: fabric.swap(c, "gpu-r01-1:mlx5_0", "leaf-9:1"), "leaf-9:1"),
        (lambda c: fabric.degrade(c, "gpu-r01-1:mlx5_0", width="3x"), "3x"),
        (lambda c: fabric.degrade(c, "gpu-r01-1:mlx5_0", speed="GDR"), "GDR"),
        (lambda c: fabric.topology(PLAN, [*c, fabric.PhysicalCable("X1", ("gpu-r01-1:mlx5_0", "leaf-1:40"))]), "X1"),
        (lambda c: fabric.topology(PLAN, [fabric.PhysicalCable("X2", ("gpu-9:mlx5_0", "leaf-1:40"))]), "gpu-9"),
        (
            lambda c: fabric.topology(
                PLAN, [fabric.PhysicalCable("X3", ("gpu-r01-1:mlx5_0", "leaf-1:1"), speed="XDR")]
            ),
            "XDR",
        ),
    ],
)
def test_what_can_not_be_plugged_is_said(act, said):
    with pytest.raises(fabric.TopologyError, match=re.escape(said)):
        act(fabric.as_planned(PLAN))


def test_adapters_see_what_their_cables_give_them():
    node = PLAN.node("gpu-r01-4")
    model = models.generate(node, load_profile(PLAN, node.profile), load_baseline(PLAN))
    fabric.adapters_see(model, degraded())
    state = {hca.device: (hca.state, hca.rate_gbps) for hca in model.hcas}
    assert state["mlx5_0"] == ("Active", 400)
    assert state["mlx5_3"] == ("Active", 200)
    assert state["mlx5_4"] == ("Active", 100)
    assert state["mlx5_7"] == ("Down", 10)


def test_the_wrappers_name_the_switch_the_manager_sits_on():
    files = fabric.host_files(PLAN)
    text, mode = files["/usr/local/bin/ibnetdiscover"]
    assert mode == 0o755
    assert "SIM_HOST=S-fc6a1c0300000101" in text
    assert fabric.host_files(PLAN.model_copy(update={"switches": []})) == {}
