"""What the ledger keeps: consistent, only ever added to, and all or nothing."""

import threading

import pytest
from sqlalchemy import text

from metalyard.gate.finding import Finding, Outcome, Owner, Verdict
from metalyard.ledger import HistoryError, Ledger, LedgerError, PartSeen
from metalyard.ledger.schema import MUTABLE, Base
from metalyard.plan.lifecycle import STAGE_REACHES, STAGES, Actor, Stage, State

HOLDER = {"user": "ada", "host": "controller", "pid": 4711, "started": 1}
HISTORY = sorted(set(Base.metadata.tables) - MUTABLE)


@pytest.fixture
def filled(ledger, run):
    """A ledger with a row in every table."""
    with ledger.write() as book:
        record = book.begin_stages(run, Stage.DISCOVER, ["gpu-1"])["gpu-1"]
        book.end_stage(record, "passed")
        book.move("gpu-1", State.DISCOVERED, Actor.STAGE, run=run, reason="found")
        book.learn(run, "gpu-1", Stage.DISCOVER, {"serial": "1"})
        book.sight(run, "gpu-1", [PartSeen("gpu", "gpu 0", "S0")])
        book.keep_evidence(run, "gpu-1", "os", "ab" * 32, "evidence/ab.json.gz")
        verdict = book.judge(run, Verdict("gpu-1", Outcome.FAIL, (Finding("c", "gpu-1", Outcome.FAIL, "bad"),)))
        book.session.execute(
            text(
                "INSERT INTO admission (node, run, verdict, serial, profile, rules, parts, firmware, evidence, at,"
                " expires, digest, signature, signer)"
                " VALUES ('gpu-1', :run, :verdict, '', '', '', '{}', '{}', '{}', '', '', '', '', '')"
            ),
            {"run": run, "verdict": verdict},
        )
        book.decide("gpu-1", "ada", "release", "because")
        book.add_remedy("gpu-1", "ada", "reseated", part="gpu 0", part_serial="S0")
        book.take(["gpu-1"], run, HOLDER)
        book.begin_run("R2", verb="bringup", site="test", holder=HOLDER, version="0")
        book.take_over(book.leases(["gpu-1"])["gpu-1"], "R2", HOLDER, "ada@controller", "gone")
        book.end_run(run, "interrupted")
    return ledger


@pytest.mark.parametrize("table", HISTORY)
@pytest.mark.parametrize("verb", ["update", "delete", "wipe"])
def test_history_refuses_to_be_changed(filled, table, verb):
    column = next(iter(Base.metadata.tables[table].primary_key.columns)).name
    statement = {
        "update": f"UPDATE {table} SET {column} = {column}",  # noqa: S608
        "delete": f"DELETE FROM {table}",  # noqa: S608
        "wipe": f"REPLACE INTO {table} SELECT * FROM {table}",  # noqa: S608
    }[verb]
    if verb == "wipe" and filled.engine.dialect.name == "postgresql":
        statement = f"TRUNCATE {table} CASCADE"
    with filled.read() as view:
        before = view.session.execute(text(f"SELECT count(*) FROM {table}")).scalar()  # noqa: S608
    assert before >= 1
    with pytest.raises(LedgerError, match="append-only"), filled.write() as book:
        book.session.execute(text(statement))
    with filled.read() as view:
        assert view.session.execute(text(f"SELECT count(*) FROM {table}")).scalar() == before  # noqa: S608


def test_an_exception_leaves_nothing(ledger, run):
    def half():
        with ledger.write() as book:
            book.begin_stages(run, Stage.DISCOVER, ["gpu-1"])
            book.move("gpu-1", State.DISCOVERED, Actor.STAGE, run=run, reason="found")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    with ledger.read() as view:
        assert view.stages() == []
        assert view.state("gpu-1").state is State.PLANNED


def test_no_state_is_jumped_over(ledger, run):
    with ledger.write() as book:
        for target in set(State) - {State.DISCOVERED, State.QUARANTINED}:
            with pytest.raises(HistoryError, match=f"gpu-1 is planned; 'stage' may not take it to {target}"):
                book.move("gpu-1", target, Actor.STAGE, run=run, reason="")
        for stage in STAGES[:-1]:
            if stage in STAGE_REACHES:
                assert book.move("gpu-1", STAGE_REACHES[stage], Actor.STAGE, run=run, reason="").state in State
        with pytest.raises(HistoryError):
            book.move("gpu-1", State.IN_SERVICE, Actor.STAGE, run=run, reason="only the gate admits")
        book.move("gpu-1", State.IN_SERVICE, Actor.GATE, run=run, reason="")
    with ledger.read() as view:
        steps = view.transitions("gpu-1")
        assert [step.sequence for step in steps] == list(range(1, 8))
        assert [step.source for step in steps[1:]] == [step.target for step in steps[:-1]]
        assert view.states() == view.states(["gpu-1"])
        assert view.states(["gpu-2"])["gpu-2"].since is None


