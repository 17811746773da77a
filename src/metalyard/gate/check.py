"""A check: a declared record, and a pure function from a node's evidence and profile to findings.

Write one like this; :func:`metalyard.gate.load.load_checks` finds every :class:`Check` at a check file's top level::

    @check(
        "gpu.temperature", needs=("gpus",), owner=Owner.DATA_CENTRE,
        remedy="See to the cooling.", source="where the figure is from",
    )
    def temperature(subject: Subject) -> Iterator[Finding]:
        \"\"\"What it looks at, and why.\"\"\"
        yield subject.passed("…")

A check that raises is an unknown finding, and so is one that finds nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypedDict, Unpack

from metalyard.gate.evidence import Evidence, Probe
from metalyard.gate.finding import Finding, Outcome, Owner
from metalyard.plan.cables import CablePlan
from metalyard.plan.model import Node
from metalyard.plan.profile import Baseline, Profile

CheckFunction = Callable[["Subject"], Iterable[Finding]]
KINDS = ("os", "bmc", "fabric")


class Details(TypedDict, total=False):
    """What a finding may say beside its sentence; see :class:`~metalyard.gate.finding.Finding`."""

    part: str
    part_serial: str
    measured: object
    expected: object
    remedy: str
    owner: Owner


def _always(_: Subject) -> bool:
    return True


@dataclass(frozen=True)
class Check:
    """One check.

    ``kind`` and ``needs`` name the evidence and its probes; a probe that is missing, cut, timed out or failed makes the
    check unknown before it is called. ``tolerates_failure`` lets it see a probe whose command ran to its end with
    another exit status than 0. ``applies`` says whether a node has what the check is about at all.
    """

    id: str
    function: CheckFunction
    subsystem: str
    kind: str = "os"
    needs: tuple[str, ...] = ()
    owner: Owner = Owner.OPERATOR
    remedy: str = ""
    source: str = ""
    tolerates_failure: bool = False
    applies: Callable[[Subject], bool] = _always
    origin: str = field(default="", compare=False)
    """SHA-256 of the code that it came with; set by the loader and part of the rules' digest."""

    def __call__(self, subject: Subject) -> Iterable[Finding]:
        """What the function says of the subject."""
        return self.function(subject)


@dataclass(frozen=True)
class Subject:
    """What a check function gets: the node, what it should be, and the evidence."""

    check: Check
    node: Node
    profile: Profile
    baseline: Baseline
    cables: CablePlan
    evidence: Mapping[str, Evidence]

    def probe(self, name: str, kind: str | None = None) -> Probe:
        """A probe that the check declared in ``needs``; ``KeyError`` for one that is not there."""
        return self.evidence[kind or self.check.kind].probes[name]

    def text(self, name: str, kind: str | None = None) -> str:
        """Standard output of a declared probe."""
        return self.probe(name, kind).stdout

    def also(self, name: str, kind: str = "os") -> str | None:
        """Output of a probe that helps to say more, or None where it is not usable. Never the ground for a pass."""
        document = self.evidence.get(kind)
        probe = document.probes.get(name) if document else None
        return probe.stdout if probe and probe.usable else None

    def finding(
        self,
        outcome: Outcome,
        summary: str,
        **details: Unpack[Details],
    ) -> Finding:
        """A finding of this check. The summary is put behind the node's name where it does not hold it."""
        remedy = details.get("remedy", self.check.remedy)
        sentence = summary if self.node.name in summary else f"{self.node.name}: {summary}"
        return Finding(
            check=self.check.id,
            node=self.node.name,
            outcome=outcome,
            summary=sentence,
            part=details.get("part", ""),
            part_serial=details.get("part_serial", ""),
            measured=str(details.get("measured", "")),
            expected=str(details.get("expected", "")),
            remedy="" if outcome is Outcome.PASS else remedy,
            owner=details.get("owner", self.check.owner),
            source=self.check.source,
        )

    def passed(self, summary: str, **details: Unpack[Details]) -> Finding:
        """A finding that all is well."""
        return self.finding(Outcome.PASS, summary, **details)

    def failed(self, summary: str, **details: Unpack[Details]) -> Finding:
        """A finding that keeps the node out."""
        return self.finding(Outcome.FAIL, summary, **details)

    def watch(self, summary: str, **details: Unpack[Details]) -> Finding:
        """A finding to keep an eye on; the node may go in."""
        return self.finding(Outcome.WATCH, summary, **details)

    def unknown(self, summary: str, **details: Unpack[Details]) -> Finding:
        """A finding that it can't be said; keeps the node out."""
        details.setdefault("remedy", "Collect the evidence again; if it stays, look at the tool's output on the node.")
        return self.finding(Outcome.UNKNOWN, summary, **details)


def check(
    identity: str,
    *,
    needs: tuple[str, ...],
    source: str,
    remedy: str,
    kind: str = "os",
    owner: Owner = Owner.OPERATOR,
    tolerates_failure: bool = False,
    applies: Callable[[Subject], bool] = _always,
) -> Callable[[CheckFunction], Check]:
    """Declare a check. ``identity`` is ``subsystem.what``; ``ValueError`` for one that is not, or without a source."""
    subsystem, _, what = identity.partition(".")
    if not subsystem or not what:
        raise ValueError(f"check id '{identity}': expected subsystem.what, such as gpu.count")
    if kind not in KINDS or not needs or not source or not remedy:
        raise ValueError(f"check {identity}: needs at least one probe, a source, a remedy, and a kind of {KINDS}")

    def declare(function: CheckFunction) -> Check:
        return Check(
            id=identity,
            function=function,
            subsystem=subsystem,
            kind=kind,
            needs=needs,
            owner=owner,
            remedy=remedy,
            source=source,
            tolerates_failure=tolerates_failure,
            applies=applies,
        )

    return declare


def with_origin(one: Check, origin: str) -> Check:
    """The check with the digest of the code that it came with."""
    return replace(one, origin=origin)
