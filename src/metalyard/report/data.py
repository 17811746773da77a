"""The view model: from a plan and records to the plain texts, marks and tones that pages and tables show. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TypeVar, cast

from metalyard.gate.finding import Finding, Outcome, against
from metalyard.plan.lifecycle import ASIDE, STAGES, Stage, State
from metalyard.plan.model import Node, SitePlan
from metalyard.report.cables import CableView, cable_views
from metalyard.report.records import NodeRecord, Records, RunRecord, StageRecord
from metalyard.report.words import (
    OUTCOMES,
    STAGE_LABELS,
    STATES,
    Word,
    count,
    duration,
    moment,
    plain,
    span,
    stage_outcome,
)

Thing = TypeVar("Thing")
BAD_STAGES = ("failed", "unknown", "held", "interrupted")
EARLIEST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class StageView:
    """One stage of one node: its mark in the row, and its line in the detail."""

    name: str
    label: str
    outcome: str
    word: Word
    started: str = ""
    took: str = ""
    seconds: float = 0.0
    message: str = ""
    next_step: str = ""


@dataclass(frozen=True)
class FindingView:
    """One finding, ready to show."""

    check: str
    outcome: str
    word: Word
    part: str
    part_serial: str
    measured: str
    expected: str
    summary: str
    remedy: str
    owner: str
    source: str


@dataclass(frozen=True)
class PartView:
    """Parts of one kind and model that differ by place and serial number only."""

    kind: str
    part: str
    serial: str
    model: str
    firmware: str


@dataclass(frozen=True)
class FirmwareView:
    """One firmware component held against the baseline."""

    component: str
    id: str
    version: str
    expected: str
    action: str


@dataclass(frozen=True)
class NodeView:
    """One node: a row in the table, a box in the rack, a section of its own."""

    name: str
    rack: str
    unit: int
    serial: str
    profile: str
    address: str
    bmc_address: str
    state: State
    word: Word
    since: str
    age: str
    stages: tuple[StageView, ...]
    stage: str
    """The last stage that ran."""
    verdict: Word | None
    verdict_outcome: str
    judged: str
    rules: str
    reason: str
    next_step: str
    owner: str
    holder: str
    findings: tuple[FindingView, ...]
    passed: int
    """Checks that passed; they are counted, not listed."""
    parts: tuple[PartView, ...]
    evidence: tuple[tuple[str, str], ...]
    ids: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...]
    firmware: tuple[FirmwareView, ...]
    history: tuple[tuple[str, str, str], ...]
    """Time, step, reason; newest first."""
    admission: str

    @property
    def in_service(self) -> bool:
        """Whether the node takes work."""
        return self.state is State.IN_SERVICE

    @property
    def needs_a_person(self) -> bool:
        """Whether a person has the next step: set aside, or stopped short of service."""
        outcomes = {stage.outcome for stage in self.stages}
        return self.word.tone in ("bad", "warn") or ("running" not in outcomes and bool(outcomes & set(BAD_STAGES)))


@dataclass(frozen=True)
class StateCount:
    """How many nodes are in one state."""

    word: Word
    state: str
    number: int
    percent: float


@dataclass(frozen=True)
class StageTime:
    """How long a stage took: the middle node, and the slowest. ``percent`` is of the slowest stage's slowest node."""

    label: str
    middle: str
    slowest: str
    node: str
    percent: float
    middle_percent: float


@dataclass(frozen=True)
class RunView:
    """The run's facts, as label and value."""

    id: str
    running: bool
    outcome: str
    operator: str
    started: str
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class SiteView:
    """The whole report."""

    site: str
    headline: str
    detail: str
    all_in_service: bool
    generated: str
    counts: tuple[StateCount, ...]
    times: tuple[StageTime, ...]
    nodes: tuple[NodeView, ...]
    cables: tuple[CableView, ...]
    run: RunView | None
    facts: tuple[tuple[str, str], ...]
    plan: SitePlan

    @property
    def waiting(self) -> tuple[NodeView, ...]:
        """The nodes that need a person, in the plan's order."""
        return tuple(node for node in self.nodes if node.needs_a_person)


def build(plan: SitePlan, records: Records, now: datetime, only: Collection[str] | None = None) -> SiteView:
    """The report of ``only`` these nodes, of the run's nodes, or of every node where the records name none."""
    chosen = set(only or (records.run.nodes if records.run else ()) or (node.name for node in plan.nodes))
    nodes = tuple(
        node_view(node, records.nodes.get(node.name, NodeRecord(node.name)), now)
        for node in plan.nodes
        if node.name in chosen
    )
    serving = sum(node.in_service for node in nodes)
    spare = sum(node.state is State.SPARE for node in nodes)
    return SiteView(
        site=plan.site,
        headline=f"{serving} of {count(len(nodes), 'node')} in service",
        detail=_detail(nodes),
        all_in_service=bool(nodes) and serving + spare == len(nodes),
        generated=moment(now),
        counts=_counts(nodes),
        times=_times(nodes),
        nodes=nodes,
        cables=cleaned(cable_views(plan, {n.node: n.findings for n in records.nodes.values() if n.node in chosen})),
        run=cleaned(_run(records.run, now)) if records.run else None,
        facts=_site_facts(plan, records),
        plan=plan,
    )


