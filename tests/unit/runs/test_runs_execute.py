"""Bring-up with the real ansible-playbook: outcomes, events, interruptions, kill -9, secrets."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import playing
import pytest
from playing import play, running, wait_until
from staged_rack import dump, hold_true, read

from metalyard.ledger import HistoryError, Ledger
from metalyard.plan.lifecycle import Stage, State
from metalyard.runs import stages
from metalyard.runs.events import NodeStageEvent, RunEnded, RunStarted
from metalyard.runs.execute import bringup
from metalyard.runs.holder import Holder

A, B, C = NODES = ("gpu-r01-1", "gpu-r01-2", "gpu-r01-3")


@pytest.fixture
def state(plan):
    return plan.state_dir


@pytest.fixture
def start(state):
    """Begins a run in a process of its own, and returns once its nodes are at work."""
    started = []

    def begin(**variables):
        words = [f"{name}={value}" for name, value in variables.items()]
        command = [sys.executable, playing.__file__, str(state), *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        started.append(process)
        assert wait_until(lambda: len(running(f"sleep {variables['nap']}")) >= 3, 60), "its nodes are not at work"
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_nodes_that_pass_and_a_run_that_says_so(plan, state, monkeypatch):
    monkeypatch.setenv("FACTORY_PASSWORD", "hunter2-env")
    told = []
    outcome = play(state, word="open-sesame", on_event=told.append)
    assert (outcome.exit_code, outcome.message) == (0, "3 of 3 nodes as asked."), outcome
    assert outcome.counts == {"discovered": 3}
    assert list(outcome.nodes) == list(NODES)
    assert {node.outcome for node in outcome.nodes.values()} == {"passed"}
    assert isinstance(told[0], RunStarted)
    assert told[-1] == RunEnded(outcome.run, "complete", outcome.message)
    words = [(e.node, e.stage, e.status, e.text) for e in told if isinstance(e, NodeStageEvent)]
    for node in NODES:
        mine = [word for word in words if word[0] == node]
        assert mine[0] == (node, "discover", "running", "")
        assert (node, "discover", "running", "Work") in mine
        assert mine[-1] == (node, "discover", "passed", "")
    with read(plan) as view:
        run = view.run(outcome.run)
        assert (run.outcome, run.options["stages"]) == ("complete", ["discover"])
        assert view.leases() == {}
    # no secret in anything that is left of the run
    left = [path for path in state.rglob("*") if path.is_file()]
    assert any(path.name == "command" for path in left)
    for path in left:
        assert b"hunter2-env" not in path.read_bytes(), path
        assert b"open-sesame" not in path.read_bytes(), path
    assert not list(state.rglob("extra_vars.json"))


def test_one_that_goes_wrong_and_one_out_of_reach_leave_the_third_alone(plan, state):
    if shutil.which("ssh") is None:
        pytest.skip("there is no ssh to be refused with")
    outcome = play(state, bad=A, lost=B)
    assert outcome.exit_code == 3
    assert outcome.message == "1 of 3 nodes as asked."
    bad, lost, good = (outcome.nodes[name] for name in NODES)
    assert (bad.outcome, bad.stage, bad.state) == ("failed", "discover", State.PLANNED)
    assert bad.reason == f"{A}: the disk is on fire (task 'Go wrong')"
    assert lost.outcome == "unknown"
    assert f"{B} went out of reach in stage discover, task 'Go out of reach'" in lost.reason
    assert "answers on SSH" in lost.next_step
    assert (good.outcome, good.state) == ("passed", State.DISCOVERED)
    with read(plan) as view:
        assert view.stages(run=outcome.run, open_only=True) == []
    hold_true(plan)


def test_a_check_leaves_the_ledger_as_it_was(plan, state):
    before = dump(plan)
    outcome = play(state, check=True)
    assert outcome.exit_code == 0, outcome
    assert outcome.check
    assert outcome.counts == {"planned": 3}
    assert dump(plan) == before


def test_a_second_operator_is_told(plan, state):
    stages.open_stage(plan, Stage.DISCOVER, [A], run="1-bringup-other", holder=Holder.of(1))
    outcome = play(state)
    assert outcome.exit_code == 4
    assert f"{A} is held by" in outcome.message
    assert "run 1-bringup-other, since 20" in outcome.message
    assert stages.states(plan, NODES) == {A: State.PLANNED, B: State.DISCOVERED, C: State.DISCOVERED}


@pytest.mark.parametrize(
    ("trouble", "said"),
    [({"playbook": "/nowhere/at-all.yml"}, "could not be found"), ({"limit": "nobody"}, "nobody")],
    ids=["playbook", "limit"],
)
def test_a_run_that_cannot_begin_is_an_error_that_says_why(plan, state, trouble, said):
    outcome = play(state, **trouble)
    assert outcome.exit_code == 1
    assert said in outcome.message
    assert "artifacts/ansible/stdout" in outcome.next_step
    with read(plan) as view:
        assert view.run(outcome.run).outcome == "error"


def test_a_display_that_fails_does_not_end_the_run(plan, state):
    def display(event):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        play(state, on_event=display)
    assert set(stages.states(plan, NODES).values()) == {State.DISCOVERED}


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_ends_in_order_and_is_resumed(plan, state, start, sign):
    nap = f"6{sign:02}.25"
    process = start(nap=nap)
    process.send_signal(sign)
    said, _ = process.communicate(timeout=40)
    assert process.returncode == 130, said
    assert f"Interrupted by {sign.name}" in said
    assert not running(f"sleep {nap}")
    assert not running(str(state))
    with read(plan) as view:
        (run,) = view.runs()
        assert run.outcome == "interrupted"
        assert {record.outcome for record in view.stages(run=run.id)} == {"interrupted"}
        assert view.leases() == {}
    assert f"metalyard bringup --resume {run.id}" in said
    outcome = play(state, resume="latest")
    assert (outcome.exit_code, outcome.resumes) == (0, run.id)
    with read(plan) as view:
        assert view.run(outcome.run).resumes == run.id
        assert view.run(outcome.run).options == run.options
    hold_true(plan)


def test_kill_9_leaves_no_process_and_the_same_command_finishes(plan, state, start):
    process = start(nap="77.125")
    assert list(state.rglob("extra_vars.json"))
    process.kill()
    process.wait(10)
    assert wait_until(lambda: not running("sleep 77.125") and not running(str(state)), 10)
    assert wait_until(lambda: not list(state.rglob("extra_vars.json")), 5)
    with read(plan) as view:
        (dead,) = view.runs()
        assert dead.outcome == "open"
    outcome = play(state)
    assert outcome.exit_code == 0
    with read(plan) as view:
        assert view.run(dead.id).outcome == "interrupted"
        assert {record.outcome for record in view.stages(run=dead.id)} == {"interrupted"}
        assert {takeover.node for takeover in view.takeovers()} == set(NODES)
    hold_true(plan)


def test_a_killed_supervisor_leaves_no_process_either(plan, state, start):
    process = start(nap="78.125")
    (supervisor,) = [pid for pid, line in running("tether.py").items() if f" {process.pid} /proc/" in line]
    os.kill(supervisor, signal.SIGKILL)
    said, _ = process.communicate(timeout=40)
    assert process.returncode == 1, said
    assert not running("sleep 78.125")
    assert not running(str(state))
    with read(plan) as view:
        assert {record.outcome for record in view.stages()} == {"unknown"}


def test_only_what_was_interrupted_is_resumed(plan, state):
    site = playing.site(state)
    with pytest.raises(HistoryError, match="No run was interrupted"):
        bringup(site, Path("unused"), resume="latest")
    with pytest.raises(HistoryError, match="knows no run 1-bringup-0"):
        bringup(site, Path("unused"), resume="1-bringup-0")
    with Ledger(plan.ledger_url) as ledger, ledger.write() as book:
        book.begin_run("1-bringup-1", verb="bringup", site="s", holder=Holder.of(1).as_dict(), version="0")
    with pytest.raises(HistoryError, match="still goes on"):
        bringup(site, Path("unused"), resume="1-bringup-1")
    with pytest.raises(ValueError, match="discovery"):
        bringup(site, Path("unused"), stages=["discovery"])
