"""What a report is made of: plain records, as the ledger and a run's folder give them.

Pages and tables are pure functions of a plan and these records, so that they are tested with data alone.
Times are aware ``datetime`` objects in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from metalyard.gate.finding import Finding, Outcome
from metalyard.plan.lifecycle import Stage, State


@dataclass(frozen=True)
class StageRecord:
    """One stage of one node, the last time it ran.

    ``outcome`` is one of ``passed``, ``failed``, ``unknown``, ``skipped``, ``held``, ``interrupted``, ``running``.
    Anything else is shown as unknown.
    """

    stage: Stage
    outcome: str
    started: datetime | None = None
    ended: datetime | None = None
    message: str = ""
    next_step: str = ""
    run: str = ""


@dataclass(frozen=True)
class TransitionRecord:
    """One step in a node's life: from where to where, when, why, and by whom."""

    source: State
    target: State
    at: datetime
    reason: str = ""
    actor: str = ""
    run: str = ""


@dataclass(frozen=True)
class PartRecord:
    """One part with its serial number, as last seen in the node."""

    kind: str
    part: str
    serial: str = ""
    model: str = ""
    firmware: str = ""
    since: datetime | None = None


@dataclass(frozen=True)
class FirmwareRecord:
    """One firmware component, as the firmware stage last left it."""

    component: str
    id: str = ""
    version: str = ""
    expected: str = ""
    action: str = ""


@dataclass(frozen=True)
class LeaseRecord:
    """Who works on a node now."""

    holder: str
    run: str
    since: datetime
    alive: bool = True


@dataclass(frozen=True)
class AdmissionRecord:
    """The word that a node is in service: when, until when, and its digest."""

    at: datetime
    expires: datetime | None = None
    digest: str = ""


@dataclass(frozen=True)
class NodeRecord:
    """All that is remembered of one node. Only ``node`` is needed: a node never met is ``planned``."""

    node: str
    state: State = State.PLANNED
    since: datetime | None = None
    reason: str = ""
    next_step: str = ""
    owner: str = ""
    stages: tuple[StageRecord, ...] = ()
    verdict: Outcome | None = None
    judged: datetime | None = None
    rules: str = ""
    findings: tuple[Finding, ...] = ()
    evidence: Mapping[str, str] = field(default_factory=dict)
    """Kind of evidence to SHA-256 digest."""
    parts: tuple[PartRecord, ...] = ()
    ids: Mapping[str, str] = field(default_factory=dict)
    """Names under which others know the node, such as ``MAAS system id``; label to value."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Short facts such as BIOS and BMC version; label to value."""
    firmware: tuple[FirmwareRecord, ...] = ()
    history: tuple[TransitionRecord, ...] = ()
    """Oldest first."""
    lease: LeaseRecord | None = None
    admission: AdmissionRecord | None = None


@dataclass(frozen=True)
class RunRecord:
    """One run: who asked for what, when, and with which versions."""

    id: str
    verb: str = "bringup"
    started: datetime | None = None
    ended: datetime | None = None
    operator: str = ""
    outcome: str = ""
    check: bool = False
    limit: str = ""
    stages: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    """The nodes it was about; empty means all."""
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Records:
    """Everything a report needs beside the plan."""

    nodes: Mapping[str, NodeRecord] = field(default_factory=dict)
    run: RunRecord | None = None
