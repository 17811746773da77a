"""What a run changed or would change, as unified diffs per node, from what Ansible left in the run's folder."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metalyard.report.words import plain


@dataclass(frozen=True)
class Change:
    """One task's difference on one node; ``lines`` is a unified diff."""

    node: str
    task: str
    lines: tuple[str, ...]


def changes(folder: Path) -> Iterator[Change]:
    """Every difference of a run, in the order they came. What a task keeps from logs is not here either."""
    events = folder / "artifacts" / "ansible" / "job_events"
    files = [file for file in events.glob("*.json") if file.name.partition("-")[0].isdigit()]
    for file in sorted(files, key=lambda file: int(file.name.partition("-")[0])):
        try:
            data = json.loads(file.read_bytes()).get("event_data") or {}
        except (OSError, ValueError, AttributeError):
            continue  # a cut event says nothing; the run's own words do
        result = data.get("res")
        if not isinstance(result, dict):
            continue
        for entry in [result, *(r for r in result.get("results") or [] if isinstance(r, dict))]:
            found = entry.get("diff")
            for diff in found if isinstance(found, list) else [found]:
                lines = _lines(diff) if isinstance(diff, dict) else ()
                if lines:
                    yield Change(plain(str(data.get("host", ""))), plain(str(data.get("task", ""))), lines)


def _lines(diff: dict[str, Any]) -> tuple[str, ...]:
    if isinstance(diff.get("prepared"), str):
        return tuple(plain(line) for line in diff["prepared"].splitlines())
    before, after = _text(diff.get("before")), _text(diff.get("after"))
    left, right = (str(diff.get(f"{side}_header") or side) for side in ("before", "after"))
    unified = difflib.unified_diff(before, after, left, right, lineterm="", n=2)
    return tuple(plain(line) for line in unified)


def _text(value: object) -> list[str]:
    if value is None:
        return []
    text = value if isinstance(value, str) else json.dumps(value, indent=2, sort_keys=True, default=str)
    return text.splitlines()
