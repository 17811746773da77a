"""What the ledger lets be added. Every rule that keeps the history consistent is held here, inside the transaction."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, func, select, text, update
from sqlalchemy.orm import Session

from metalyard.gate.finding import Verdict
from metalyard.ledger import schema
from metalyard.ledger.errors import HistoryError
from metalyard.ledger.view import StageView, Standing, View, moment, stamp
from metalyard.plan.lifecycle import Actor, Stage, State, allowed


@dataclass(frozen=True)
class PartSeen:
    """A part as a stage saw it: ``slot`` is its place in the node (``gpu 3``). A part without a serial is not kept."""

    kind: str
    slot: str
    serial: str
    model: str = ""
    firmware: str = ""


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON: sorted keys, no spaces."""
    body = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
    return hashlib.sha256(body.encode()).hexdigest()


class Book(View):
    """One transaction that adds to the ledger; it sees what it has added so far."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.now = self._clock()
        """The transaction's time. PostgreSQL's own, so that controllers whose clocks differ agree on leases."""

    def _clock(self) -> str:
        if self.session.get_bind().dialect.name == "postgresql":
            return stamp(self.session.execute(text("SELECT clock_timestamp()")).scalar_one())
        return stamp()

    # -- runs -------------------------------------------------------------------------------------------------------

    def begin_run(
        self,
        run: str,
        *,
        verb: str,
        site: str,
        holder: Mapping[str, Any],
        version: str,
        options: Mapping[str, Any] | None = None,
        resumes: str | None = None,
    ) -> bool:
        """Write down that a run began; False when it was written down before. ``holder`` has user, host and pid."""
        if self.session.get(schema.Run, run) is not None:
            return False
        if resumes is not None and self.session.get(schema.Run, resumes) is None:
            raise HistoryError(f"There is no run {resumes} to resume.", "Look at `metalyard status` for the runs.")
        self.session.add(
            schema.Run(
                id=run,
                verb=verb,
                site=site,
                started=self.now,
                user=str(holder["user"]),
                host=str(holder["host"]),
                pid=int(holder["pid"]),
                holder=dict(holder),
                version=version,
                options=dict(options or {}),
                resumes=resumes,
            )
        )
        self.session.flush()
        return True

    def end_run(self, run: str, outcome: str, message: str = "") -> bool:
        """Write down how a run ended; False when that was written down before."""
        if self.session.get(schema.RunEnd, run) is not None:
            return False
        self.session.add(schema.RunEnd(run=run, ended=self.now, outcome=outcome, message=message))
        self.session.flush()
        return True

    # -- stages -----------------------------------------------------------------------------------------------------

    def begin_stages(self, run: str, stage: Stage, nodes: Iterable[str]) -> dict[str, StageView]:
        """Write down that a stage of these nodes began. One that goes on already in this run is that one."""
        names = list(dict.fromkeys(nodes))
        known = {record.node: record for record in self.stages(run=run, stage=stage, nodes=names, open_only=True)}
        rows = [
            schema.StageRecord(run=run, node=name, stage=stage.value, started=self.now)
            for name in names
            if name not in known
        ]
        self.session.add_all(rows)
        self.session.flush()
        for row in rows:
            known[row.node] = StageView(
                record=row.id,
                run=run,
                node=row.node,
                stage=stage,
                started=self.now,
                ended=None,
                outcome="open",
                message="",
                next_step="",
                seconds=None,
                changed=None,
                data={},
            )
        return known

    def end_stage(
        self,
        record: StageView,
        outcome: str,
        *,
        message: str = "",
        next_step: str = "",
        changed: bool | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> bool:
        """Write down how a stage ended; False when it had ended before: the first word stands."""
        if record.ended is not None:
            return False
        seconds = max(0.0, round((moment(self.now) - moment(record.started)).total_seconds(), 3))
        self.session.add(
            schema.StageEnd(
                record=record.record,
                ended=self.now,
                outcome=outcome,
                message=message,
                next_step=next_step,
                seconds=seconds,
                changed=changed,
                data=dict(data or {}),
            )
        )
        return True

    # -- the node's life --------------------------------------------------------------------------------------------

    def move(
        self,
        node: str,
        target: State,
        actor: Actor,
        *,
        run: str | None,
        reason: str,
        next_step: str = "",
        evidence: Mapping[str, Any] | None = None,
        here: Standing | None = None,
    ) -> Standing:
        """Take a node one step further; where it stands after. ``here`` saves a look-up to one who has just asked.

        :class:`HistoryError` when the table of transitions does not have that step.
        """
        here = here or self.state(node)
        if not allowed(here.state, target, actor):
            raise HistoryError(
                f"{node} is {here.state}; '{actor}' may not take it to {target}.",
                "See docs/lifecycle.md for the steps that lead there.",
            )
        self.session.add(
            schema.Transition(
                node=node,
                sequence=here.sequence + 1,
                source=here.state.value,
                target=target.value,
                actor=actor.value,
                run=run,
                reason=reason,
                next_step=next_step,
                evidence=dict(evidence or {}),
                at=self.now,
            )
        )
        return Standing(node, target, self.now, actor, run, reason, next_step, here.sequence + 1)

    # -- what was learnt --------------------------------------------------------------------------------------------

    def learn(self, run: str, node: str, stage: Stage, body: Mapping[str, Any]) -> bool:
        """Keep facts where they differ from the last of that stage; whether they did."""
        fingerprint = digest(body)
        last = self.facts(node, stage)
        if last is not None and last.digest == fingerprint:
            return False
        self.session.add(
            schema.Facts(node=node, stage=stage.value, digest=fingerprint, body=dict(body), at=self.now, run=run)
        )
        self.session.flush()
        return True

    def sight(self, run: str, node: str, parts: Iterable[PartSeen]) -> int:
        """Keep each part that is new, has moved, or has other firmware; how many those were."""
        seen = {(part.kind, part.serial): part for part in parts if part.serial}
        newest = (
            select(func.max(schema.PartSighting.id))
            .where(schema.PartSighting.serial.in_(sorted({serial for _, serial in seen})))
            .group_by(schema.PartSighting.kind, schema.PartSighting.serial)
        )
        rows = self.session.scalars(select(schema.PartSighting).where(schema.PartSighting.id.in_(newest)))
        known = {(row.kind, row.serial): (row.node, row.slot, row.model, row.firmware) for row in rows}
        added = 0
        for key, part in seen.items():
            if known.get(key) == (node, part.slot, part.model, part.firmware):
                continue
            added += 1
            self.session.add(
                schema.PartSighting(
                    serial=part.serial,
                    kind=part.kind,
                    model=part.model,
                    firmware=part.firmware,
                    node=node,
                    slot=part.slot,
                    at=self.now,
                    run=run,
                )
            )
        self.session.flush()
        return added

    def keep_evidence(self, run: str, node: str, kind: str, fingerprint: str, path: str) -> bool:
        """Remember where a document of evidence lies; False when this run remembered it before."""
        table = schema.EvidenceRecord
        known = select(table.id).where(
            table.digest == fingerprint, table.node == node, table.kind == kind, table.run == run
        )
        if self.session.scalars(known).first() is not None:
            return False
        self.session.add(table(digest=fingerprint, kind=kind, node=node, run=run, path=path, at=self.now))
        self.session.flush()
        return True

    # -- the gate ---------------------------------------------------------------------------------------------------

    def judge(self, run: str, verdict: Verdict) -> int:
        """Keep a verdict with every finding; its id."""
        row = schema.VerdictRecord(
            run=run,
            node=verdict.node,
            outcome=verdict.outcome.value,
            rules=verdict.rules,
            evidence=dict(verdict.evidence),
            at=self.now,
        )
        self.session.add(row)
        self.session.flush()
        for finding in verdict.findings:
            fields = {key: str(value) for key, value in finding.as_dict().items()}
            self.session.add(schema.FindingRecord(verdict=row.id, **{**fields, "node": verdict.node}))
        self.session.flush()
        return row.id

    def add_admission(self, admission: schema.Admission) -> int:
        """Keep an admission; its id."""
        self.session.add(admission)
        self.session.flush()
        return admission.id

    # -- people -----------------------------------------------------------------------------------------------------

    def decide(self, node: str, by: str, kind: str, reason: str, run: str | None = None) -> None:
        """Keep what a person decided, and why."""
        self.session.add(schema.Decision(node=node, run=run, by=by, kind=kind, reason=reason, at=self.now))
        self.session.flush()

    def add_remedy(
        self,
        node: str,
        by: str,
        action: str,
        *,
        part: str = "",
        part_serial: str = "",
        outcome: str = "",
        run: str | None = None,
    ) -> None:
        """Keep what was done to a node or to a part of it."""
        self.session.add(
            schema.Remedy(
                node=node, run=run, part=part, part_serial=part_serial, action=action, outcome=outcome, by=by,
                at=self.now,
            )
        )  # fmt: skip
        self.session.flush()

    # -- leases -----------------------------------------------------------------------------------------------------

    def take(self, nodes: Iterable[str], run: str, holder: Mapping[str, Any]) -> None:
        """Give nodes to a run. Whether it may have them, the caller has found out in this transaction."""
        names = list(dict.fromkeys(nodes))
        leases = self.leases(names)
        for name in names:
            lease = leases.get(name)
            if lease is None:
                self.session.add(
                    schema.Lease(node=name, run=run, holder=dict(holder), since=self.now, heartbeat=self.now)
                )
                continue
            if lease.run != run:
                lease.run, lease.since = run, self.now
            lease.holder, lease.heartbeat = dict(holder), self.now

    def take_over(self, lease: schema.Lease, run: str, holder: Mapping[str, Any], previous: str, why: str) -> None:
        """Give a node to a run whose former holder is gone; what that one left open ends as interrupted."""
        self.session.add(
            schema.Takeover(
                node=lease.node, run=run, previous_run=lease.run, previous_holder=previous, why=why, at=self.now
            )
        )
        for record in self.stages(run=lease.run, node=lease.node, open_only=True):
            self.end_stage(
                record,
                "interrupted",
                message=f"{lease.node}: run {lease.run} stopped in stage {record.stage}: {why}",
                next_step="Nothing: the run that took the node over goes on from there.",
            )
        self.take([lease.node], run, holder)

    def beat(self, run: str) -> int:
        """Say that a run still works; on how many nodes."""
        result = self.session.execute(update(schema.Lease).where(schema.Lease.run == run).values(heartbeat=self.now))
        return int(getattr(result, "rowcount", 0))

    def free(self, run: str, nodes: Iterable[str] | None = None) -> int:
        """Give back a run's leases, all or those of ``nodes``; how many it had."""
        query = delete(schema.Lease).where(schema.Lease.run == run)
        if nodes is not None:
            query = query.where(schema.Lease.node.in_(sorted(set(nodes))))
        return int(getattr(self.session.execute(query), "rowcount", 0))
