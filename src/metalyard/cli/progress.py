"""A run's progress as it is followed: a live table on a terminal, plain lines elsewhere, JSON lines for programs.

Events come from another thread than the command's own.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol

import click
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from metalyard.plan.lifecycle import STAGES, Stage
from metalyard.report.table import STYLES
from metalyard.report.words import STAGE_LABELS, STAGE_OUTCOMES, plain, span, stage_outcome
from metalyard.runs.events import Event, NodeStageEvent, RunEnded, RunStarted

WORSE = ("failed", "unknown", "held", "interrupted")


class Progress(Protocol):
    """What follows a run. Used as a context manager around it."""

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        ...

    def __enter__(self) -> Progress: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class _Quiet:
    """Nothing to begin or to end."""

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class JsonLines(_Quiet):
    """One JSON object a line: ``{"event": "run"|"stage"|"end", …}``."""

    def __call__(self, event: Event) -> None:
        """Print it."""
        kind = {NodeStageEvent: "stage", RunStarted: "run", RunEnded: "end"}[type(event)]
        click.echo(json.dumps({"event": kind, **asdict(event)}, sort_keys=True, default=str))


class PlainLines(_Quiet):
    """A line where something begins or ends: what a CI log or a file wants."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[str, str]] = {}
        self._passed_over: set[str] = set()

    def __call__(self, event: Event) -> None:
        """Print it, unless it says nothing new."""
        now = f"{datetime.now(UTC):%H:%M:%S}"
        if isinstance(event, RunStarted):
            click.echo(f"{now} run {event.run}")
        if not isinstance(event, NodeStageEvent) or self._said.get(event.node) == (event.stage, event.status):
            return
        self._said[event.node] = (event.stage, event.status)
        if event.status == "skipped":
            if event.node in self._passed_over:
                return
            self._passed_over.add(event.node)
        line = f"{now} {event.node} {event.stage}: {stage_outcome(event.status).label}"
        if event.status != "running" and event.text:
            line += f": {plain(event.text).removeprefix(f'{event.node}: ')}"
            line += f" -> {plain(event.next_step)}" if event.next_step else ""
        click.echo(line)


@dataclass
class _Row:
    """What the live table knows of one node."""

    outcomes: dict[str, str] = field(default_factory=dict)
    stage: str = ""
    text: str = ""
    since: float = field(default_factory=time.monotonic)


class LiveTable:
    """A line a node: its stages as marks, the one it is in, for how long, and what it waits for."""

    def __init__(self, console: Console, nodes: list[str]) -> None:
        self._console = console
        self._rows = {name: _Row() for name in nodes}
        self._run = ""
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        """Take note; the table is drawn by itself."""
        with self._lock:
            if isinstance(event, RunStarted):
                self._run = event.run
            elif isinstance(event, NodeStageEvent):
                row = self._rows.setdefault(event.node, _Row())
                if row.stage != event.stage:
                    row.stage, row.since, row.text = event.stage, time.monotonic(), ""
                row.outcomes[event.stage] = event.status
                row.text = plain(event.text).removeprefix(f"{event.node}: ")

    def _render(self) -> RenderableType:
        with self._lock:
            rows = {name: _Row(dict(r.outcomes), r.stage, r.text, r.since) for name, r in self._rows.items()}
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", expand=True)
        table.title = self._title(rows)
        table.title_justify = "left"
        for name in ("node", "stages", "stage", "for"):
            table.add_column(name, no_wrap=True)
        table.add_column("", ratio=1, no_wrap=True, overflow="ellipsis")
        room = max(3, self._console.size.height - 4)
        shown = sorted(rows.items(), key=lambda item: _urgency(item[1]))[:room] if len(rows) > room else rows.items()
        for name, row in shown:
            outcome = row.outcomes.get(row.stage, "pending")
            style = STYLES[stage_outcome(outcome).tone]
            spent = span_of(time.monotonic() - row.since) if outcome == "running" else ""
            label = STAGE_LABELS[Stage(row.stage)] if row.stage else ""
            table.add_row(
                Text(name, style="bold"),
                _marks(row),
                Text(label, style=style),
                Text(spent),
                Text(row.text, style=style),
            )
        return table

    def _title(self, rows: dict[str, _Row]) -> Text:
        running = sum(row.outcomes.get(row.stage) == "running" for row in rows.values())
        bad = sum(any(outcome in WORSE for outcome in row.outcomes.values()) for row in rows.values())
        title = Text(f"run {self._run or '…'}, {span_of(time.monotonic() - self._started)}: ", style="not italic")
        title.append(f"{running} of {len(rows)} nodes at work", style="not italic blue")
        if bad:
            title.append(f", {bad} in trouble", style="not italic bold red")
        return title


def _urgency(row: _Row) -> int:
    """Trouble first, then those at work, then the rest: a hall does not fit on a screen."""
    outcome = row.outcomes.get(row.stage, "pending")
    return 0 if outcome in WORSE else 1 if outcome == "running" else 2


def _marks(row: _Row) -> Text:
    text = Text(no_wrap=True)
    for stage in STAGES:
        word = STAGE_OUTCOMES.get(row.outcomes.get(str(stage), "pending"), STAGE_OUTCOMES["unknown"])
        text.append(word.mark, style=STYLES[word.tone])
    return text


def span_of(seconds: float) -> str:
    """``48 s``, ``3 min 12 s``."""
    from datetime import timedelta

    return span(timedelta(seconds=seconds))


def follower(console: Console, nodes: list[str], *, as_json: bool) -> Progress:
    """The one that fits where the output goes."""
    makers: dict[bool, Callable[[], Progress]] = {True: JsonLines, False: PlainLines}
    return LiveTable(console, nodes) if console.is_terminal and not as_json else makers[as_json]()
