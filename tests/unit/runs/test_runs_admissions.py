"""What a verdict leads to: the one door into service, closed on doubt, and the breaker that stops a mass quarantine."""

import dataclasses

import pytest
from staged_rack import bring_up, dump, hold_true, read, verdict

from metalyard.gate.finding import Finding, Outcome, Verdict
from metalyard.ledger import HistoryError
from metalyard.ledger.schema import Admission
from metalyard.plan.lifecycle import Stage, State
from metalyard.runs import admissions, stages
from metalyard.runs.leases import finish
from metalyard.sweep import HostResult

NODES = [f"gpu-r0{rack}-{number}" for rack in (1, 2) for number in (1, 2, 3, 4)]
A, B = NODES[:2]
FACTS = {
    "serial": "1660623000001",
    "firmware": {"HostBIOS_0": "1.5.1", "HostBMC_0": "24.09"},
    "parts": [{"kind": "gpu", "part": "0", "serial": "S0"}, {"kind": "nic", "part": "mlx5_0", "serial": "N0"}],
}


@pytest.fixture
def proven(plan):
    """A run whose nodes have come to the gate, without a verdict yet."""
    run, _ = bring_up(plan, NODES, upto=Stage.IMAGES)
    stages.open_stage(plan, Stage.PROVE, NODES, run=run)
    return plan, run


def with_gate(plan, **gate):
    return plan.model_copy(update={"gate": plan.gate.model_copy(update=gate)})


def states(plan, *nodes):
    return [state.value for state in stages.states(plan, nodes).values()]


def test_a_verdict_that_admits_admits_once(proven):
    plan, run = proven
    stages.record_verdict(plan, run, verdict(A, Outcome.WATCH))
    assert states(plan, A) == ["proving"]
    assert stages.admit(plan, run, A, verdict(A, Outcome.WATCH))
    assert not stages.admit(plan, run, A, verdict(A, Outcome.WATCH))
    assert states(plan, A) == ["in_service"]


@pytest.mark.parametrize("written", [None, *Outcome])
def test_only_what_is_written_down_takes_effect(proven, written):
    plan, run = proven
    claims = dict(zip(NODES, [None, *Outcome], strict=False))
    if written is not None:
        stages.record_verdicts(plan, run, [verdict(name, written) for name in claims])
    given = {name: verdict(name, claimed) if claimed else None for name, claimed in claims.items()}
    settled = stages.settle(plan, run, given)
    for name, claimed in claims.items():
        agree = written is claimed and written is not None
        if agree and claimed in (Outcome.PASS, Outcome.WATCH):
            assert (settled[name].kind, states(plan, name)) == ("admitted", ["in_service"])
        elif agree and claimed is Outcome.FAIL:
            assert (settled[name].kind, states(plan, name)) == ("quarantined", ["quarantined"])
        else:
            assert settled[name].kind == "withheld"
            assert states(plan, name)[0] in ("configured", "proving")
    hold_true(plan)


def test_a_verdict_of_another_run_admits_nobody(proven):
    plan, run = proven
    stages.record_verdict(plan, run, verdict(A))
    finish(plan, run, "interrupted")
    later = stages.open_stage(plan, Stage.PROVE, [A]).run
    with pytest.raises(HistoryError, match="wrote down no such verdict"):
        stages.admit(plan, later, A, verdict(A))
    assert states(plan, A) == ["proving"]


def test_the_newest_verdict_of_the_run_counts(proven):
    plan, run = proven
    stages.record_verdict(plan, run, verdict(A))
    stages.record_verdict(plan, run, verdict(A, Outcome.FAIL))
    before = dump(plan)
    with pytest.raises(HistoryError, match="was not admitted"):
        stages.admit(plan, run, A, verdict(A))
    after = dump(plan)
    assert after == before


def test_a_node_that_has_not_been_proven_is_not_admitted(plan):
    run = stages.open_stage(plan, Stage.DISCOVER, [A]).run
    stages.record_verdict(plan, run, verdict(A))
    with pytest.raises(HistoryError, match="is planned, and only proving leads to service"):
        stages.admit(plan, run, A, verdict(A))
    hold_true(plan)