def node_view(node: Node, record: NodeRecord, now: datetime) -> NodeView:
    """One node of the plan with what is remembered of it."""
    stages = _stages(record, now)
    reason, next_step, owner = _why(node, record)
    reason = without_name(reason, node.name)
    ran = [stage for stage in stages if stage.outcome not in ("pending", "skipped")]
    view = NodeView(
        name=node.name,
        rack=node.rack,
        unit=node.unit,
        serial=node.serial,
        profile=node.profile,
        address=node.address.partition("/")[0],
        bmc_address=node.bmc.address,
        state=record.state,
        word=_word(record),
        since=moment(record.since),
        age=span(now - record.since) if record.since else "",
        stages=stages,
        stage=ran[-1].name if ran else "",
        verdict=OUTCOMES[record.verdict] if record.verdict else None,
        verdict_outcome=str(record.verdict or ""),
        judged=moment(record.judged),
        rules=record.rules,
        reason=reason,
        next_step=next_step,
        owner=owner,
        holder=_holder(record),
        findings=tuple(_finding(f) for f in against(record.findings)),
        passed=sum(f.outcome is Outcome.PASS for f in record.findings),
        parts=tuple(PartView(p.kind, p.part, p.serial, p.model, p.firmware) for p in record.parts),
        evidence=tuple(sorted(record.evidence.items())),
        ids=tuple((label, value) for label, value in record.ids.items() if value),
        facts=tuple((label, value) for label, value in record.facts.items() if value),
        firmware=tuple(FirmwareView(f.component, f.id, f.version, f.expected, f.action) for f in record.firmware),
        history=tuple(
            (moment(t.at), f"{STATES[t.source].label} → {STATES[t.target].label}", without_name(t.reason, node.name))
            for t in reversed(record.history)
        ),
        admission=_admission(record),
    )
    return cleaned(view)


def _word(record: NodeRecord) -> Word:
    """The state's word; that of a node which a stage stopped on its way says so."""
    word = STATES[record.state]
    if word.tone == "good" or record.state in ASIDE or _stopped(record) is None:
        return word
    return Word(f"{word.label}, stopped", "!", "warn")


def cleaned(thing: Thing) -> Thing:
    """The same data without control characters in its texts: what a BMC says must not steer a terminal."""
    if isinstance(thing, Enum):
        return thing
    if isinstance(thing, str):
        return cast(Thing, plain(thing))
    if isinstance(thing, tuple):
        return cast(Thing, tuple(cleaned(part) for part in thing))
    if is_dataclass(thing) and not isinstance(thing, type):
        changed = {f.name: cleaned(getattr(thing, f.name)) for f in fields(thing)}
        return cast(Thing, replace(thing, **changed))
    return thing


def without_name(text: str, node: str) -> str:
    """A sentence without the node's name before it, for places that stand under that name already."""
    return text.removeprefix(f"{node}: ")


def _stages(record: NodeRecord, now: datetime) -> tuple[StageView, ...]:
    """All nine stages in order; one that never ran is pending."""
    last = {stage.stage: stage for stage in record.stages}
    views = []
    for stage in STAGES:
        entry = last.get(stage) or StageRecord(stage, "pending")
        end = entry.ended or (now if entry.outcome == "running" else None)
        views.append(
            StageView(
                name=str(stage),
                label=STAGE_LABELS[stage],
                outcome=entry.outcome,
                word=stage_outcome(entry.outcome),
                started=moment(entry.started),
                took=duration(entry.started, end),
                seconds=(end - entry.started).total_seconds() if entry.started and end else 0.0,
                message=without_name(entry.message, record.node),
                next_step=entry.next_step,
            )
        )
    return tuple(views)


def _why(node: Node, record: NodeRecord) -> tuple[str, str, str]:
    """Reason, next step and owner: from the worst finding, else the stage that failed, else the last transition."""
    speaking = against(record.findings)
    stopped = _stopped(record)
    if record.state is State.IN_SERVICE:
        if stopped and _later(stopped, record.since):
            return stopped.message, stopped.next_step, "operator"
        watched = [f for f in speaking if f.outcome is Outcome.WATCH]
        return (watched[0].summary, watched[0].remedy, str(watched[0].owner)) if watched else ("", "", "")
    serious = [f for f in speaking if f.outcome is not Outcome.WATCH]
    if serious and not (stopped and _after_the_verdict(stopped, record)):
        worst = serious[0]
        more = f" (and {count(len(serious) - 1, 'more finding')})" if len(serious) > 1 else ""
        return worst.summary + more, worst.remedy or record.next_step, str(worst.owner)
    if stopped:
        return stopped.message or record.reason, stopped.next_step or record.next_step, record.owner or "operator"
    if STATES[record.state].tone == "work" and not record.next_step:  # what brought it here is no reason to stay
        return ("", "", "") if record.lease else ("on its way, and no run works on it", _go_on(node), "operator")
    if record.reason:
        return record.reason, record.next_step, record.owner
    if record.state is State.PLANNED:
        return "not brought up yet", record.next_step or _go_on(node), "operator"
    return "", record.next_step, record.owner


