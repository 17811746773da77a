"""From evidence to verdict. Closed on doubt: what is missing, cut, changed or not understood is unknown, never a pass.

Pure: documents in, verdict out; the same documents and rules give the same verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from metalyard.gate.check import Check, Subject
from metalyard.gate.evidence import Evidence, EvidenceError, Probe, read
from metalyard.gate.finding import Finding, Outcome, Verdict
from metalyard.gate.load import load_checks, rules_digest
from metalyard.gate.parsers.common import ParseError
from metalyard.plan.cables import CablePlan
from metalyard.plan.model import Node
from metalyard.plan.profile import Baseline, Profile

AGAIN = {
    "os": "See that the node is up and answers over SSH, then run the stage prove again.",
    "bmc": "See that the BMC answers, then run the stage prove again.",
    "fabric": "See that a fabric host answers and its subnet manager is up, then run the stage fabric again.",
}
"""Next step where a kind of evidence is missing."""


def judge(
    node: Node,
    profile: Profile,
    baseline: Baseline,
    documents: Mapping[str, bytes | None],
    cables: CablePlan,
    checks: Sequence[Check] | None = None,
) -> Verdict:
    """Judge one node.

    ``documents`` holds evidence by kind (os, bmc, fabric), as it was stored; None or a missing key is evidence that
    could not be had. ``cables`` is all of the plan's cables: a swap between two nodes needs both. ``checks`` are those
    of :func:`load_checks` where none are given. A kind that some check of this node needs must be there.
    """
    used = tuple(load_checks() if checks is None else checks)
    evidence: dict[str, Evidence] = {}
    findings: list[Finding] = []
    lacking: dict[str, str] = {}
    for kind in dict.fromkeys([*documents, *(check.kind for check in used)]):
        document = _document(kind, node, documents.get(kind))
        if isinstance(document, Evidence):
            evidence[kind] = document
        else:
            lacking[kind] = document
    not_run: dict[str, list[str]] = {}
    for check in used:
        subject = Subject(check, node, profile, baseline, cables, evidence)
        if not _applies(subject):
            findings.append(subject.finding(Outcome.NOT_APPLICABLE, f"{check.id} does not apply to {node.name}"))
        elif check.kind in lacking:
            not_run.setdefault(check.kind, []).append(check.id)
        else:
            findings += _run(subject)
    findings = [_missing(kind, node, lacking[kind], names) for kind, names in not_run.items()] + findings
    findings = [_printable(finding) for finding in findings]
    return Verdict(
        node=node.name,
        outcome=_outcome(findings),
        findings=tuple(findings),
        evidence={kind: document.digest for kind, document in evidence.items()},
        rules=rules_digest(used),
    )


def _outcome(findings: Sequence[Finding]) -> Outcome:
    """Fail over unknown over watch over pass; nothing that passed is nothing proven."""
    seen = {finding.outcome for finding in findings}
    for outcome in (Outcome.FAIL, Outcome.UNKNOWN, Outcome.WATCH):
        if outcome in seen:
            return outcome
    return Outcome.PASS if Outcome.PASS in seen else Outcome.UNKNOWN


@lru_cache(maxsize=2)
def _read_shared(data: bytes) -> Evidence:
    """The fabric's evidence is one document for all nodes: read it once."""
    return read(data)


def _document(kind: str, node: Node, data: bytes | None) -> Evidence | str:
    """The evidence, or why there is none."""
    if data is None:
        return "there is none"
    try:
        document = _read_shared(data) if kind == "fabric" else read(data)
    except EvidenceError as error:
        return str(error)
    if document.kind != kind:
        return f"it is evidence of kind '{document.kind}', expected '{kind}'"
    if kind != "fabric" and document.node != node.name:
        return f"it is evidence of {document.node}, expected {node.name}"
    return document


def _applies(subject: Subject) -> bool:
    """Whether the check is about something the node should have. Where that can't be told, it runs, and says so."""
    try:
        return subject.check.applies(subject)
    except Exception:
        return True


def _missing(kind: str, node: Node, why: str, names: list[str]) -> Finding:
    """One finding for evidence that can't be used, instead of one for each of its checks."""
    return Finding(
        check=f"evidence.{kind}",
        node=node.name,
        outcome=Outcome.UNKNOWN,
        summary=(
            f"{node.name}: the {kind} evidence can't be used: {why}. "
            f"{len(names)} checks could not run: {', '.join(names)}"
        ),
        part=f"evidence {kind}",
        measured=why,
        expected="whole evidence",
        remedy=AGAIN.get(kind, "Collect it again."),
        source="unknown is never healthy",
    )


def _run(subject: Subject) -> list[Finding]:
    """One check's findings; an unknown one where a probe can't be used, or the check raises or finds nothing."""
    check = subject.check
    for name in check.needs:
        probe = subject.evidence[check.kind].probes.get(name)
        why = _unusable(probe, check.tolerates_failure)
        if why:
            return [
                subject.unknown(f"{check.id} can't judge: the probe {name} {why}", part=f"probe {name}", measured=why)
            ]
    try:
        findings = list(check(subject))
    except ParseError as error:
        return [subject.unknown(f"{check.id} can't judge: {error}", measured="not readable")]
    except Exception as error:  # a check's defect must not let a node in, and must not end the others
        return [
            subject.unknown(
                f"{check.id} could not be carried out: unexpected {type(error).__name__}: {error}",
                measured=type(error).__name__,
                remedy="This is a defect of the check, or output that it does not know: report it with this line.",
            )
        ]
    odd = [
        one
        for one in findings
        if not isinstance(one, Finding) or one.check != check.id or one.node != subject.node.name
    ]
    if odd or not findings:
        what = "said nothing" if not findings else "gave something else than findings of its own on this node"
        return [
            subject.unknown(f"{check.id} {what}", remedy="This is a defect of the check: report it with this line.")
        ]
    return findings


def _unusable(probe: Probe | None, tolerates_failure: bool) -> str:
    """Why a probe can't be the ground of a judgement; empty when it can."""
    if probe is None:
        return "was not collected"
    if probe.error == "missing":
        return f"could not run: '{' '.join(probe.command[:1])}' is not installed"
    if probe.error == "timeout":
        return "did not end within its deadline"
    if probe.error == "truncated":
        return "printed more than its limit"
    if probe.error is not None:
        return f"can't be used ({probe.error})"
    if not probe.answered or (not tolerates_failure and not probe.usable):
        said = (probe.stderr.strip() or probe.stdout.strip()).split("\n")[-1][:160]
        return f"ended with status {probe.exit_status}" + (f": {said}" if said else "")
    return ""


def _printable(finding: Finding) -> Finding:
    """No lone surrogate or control character leaves the gate: a finding goes into databases and pages."""

    def clean(value: str) -> str:
        if value.isprintable():
            return value
        text = value.encode("utf-8", "backslashreplace").decode()
        return "".join(char if char.isprintable() else " " for char in text)

    return replace(
        finding,
        summary=clean(finding.summary),
        part=clean(finding.part),
        part_serial=clean(finding.part_serial),
        measured=clean(finding.measured),
        expected=clean(finding.expected),
        remedy=clean(finding.remedy),
    )
