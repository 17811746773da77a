"""Two operators at once, and what becomes of a node whose operator's process died."""

import dataclasses
import os
import subprocess
import sys
import threading

import pytest
from sqlalchemy import text
from staged_rack import GONE, bring_up, hold_true, read

from metalyard.ledger import HistoryError, Ledger
from metalyard.plan.lifecycle import Stage, State
from metalyard.runs import stages
from metalyard.runs.holder import Holder
from metalyard.runs.leases import finish, heartbeat

A, B = "gpu-r01-1", "gpu-r01-2"
INIT = Holder.of(1)
"""A process that runs as long as the machine does."""
FAR = dataclasses.replace(GONE, user="grace", host="elsewhere", boot="another", machine="another")
"""A process on another machine: whether it runs, nobody here can tell."""


def age(plan, run, heartbeat="2020-01-01T00:00:00.000000Z"):
    with Ledger(plan.ledger_url) as ledger, ledger.write() as book:
        book.session.execute(text("UPDATE lease SET heartbeat = :at WHERE run = :run"), {"at": heartbeat, "run": run})


def test_the_second_operator_is_told_who_and_since_when(any_plan):
    first = stages.open_stage(any_plan, Stage.DISCOVER, [A], run="20261120T000000Z-bringup-0001", holder=INIT)
    second = stages.open_stage(any_plan, Stage.DISCOVER, [A, B], holder=Holder.of())
    assert second.decisions[B].kind == "go"
    held = second.decisions[A]
    assert held.kind == "held"
    with read(any_plan) as view:
        since = view.leases()[A].since
        (record,) = view.stages(run=second.run, node=A)
    assert f"{A} is held by {INIT.user}@{INIT.host}, process 1, run {first.run}, since {since[:10]}" in held.reason
    assert (record.outcome, record.message) == ("held", held.reason)
    with pytest.raises(HistoryError, match="is no longer held by run"):
        stages.fail_stage(any_plan, Stage.BMC, second.run, A, f"{A}: no", "look")
    stages.close_stage(any_plan, Stage.DISCOVER, first.run, [A])
    assert stages.states(any_plan, [A, B]) == {A: State.DISCOVERED, B: State.PLANNED}
    hold_true(any_plan)


