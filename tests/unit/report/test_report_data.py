"""The view model: what a reader is told of each node, from plain records."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import sample_rack

from metalyard.gate.finding import Finding, Outcome, Owner
from metalyard.plan.lifecycle import Stage, State
from metalyard.report import table
from metalyard.report.data import build, node_view
from metalyard.report.records import AdmissionRecord, LeaseRecord, NodeRecord, Records, RunRecord, StageRecord
from metalyard.report.words import duration, plain, span

GOLDEN = Path(__file__).parent / "golden.json"
NOW = sample_rack.NOW
NODE = sample_rack.plan().nodes[0]


def view_of(**fields):
    return node_view(NODE, NodeRecord(NODE.name, **fields), NOW)


def test_a_finished_run_is_told_as_the_golden_file_has_it():
    told = table.as_data(build(sample_rack.plan(), sample_rack.records(), NOW))
    for node in told["nodes"]:
        del node["parts"], node["evidence"]
    assert told == json.loads(GOLDEN.read_text())


def test_five_in_service_three_aside():
    view = build(sample_rack.plan(), sample_rack.records(), NOW)
    assert view.headline == "5 of 8 nodes in service"
    assert view.detail == "3 quarantined"
    assert not view.all_in_service
    assert [node.name for node in view.waiting] == ["gpu-r01-3", "gpu-r02-1", "gpu-r02-3"]
    assert [(entry.state, entry.number) for entry in view.counts] == [("in_service", 5), ("quarantined", 3)]


def test_a_site_without_history_is_planned_and_names_the_command():
    view = build(sample_rack.plan(), Records(), NOW)
    assert {node.state for node in view.nodes} == {State.PLANNED}
    assert view.nodes[0].next_step == "metalyard bringup --limit gpu-r01-1"
    assert view.waiting == ()
    assert view.run is None
    assert not view.all_in_service


def test_spares_do_not_keep_a_site_from_being_complete():
    nodes = {
        node.name: NodeRecord(node.name, State.SPARE if node.name == "gpu-r01-1" else State.IN_SERVICE, NOW)
        for node in sample_rack.plan().nodes
    }
    assert build(sample_rack.plan(), Records(nodes), NOW).all_in_service


def test_a_report_of_a_run_has_its_nodes_only():
    records = replace(sample_rack.records(), run=RunRecord("r", nodes=("gpu-r01-1",)))
    assert [node.name for node in build(sample_rack.plan(), records, NOW).nodes] == ["gpu-r01-1"]


def test_the_worst_finding_gives_reason_next_step_and_owner():
    def finding(outcome, text, owner):
        return Finding("c", NODE.name, outcome, f"{NODE.name}: {text}", remedy=f"mend {text}", owner=owner)

    found = (
        finding(Outcome.PASS, "fine", Owner.OPERATOR),
        finding(Outcome.UNKNOWN, "unread", Owner.OPERATOR),
        finding(Outcome.FAIL, "broken", Owner.VENDOR),
    )
    view = view_of(state=State.QUARANTINED, verdict=Outcome.FAIL, findings=found)
    assert (view.reason, view.next_step, view.owner) == ("broken (and 1 more finding)", "mend broken", "vendor")
    assert [f.outcome for f in view.findings] == ["fail", "unknown"]
    assert view.passed == 1


def test_a_stage_that_stopped_the_node_after_the_verdict_goes_before_old_findings():
    old = Finding("c", NODE.name, Outcome.FAIL, "old trouble")
    stopped = StageRecord(Stage.DISCOVER, "failed", NOW, NOW, f"{NODE.name}: no answer", "Look at its power.")
    view = view_of(
        state=State.PROVING, verdict=Outcome.FAIL, judged=NOW - timedelta(days=1), findings=(old,), stages=(stopped,)
    )
    assert (view.reason, view.next_step) == ("no answer", "Look at its power.")


def test_a_node_in_service_whose_last_run_failed_waits_for_a_person():
    stopped = StageRecord(Stage.DISCOVER, "unknown", NOW, NOW, "out of reach", "Look.")
    view = view_of(state=State.IN_SERVICE, since=NOW - timedelta(hours=1), stages=(stopped,))
    assert view.needs_a_person
    assert view.reason == "out of reach"


def test_a_node_on_its_way_says_whether_anybody_works_on_it():
    idle = view_of(state=State.PROVISIONED, reason="stage provision passed")
    assert (idle.reason, idle.next_step) == (
        "on its way, and no run works on it",
        "metalyard bringup --limit gpu-r01-1",
    )
    assert not idle.needs_a_person
    lease = LeaseRecord("ops@controller-1, process 7", "run-1", NOW)
    assert view_of(state=State.PROVISIONED, reason="stage provision passed", lease=lease).reason == ""
    doubt = view_of(state=State.PROVING, reason="evidence was cut", next_step="Run again.")
    assert (doubt.reason, doubt.next_step) == ("evidence was cut", "Run again.")


def test_a_node_that_a_stage_stopped_on_its_way_is_told_apart_from_those_on_it():
    stopped = StageRecord(Stage.FIRMWARE, "failed", NOW, NOW, "no image", "Fetch it.")
    view = view_of(state=State.BMC_READY, stages=(stopped,))
    assert (view.word.label, view.word.tone) == ("BMC ready, stopped", "warn")
    assert view.needs_a_person
    assert view_of(state=State.BMC_READY).word.label == "BMC ready"
    again = view_of(state=State.BMC_READY, stages=(StageRecord(Stage.DISCOVER, "running", NOW), stopped))
    assert again.word.label == "BMC ready"
    assert not again.needs_a_person


def test_a_failure_before_admission_is_no_longer_told():
    stopped = StageRecord(Stage.BMC, "failed", NOW - timedelta(hours=2), NOW - timedelta(hours=2), "old", "old")
    assert view_of(state=State.IN_SERVICE, since=NOW - timedelta(hours=1), stages=(stopped,)).reason == ""


def test_an_outcome_nobody_knows_is_shown_as_unknown():
    view = view_of(stages=(StageRecord(Stage.DISCOVER, "splendid", NOW, NOW),))
    assert view.stages[0].word.label == "unknown"


def test_a_running_stage_has_the_time_so_far():
    view = view_of(stages=(StageRecord(Stage.DISCOVER, "running", NOW - timedelta(seconds=90)),))
    assert view.stages[0].took == "1 min 30 s"
    assert view.stage == "discover"


def test_who_holds_a_node_and_whether_they_live():
    lease = LeaseRecord("ops@controller-1, process 7", "run-1", NOW)
    assert view_of(lease=lease).holder == "ops@controller-1, process 7 since 2026-11-09 08:44:10 UTC (run run-1)"
    assert "no longer alive" in view_of(lease=replace(lease, alive=False)).holder


def test_an_admission_counts_only_while_in_service():
    admission = AdmissionRecord(NOW, NOW + timedelta(days=30))
    assert "expires 2026-12-09" in view_of(state=State.IN_SERVICE, admission=admission).admission
    assert view_of(state=State.QUARANTINED, admission=admission).admission == ""


def test_control_characters_of_a_bmc_reach_nobody():
    view = view_of(state=State.QUARANTINED, reason="serial \x1b]0;owned\x07\u202eabc\nnext")
    assert view.reason == "serial \ufffd]0;owned\ufffd\ufffdabc next"


def test_the_swapped_pair_is_two_cables_seen_at_each_others_port():
    cables = build(sample_rack.plan(), sample_rack.records(), NOW).cables
    assert [(c.label, c.near, c.planned, c.seen) for c in cables] == [
        ("C049", "gpu-r02-3:mlx5_0", "leaf-1:13", "leaf-2:13"),
        ("C051", "gpu-r02-3:mlx5_2", "leaf-2:13", "leaf-1:13"),
    ]


@pytest.mark.parametrize("part", ["C049", "mlx5_0"])
def test_a_missing_cable_is_found_by_label_or_device_and_seen_nowhere(part):
    finding = Finding("fabric.cables", "gpu-r02-3", Outcome.FAIL, "no link", part=part, measured="no link")
    nodes = {"gpu-r02-3": NodeRecord("gpu-r02-3", findings=(finding,))}
    (cable,) = build(sample_rack.plan(), Records(nodes), NOW).cables
    assert (cable.near, cable.planned, cable.seen, cable.said) == ("gpu-r02-3:mlx5_0", "leaf-1:13", "", "no link")


def test_a_finding_about_a_gpu_is_no_cable():
    finding = Finding("gpu.count", "gpu-r02-3", Outcome.FAIL, "seven", part="gpu 5", expected="8 GPUs")
    assert (
        build(sample_rack.plan(), Records({"gpu-r02-3": NodeRecord("gpu-r02-3", findings=(finding,))}), NOW).cables
        == ()
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (192, "3 min 12 s"),
        (7500, "2 h 5 min"),
        (86400 * 12 + 4 * 3600, "12 d 4 h"),
    ],
)
def test_lengths_of_time(seconds, text):
    assert span(timedelta(seconds=seconds)) == text
    assert duration(NOW, NOW + timedelta(seconds=seconds)) == text


def test_a_clock_that_went_back_is_no_negative_time():
    assert span(timedelta(seconds=-5)) == "0 s"
    assert duration(NOW, None) == ""


def test_plain_keeps_every_visible_character():
    text = "19 °C → Größe 合 é"
    assert plain(text) == text