def test_a_failing_verdict_sets_aside_with_reason_and_next_step(proven):
    plan, run = proven
    worst = Finding("gpu.count", A, Outcome.FAIL, f"{A}: 7 of 8 GPUs", remedy="Reseat it.")
    doubt = Finding("links", A, Outcome.UNKNOWN, f"{A}: no evidence of links")
    given = Verdict(A, Outcome.FAIL, (doubt, worst), {"os": "ab"}, "rules")
    stages.record_verdict(plan, run, given)
    assert stages.quarantine(plan, run, A, given)
    assert not stages.quarantine(plan, run, A, given)
    with read(plan) as view:
        here = view.state(A)
        assert (here.reason, here.next_step) == (f"{A}: 7 of 8 GPUs (and 1 more)", "Reseat it.")
        assert view.transitions(A)[-1].evidence["os"] == "ab"
    with pytest.raises(HistoryError, match="sets nothing aside"):
        stages.quarantine(plan, run, A, verdict(A))


def test_doubt_takes_a_serving_node_back_to_proving_and_a_new_one_nowhere(plan):
    run, _ = bring_up(plan, [A])
    finish(plan, run, "complete")
    second, _ = bring_up(plan, [A, B], outcomes={A: Outcome.UNKNOWN, B: Outcome.UNKNOWN})
    assert states(plan, A, B) == ["proving", "proving"]
    with read(plan) as view:
        assert [r.outcome for r in view.stages(run=second, stage=Stage.ADMIT)] == ["failed", "failed"]
    finish(plan, second, "not_all")
    bring_up(plan, [A, B])
    assert states(plan, A, B) == ["in_service", "in_service"]


def test_shadow_mode_sets_nobody_aside(proven):
    plan, run = proven
    plan = with_gate(plan, mode="shadow")
    stages.record_verdict(plan, run, verdict(A, Outcome.FAIL))
    settled = stages.settle(plan, run, {A: verdict(A, Outcome.FAIL)})[A]
    assert (settled.kind, settled.changed) == ("shadowed", False)
    assert states(plan, A) == ["proving"]


@pytest.mark.parametrize(
    ("total", "aside", "percent", "stops"),
    [(8, 3, 50, False), (8, 4, 50, False), (8, 5, 50, True), (1, 1, 50, False), (2, 2, 50, False), (3, 3, 50, True),
     (1000, 11, 1, True), (1000, 10, 1, False), (8, 8, 100, False), (0, 0, 50, False)],
)  # fmt: skip
def test_the_breaker(plan, total, aside, percent, stops):
    said = stages.breaker(with_gate(plan, breaker_percent=percent), total, aside)
    assert (said is not None) is stops
    if said:
        assert f"{aside} of {total} nodes" in said


def test_the_breaker_stops_a_mass_quarantine_and_lets_the_good_in(proven):
    plan, run = proven
    given = {n: verdict(n, Outcome.PASS if n in (A, B) else Outcome.FAIL) for n in NODES}
    stages.record_verdicts(plan, run, given.values())
    settled = stages.settle(plan, run, given)
    assert {settled[n].kind for n in NODES[2:]} == {"stopped"}
    assert "6 of 8 nodes" in settled[NODES[2]].reason
    assert "--limit" in settled[NODES[2]].next_step
    assert states(plan, *NODES) == ["in_service"] * 2 + ["proving"] * 6
    with_more = with_gate(plan, breaker_percent=80)
    assert {s.kind for n, s in stages.settle(with_more, run, given).items() if n not in (A, B)} == {"quarantined"}


def test_what_was_set_aside_in_the_run_counts_for_the_breaker(plan):
    opening = stages.open_stage(plan, Stage.DISCOVER, NODES)
    for name in NODES[:3]:
        step = "Compare."
        stages.fail_stage(plan, Stage.DISCOVER, opening.run, name, f"{name}: wrong serial", step, aside=True)
    stages.close_stage(plan, Stage.DISCOVER, opening.run, NODES[3:])
    bad = dict.fromkeys(NODES[3:5], Outcome.FAIL)
    bring_up(plan, NODES, run=opening.run, first=Stage.BMC, outcomes=bad)
    assert states(plan, *NODES) == ["quarantined"] * 3 + ["proving"] * 2 + ["in_service"] * 3


