"""The stages: what a node may do next, what is written down, and that nothing is ever half done."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine
from staged_rack import GONE, SITE, bring_up, dump, hold_true, read, verdict

from metalyard.gate.finding import Outcome
from metalyard.ledger import HistoryError, Ledger
from metalyard.plan.lifecycle import STAGES, Actor, Stage, State
from metalyard.runs import stages
from metalyard.runs.events import Follower
from metalyard.runs.leases import finish
from metalyard.runs.results import RunFolder
from metalyard.sweep import HostResult

NODES = [f"gpu-r0{rack}-{number}" for rack in (1, 2) for number in (1, 2, 3, 4)]
A, B, C, D = NODES[:4]


def test_the_whole_way_with_three_of_eight_aside(any_plan):
    plan = any_plan
    first = stages.open_stage(plan, Stage.DISCOVER, NODES)
    assert first.go == NODES
    sad = "gpu-r01-3: the BMC says serial 666, the plan 1660623000003"
    stages.fail_stage(plan, Stage.DISCOVER, first.run, C, sad, "Compare the label.", aside=True, data={"serial": "666"})
    stages.close_stage(plan, Stage.DISCOVER, first.run, [n for n in NODES if n != C])
    bad = {"gpu-r02-1": Outcome.FAIL, "gpu-r02-3": Outcome.FAIL}
    run, last = bring_up(plan, NODES, run=first.run, first=Stage.BMC, outcomes=bad)
    assert run == first.run
    assert last.decisions[C].kind == "skip"
    assert sad in last.decisions[C].reason
    assert last.decisions[C].next_step == "Compare the label."
    states = stages.states(plan, NODES)
    assert {n for n, state in states.items() if state is State.IN_SERVICE} == set(NODES) - {C, *bad}
    assert {n for n, state in states.items() if state is State.QUARANTINED} == {C, *bad}
    with read(plan) as view:
        assert view.state("gpu-r02-1").reason == "gpu-r02-1: 7 of 8 GPUs"
        assert view.state("gpu-r02-1").next_step == "Reseat it."
        assert view.state(C).actor is Actor.STAGE
    hold_true(plan)


def test_a_second_run_moves_nobody_and_admits_nobody_anew(any_plan):
    run, _ = bring_up(any_plan, NODES[:2], outcomes={B: Outcome.FAIL})
    finish(any_plan, run, "not_all")
    before = dump(any_plan)
    second, opening = bring_up(any_plan, NODES[:2])
    assert second != run
    after = dump(any_plan)
    for table in ("transition", "admission", "facts", "part_sighting", "takeover"):
        assert after[table] == before[table]
    assert opening.decisions[B].kind == "skip"
    assert "is quarantined since 20" in opening.decisions[B].reason
    assert f"metalyard release {B}" in opening.decisions[B].next_step


def test_check_writes_nothing_to_the_ledger(any_plan):
    bring_up(any_plan, [A])
    before = dump(any_plan)
    run, opening = bring_up(any_plan, [A, B], check=True)
    stages.fail_stage(any_plan, Stage.BMC, run, B, "no", "look", aside=True, check=True)
    assert dump(any_plan) == before
    assert opening.decisions[A].kind == "go"
    assert opening.decisions[B].kind == "skip"
    assert "Nothing now" in opening.decisions[B].next_step
    assert run.split("-")[1] == "check"


def test_check_without_a_ledger_makes_none(site, tmp_path):
    plan = site.model_copy(update={"state": tmp_path / "state"})
    assert stages.open_stage(plan, Stage.DISCOVER, NODES, check=True).go == NODES
    assert not (tmp_path / "state" / "ledger.sqlite").exists()
    assert stages.states(plan, [A]) == {A: State.PLANNED}


@pytest.mark.parametrize("stage", STAGES[1:])
def test_a_stage_waits_for_those_before_it(plan, stage):
    opening = stages.open_stage(plan, stage, [A])
    assert opening.decisions[A].kind == "skip"
    assert f"{A} is planned; stage {stage} needs it to be" in opening.decisions[A].reason
    assert "starts with stage discover" in opening.decisions[A].next_step
    stages.close_stage(plan, stage, opening.run, [A])  # it was never begun: nothing happens
    assert stages.states(plan, [A]) == {A: State.PLANNED}
    hold_true(plan)


def test_a_node_that_failed_does_not_get_to_later_stages_of_the_run(plan):
    bring_up(plan, [A])
    opening = stages.open_stage(plan, Stage.BMC, [A, B])
    stages.fail_stage(plan, Stage.BMC, opening.run, A, f"{A}: the BMC said 500", "Restart the BMC.")
    later = stages.open_stage(plan, Stage.FIRMWARE, [A], run=opening.run)
    assert later.decisions[A].kind == "skip"
    assert "did not pass stage bmc of this run: gpu-r01-1: the BMC said 500" in later.decisions[A].reason
    finish(plan, opening.run, "not_all")
    assert stages.open_stage(plan, Stage.FIRMWARE, [A]).decisions[A].kind == "go"


def test_a_wrong_serial_is_looked_at_again_by_discover_alone(plan):
    opening = stages.open_stage(plan, Stage.DISCOVER, [A])
    stages.fail_stage(plan, Stage.DISCOVER, opening.run, A, f"{A}: wrong serial", "Compare.", aside=True)
    finish(plan, opening.run, "not_all")
    assert stages.open_stage(plan, Stage.BMC, [A]).decisions[A].kind == "skip"
    again = stages.open_stage(plan, Stage.DISCOVER, [A])
    assert again.decisions[A].kind == "go"
    stages.close_stage(plan, Stage.DISCOVER, again.run, [A])
    assert stages.states(plan, [A]) == {A: State.DISCOVERED}


@pytest.mark.parametrize("state", [State.IN_REPAIR, State.RETIRED])
def test_what_people_took_out_is_left_alone(plan, state):
    with Ledger(plan.ledger_url) as ledger, ledger.write() as book:
        book.move(A, state, Actor.OPERATOR, run=None, reason="the roof leaks")
    decision = stages.open_stage(plan, Stage.DISCOVER, [A]).decisions[A]
    assert decision.kind == "skip"
    assert "since 20" in decision.reason
    assert "the roof leaks" in decision.reason


def test_closing_what_was_never_opened_is_refused_before_anything_is_written(plan):
    opening = stages.open_stage(plan, Stage.DISCOVER, [A])
    before = dump(plan)
    with pytest.raises(HistoryError, match=f"{B}: stage discover of run .* was never opened"):
        stages.close_stage(plan, Stage.DISCOVER, opening.run, [A, B])
    assert dump(plan) == before


def test_a_failure_of_a_stage_never_opened_is_not_lost_but_needs_the_lease(plan):
    opening = stages.open_stage(plan, Stage.DISCOVER, [A])
    stages.fail_stage(plan, Stage.BMC, opening.run, A, f"{A}: no", "look")
    with pytest.raises(HistoryError, match=f"{B} is no longer held by run"):
        stages.fail_stage(plan, Stage.BMC, opening.run, B, f"{B}: no", "look")
    with read(plan) as view:
        assert [r.outcome for r in view.stages(node=A, stage=Stage.BMC)] == ["failed"]


def test_the_first_end_of_a_stage_stands(plan):
    opening = stages.open_stage(plan, Stage.DISCOVER, [A, B])
    stages.fail_stage(plan, Stage.DISCOVER, opening.run, A, f"{A}: no", "look")
    stages.close_stage(plan, Stage.DISCOVER, opening.run, [A, B])
    stages.close_stage(plan, Stage.DISCOVER, opening.run, [A, B])
    stages.fail_stage(plan, Stage.DISCOVER, opening.run, B, f"{B}: no", "look", aside=True)
    assert stages.states(plan, [A, B]) == {A: State.PLANNED, B: State.DISCOVERED}


def test_a_run_that_ended_is_not_gone_on_with(plan):
    opening = stages.open_stage(plan, Stage.DISCOVER, [A])
    finish(plan, opening.run, "complete")
    with pytest.raises(HistoryError, match="has ended"):
        stages.open_stage(plan, Stage.BMC, [A], run=opening.run)


def test_facts_and_parts_of_good_results_only(plan):
    opening = stages.open_stage(plan, Stage.DISCOVER, [A, B])
    parts = [{"kind": "gpu", "part": "gpu 0", "serial": "S0", "model": "H100", "firmware": "96"}, "nonsense", {}]
    facts = {"serial": "1", "parts": parts}
    stages.record_results(
        plan,
        opening.run,
        Stage.DISCOVER,
        [HostResult(A, data={"facts": facts}), HostResult(B, failed=True, data={"facts": facts})],
    )
    stages.record_result(plan, opening.run, Stage.DISCOVER, HostResult(A, data={"facts": facts}))
    with read(plan) as view:
        assert view.facts(A).body == facts
        assert view.facts(B) is None
        assert [(p.node, p.slot, p.serial) for p in view.sightings()] == [(A, "gpu 0", "S0")]


def test_what_happens_is_told_line_by_line(plan):
    opening = stages.open_stage(plan, Stage.DISCOVER, [A, B])
    folder = RunFolder.of(plan.state_dir, opening.run)
    follower = Follower(folder.path)
    assert [(e.node, e.status) for e in follower.poll()] == [(A, "running"), (B, "running")]
    folder.progress("bmc_discover", A, "reading 40 sensors")
    stages.fail_stage(plan, Stage.DISCOVER, opening.run, B, f"{B}: no", "look")
    stages.close_stage(plan, Stage.DISCOVER, opening.run, [A])
    told = [(e.node, e.stage, e.status, e.text, e.next_step) for e in follower.poll()]
    assert (A, "discover", "running", "reading 40 sensors", "") in told
    assert (B, "discover", "failed", f"{B}: no", "look") in told
    assert (A, "discover", "passed", "", "") in told
    with (folder.path / "stages.jsonl").open("a") as stream:
        stream.write('{"node": "cut')
    assert follower.poll() == []


# -- killed anywhere --------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """What a kill looks like from inside."""


STEPS = {
    "open": lambda plan, run: stages.open_stage(plan, Stage.BMC, [A, B], run=run),
    "close": lambda plan, run: stages.close_stage(plan, Stage.BMC, run, [A, B]),
    "fail": lambda plan, run: stages.fail_stage(plan, Stage.BMC, run, A, f"{A}: no", "look", aside=True),
    "facts": lambda plan, run: stages.record_results(
        plan,
        run,
        Stage.BMC,
        [HostResult(n, data={"parts": [{"kind": "gpu", "part": "gpu 0", "serial": n}]}) for n in (A, B)],
    ),
    "verdicts": lambda plan, run: stages.record_verdicts(plan, run, [verdict(A), verdict(B, Outcome.FAIL)]),
    "settle": lambda plan, run: stages.settle(plan, run, stages.verdicts(plan, run, [A, B])),
    "finish": lambda plan, run: finish(plan, run, "complete"),
    "takeover": lambda plan, run: stages.open_stage(plan, Stage.BMC, [C], run=run),
}


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_statement_a_step_is_undone_and_can_be_done_again(plan, step):
    run = stages.open_stage(plan, Stage.DISCOVER, [A, B]).run
    stages.close_stage(plan, Stage.DISCOVER, run, [A, B])
    bring_up(plan, [C], upto=Stage.DISCOVER, run="20261120T000000Z-bringup-dead", holder=GONE)
    stages.open_stage(plan, Stage.BMC, [C], run="20261120T000000Z-bringup-dead", holder=GONE)
    if step in ("verdicts", "settle"):
        bring_up(plan, [A, B], run=run, upto=Stage.IMAGES)
        stages.open_stage(plan, Stage.PROVE, [A, B], run=run)
    if step == "settle":
        stages.record_verdicts(plan, run, [verdict(A), verdict(B, Outcome.FAIL)])
    if step not in ("open", "verdicts", "settle", "takeover"):
        stages.open_stage(plan, Stage.BMC, [A, B], run=run)
    before = dump(plan)
    count = 0
    limit = 0

    def kill(*_):
        nonlocal count
        count += 1
        if count == limit:
            raise Killed

    kills = 0
    event.listen(Engine, "before_cursor_execute", kill)
    event.listen(Engine, "commit", kill)
    try:
        while True:
            count, limit = 0, limit + 1
            try:
                STEPS[step](plan, run)
                break
            except Killed:
                kills += 1
                assert dump(plan) == before, f"killed at statement {limit}"
    finally:
        event.remove(Engine, "before_cursor_execute", kill)
        event.remove(Engine, "commit", kill)
    assert kills > 3
    assert dump(plan) != before
    hold_true(plan)


LOOP = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[3]]
from metalyard.plan import load_plan
from staged_rack import bring_up
plan = load_plan(Path(sys.argv[1])).model_copy(update={"state": Path(sys.argv[2])})
print("ready", flush=True)
bring_up(plan, [node.name for node in plan.nodes])
print("done", flush=True)
"""


def test_killed_for_real_at_random_moments_the_same_command_ends_in_the_same_place(plan):
    dice = random.Random(7)
    here = os.path.dirname(__file__)
    for attempt in range(12):
        process = subprocess.Popen(
            [sys.executable, "-c", LOOP, SITE, plan.state_dir, here], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "ready\n"
        if attempt < 8:
            time.sleep(dice.uniform(0.0, 0.35))
            process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate(timeout=60)
        hold_true(plan)
        if attempt >= 8:
            assert rest == "done\n"
            break
    assert set(stages.states(plan, NODES).values()) == {State.IN_SERVICE}
    with read(plan) as view:
        assert len(view.transitions()) == 7 * len(NODES)
        assert len([v for v in view.runs(100) if v.outcome == "open"]) == 1
