"""What ``metalyard plan --online`` says: the stages' own operations, in check mode, node by node."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from metalyard.plan import load_plan
from metalyard.plan.lifecycle import STAGES, Stage, State
from metalyard.report import foreseen
from metalyard.runs import forecast
from metalyard.sweep import HostResult, NodeError


@pytest.fixture
def plan(site):
    return load_plan(site)


@pytest.fixture
def operations(monkeypatch):
    """Stand-ins for the sweeps, with what they were asked."""
    asked: list[tuple[str, tuple[str, ...]]] = []

    def operation(name, answer):
        async def sweep(context):
            assert context.check, "a forecast changes nothing"
            asked.append((name, tuple(node.name for node in context.nodes)))
            for node in context.nodes:
                result = answer(node.name)
                if result is not None:
                    context.report(result)

        return sweep

    def set_up(**answers):
        for module, names in (("redfish", ("discover", "configure", "firmware")), ("maas", ("provision",))):
            for name in names:
                answer = answers.get(name, lambda node: HostResult(node, message=f"{node}: as it should be"))
                monkeypatch.setattr(f"metalyard.{module}.operations.{name}", operation(name, answer))
        return asked

    return set_up


def expected(plan, *names, stages=STAGES):
    nodes = [plan.node(name) for name in names]
    return nodes, forecast.expect(plan, nodes, stages)


def test_each_stage_is_asked_for_the_nodes_that_still_go_on(plan, operations):
    asked = operations(
        discover=lambda node: HostResult(
            node, failed=node.endswith("3"), message=f"{node}: serial 9", next_step="Swap."
        ),
        configure=lambda node: HostResult(node, changed=True, message=f"{node}: password"),
    )
    nodes, before = expected(plan, "gpu-r01-2", "gpu-r01-3")
    good, bad = forecast.ask(plan, nodes, before)
    assert asked == [
        ("discover", ("gpu-r01-2", "gpu-r01-3")),
        ("configure", ("gpu-r01-2",)),
        ("firmware", ("gpu-r01-2",)),
        ("provision", ("gpu-r01-2",)),
    ]
    assert [step.kind for step in bad.steps] == ["do"] + ["pass over"] * 8
    assert bad.next_step == "Swap."
    assert [bool(step.found and step.found.changed) for step in good.steps[:3]] == [False, True, False]


def test_only_the_asked_stages_are_looked_at(plan, operations):
    asked = operations()
    nodes, before = expected(plan, "gpu-r01-2", stages=[Stage.FIRMWARE, Stage.PROVE])
    forecast.ask(plan, nodes, before)
    assert asked == [("firmware", ("gpu-r01-2",))]


def test_one_cause_for_all_is_said_of_each(plan, monkeypatch, operations):
    operations()

    async def refused(_context):
        raise NodeError("MAAS refused the API key", "Make a new one.")

    monkeypatch.setattr("metalyard.maas.operations.provision", refused)
    nodes, before = expected(plan, "gpu-r01-1", "gpu-r01-2")
    for entry in forecast.ask(plan, nodes, before):
        found = next(step.found for step in entry.steps if step.stage is Stage.PROVISION)
        assert (found.failed, found.message) == (True, "MAAS refused the API key")


def test_a_node_that_nobody_spoke_of_fails(plan, operations):
    operations(discover=lambda node: None)
    nodes, before = expected(plan, "gpu-r01-1")
    (entry,) = forecast.ask(plan, nodes, before)
    assert entry.steps[0].found.failed


def test_it_is_shown_with_the_reason_beside_its_node(plan, operations, metalyard):
    operations(
        discover=lambda node: HostResult(
            node, failed=node.endswith("3"), message=f"{node}: serial 9", next_step="Swap."
        ),
    )
    done = metalyard("plan", "--online")
    row = next(line for line in done.stdout.splitlines() if line.startswith("gpu-r01-3"))
    assert "✕ fails" in row
    assert "serial 9; → Swap." in row
    assert "6 nodes to bring up, 2 that will fail as things are. Nothing was changed." in done.stdout
    data = json.loads(metalyard("plan", "--online", "--json", "--limit", "gpu-r01-3").stdout)
    assert data["nodes"][0]["stages"][0]["found"]["failed"]


def test_fabric_and_images_are_behind_a_proven_node_only():
    assert not forecast._done(State.CONFIGURED, Stage.FABRIC)
    assert forecast._done(State.PROVING, Stage.FABRIC)
    assert forecast._done(State.IN_SERVICE, Stage.ADMIT)
    assert not forecast._done(State.PROVING, Stage.ADMIT)


def test_every_stage_has_words_for_what_it_does(plan):
    _, (entry,) = expected(plan, "gpu-r01-1")
    console = Console(record=True, width=120)
    console.print(foreseen.table([entry]))
    text = console.export_text()
    assert len(entry.steps) == len(STAGES)
    assert all(step.what and step.what in text for step in entry.steps)
