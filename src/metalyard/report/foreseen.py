"""What a bring-up would do, shown: a row of stages per node, one node in full, and plain data for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from metalyard.plan.model import SitePlan
from metalyard.report.data import without_name
from metalyard.report.table import plain_table
from metalyard.report.words import STAGE_LABELS, STATES, count, plain
from metalyard.runs.forecast import Expectation, Step

MARKS = {"do": "▸", "look": "·", "pass over": "-"}
STYLES = {"do": "bold blue", "look": "dim", "pass over": "dim"}


def table(expected: Sequence[Expectation]) -> RenderableType:
    """One row a node with a mark for each stage; what was found or stands in the way below or beside it."""
    if len(expected) == 1:
        return _one(expected[0])
    stages = [step.stage for step in expected[0].steps] if expected else []
    rows = plain_table("node", "state", *(STAGE_LABELS[stage] for stage in stages), "notes")
    for entry in expected:
        marks = [_mark(step) for step in entry.steps]
        rows.add_row(Text(entry.node, style="bold"), Text(STATES[entry.state].label), *marks, Text(_notes(entry)))
    return rows


def _mark(step: Step) -> Text:
    if step.found is not None:
        if step.found.failed or step.found.unreachable:
            return Text("✕ fails", style="bold red")
        return Text("▸ change", style="bold blue") if step.found.changed else Text("✓ as is", style="green")
    return Text(f"{MARKS[step.kind]} {step.kind}", style=STYLES[step.kind])


def _notes(entry: Expectation) -> str:
    said = [step.found.message for step in entry.steps if step.found and step.found.message]
    if entry.reason:
        said.insert(0, entry.reason)
    if entry.next_step and any(step.kind == "pass over" for step in entry.steps):
        said.append(f"→ {entry.next_step}")
    return "; ".join(dict.fromkeys(without_name(plain(text), entry.node) for text in said))


def _one(entry: Expectation) -> RenderableType:
    rows = plain_table("stage", "", "what")
    for step in entry.steps:
        text = Text(step.what)
        if step.found and step.found.message:
            text.append(f"\n{without_name(plain(step.found.message), entry.node)}", style="italic")
        rows.add_row(Text(STAGE_LABELS[step.stage]), _mark(step), text)
    head = Text(f"{entry.node}  ", style="bold").append(STATES[entry.state].label, style="not bold")
    reason = [Text(plain(text)) for text in (entry.reason, f"→ {entry.next_step}" if entry.next_step else "") if text]
    return Group(head, *reason, rows)


def summary(plan: SitePlan, expected: Sequence[Expectation]) -> Text:
    """``6 nodes to bring up, 1 looked at again, 1 passed over; nothing was changed``."""
    aside = sum(all(step.kind == "pass over" for step in e.steps) for e in expected)
    failing = sum(
        any(step.found and (step.found.failed or step.found.unreachable) for step in e.steps) for e in expected
    )
    again = sum(all(step.kind == "look" for step in e.steps) for e in expected)
    parts = [f"{count(len(expected) - aside - failing - again, 'node')} to bring up"]
    parts += [f"{failing} that will fail as things are"] if failing else []
    parts += [f"{again} to look at again, changed only where something is off"] if again else []
    parts += [f"{aside} set aside and passed over"] if aside else []
    return Text(f"{plan.site}: {', '.join(parts)}. Nothing was changed.")


def as_data(plan: SitePlan, expected: Sequence[Expectation]) -> dict[str, Any]:
    """Plain data for ``--json``."""
    return {
        "site": plan.site,
        "nodes": [
            {
                "name": entry.node,
                "state": str(entry.state),
                "reason": entry.reason,
                "next_step": entry.next_step,
                "stages": [
                    {
                        "stage": str(step.stage),
                        "kind": step.kind.replace(" ", "_"),
                        "what": step.what,
                        "found": None
                        if step.found is None
                        else {
                            "changed": step.found.changed,
                            "failed": step.found.failed or step.found.unreachable,
                            "message": step.found.message,
                            "next_step": step.found.next_step,
                        },
                    }
                    for step in entry.steps
                ],
            }
            for entry in expected
        ],
    }
