"""Cables that a finding speaks of: where the plan puts them, and where they were seen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from metalyard.gate.finding import Finding, Outcome
from metalyard.plan.model import SitePlan
from metalyard.report.words import OUTCOMES, Word

SPEAKS = (Outcome.FAIL, Outcome.UNKNOWN, Outcome.WATCH)


@dataclass(frozen=True)
class CableView:
    """One cable with a finding. ``seen`` is empty where the far end was not seen, or is the planned one."""

    near: str
    planned: str
    seen: str
    label: str
    word: Word
    summary: str


def cable_views(plan: SitePlan, findings: Mapping[str, Iterable[Finding]]) -> tuple[CableView, ...]:
    """The planned cables that findings name by a node and its port, in the plan's order; the worst word each."""
    said: dict[str, list[Finding]] = {}
    for node, spoken in findings.items():
        for finding in spoken:
            if finding.outcome in SPEAKS and finding.part:
                said.setdefault(f"{node}:{_device(finding.part)}", []).append(finding)
    names = "|".join(re.escape(name) for name in sorted((s.name for s in plan.switches), key=len, reverse=True))
    far_end = re.compile(rf"(?<![\w-])({names})(?::|\s+port\s+|\s+)(\d+)") if names else None
    views = []
    for cable in plan.cables:
        for near, planned in (cable.ends, cable.ends[::-1]):
            if near not in said:
                continue
            worst = min(said[near], key=lambda f: SPEAKS.index(f.outcome))
            found = far_end.search(worst.measured) if far_end else None
            seen = f"{found[1]}:{found[2]}" if found else ""
            views.append(
                CableView(
                    near=near,
                    planned=planned,
                    seen=seen if seen != planned else "",
                    label=cable.label,
                    word=OUTCOMES[worst.outcome],
                    summary=worst.summary,
                )
            )
    return tuple(views)


def _device(part: str) -> str:
    """``mlx5_0`` of ``mlx5_0``, ``hca mlx5_0`` and ``mlx5_0 port 1``."""
    found = re.search(r"[a-z]+\d+_\d+", part)
    return found[0] if found else part
