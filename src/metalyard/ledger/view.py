"""What the ledger can be asked. Rows come as they are in :mod:`metalyard.ledger.schema`; lists are oldest first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session, aliased

from metalyard.gate.finding import Finding, Outcome, Owner, Verdict
from metalyard.ledger import schema
from metalyard.plan.lifecycle import Actor, Stage, State

CHUNK = 500
"""Names in one query; SQLite takes some thousands."""


def stamp(moment: datetime | None = None) -> str:
    """A time as the ledger keeps it: ISO 8601, UTC, microseconds."""
    return (moment or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment(text: str) -> datetime:
    """The time of a :func:`stamp`, aware, in UTC."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


@dataclass(frozen=True)
class Standing:
    """Where a node stands: its last transition, or ``planned`` since ever."""

    node: str
    state: State = State.PLANNED
    since: str | None = None
    actor: Actor | None = None
    run: str | None = None
    reason: str = ""
    next_step: str = ""
    sequence: int = 0


@dataclass(frozen=True)
class StageView:
    """One stage of one node in one run. ``ended`` is None while it goes on, or where its run died."""

    record: int
    run: str
    node: str
    stage: Stage
    started: str
    ended: str | None
    outcome: str
    """``open``, ``passed``, ``failed``, ``unknown``, ``skipped``, ``held`` or ``interrupted``."""
    message: str
    next_step: str
    seconds: float | None
    changed: bool | None
    data: dict[str, Any]


@dataclass(frozen=True)
class RunView:
    """A run, begun and perhaps ended. ``outcome`` is ``open`` without an end."""

    id: str
    verb: str
    site: str
    started: str
    ended: str | None
    outcome: str
    message: str
    user: str
    host: str
    pid: int
    holder: dict[str, Any]
    version: str
    options: dict[str, Any]
    resumes: str | None


def _chunks(names: Iterable[str]) -> Iterable[list[str]]:
    unique = sorted(set(names))
    return (unique[start : start + CHUNK] for start in range(0, len(unique), CHUNK))