def _go_on(node: Node) -> str:
    return f"metalyard bringup --limit {node.name}"


def _stopped(record: NodeRecord) -> StageRecord | None:
    """The stage that stopped the node last; none while a run works on it."""
    if any(stage.outcome == "running" for stage in record.stages):
        return None
    stopped = [stage for stage in record.stages if stage.outcome in BAD_STAGES]
    return max(stopped, key=lambda s: (s.ended or s.started or EARLIEST, STAGES.index(s.stage)), default=None)


def _after_the_verdict(stopped: StageRecord, record: NodeRecord) -> bool:
    """Whether a stage stopped the node for a reason of its own, later than the findings at hand were made."""
    return stopped.stage not in (Stage.PROVE, Stage.ADMIT) and _later(stopped, record.judged)


def _later(stopped: StageRecord, at: datetime | None) -> bool:
    end = stopped.ended or stopped.started
    return end is not None and at is not None and end > at


def _finding(finding: Finding) -> FindingView:
    return FindingView(
        check=finding.check,
        outcome=str(finding.outcome),
        word=OUTCOMES[finding.outcome],
        part=finding.part,
        part_serial=finding.part_serial,
        measured=finding.measured,
        expected=finding.expected,
        summary=without_name(finding.summary, finding.node),
        remedy=finding.remedy,
        owner=str(finding.owner),
        source=finding.source,
    )


def _holder(record: NodeRecord) -> str:
    if record.lease is None:
        return ""
    gone = "" if record.lease.alive else ", no longer alive"
    return f"{record.lease.holder} since {moment(record.lease.since)} (run {record.lease.run}{gone})"


def _admission(record: NodeRecord) -> str:
    entry = record.admission
    if entry is None or record.state is not State.IN_SERVICE:
        return ""
    until = f", expires {moment(entry.expires)}" if entry.expires else ""
    return f"admitted {moment(entry.at)}{until}"


def _counts(nodes: tuple[NodeView, ...]) -> tuple[StateCount, ...]:
    """States that occur, in service first and set aside last."""
    order = [State.IN_SERVICE, State.SPARE, *reversed([s for s in State if STATES[s].tone == "work"]), State.PLANNED]
    order += [state for state in State if state not in order]
    counted = []
    for state in order:
        number = sum(node.state is state for node in nodes)
        if number:
            counted.append(StateCount(STATES[state], str(state), number, round(100 * number / len(nodes), 3)))
    return tuple(counted)


def _times(nodes: tuple[NodeView, ...]) -> tuple[StageTime, ...]:
    """Stages that ran, in order."""
    took = {
        label: sorted((stage.seconds, node.name) for node in nodes for stage in node.stages if stage.label == label)
        for label in STAGE_LABELS.values()
    }
    ran = {label: [entry for entry in entries if entry[0] > 0] for label, entries in took.items()}
    longest = max((entries[-1][0] for entries in ran.values() if entries), default=0.0)
    return tuple(
        StageTime(
            label=label,
            middle=span(timedelta(seconds=entries[len(entries) // 2][0])),
            slowest=span(timedelta(seconds=entries[-1][0])),
            node=entries[-1][1],
            percent=round(100 * entries[-1][0] / longest, 2),
            middle_percent=round(100 * entries[len(entries) // 2][0] / longest, 2),
        )
        for label, entries in ran.items()
        if entries
    )


def _detail(nodes: tuple[NodeView, ...]) -> str:
    """What the others are: ``3 quarantined, 1 planned``."""
    others = [entry for entry in _counts(nodes) if entry.state != State.IN_SERVICE]
    return ", ".join(f"{entry.number} {entry.word.label}" for entry in others)


def _run(run: RunRecord, now: datetime) -> RunView:
    running = run.ended is None and run.outcome in ("", "running")
    facts = [
        ("asked for", run.verb + (" in check mode: nothing was changed" if run.check else "")),
        ("limit", run.limit),
        ("stages", ", ".join(run.stages)),
        ("operator", run.operator),
        ("started", moment(run.started)),
        ("ended", moment(run.ended) or ("still running" if running else "not recorded")),
        ("took", duration(run.started, run.ended or (now if running else None))),
        ("outcome", run.outcome),
        *run.versions.items(),
    ]
    outcome = run.outcome or ("still running" if running else "not recorded")
    return RunView(
        run.id,
        running,
        outcome,
        run.operator,
        moment(run.started),
        tuple((label, value) for label, value in facts if value),
    )


def _site_facts(plan: SitePlan, records: Records) -> tuple[tuple[str, str], ...]:
    rules = sorted({record.rules for record in records.nodes.values() if record.rules})
    return (
        ("baseline", plan.baseline),
        ("profiles", ", ".join(sorted({node.profile for node in plan.nodes}))),
        ("rules", ", ".join(rule[:12] for rule in rules)),
        ("gate", plan.gate.mode),
        ("plan", plan.source.name),
    )
