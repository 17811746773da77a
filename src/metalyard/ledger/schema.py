"""The ledger's tables. History is only ever added to (triggers refuse the rest); a lease is the one thing that changes.

Times are ISO 8601 in UTC with microseconds (``2026-11-20T14:00:00.000000Z``), so that text order is time order.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

HEAD = "0001"
"""The newest migration; a test holds it against the folder of migrations."""


class Base(DeclarativeBase):
    """Common to all tables."""

    type_annotation_map = {str: Text(), dict[str, Any]: JSON()}


class Run(Base):
    """A run as it began: who, where, what was asked. ``process_started`` is in clock ticks since boot."""

    __tablename__ = "run"
    id: Mapped[str] = mapped_column(primary_key=True)
    verb: Mapped[str]
    site: Mapped[str]
    started: Mapped[str]
    user: Mapped[str] = mapped_column("operator")
    host: Mapped[str]
    pid: Mapped[int]
    holder: Mapped[dict[str, Any]]
    version: Mapped[str]
    options: Mapped[dict[str, Any]]
    resumes: Mapped[str | None] = mapped_column(ForeignKey("run.id"))
    __table_args__ = (Index("ix_run_started", "started"),)


class RunEnd(Base):
    """How a run ended: ``complete``, ``not_all``, ``held``, ``interrupted`` or ``error``."""

    __tablename__ = "run_end"
    run: Mapped[str] = mapped_column(ForeignKey("run.id"), primary_key=True)
    ended: Mapped[str]
    outcome: Mapped[str]
    message: Mapped[str]


class StageRecord(Base):
    """A stage of one node was begun, or passed over (its end then says why)."""

    __tablename__ = "stage_record"
    id: Mapped[int] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(ForeignKey("run.id"))
    node: Mapped[str]
    stage: Mapped[str]
    started: Mapped[str]
    __table_args__ = (Index("ix_stage_record_run", "run", "node"), Index("ix_stage_record_node", "node", "id"))


class StageEnd(Base):
    """How it ended: ``passed``, ``failed``, ``unknown``, ``skipped``, ``held`` or ``interrupted``."""

    __tablename__ = "stage_end"
    record: Mapped[int] = mapped_column(ForeignKey("stage_record.id"), primary_key=True, autoincrement=False)
    ended: Mapped[str]
    outcome: Mapped[str]
    message: Mapped[str]
    next_step: Mapped[str]
    seconds: Mapped[float]
    changed: Mapped[bool | None]
    data: Mapped[dict[str, Any]]


class Transition(Base):
    """One step in a node's life. ``sequence`` counts per node from 1, so that no two runs can both be the next."""

    __tablename__ = "transition"
    id: Mapped[int] = mapped_column(primary_key=True)
    node: Mapped[str]
    sequence: Mapped[int]
    source: Mapped[str]
    target: Mapped[str]
    actor: Mapped[str]
    run: Mapped[str | None] = mapped_column(ForeignKey("run.id"))
    reason: Mapped[str]
    next_step: Mapped[str]
    evidence: Mapped[dict[str, Any]]
    at: Mapped[str]
    __table_args__ = (UniqueConstraint("node", "sequence", name="uq_transition_node_sequence"),)


class VerdictRecord(Base):
    """What the gate said of a node. ``evidence`` maps its kind to the document's digest."""

    __tablename__ = "verdict"
    id: Mapped[int] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(ForeignKey("run.id"))
    node: Mapped[str]
    outcome: Mapped[str]
    rules: Mapped[str]
    evidence: Mapped[dict[str, Any]]
    at: Mapped[str]
    __table_args__ = (Index("ix_verdict_node", "node", "id"), Index("ix_verdict_run", "run"))


class FindingRecord(Base):
    """One check's word, as the verdict rests on it; see :class:`metalyard.gate.finding.Finding`."""

    __tablename__ = "finding"
    id: Mapped[int] = mapped_column(primary_key=True)
    verdict: Mapped[int] = mapped_column(ForeignKey("verdict.id"))
    node: Mapped[str]
    check: Mapped[str] = mapped_column("check_id")
    outcome: Mapped[str]
    part: Mapped[str]
    part_serial: Mapped[str]
    measured: Mapped[str]
    expected: Mapped[str]
    summary: Mapped[str]
    remedy: Mapped[str]
    owner: Mapped[str]
    source: Mapped[str]
    __table_args__ = (Index("ix_finding_verdict", "verdict"), Index("ix_finding_part_serial", "part_serial"))