class View:
    """Questions to the ledger, all within one transaction."""

    def __init__(self, session: Session) -> None:
        self.session = session

    # -- nodes ------------------------------------------------------------------------------------------------------

    def states(self, nodes: Iterable[str] | None = None) -> dict[str, Standing]:
        """Where each of ``nodes`` stands; without ``nodes``, every node that ever left ``planned``."""
        if nodes is None:
            return self._standings(None)
        result: dict[str, Standing] = {}
        names = list(nodes)
        for chunk in _chunks(names):
            result.update(self._standings(chunk))
        return {name: result.get(name, Standing(name)) for name in names}

    def state(self, node: str) -> Standing:
        """Where one node stands."""
        return self.states([node])[node]

    def _standings(self, nodes: list[str] | None) -> dict[str, Standing]:
        later = aliased(schema.Transition)
        newest = select(func.max(later.sequence)).where(later.node == schema.Transition.node)
        query = select(schema.Transition).where(
            schema.Transition.sequence == newest.correlate(schema.Transition).scalar_subquery()
        )
        if nodes is not None:
            query = query.where(schema.Transition.node.in_(nodes))
        return {row.node: self._standing(row) for row in self.session.scalars(query)}

    @staticmethod
    def _standing(row: schema.Transition) -> Standing:
        return Standing(
            node=row.node,
            state=State(row.target),
            since=row.at,
            actor=Actor(row.actor),
            run=row.run,
            reason=row.reason,
            next_step=row.next_step,
            sequence=row.sequence,
        )

    def transitions(self, node: str | None = None, run: str | None = None) -> Sequence[schema.Transition]:
        """Every step, of a node, of a run, or of all."""
        query = select(schema.Transition).order_by(schema.Transition.id)
        if node is not None:
            query = query.where(schema.Transition.node == node)
        if run is not None:
            query = query.where(schema.Transition.run == run)
        return self.session.scalars(query).all()

    # -- runs and stages --------------------------------------------------------------------------------------------

    def runs(self, limit: int = 20) -> list[RunView]:
        """The latest runs, newest first."""
        return self._runs(limit=limit)

    def run(self, run: str) -> RunView | None:
        """One run, or None."""
        found = self._runs(schema.Run.id == run)
        return found[0] if found else None

    def open_runs(self) -> list[RunView]:
        """Runs without an end: they go on, or their process died."""
        return self._runs(schema.RunEnd.run.is_(None))

    def _runs(self, *conditions: ColumnElement[bool], limit: int | None = None) -> list[RunView]:
        query = (
            select(schema.Run, schema.RunEnd)
            .outerjoin_from(schema.Run, schema.RunEnd, schema.RunEnd.run == schema.Run.id)
            .where(*conditions)
            .order_by(schema.Run.started.desc(), schema.Run.id.desc())
            .limit(limit)
        )
        return [
            RunView(
                id=run.id,
                verb=run.verb,
                site=run.site,
                started=run.started,
                ended=end.ended if end else None,
                outcome=end.outcome if end else "open",
                message=end.message if end else "",
                user=run.user,
                host=run.host,
                pid=run.pid,
                holder=run.holder,
                version=run.version,
                options=run.options,
                resumes=run.resumes,
            )
            for run, end in self.session.execute(query)
        ]

    def stages(
        self,
        *,
        run: str | None = None,
        node: str | None = None,
        stage: Stage | None = None,
        nodes: Iterable[str] | None = None,
        open_only: bool = False,
    ) -> list[StageView]:
        """Stage records of a run, a node or nodes, a stage, or all of these."""
        if nodes is not None:
            return [
                record
                for chunk in _chunks(nodes)
                for record in self._stages(run, stage, open_only, schema.StageRecord.node.in_(chunk))
            ]
        return self._stages(run, stage, open_only, *([] if node is None else [schema.StageRecord.node == node]))

    def _stages(
        self, run: str | None, stage: Stage | None, open_only: bool, *conditions: ColumnElement[bool]
    ) -> list[StageView]:
        query = (
            select(schema.StageRecord, schema.StageEnd)
            .outerjoin_from(schema.StageRecord, schema.StageEnd, schema.StageEnd.record == schema.StageRecord.id)
            .where(*conditions)
            .order_by(schema.StageRecord.id)
        )
        if run is not None:
            query = query.where(schema.StageRecord.run == run)
        if stage is not None:
            query = query.where(schema.StageRecord.stage == stage.value)
        if open_only:
            query = query.where(schema.StageEnd.record.is_(None))
        return [
            StageView(
                record=begun.id,
                run=begun.run,
                node=begun.node,
                stage=Stage(begun.stage),
                started=begun.started,
                ended=end.ended if end else None,
                outcome=end.outcome if end else "open",
                message=end.message if end else "",
                next_step=end.next_step if end else "",
                seconds=end.seconds if end else None,
                changed=end.changed if end else None,
                data=end.data if end else {},
            )
            for begun, end in self.session.execute(query)
        ]

    # -- the gate ---------------------------------------------------------------------------------------------------

    def verdicts(self, *, node: str | None = None, run: str | None = None) -> Sequence[schema.VerdictRecord]:
        """Verdicts without their findings."""
        query = select(schema.VerdictRecord).order_by(schema.VerdictRecord.id)
        if node is not None:
            query = query.where(schema.VerdictRecord.node == node)
        if run is not None:
            query = query.where(schema.VerdictRecord.run == run)
        return self.session.scalars(query).all()

    def last_verdict(self, node: str, run: str | None = None) -> schema.VerdictRecord | None:
        """The newest verdict of a node, of that run where one is given."""
        query = select(schema.VerdictRecord).where(schema.VerdictRecord.node == node)
        if run is not None:
            query = query.where(schema.VerdictRecord.run == run)
        return self.session.scalars(query.order_by(schema.VerdictRecord.id.desc()).limit(1)).first()

    def findings(self, verdict: int) -> list[Finding]:
        """The findings of a verdict, in the order the gate gave them."""
        query = select(schema.FindingRecord).where(schema.FindingRecord.verdict == verdict)
        return [
            Finding(
                check=row.check,
                node=row.node,
                outcome=Outcome(row.outcome),
                summary=row.summary,
                part=row.part,
                part_serial=row.part_serial,
                measured=row.measured,
                expected=row.expected,
                remedy=row.remedy,
                owner=Owner(row.owner),
                source=row.source,
            )
            for row in self.session.scalars(query.order_by(schema.FindingRecord.id))
        ]

    def verdict(self, row: schema.VerdictRecord) -> Verdict:
        """The gate's verdict as it was given, with its findings."""
        return Verdict(
            node=row.node,
            outcome=Outcome(row.outcome),
            findings=tuple(self.findings(row.id)),
            evidence={str(kind): str(digest) for kind, digest in row.evidence.items()},
            rules=row.rules,
        )

    def part_findings(self, serial: str) -> Sequence[schema.FindingRecord]:
        """Everything that was ever found about the part of that serial number, in any node."""
        query = select(schema.FindingRecord).where(schema.FindingRecord.part_serial == serial)
        return self.session.scalars(query.order_by(schema.FindingRecord.id)).all()

    def admission(self, node: str) -> schema.Admission | None:
        """The node's newest admission; whether it still holds, the node's state and ``expires`` say."""
        query = select(schema.Admission).where(schema.Admission.node == node).order_by(schema.Admission.id.desc())
        return self.session.scalars(query.limit(1)).first()

    def evidence(self, *, node: str | None = None, run: str | None = None) -> Sequence[schema.EvidenceRecord]:
        """Where evidence lies."""
        query = select(schema.EvidenceRecord).order_by(schema.EvidenceRecord.id)
        if node is not None:
            query = query.where(schema.EvidenceRecord.node == node)
        if run is not None:
            query = query.where(schema.EvidenceRecord.run == run)
        return self.session.scalars(query).all()

    # -- parts ------------------------------------------------------------------------------------------------------

    def sightings(self, *, serial: str | None = None, node: str | None = None) -> Sequence[schema.PartSighting]:
        """Where a part was seen, or what was seen in a node; see :meth:`facts` for what is in it now."""
        query = select(schema.PartSighting).order_by(schema.PartSighting.id)
        if serial is not None:
            query = query.where(schema.PartSighting.serial == serial)
        if node is not None:
            query = query.where(schema.PartSighting.node == node)
        return self.session.scalars(query).all()

    def facts(self, node: str, stage: Stage = Stage.DISCOVER) -> schema.Facts | None:
        """What the stage last learnt of a node."""
        query = select(schema.Facts).where(schema.Facts.node == node, schema.Facts.stage == stage.value)
        return self.session.scalars(query.order_by(schema.Facts.id.desc()).limit(1)).first()

    # -- who works on what ------------------------------------------------------------------------------------------

    def leases(self, nodes: Iterable[str] | None = None, run: str | None = None) -> dict[str, schema.Lease]:
        """Leases by node."""
        query = select(schema.Lease)
        if run is not None:
            query = query.where(schema.Lease.run == run)
        if nodes is None:
            return {row.node: row for row in self.session.scalars(query)}
        result: dict[str, schema.Lease] = {}
        for chunk in _chunks(nodes):
            rows = self.session.scalars(query.where(schema.Lease.node.in_(chunk)))
            result.update({row.node: row for row in rows})
        return result

    def takeovers(self, node: str | None = None) -> Sequence[schema.Takeover]:
        """Nodes taken over from a run whose process was gone."""
        query = select(schema.Takeover).order_by(schema.Takeover.id)
        return self.session.scalars(query if node is None else query.where(schema.Takeover.node == node)).all()

    def decisions(self, node: str | None = None) -> Sequence[schema.Decision]:
        """What people decided."""
        query = select(schema.Decision).order_by(schema.Decision.id)
        return self.session.scalars(query if node is None else query.where(schema.Decision.node == node)).all()

    def remedies(self, node: str | None = None, part_serial: str | None = None) -> Sequence[schema.Remedy]:
        """What was done to nodes and parts."""
        query = select(schema.Remedy).order_by(schema.Remedy.id)
        if node is not None:
            query = query.where(schema.Remedy.node == node)
        if part_serial is not None:
            query = query.where(schema.Remedy.part_serial == part_serial)
        return self.session.scalars(query).all()
