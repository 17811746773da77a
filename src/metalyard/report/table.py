"""The same report for a terminal: a summary line, a table of nodes, one node in detail, and JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from metalyard.plan.lifecycle import State
from metalyard.report.data import NodeView, SiteView, without_name
from metalyard.report.words import STATES, Word, count, plain, stage_outcome
from metalyard.runs.preflight import Look

LOOKS = {
    "ok": Word("ok", "✓", "good"),
    "failed": Word("failed", "✕", "bad"),
    "skipped": Word("skipped", "-", "quiet"),
}
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
    if view.nodes and all(node.state is State.PLANNED for node in view.nodes):
        line.append(". Next step: metalyard bringup")
    return line


def last_run(view: SiteView) -> Text:
    """Which run was the last, who started it, and how it ended."""
    if view.run is None:
        return Text("No run yet. Next step: metalyard check", style="dim")
    run = view.run
    again = ". Next step: metalyard bringup --resume" if run.outcome == "interrupted" else ""
    return Text(f"Last run {run.id} by {run.operator}, {run.started}: {run.outcome}{again}", style="dim")


def marks(node: NodeView) -> Text:
    """The stages as a row of marks, discover first."""
    row = Text(no_wrap=True)
    for stage in node.stages:
        row.append(stage.word.mark, style=STYLES[stage.word.tone])
    return row


def why(node: NodeView) -> Text:
    """Reason, and below it the next step and whose it is."""
    text = Text(node.reason)
    untouched = node.state is State.PLANNED and not node.stage
    if node.next_step and not untouched:  # it is the same for a whole new site: the summary says it once
        owner = f" ({node.owner})" if node.owner else ""
        text.append(f"{chr(10) if node.reason else ''}→ {node.next_step}{owner}", style="italic")
    if node.holder:
        text.append(f"{chr(10) if text.plain else ''}held by {node.holder}", style=STYLES["work"])
    return text


def nodes(view: SiteView, width: int) -> RenderableType:
    """One row a node; reasons in the last column where there is room, else below the table."""
    wide = width >= WIDE
    table = plain_table(
        "node", "place", "state", "for", "stages", "verdict", *(["reason and next step"] if wide else [])
    )
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
    if node.firmware:
        blocks += [Text(), _firmware(node)]
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


def plain_table(*columns: str) -> Table:
    """A table without lines, as every command shows one."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column)
    return table


def _stages(node: NodeView) -> RenderableType:
    ran = [stage for stage in node.stages if stage.outcome != "pending"]
    waiting = ", ".join(stage.label for stage in node.stages if stage.outcome == "pending")
    table = plain_table("stage", "outcome", "took", "started", "message")
    for stage in ran:
        started = Text(stage.started, no_wrap=True)
        table.add_row(Text(stage.label), said(stage.word), Text(stage.took), started, Text(stage.message))
    rest = Text(f"Not run: {waiting}.", style="dim")
    return Group(*([table] if ran else []), *([rest] if waiting else []))


def _findings(node: NodeView) -> Table:
    table = plain_table("check", "says", "part", "measured", "expected", "next step")
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
    table = plain_table("part", "serial", "model", "firmware")
    for part in node.parts:
        table.add_row(Text(part.part or part.kind), Text(part.serial), Text(part.model), Text(part.firmware))
    return table


def _firmware(node: NodeView) -> Table:
    table = plain_table("firmware", "version", "baseline", "")
    for entry in node.firmware:
        name = f"{entry.component} {entry.id}" if entry.id else entry.component
        table.add_row(Text(name), Text(entry.version), Text(entry.expected), Text(entry.action))
    return table


def _history(node: NodeView) -> Table:
    table = plain_table("time", "step", "reason")
    for at, step, reason in node.history:
        table.add_row(Text(at, no_wrap=True), Text(step, no_wrap=True), Text(reason))
    return table


def as_data(view: SiteView) -> dict[str, Any]:
    """The report as plain data for ``--json``."""
    return {
        "site": view.site,
        "generated": view.generated,
        "headline": view.headline,
        "all_in_service": view.all_in_service,
        "counts": {entry.state: entry.number for entry in view.counts},
        "run": {"id": view.run.id, "outcome": view.run.outcome, "operator": view.run.operator} if view.run else None,
        "nodes": [node_data(node) for node in view.nodes],
    }


def node_data(node: NodeView) -> dict[str, Any]:
    """One node as plain data."""
    return {
        "name": node.name,
        "rack": node.rack,
        "unit": node.unit,
        "serial": node.serial,
        "state": str(node.state),
        "since": node.since or None,
        "stage": node.stage or None,
        "verdict": node.verdict_outcome or None,
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
            if stage.outcome != "pending"
        ],
        "findings": [
            {
                "check": finding.check,
                "outcome": str(finding.outcome),
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
        "firmware": [
            {"component": f.component, "id": f.id, "version": f.version, "expected": f.expected, "action": f.action}
            for f in node.firmware
        ],
        "parts": [
            {"kind": p.kind, "part": p.part, "serial": p.serial, "model": p.model, "firmware": p.firmware}
            for p in node.parts
        ],
    }


def looks_table(looks: Sequence[Look], many: int = 16) -> Table:
    """What a check looked at. Passes of one kind are one row where there are many."""
    table = plain_table("what", "", "which", "seen", "next step")
    for kind in dict.fromkeys(look.kind for look in looks):
        same = [look for look in looks if look.kind == kind]
        passed = [look for look in same if look.outcome == "ok"]
        shown = [look for look in same if look.outcome != "ok"] if len(same) > many else same
        if len(same) > many:
            outcome = LOOKS["ok" if passed else "failed"]
            table.add_row(
                Text(kind),
                said(outcome),
                Text("all" if not shown else "others"),
                Text(f"{len(passed)} of {len(same)}"),
                Text(),
            )
        for look in shown:
            table.add_row(
                Text(look.kind), said(LOOKS[look.outcome]), Text(plain(look.about)), Text(plain(look.seen)),
                Text(plain(look.next_step)),
            )  # fmt: skip
    return table


def looks_summary(looks: Sequence[Look], offline: bool) -> Text:
    """``Ready`` or how many looks failed."""
    failed = sum(look.outcome == "failed" for look in looks)
    if failed:
        return Text(f"Not ready: {failed} of {len(looks)} checks failed. Nothing was changed.", style=STYLES["bad"])
    if offline:
        return Text("The plan is right. Credentials and reachability were not looked at (--offline).", style="green")
    return Text(
        f"Ready: {len(looks)} checks passed, nothing was changed. Next step: metalyard plan", style=STYLES["good"]
    )


def outcomes(ends: Iterable[tuple[str, State, str, int, str, str]]) -> Table:
    """How each node ended in a check, which leaves nothing in the ledger: node, state, outcome, changes, why."""
    table = plain_table("node", "state", "check", "would change", "reason and next step")
    for node, state, outcome, changes, reason, next_step in ends:
        why = Text(without_name(plain(reason), node))
        if next_step:
            why.append(f" → {plain(next_step)}", style="italic")
        number = count(changes, "task") if changes else "nothing"
        table.add_row(Text(node, style="bold"), said(STATES[state]), said(stage_outcome(outcome)), Text(number), why)
    return table


def changed(number: int, check: bool) -> Text:
    """Whether a run changed anything."""
    if check:
        return Text(f"Check mode: {count(number, 'task')} would change something. Nothing was changed.")
    return Text(f"{count(number, 'task')} changed something." if number else "Nothing changed.")
