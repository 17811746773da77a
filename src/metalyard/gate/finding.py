"""What a check says, and what all that was said adds up to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """Result of one check on one part. Unknown never admits."""

    PASS = "pass"  # noqa: S105
    WATCH = "watch"
    FAIL = "fail"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not_applicable"


class Owner(StrEnum):
    """Who has the next step."""

    DATA_CENTRE = "data centre"
    VENDOR = "vendor"
    OPERATOR = "operator"


@dataclass(frozen=True)
class Finding:
    """One check's word on one piece of evidence.

    ``part`` names the thing (``gpu 3``, ``mlx5_0``, ``nvme1``), ``part_serial`` its serial number where the
    evidence has one. ``measured`` and ``expected`` are short texts with units. ``summary`` is a whole sentence
    that names node, part, what was seen and what was expected; ``remedy`` is the next step.
    """

    check: str
    node: str
    outcome: Outcome
    summary: str
    part: str = ""
    part_serial: str = ""
    measured: str = ""
    expected: str = ""
    remedy: str = ""
    owner: Owner = Owner.OPERATOR
    source: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON and the ledger."""
        return asdict(self)


TELLING = {"xid": 0, "gpu": 1, "bmc": 3}
"""Which of several findings an operator reads first: an Xid is nearer to the cause than what a BMC makes of it."""


def against(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that speak against a node: worst first, and of those the nearest to the cause."""
    order = {Outcome.FAIL: 0, Outcome.UNKNOWN: 1, Outcome.WATCH: 2}

    def telling(finding: Finding) -> tuple[int, int]:
        return order[finding.outcome], TELLING.get(finding.check.split(".")[0], 2)

    return tuple(sorted((f for f in findings if f.outcome in order), key=telling))


@dataclass(frozen=True)
class Verdict:
    """Pass, watch, fail or unknown for one node, with every finding it rests on."""

    node: str
    outcome: Outcome
    findings: tuple[Finding, ...]
    evidence: dict[str, str] = field(default_factory=dict)
    """Kind of evidence (os, bmc, fabric) to SHA-256 digest."""
    rules: str = ""
    """Digest of the checks that judged."""

    @property
    def admits(self) -> bool:
        """Whether the node may enter service."""
        return self.outcome in (Outcome.PASS, Outcome.WATCH)

    @property
    def reasons(self) -> tuple[Finding, ...]:
        """The findings that speak against the node: worst first, and of those the nearest to the cause."""
        return against(self.findings)