def test_of_two_that_come_at_once_one_gets_each_node(any_plan):
    barrier = threading.Barrier(2)
    openings = {}

    def come(name, holder):
        barrier.wait(10)
        openings[name] = stages.open_stage(any_plan, Stage.DISCOVER, [A, B], run=f"1-bringup-{name}", holder=holder)

    threads = [threading.Thread(target=come, args=pair) for pair in (("one", INIT), ("two", Holder.of()))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for node in (A, B):
        assert sorted(opening.decisions[node].kind for opening in openings.values()) == ["go", "held"]


def test_a_dead_holder_on_this_machine_is_taken_over_at_once_and_that_is_recorded(any_plan):
    dead = stages.open_stage(any_plan, Stage.DISCOVER, [A], run="20261120T000000Z-bringup-dead", holder=GONE)
    mine = stages.open_stage(any_plan, Stage.DISCOVER, [A])
    assert mine.decisions[A].kind == "go"
    with read(any_plan) as view:
        (takeover,) = view.takeovers(A)
        assert (takeover.run, takeover.previous_run) == (mine.run, dead.run)
        assert takeover.why == f"process {GONE.pid} on {GONE.host} is gone"
        assert view.run(dead.run).outcome == "interrupted"
        (record,) = view.stages(run=dead.run)
        assert record.outcome == "interrupted"
        assert f"run {dead.run} stopped in stage discover" in record.message
    with pytest.raises(HistoryError, match="has ended"):
        stages.open_stage(any_plan, Stage.BMC, [A], run=dead.run, holder=GONE)
    stages.close_stage(any_plan, Stage.DISCOVER, dead.run, [A])  # it comes back from the dead: nothing happens
    assert stages.states(any_plan, [A]) == {A: State.PLANNED}
    hold_true(any_plan)


def test_a_number_that_was_given_again_is_not_the_holder(plan):
    reused = dataclasses.replace(Holder.of(), started=Holder.of().started - 1)
    stages.open_stage(plan, Stage.DISCOVER, [A], run="1-bringup-dead", holder=reused)
    assert stages.open_stage(plan, Stage.DISCOVER, [A]).decisions[A].kind == "go"
    with read(plan) as view:
        assert "is another one now" in view.takeovers(A)[0].why


def test_a_machine_restarted_since_has_no_holder(plan):
    before = dataclasses.replace(Holder.of(), boot="the boot before")
    stages.open_stage(plan, Stage.DISCOVER, [A], run="1-bringup-dead", holder=before)
    assert stages.open_stage(plan, Stage.DISCOVER, [A]).decisions[A].kind == "go"
    with read(plan) as view:
        assert "was restarted since" in view.takeovers(A)[0].why


@pytest.mark.parametrize("holder", [FAR, dataclasses.replace(GONE, space="pid:[1]")], ids=["elsewhere", "container"])
def test_a_holder_nobody_can_see_is_waited_for_ten_minutes(plan, holder):
    far = stages.open_stage(plan, Stage.DISCOVER, [A], run="1-bringup-far", holder=holder)
    assert stages.open_stage(plan, Stage.DISCOVER, [A]).decisions[A].kind == "held"
    age(plan, far.run)
    heartbeat(plan, far.run)
    assert stages.open_stage(plan, Stage.DISCOVER, [A]).decisions[A].kind == "held"
    age(plan, far.run)
    assert stages.open_stage(plan, Stage.DISCOVER, [A]).decisions[A].kind == "go"
    with read(plan) as view:
        assert "no sign of life from" in view.takeovers(A)[0].why
        assert view.run(far.run).outcome == "interrupted"
    with pytest.raises(HistoryError, match="has ended"):
        stages.open_stage(plan, Stage.BMC, [A], run=far.run, holder=holder)
    with pytest.raises(HistoryError, match="no longer held"):
        stages.fail_stage(plan, Stage.BMC, far.run, A, f"{A}: no", "look")


def test_a_live_holder_on_this_machine_is_never_taken_over(plan):
    first = stages.open_stage(plan, Stage.DISCOVER, [A], run="1-bringup-long", holder=INIT)
    age(plan, first.run)
    assert stages.open_stage(plan, Stage.DISCOVER, [A]).decisions[A].kind == "held"


def test_every_call_of_a_stage_is_a_sign_of_life(plan):
    opening = stages.open_stage(plan, Stage.DISCOVER, [A, B])
    age(plan, opening.run)
    stages.fail_stage(plan, Stage.DISCOVER, opening.run, A, f"{A}: no", "look")
    with read(plan) as view:
        assert all(lease.heartbeat > "2021" for lease in view.leases().values())


def test_a_run_gives_its_nodes_back(plan):
    first = stages.open_stage(plan, Stage.DISCOVER, [A, B], run="1-bringup-1", holder=INIT)
    assert stages.release(plan, first.run, [A]) == 1
    assert stages.open_stage(plan, Stage.DISCOVER, [A]).decisions[A].kind == "go"
    finish(plan, first.run, "complete")
    finish(plan, first.run, "error")
    with read(plan) as view:
        assert set(view.leases()) == {A}
        assert view.run(first.run).outcome == "complete"
        assert [record.outcome for record in view.stages(run=first.run)] == ["interrupted", "interrupted"]


def test_the_stages_of_one_ansible_playbook_are_one_run(plan):
    mine = stages.open_stage(plan, Stage.DISCOVER, [A])
    stages.close_stage(plan, Stage.DISCOVER, mine.run, [A])
    assert stages.open_stage(plan, Stage.BMC, [A]).run == mine.run
    assert stages.open_stage(plan, Stage.BMC, [A], holder=INIT).run != mine.run


def test_a_dead_run_is_ended_though_nobody_wants_its_nodes(plan):
    bring_up(plan, [A], upto=Stage.BMC, run="1-bringup-dead", holder=GONE)
    stages.open_stage(plan, Stage.FIRMWARE, [A], run="1-bringup-dead", holder=GONE)
    stages.open_stage(plan, Stage.DISCOVER, [B])
    with read(plan) as view:
        assert view.run("1-bringup-dead").outcome == "interrupted"
        assert view.stages(run="1-bringup-dead", open_only=True) == []


# -- who holds --------------------------------------------------------------------------------------------------------


def test_a_holder_survives_its_way_through_the_environment(monkeypatch):
    mine = Holder.of()
    assert mine.alive()
    assert mine.gone() is None
    assert str(mine) == f"{mine.user}@{mine.host}, process {os.getpid()}"
    for name, value in INIT.environment().items():
        monkeypatch.setenv(name, value)
    assert Holder.ambient() == INIT
    monkeypatch.setenv("METALYARD_HOLDER", "not json")
    assert Holder.ambient() == mine


def test_a_process_that_is_only_an_exit_status_is_gone():
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert Holder.of(process.pid).started == 0
        assert not Holder.of(process.pid).alive()


def test_the_worker_of_ansible_is_not_the_holder_its_parent_is():
    program = (
        "import os, sys\n"
        "from metalyard.runs.holder import Holder\n"
        "parent = os.getpid()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if Holder.ambient().pid == parent else 1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or Holder.ambient().pid != parent)\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "METALYARD_HOLDER"}
    assert subprocess.run([sys.executable, "-c", program], env=environment, timeout=30).returncode == 0
