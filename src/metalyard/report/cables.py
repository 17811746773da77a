"""Cables that a finding speaks of: where the plan puts them, and where they were seen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from metalyard.gate.finding import Finding, Outcome
from metalyard.plan.model import Cable, SitePlan
from metalyard.report.words import OUTCOMES, Word

SPEAKS = (Outcome.FAIL, Outcome.UNKNOWN, Outcome.WATCH)
END = r"[a-z0-9][a-z0-9-]*:[A-Za-z0-9_]+"
JOINED = re.compile(rf"({END}) to ({END})")
"""How findings of the fabric write a cable: ``gpu-1:mlx5_0 to leaf-1:4``."""


@dataclass(frozen=True)
class CableView:
    """One cable with a finding. ``seen`` is empty where its far end was not seen, or is the planned one."""

    near: str
    planned: str
    seen: str
    label: str
    word: Word
    said: str
    """What was measured, in short."""
    summary: str


def cable_views(plan: SitePlan, findings: Mapping[str, Iterable[Finding]]) -> tuple[CableView, ...]:
    """The planned cables that findings speak of, by label or by an end, in the plan's order; the worst word each."""
    ends = {end: index for index, cable in enumerate(plan.cables) for end in cable.ends}
    labels = {cable.label: index for index, cable in enumerate(plan.cables) if cable.label}
    worst: dict[int, Finding] = {}
    for spoken in findings.values():
        for finding in spoken:
            if finding.outcome not in SPEAKS:
                continue
            named = {labels[finding.part]} if finding.part in labels else set()
            named |= {ends[end] for end in re.findall(END, finding.expected) if end in ends}
            named |= {ends[end] for end in (f"{finding.node}:{finding.part}",) if end in ends}
            for index in named:
                known = worst.get(index)
                if known is None or SPEAKS.index(finding.outcome) < SPEAKS.index(known.outcome):
                    worst[index] = finding
    nodes = {node.name for node in plan.nodes}
    return tuple(_view(plan.cables[index], worst[index], nodes) for index in sorted(worst))


def _view(cable: Cable, finding: Finding, nodes: set[str]) -> CableView:
    near, planned = sorted(cable.ends, key=lambda end: end.partition(":")[0] not in nodes)
    met: dict[str, str] = {}
    for one, two in JOINED.findall(finding.measured):
        met[one], met[two] = two, one
    seen = met.get(near, "")
    return CableView(
        near=near,
        planned=planned,
        seen=seen if seen != planned else "",
        label=cable.label,
        word=OUTCOMES[finding.outcome],
        said=seen or finding.measured,
        summary=finding.summary,
    )