class PartSighting(Base):
    """A part was seen somewhere else, with other firmware, or for the first time. ``slot`` is its place in the node."""

    __tablename__ = "part_sighting"
    id: Mapped[int] = mapped_column(primary_key=True)
    serial: Mapped[str]
    kind: Mapped[str]
    model: Mapped[str]
    firmware: Mapped[str]
    node: Mapped[str]
    slot: Mapped[str]
    at: Mapped[str]
    run: Mapped[str] = mapped_column(ForeignKey("run.id"))
    __table_args__ = (Index("ix_part_sighting_serial", "serial", "id"), Index("ix_part_sighting_node", "node"))


class Facts(Base):
    """What a stage learnt of a node, kept when it differs from what was known before."""

    __tablename__ = "facts"
    id: Mapped[int] = mapped_column(primary_key=True)
    node: Mapped[str]
    stage: Mapped[str]
    digest: Mapped[str]
    body: Mapped[dict[str, Any]]
    at: Mapped[str]
    run: Mapped[str] = mapped_column(ForeignKey("run.id"))
    __table_args__ = (Index("ix_facts_node", "node", "stage", "id"),)


class EvidenceRecord(Base):
    """Where a document of evidence lies. ``path`` is relative to the site's state folder."""

    __tablename__ = "evidence"
    id: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str]
    kind: Mapped[str]
    node: Mapped[str]
    run: Mapped[str] = mapped_column(ForeignKey("run.id"))
    path: Mapped[str]
    at: Mapped[str]
    __table_args__ = (
        UniqueConstraint("digest", "node", "kind", "run", name="uq_evidence_once"),
        Index("ix_evidence_node", "node", "id"),
    )


class Admission(Base):
    """A node was let into service: what it was made of, under which rules, on which evidence, until when.

    ``digest`` is the SHA-256 of the canonical JSON of everything above it; ``signature`` is the site's Ed25519
    signature of the digest, ``signer`` the fingerprint of its key; see :mod:`metalyard.runs.admissions`.
    """

    __tablename__ = "admission"
    id: Mapped[int] = mapped_column(primary_key=True)
    node: Mapped[str]
    run: Mapped[str] = mapped_column(ForeignKey("run.id"))
    verdict: Mapped[int] = mapped_column(ForeignKey("verdict.id"))
    serial: Mapped[str]
    profile: Mapped[str]
    rules: Mapped[str]
    parts: Mapped[dict[str, Any]]
    firmware: Mapped[dict[str, Any]]
    evidence: Mapped[dict[str, Any]]
    at: Mapped[str]
    expires: Mapped[str]
    digest: Mapped[str]
    signature: Mapped[str]
    signer: Mapped[str]
    __table_args__ = (Index("ix_admission_node", "node", "id"),)


class Decision(Base):
    """What a person decided about a node, and why."""

    __tablename__ = "decision"
    id: Mapped[int] = mapped_column(primary_key=True)
    node: Mapped[str]
    run: Mapped[str | None] = mapped_column(ForeignKey("run.id"))
    by: Mapped[str] = mapped_column("decided_by")
    kind: Mapped[str]
    reason: Mapped[str]
    at: Mapped[str]
    __table_args__ = (Index("ix_decision_node", "node", "id"),)


class Remedy(Base):
    """What was done to a node or part: reseated, replaced, sent back."""

    __tablename__ = "remedy"
    id: Mapped[int] = mapped_column(primary_key=True)
    node: Mapped[str]
    run: Mapped[str | None] = mapped_column(ForeignKey("run.id"))
    part: Mapped[str]
    part_serial: Mapped[str]
    action: Mapped[str]
    outcome: Mapped[str]
    by: Mapped[str] = mapped_column("done_by")
    at: Mapped[str]
    __table_args__ = (Index("ix_remedy_node", "node", "id"), Index("ix_remedy_part_serial", "part_serial"))


class Takeover(Base):
    """A run took a node over from one whose process was gone, and how that was known."""

    __tablename__ = "takeover"
    id: Mapped[int] = mapped_column(primary_key=True)
    node: Mapped[str]
    run: Mapped[str] = mapped_column(ForeignKey("run.id"))
    previous_run: Mapped[str] = mapped_column(ForeignKey("run.id"))
    previous_holder: Mapped[str]
    why: Mapped[str]
    at: Mapped[str]


class Lease(Base):
    """Who works on a node now. The only table whose rows change and go."""

    __tablename__ = "lease"
    node: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(ForeignKey("run.id"))
    holder: Mapped[dict[str, Any]]
    since: Mapped[str]
    heartbeat: Mapped[str]


MUTABLE = frozenset({Lease.__tablename__})
"""Tables that the append-only triggers leave alone."""
