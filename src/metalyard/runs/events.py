"""What happens in a run, line by line: written by the stages wherever they run, read by whoever follows the run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FILE = "stages.jsonl"
PROGRESS = "progress.jsonl"
"""What sweeps say while they work; see :meth:`metalyard.runs.results.RunFolder.progress`."""


@dataclass(frozen=True)
class NodeStageEvent:
    """One node's stage has come this far.

    ``status``: ``running`` (begun, or goes on: ``text`` says with what), ``passed``, ``failed``, ``unknown``,
    ``skipped``, ``held`` or ``interrupted``; ``text`` then is the whole sentence, ``next_step`` what a person does.
    """

    node: str
    stage: str
    status: str
    text: str = ""
    next_step: str = ""
    at: str = ""
    run: str = ""


@dataclass(frozen=True)
class RunStarted:
    """A run began; its folder holds everything about it."""

    run: str
    folder: Path
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunEnded:
    """A run ended; the outcome that is returned says it all."""

    run: str
    outcome: str
    message: str = ""


Event = NodeStageEvent | RunStarted | RunEnded


def write(folder: Path, events: Iterable[NodeStageEvent]) -> None:
    """Add lines to the run's events, in one write, so that processes that write at once don't mix theirs."""
    lines = "".join(json.dumps(asdict(event), sort_keys=True) + "\n" for event in events)
    if not lines:
        return
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(folder / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        data = lines.encode()
        while data:
            data = data[os.write(handle, data) :]
    finally:
        os.close(handle)


class Follower:
    """Reads what was added to a run's events and progress since it last looked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._offsets = {FILE: 0, PROGRESS: 0}
        self._stage: dict[str, str] = {}
        """The stage that each node is in now."""

    def stage(self, node: str) -> str:
        """The stage a node was last said to be in; empty when none."""
        return self._stage.get(node, "")

    def poll(self) -> list[NodeStageEvent]:
        """Everything new, oldest first."""
        events: list[NodeStageEvent] = []
        for record in self._lines(FILE):
            event = NodeStageEvent(**{key: str(record.get(key, "")) for key in NodeStageEvent.__dataclass_fields__})
            self._stage[event.node] = event.stage
            events.append(event)
        for record in self._lines(PROGRESS):
            node, text = str(record.get("host", "")), str(record.get("text", ""))
            if self.stage(node):
                events.append(NodeStageEvent(node, self.stage(node), "running", text))
        return events

    def _lines(self, name: str) -> list[dict[str, Any]]:
        """Whole lines only: one that is being written is read next time."""
        try:
            with (self.folder / name).open("rb") as stream:
                stream.seek(self._offsets[name])
                data = stream.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offsets[name] += len(whole)
        records = []
        for line in whole.splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue  # a line cut by a crash says nothing; the ledger does
            if isinstance(record, dict):
                records.append(record)
        return records
