"""The same report for a terminal: a summary line, a table of nodes, one node in detail, and JSON for programs."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from metalyard.report.data import NodeView, SiteView
from metalyard.report.words import Word

WIDE = 110
"""Columns from which reasons fit beside a node."""
STYLES = {"good": "green", "work": "blue", "warn": "yellow", "bad": "bold red", "quiet": "dim"}


def said(word: Word) -> Text:
    """A word with its mark, in its colour."""
    return Text(f"{word.mark} {word.label}", style=STYLES[word.tone])


def summary(view: SiteView) -> Text:
    """``virtual: 5 of 8 nodes in service, 3 quarantined``."""
    line = Text(f"{view.site}: ")
    line.append(view.headline, style=STYLES["good" if view.all_in_service else "warn"])
    if view.detail:
        line.append(f", {view.detail}")
    return line


def marks(node: NodeView) -> Text:
    """The stages as a row of marks, discover first."""
    row = Text(no_wrap=True)
    for stage in node.stages:
        row.append(stage.word.mark, style=STYLES[stage.word.tone])
    return row


def why(node: NodeView) -> Text:
    """Reason, and below it the next step and whose it is."""
    text = Text(node.reason)
    if node.next_step:
        owner = f" ({node.owner})" if node.owner else ""
        text.append(f"{chr(10) if node.reason else ''}→ {node.next_step}{owner}", style="italic")
    if node.holder:
        text.append(f"{chr(10) if text.plain else ''}held by {node.holder}", style=STYLES["work"])
    return text


def nodes(view: SiteView, width: int) -> RenderableType:
    """One row a node; reasons in the last column where there is room, else below the table."""
    wide = width >= WIDE
    table = _table("node", "place", "state", "for", "stages", "verdict", *(["reason and next step"] if wide else []))
    for column in table.columns[:6]:
        column.no_wrap = True
    for node in view.nodes:
        cells = [
            Text(node.name, style="bold"),
            Text(f"{node.rack}·{node.unit}"),
            said(node.word),
            Text(node.age),
            marks(node),
            said(node.verdict) if node.verdict else Text("-", style="dim"),
        ]
        table.add_row(*cells, *([why(node)] if wide else []))
    if wide:
        return table
    reasons: list[RenderableType] = []
    for node in view.nodes:
        if why(node).plain:
            reasons += [Text(), Text(node.name, style="bold"), Padding(why(node), (0, 0, 0, 2))]
    return Group(table, *reasons)


def detail(node: NodeView) -> RenderableType:
    """One node: state and reason, stages, findings, parts, and how others name it."""
    head = Text(f"{node.name}  ", style="bold")
    head.append_text(said(node.word))
    if node.since:
        head.append(f"  since {node.since}", style="dim")
    blocks: list[RenderableType] = [head]
    if why(node).plain:
        blocks.append(why(node))
    blocks += [Text(), _pairs(_identity(node)), Text(), _stages(node)]
    if node.findings:
        blocks += [Text(), _findings(node)]
    elif node.verdict:
        blocks += [Text(), Text(f"Verdict {node.verdict.label}: {node.passed} checks passed, none speaks against it.")]
    if node.parts:
        blocks += [Text(), _parts(node)]
    if node.history:
        blocks += [Text(), _history(node)]
    return Group(*blocks)


def _identity(node: NodeView) -> list[tuple[str, str]]:
    pairs = [
        ("place", f"rack {node.rack}, unit {node.unit}"),
        ("serial (plan)", node.serial),
        ("profile", node.profile),
        ("address", node.address),
        ("BMC", node.bmc_address),
        *node.ids,
        *node.facts,
    ]
    if node.verdict:
        pairs.append(("verdict", f"{node.verdict.label}, {node.judged}"))
    pairs += [(f"{kind} evidence", digest) for kind, digest in node.evidence]
    return [*pairs, ("admission", node.admission)] if node.admission else pairs


def _pairs(pairs: list[tuple[str, str]]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for label, value in pairs:
        table.add_row(Text(label), Text(value))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column)
    return table


def _stages(node: NodeView) -> Table:
    table = _table("stage", "outcome", "took", "started", "message")
    for stage in node.stages:
        table.add_row(
            Text(stage.label),
            said(stage.word),
            Text(stage.took),
            Text(stage.started, no_wrap=True),
            Text(stage.message),
        )
    return table


def _findings(node: NodeView) -> Table:
    table = _table("check", "says", "part", "measured", "expected", "next step")
    for finding in node.findings:
        part = " ".join(text for text in (finding.part, finding.part_serial) if text)
        table.add_row(
            Text(finding.check),
            said(finding.word),
            Text(part),
            Text(finding.measured or finding.summary),
            Text(finding.expected),
            Text(f"{finding.remedy} ({finding.owner})"),
        )
    return table


def _parts(node: NodeView) -> Table:
    table = _table("part", "serial", "model", "firmware")
    for part in node.parts:
        table.add_row(Text(part.part or part.kind), Text(part.serial), Text(part.model), Text(part.firmware))
    return table


def _history(node: NodeView) -> Table:
    table = _table("time", "step", "reason")
    for at, step, reason in node.history:
        table.add_row(Text(at, no_wrap=True), Text(step, no_wrap=True), Text(reason))
    return table


def as_data(view: SiteView) -> dict[str, Any]:
    """The report as plain data for ``--json``."""
    return {
        "site": view.site,
        "generated": view.generated,
        "all_in_service": view.all_in_service,
        "counts": {entry.state: entry.number for entry in view.counts},
        "run": view.run.id if view.run else None,
        "nodes": [node_data(node) for node in view.nodes],
    }


def node_data(node: NodeView) -> dict[str, Any]:
    """One node as plain data."""
    return {
        "node": node.name,
        "rack": node.rack,
        "unit": node.unit,
        "serial": node.serial,
        "state": str(node.state),
        "since": node.since or None,
        "stage": node.stage or None,
        "verdict": node.verdict.label if node.verdict else None,
        "reason": node.reason,
        "next_step": node.next_step,
        "owner": node.owner,
        "held_by": node.holder or None,
        "stages": [
            {
                "stage": stage.name,
                "outcome": stage.outcome,
                "started": stage.started or None,
                "seconds": stage.seconds,
                "message": stage.message,
                "next_step": stage.next_step,
            }
            for stage in node.stages
        ],
        "findings": [
            {
                "check": finding.check,
                "outcome": finding.word.label,
                "part": finding.part,
                "part_serial": finding.part_serial,
                "measured": finding.measured,
                "expected": finding.expected,
                "summary": finding.summary,
                "remedy": finding.remedy,
                "owner": finding.owner,
                "source": finding.source,
            }
            for finding in node.findings
        ],
        "checks_passed": node.passed,
        "evidence": dict(node.evidence),
        "parts": [
            {"kind": p.kind, "part": p.part, "serial": p.serial, "model": p.model, "firmware": p.firmware}
            for p in node.parts
        ],
    }