def test_the_admission_says_what_the_node_is_made_of_and_is_signed(plan):
    run = stages.open_stage(plan, Stage.DISCOVER, [A]).run
    stages.record_result(plan, run, Stage.DISCOVER, HostResult(A, data={"facts": FACTS}))
    stages.close_stage(plan, Stage.DISCOVER, run, [A])
    stages.open_stage(plan, Stage.BMC, [A], run=run)
    stages.close_stage(plan, Stage.BMC, run, [A])
    stages.open_stage(plan, Stage.FIRMWARE, [A], run=run)
    updated = {"components": [{"component": "bios", "id": "HostBIOS_0", "version": "1.6.7"}]}
    stages.record_result(plan, run, Stage.FIRMWARE, HostResult(A, changed=True, data=updated))
    stages.close_stage(plan, Stage.FIRMWARE, run, [A], changed={A: True})
    bring_up(plan, [A], run=run, first=Stage.PROVISION)
    with read(plan) as view:
        admission = view.admission(A)
        here = view.state(A)
        assert [r.changed for r in view.stages(run=run, stage=Stage.FIRMWARE)] == [True]
    assert admission.serial == plan.node(A).serial
    assert admission.profile == "dgx-h100"
    assert admission.parts == {"gpu 0": "S0", "nic mlx5_0": "N0"}
    assert admission.firmware == {"HostBIOS_0": "1.6.7", "HostBMC_0": "24.09"}
    assert admission.evidence == {"os": "ab" * 32}
    assert admissions.genuine(admission)
    assert admissions.valid(here, admission)
    assert not admissions.valid(here, admission, now="2126-01-01T00:00:00.000000Z")
    assert not admissions.valid(dataclasses.replace(here, state=State.QUARANTINED), admission)


@pytest.mark.parametrize("field", ["node", "serial", "rules", "expires", "digest", "signature"])
def test_a_changed_admission_is_not_genuine(plan, field):
    bring_up(plan, [A])
    with read(plan) as view:
        row = view.admission(A)
    fields = {column.key: getattr(row, column.key) for column in Admission.__table__.columns}
    assert admissions.genuine(Admission(**fields))
    text = fields[field]
    fields[field] = ("x" if text[:1] != "x" else "y") + text[1:]
    assert not admissions.genuine(Admission(**fields))


def test_an_admission_is_renewed_when_half_its_time_is_gone_or_a_part_has_changed(plan):
    run, _ = bring_up(plan, [A])
    finish(plan, run, "complete")
    short = with_gate(plan, admission_days=365)
    run, _ = bring_up(short, [A])  # what is left of 30 days is less than half of 365
    finish(plan, run, "complete")
    run = stages.open_stage(short, Stage.DISCOVER, [A]).run
    stages.record_result(short, run, Stage.DISCOVER, HostResult(A, data={"facts": FACTS}))
    bring_up(short, [A], run=run)
    finish(plan, run, "complete")
    bring_up(short, [A])
    assert len(dump(plan)["admission"]) == 3
    assert states(plan, A) == ["in_service"]


def test_evidence_is_kept_once_under_its_digest(proven):
    plan, run = proven
    given = dataclasses.replace(verdict(A), evidence={"os": "ab" * 32, "fabric": "cd" * 32})
    documents = {A: {"os": b"os", "fabric": b"fabric", "bmc": b"not judged"}}
    stages.record_verdicts(plan, run, [given], documents)
    stages.record_verdicts(plan, run, [given], documents)
    with read(plan) as view:
        kept = {(row.kind, row.digest): row.path for row in view.evidence(node=A)}
        assert len(view.evidence()) == 2
    assert kept[("os", "ab" * 32)] == f"evidence/{'ab' * 32}.json.gz"
    assert (plan.state_dir / kept[("fabric", "cd" * 32)]).read_bytes() == b"fabric"


def test_a_check_judges_what_it_has_seen_and_changes_nothing(plan):
    run, _ = bring_up(plan, [A])
    finish(plan, run, "complete")
    before = dump(plan)
    check = "20261120T000000Z-check-0001"
    stages.record_verdicts(plan, check, [verdict(A, Outcome.FAIL)], check=True)
    found = stages.verdicts(plan, check, [A, B])
    assert found == {A: verdict(A, Outcome.FAIL), B: None}
    settled = stages.settle(plan, check, found, check=True)
    assert (settled[A].kind, settled[A].changed, settled[B].kind) == ("quarantined", True, "withheld")
    left = plan.state_dir / "runs" / check / "verdicts" / f"{A}.json"
    left.write_bytes(left.read_bytes()[:-5])
    assert stages.verdicts(plan, check, [A]) == {A: None}
    assert dump(plan) == before
