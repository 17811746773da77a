"""Reads a report's records out of the ledger: of one run, or of how everything stands now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from metalyard.gate.finding import Outcome
from metalyard.ledger.schema import Lease, Transition
from metalyard.ledger.view import RunView, StageView, Standing, View, moment
from metalyard.plan.lifecycle import Stage, State
from metalyard.plan.model import SitePlan
from metalyard.report.records import (
    AdmissionRecord,
    FirmwareRecord,
    LeaseRecord,
    NodeRecord,
    PartRecord,
    Records,
    RunRecord,
    StageRecord,
    TransitionRecord,
)

RUNS_BACK = 20
"""How many runs are looked through for each node's last word on a stage."""
SILENT = timedelta(minutes=10)
"""A lease whose heartbeat is older belongs to nobody alive."""


def collect(plan: SitePlan, view: View, *, run: str | None = None, now: datetime | None = None) -> Records:
    """The records of a run's nodes, or with no ``run`` of all nodes of the plan, with the last run's facts.

    ``KeyError`` when the ledger has no run of that id.
    """
    now = now or datetime.now(UTC)
    about = view.run(run) if run else next(iter(view.runs(limit=1)), None)
    if run and about is None:
        raise KeyError(run)
    planned = [node.name for node in plan.nodes]
    stages = view.stages(run=run) if run else [s for past in view.runs(RUNS_BACK) for s in view.stages(run=past.id)]
    names = [name for name in planned if not run or name in {stage.node for stage in stages}] or planned
    standings = view.states(names)
    leases = view.leases(names)
    nodes = {
        name: _node(view, standings[name], by_node, leases.get(name), now)
        for name, by_node in _grouped(stages, names).items()
    }
    return Records(nodes, _run(about, tuple(names) if run else ()) if about else None)


def _grouped(stages: Iterable[StageView], names: Iterable[str]) -> dict[str, list[StageView]]:
    grouped: dict[str, list[StageView]] = {name: [] for name in names}
    for stage in stages:
        if stage.node in grouped:
            grouped[stage.node].append(stage)
    return grouped


def _node(view: View, standing: Standing, stages: list[StageView], lease: Lease | None, now: datetime) -> NodeRecord:
    name = standing.node
    history = view.transitions(node=name)
    verdict = view.last_verdict(name)
    begun = _begun(history)
    current = verdict if verdict is not None and (begun is None or verdict.at >= begun) else None
    discovered = view.facts(name, Stage.DISCOVER)
    provisioned = view.facts(name, Stage.PROVISION)
    updated = view.facts(name, Stage.FIRMWARE)
    facts = _facts(discovered.body if discovered else {})
    machine = provisioned.body if provisioned else {}
    admission = view.admission(name)
    return NodeRecord(
        node=name,
        state=standing.state,
        since=moment(standing.since) if standing.since else None,
        reason=standing.reason,
        next_step=standing.next_step,
        stages=_last_words(stages, begun, lease),
        verdict=Outcome(current.outcome) if current else None,
        judged=moment(current.at) if current else None,
        rules=current.rules if current else "",
        findings=tuple(view.findings(current.id)) if current else (),
        evidence=dict(current.evidence) if current else {},
        parts=_parts(facts),
        ids={
            "serial (BMC)": _text(facts.get("serial")),
            "UUID": _text(facts.get("uuid")),
            "MAAS system id": _text(machine.get("system_id")),
            "MAAS address": _text(machine.get("address")),
        },
        facts={
            "model": " ".join(text for text in (_text(facts.get("vendor")), _text(facts.get("model"))) if text),
            "BIOS": _text(facts.get("bios_version")),
            "BMC firmware": _text(facts.get("bmc_version")),
            "MAAS status": _text(machine.get("status_name")),
        },
        firmware=_firmware(updated.body if updated else {}),
        history=tuple(
            TransitionRecord(State(row.source), State(row.target), moment(row.at), row.reason, row.actor, row.run or "")
            for row in history
        ),
        lease=_lease(lease, now) if lease else None,
        admission=AdmissionRecord(moment(admission.at), moment(admission.expires), admission.digest)
        if admission
        else None,
    )


def _begun(history: Iterable[Transition]) -> str | None:
    """When the node was last sent back to the start of its life: what was said before is no longer about it."""
    back = [row.at for row in history if row.target == State.PLANNED]
    return back[-1] if back else None


def _last_words(stages: list[StageView], begun: str | None, lease: Lease | None) -> tuple[StageRecord, ...]:
    """The newest record of each stage; one that was passed over counts only where there is no other."""
    last: dict[Stage, StageView] = {}
    for stage in sorted(stages, key=lambda s: (s.outcome != "skipped", s.started, s.record)):
        if begun is None or stage.started >= begun:
            last[stage.stage] = stage
    return tuple(
        StageRecord(
            stage=entry.stage,
            outcome=_outcome(entry, lease),
            started=moment(entry.started),
            ended=moment(entry.ended) if entry.ended else None,
            message=entry.message,
            next_step=entry.next_step,
            run=entry.run,
        )
        for entry in last.values()
    )


def _outcome(entry: StageView, lease: Lease | None) -> str:
    """A stage without an end goes on only while its run holds the node."""
    if entry.outcome != "open":
        return entry.outcome
    return "running" if lease is not None and lease.run == entry.run else "interrupted"


def _facts(body: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = body.get("facts")
    return inner if isinstance(inner, dict) else body


def _parts(facts: Mapping[str, Any]) -> tuple[PartRecord, ...]:
    parts = facts.get("parts")
    return tuple(
        PartRecord(
            kind=_text(part.get("kind")),
            part=_text(part.get("part")),
            serial=_text(part.get("serial")),
            model=_text(part.get("model")),
            firmware=_text(part.get("firmware")),
        )
        for part in (parts if isinstance(parts, list) else [])
        if isinstance(part, dict)
    )


def _firmware(body: Mapping[str, Any]) -> tuple[FirmwareRecord, ...]:
    components = body.get("components")
    return tuple(
        FirmwareRecord(*(_text(entry.get(key)) for key in ("component", "id", "version", "expected", "action")))
        for entry in (components if isinstance(components, list) else [])
        if isinstance(entry, dict)
    )


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _lease(lease: Lease, now: datetime) -> LeaseRecord:
    who = f"{lease.holder.get('user', '?')}@{lease.holder.get('host', '?')}, process {lease.holder.get('pid', '?')}"
    return LeaseRecord(who, lease.run, moment(lease.since), now - moment(lease.heartbeat) < SILENT)


def _run(run: RunView, nodes: tuple[str, ...]) -> RunRecord:
    options = run.options
    stages = options.get("stages")
    return RunRecord(
        id=run.id,
        verb=run.verb,
        started=moment(run.started),
        ended=moment(run.ended) if run.ended else None,
        operator=f"{run.user}@{run.host}",
        outcome="" if run.outcome == "open" else run.outcome.replace("_", " "),
        check=bool(options.get("check")),
        limit=_text(options.get("limit")),
        stages=tuple(str(stage) for stage in stages) if isinstance(stages, list | tuple) else (),
        nodes=nodes,
        versions={"metalyard": run.version, "goes on from": run.resumes or ""},
    )
