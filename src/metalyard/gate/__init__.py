"""The gate: evidence in, findings and a verdict out. Pure policy, and the only door into service."""

from metalyard.gate.evidence import Evidence, EvidenceError
from metalyard.gate.finding import Finding, Outcome, Owner, Verdict
from metalyard.gate.judge import judge
from metalyard.gate.load import CheckError, load_checks, rules_digest

__all__ = [
    "CheckError",
    "Evidence",
    "EvidenceError",
    "Finding",
    "Outcome",
    "Owner",
    "Verdict",
    "judge",
    "load_checks",
    "rules_digest",
]