def test_the_first_word_of_a_stage_stands(ledger, run):
    with ledger.write() as book:
        first = book.begin_stages(run, Stage.BMC, ["gpu-1"])["gpu-1"]
        assert book.begin_stages(run, Stage.BMC, ["gpu-1"])["gpu-1"].record == first.record
        assert book.end_stage(first, "failed", message="no", next_step="look", changed=True)
    with ledger.write() as book:
        (ended,) = book.stages(run=run, node="gpu-1")
        assert (ended.outcome, ended.message, ended.next_step, ended.changed) == ("failed", "no", "look", True)
        assert not book.end_stage(ended, "passed")
        assert book.stages(run=run, open_only=True) == []


def test_a_part_is_written_down_when_it_is_new_or_moved_or_updated(ledger, run):
    parts = [PartSeen("gpu", f"gpu {i}", f"S{i}", "H100", "96.00") for i in range(8)]
    with ledger.write() as book:
        assert book.sight(run, "gpu-1", [*parts, PartSeen("fan", "fan 1", "")]) == 8
        assert book.sight(run, "gpu-1", parts) == 0
        assert book.sight(run, "gpu-2", [PartSeen("gpu", "gpu 3", "S0", "H100", "96.00")]) == 1
        assert book.sight(run, "gpu-1", parts) == 1
        assert book.sight(run, "gpu-1", [PartSeen("gpu", "gpu 0", "S0", "H100", "97.00")]) == 1
    with ledger.read() as view:
        where = [(row.node, row.slot, row.firmware) for row in view.sightings(serial="S0")]
    assert where == [
        ("gpu-1", "gpu 0", "96.00"),
        ("gpu-2", "gpu 3", "96.00"),
        ("gpu-1", "gpu 0", "96.00"),
        ("gpu-1", "gpu 0", "97.00"),
    ]


def test_facts_are_written_down_when_they_differ(ledger, run):
    with ledger.write() as book:
        assert book.learn(run, "gpu-1", Stage.DISCOVER, {"a": 1, "b": [2]})
        assert not book.learn(run, "gpu-1", Stage.DISCOVER, {"b": [2], "a": 1})
        assert book.learn(run, "gpu-1", Stage.DISCOVER, {"a": 2})
        assert book.facts("gpu-1").body == {"a": 2}
        assert book.facts("gpu-1", Stage.FIRMWARE) is None


def test_a_verdict_comes_back_as_it_was(ledger, run):
    findings = (
        Finding("gpu.count", "gpu-1", Outcome.FAIL, "gpu-1: 7 of 8 GPUs", "gpu 5", "S5", "7", "8", "reseat",
                Owner.VENDOR, "profile"),
        Finding("disk", "gpu-1", Outcome.PASS, "fine"),
    )  # fmt: skip
    verdict = Verdict("gpu-1", Outcome.FAIL, findings, {"os": "ab", "bmc": "cd"}, "rules-digest")
    with ledger.write() as book:
        book.judge(run, verdict)
    with ledger.read() as view:
        assert view.verdict(view.last_verdict("gpu-1", run)) == verdict
        assert view.last_verdict("gpu-1", "R0") is None
        assert [row.summary for row in view.part_findings("S5")] == ["gpu-1: 7 of 8 GPUs"]


def test_a_run_resumes_only_one_that_is_known(ledger, run):
    with ledger.write() as book:
        with pytest.raises(HistoryError, match="no run R0 to resume"):
            book.begin_run("R2", verb="bringup", site="s", holder=HOLDER, version="0", resumes="R0")
        assert book.begin_run("R2", verb="bringup", site="s", holder=HOLDER, version="0", resumes=run)
        assert not book.begin_run("R2", verb="bringup", site="s", holder=HOLDER, version="0")
        assert {known.id for known in book.open_runs()} == {run, "R2"}
        assert book.end_run(run, "complete", "8 of 8")
        assert not book.end_run(run, "error")
        assert [known.id for known in book.open_runs()] == ["R2"]
        assert (book.run(run).outcome, book.run("R2").resumes) == ("complete", run)


def test_writers_in_two_threads_never_fork_a_history(url, ledger, run):
    barrier = threading.Barrier(2)
    won = []

    def step():
        with Ledger(url) as mine:
            barrier.wait(10)
            try:
                with mine.write() as book:
                    book.move("gpu-1", State.DISCOVERED, Actor.STAGE, run=run, reason="me")
                won.append(True)
            except HistoryError:
                won.append(False)

    threads = [threading.Thread(target=step) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(won) == [False, True]
    with ledger.read() as view:
        assert len(view.transitions("gpu-1")) == 1


def test_many_nodes_at_once(ledger, run):
    names = [f"gpu-{i:04}" for i in range(1200)]
    with ledger.write() as book:
        book.take(names, run, HOLDER)
        records = book.begin_stages(run, Stage.DISCOVER, names)
        states = book.states(names)
        for name in names:
            book.end_stage(records[name], "passed")
            book.move(name, State.DISCOVERED, Actor.STAGE, run=run, reason="", here=states[name])
    with ledger.read() as view:
        assert len(view.states(names)) == len(view.states()) == 1200
        assert {here.state for here in view.states(names).values()} == {State.DISCOVERED}
        assert len(view.stages(run=run, nodes=names)) == 1200
    with ledger.write() as book:
        assert book.beat(run) == 1200
        assert book.free(run, names[:200]) == 200
        assert book.free(run) == 1000
