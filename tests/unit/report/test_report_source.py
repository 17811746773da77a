"""Records out of a real ledger: the last word of each stage, what belongs to an earlier life, who works where."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import sample_rack

from metalyard.gate.finding import Finding, Outcome, Verdict
from metalyard.ledger import Ledger
from metalyard.plan.lifecycle import Actor, Stage, State
from metalyard.report.data import build
from metalyard.report.source import collect

HOLDER = {"user": "ops", "host": "controller-1", "pid": 7}
NODE = "gpu-r01-1"


@pytest.fixture
def plan(tmp_path):
    return sample_rack.plan().model_copy(update={"state": tmp_path})


@pytest.fixture
def ledger(plan):
    with Ledger(plan.ledger_url) as ledger:
        yield ledger


def begin(book, run, **options):
    book.begin_run(run, verb="bringup", site="virtual", holder=HOLDER, version="0.1.0", options=options)


def stage(book, run, name, outcome, node=NODE, **words):
    book.end_stage(book.begin_stages(run, name, [node])[node], outcome, **words)


def record(plan, ledger, **how):
    with ledger.read() as view:
        return collect(plan, view, **how)


def test_an_empty_ledger_is_a_planned_site(plan, ledger):
    records = record(plan, ledger)
    assert {entry.state for entry in records.nodes.values()} == {State.PLANNED}
    assert len(records.nodes) == 8
    assert records.run is None


def test_what_a_run_left_is_all_there(plan, ledger):
    facts = {
        "serial": "1660623000001",
        "uuid": "u-1",
        "vendor": "NVIDIA",
        "model": "DGXH100",
        "bios_version": "1.6.7",
        "bmc_version": "24.09.17",
        "parts": [{"kind": "gpu", "part": "GPU_SXM_1", "serial": "165", "model": "H100", "firmware": "96.00"}],
    }
    finding = Finding("gpu.count", NODE, Outcome.FAIL, f"{NODE}: seven", part="gpu 5", measured="7", expected="8")
    with ledger.write() as book:
        begin(book, "run-1", limit="rack_r01", stages=["discover", "prove"])
        book.take([NODE], "run-1", HOLDER)
        stage(book, "run-1", Stage.DISCOVER, "passed")
        book.move(NODE, State.DISCOVERED, Actor.STAGE, run="run-1", reason="stage discover passed")
        book.learn("run-1", NODE, Stage.DISCOVER, facts)
        components = [
            {"component": "BIOS", "id": "HostBIOS_0", "version": "1.6.7", "expected": "1.6.7", "action": "updated"}
        ]
        book.learn("run-1", NODE, Stage.FIRMWARE, {"components": components})
        book.learn("run-1", NODE, Stage.PROVISION, {"system_id": "abc123", "status_name": "Deployed"})
        stage(book, "run-1", Stage.PROVE, "failed", message=f"{NODE}: seven", next_step="Look.")
        book.judge("run-1", Verdict(NODE, Outcome.FAIL, (finding,), {"os": "d1"}, "r1"))
    entry = record(plan, ledger).nodes[NODE]
    assert entry.state is State.DISCOVERED
    assert [(s.stage, s.outcome) for s in entry.stages] == [(Stage.DISCOVER, "passed"), (Stage.PROVE, "failed")]
    assert entry.findings == (finding,)
    assert (entry.verdict, entry.rules, entry.evidence) == (Outcome.FAIL, "r1", {"os": "d1"})
    assert entry.parts[0].serial == "165"
    assert entry.firmware[0].action == "updated"
    assert entry.ids["MAAS system id"] == "abc123"
    assert entry.facts["BIOS"] == "1.6.7"
    assert entry.lease.holder == "ops@controller-1, process 7"
    run = record(plan, ledger).run
    assert (run.operator, run.limit, run.stages) == ("ops@controller-1", "rack_r01", ("discover", "prove"))
    assert run.ended is None


def test_a_stage_without_an_end_runs_only_while_its_run_holds_the_node(plan, ledger):
    with ledger.write() as book:
        begin(book, "run-1")
        book.take([NODE], "run-1", HOLDER)
        book.begin_stages("run-1", Stage.BMC, [NODE])
    assert record(plan, ledger).nodes[NODE].stages[0].outcome == "running"
    with ledger.write() as book:
        book.free("run-1")
    assert record(plan, ledger).nodes[NODE].stages[0].outcome == "interrupted"


def test_passing_over_does_not_hide_why_a_node_is_aside(plan, ledger):
    with ledger.write() as book:
        begin(book, "run-1")
        stage(book, "run-1", Stage.DISCOVER, "failed", message="wrong serial")
        book.move(NODE, State.QUARANTINED, Actor.STAGE, run="run-1", reason="wrong serial", next_step="Swap it.")
        begin(book, "run-2")
        stage(book, "run-2", Stage.DISCOVER, "skipped", message="is quarantined")
    entry = record(plan, ledger).nodes[NODE]
    assert [(s.outcome, s.message) for s in entry.stages] == [("failed", "wrong serial")]
    assert (entry.reason, entry.next_step) == ("wrong serial", "Swap it.")


def test_a_released_node_begins_without_its_old_verdict_and_stages(plan, ledger):
    with ledger.write() as book:
        begin(book, "run-1")
        stage(book, "run-1", Stage.DISCOVER, "failed", message="wrong serial")
        book.move(NODE, State.QUARANTINED, Actor.STAGE, run="run-1", reason="wrong serial")
        book.judge("run-1", Verdict(NODE, Outcome.FAIL, (), {}, "r"))
    with ledger.write() as book:
        book.move(NODE, State.PLANNED, Actor.OPERATOR, run=None, reason="machine swapped")
    entry = record(plan, ledger).nodes[NODE]
    assert entry.state is State.PLANNED
    assert (entry.stages, entry.verdict, entry.findings) == ((), None, ())
    assert [t.target for t in entry.history] == [State.QUARANTINED, State.PLANNED]


def test_a_report_of_a_run_is_about_its_nodes(plan, ledger):
    with ledger.write() as book:
        begin(book, "run-1")
        stage(book, "run-1", Stage.DISCOVER, "passed")
        begin(book, "run-2")
        stage(book, "run-2", Stage.DISCOVER, "passed", node="gpu-r02-1")
    records = record(plan, ledger, run="run-1")
    now = datetime.now(UTC)
    assert [node.name for node in build(plan, records, now).nodes] == [NODE]
    assert len(build(plan, record(plan, ledger), now).nodes) == 8


def test_a_run_that_is_not_there_is_said(plan, ledger):
    with pytest.raises(KeyError, match="run-9"):
        record(plan, ledger, run="run-9")


def test_facts_of_another_shape_are_left_out_not_a_crash(plan, ledger):
    with ledger.write() as book:
        begin(book, "run-1")
        book.learn("run-1", NODE, Stage.DISCOVER, {"parts": "none", "serial": None, "facts": 3})
        book.learn("run-1", NODE, Stage.FIRMWARE, {"components": [None, {"component": "BIOS"}]})
    entry = record(plan, ledger).nodes[NODE]
    assert entry.parts == ()
    assert [f.component for f in entry.firmware] == ["BIOS"]
