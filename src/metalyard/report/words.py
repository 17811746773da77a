"""The words and marks a reader sees for states, stages and outcomes: one place, so that page and terminal agree.

A state is never told by colour alone: each has a word, a mark, and on the page a pattern.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from datetime import datetime, timedelta

from metalyard.gate.finding import Outcome
from metalyard.plan.lifecycle import Stage, State


@dataclass(frozen=True)
class Word:
    """How one thing is shown: ``tone`` is one of good, work, warn, bad, quiet."""

    label: str
    mark: str
    tone: str


STATES: dict[State, Word] = {
    State.PLANNED: Word("planned", "○", "quiet"),
    State.DISCOVERED: Word("discovered", "◔", "work"),
    State.BMC_READY: Word("BMC ready", "◔", "work"),
    State.FIRMWARE_CURRENT: Word("firmware current", "◑", "work"),
    State.PROVISIONED: Word("provisioned", "◑", "work"),
    State.CONFIGURED: Word("configured", "◕", "work"),
    State.PROVING: Word("proving", "◕", "work"),
    State.IN_SERVICE: Word("in service", "✓", "good"),
    State.SPARE: Word("spare", "◇", "quiet"),
    State.QUARANTINED: Word("quarantined", "✕", "bad"),
    State.IN_REPAIR: Word("in repair", "⚒", "warn"),
    State.RETIRED: Word("retired", "-", "quiet"),
}

STAGE_OUTCOMES: dict[str, Word] = {
    "passed": Word("passed", "✓", "good"),
    "failed": Word("failed", "✕", "bad"),
    "unknown": Word("unknown", "?", "warn"),
    "skipped": Word("skipped", "-", "quiet"),
    "held": Word("held by another run", "=", "warn"),
    "interrupted": Word("interrupted", "⊘", "warn"),
    "running": Word("running", "▸", "work"),
    "pending": Word("not run", "·", "quiet"),
}

OUTCOMES: dict[Outcome, Word] = {
    Outcome.PASS: Word("pass", "✓", "good"),
    Outcome.WATCH: Word("watch", "!", "warn"),
    Outcome.FAIL: Word("fail", "✕", "bad"),
    Outcome.UNKNOWN: Word("unknown", "?", "warn"),
    Outcome.NOT_APPLICABLE: Word("not applicable", "-", "quiet"),
}

STAGE_LABELS: dict[Stage, str] = {
    Stage.DISCOVER: "discover",
    Stage.BMC: "BMC",
    Stage.FIRMWARE: "firmware",
    Stage.PROVISION: "provision",
    Stage.CONFIGURE: "configure",
    Stage.FABRIC: "fabric",
    Stage.IMAGES: "images",
    Stage.PROVE: "prove",
    Stage.ADMIT: "admit",
}


def stage_outcome(name: str) -> Word:
    """The word for a stage's outcome; one that is not known is shown as unknown, never as passed."""
    return STAGE_OUTCOMES.get(name, STAGE_OUTCOMES["unknown"])


def moment(at: datetime | None) -> str:
    """``2026-11-03 14:05:22 UTC``; empty for no time."""
    return at.strftime("%Y-%m-%d %H:%M:%S UTC") if at else ""


def duration(started: datetime | None, ended: datetime | None) -> str:
    """``48 s``, ``3 min 12 s``, ``2 h 5 min``, ``12 d 4 h``; empty where an end is not known."""
    if started is None or ended is None:
        return ""
    return span(ended - started)


def span(length: timedelta) -> str:
    """A length of time in the two units that matter; a negative one counts as none."""
    seconds = max(0, int(length.total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def count(number: int, thing: str, things: str = "") -> str:
    """``1 node``, ``3 nodes``."""
    return f"{number} {thing if number == 1 else things or thing + 's'}"


def plain(text: str) -> str:
    """The text with every control character shown as a replacement character; line breaks become spaces."""
    return "".join(" " if c in "\n\t\r" else "\N{REPLACEMENT CHARACTER}" if _controls(c) else c for c in text)


def _controls(character: str) -> bool:
    """Control and format characters (categories Cc, Cf), such as escape and the marks that turn text around."""
    return unicodedata.category(character) in ("Cc", "Cf", "Cs")
