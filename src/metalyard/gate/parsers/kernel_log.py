"""The kernel log as ``dmesg --time-format iso`` prints it, and the Xid events in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from metalyard.gate.parsers.common import ParseError, lines, shown
from metalyard.gate.parsers.nvidia import pci_address

_LINE = re.compile(r"(?P<when>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[,.]\d{1,9}[+-]\d\d:?\d\d) (?P<text>.*)")
_XID = re.compile(
    r"NVRM: Xid \(PCI:(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(\.[0-7])?)\): (?P<xid>\d+),(?P<text>.*)"
)
_ANY_XID = re.compile(r"NVRM:.*\bXid\b", re.IGNORECASE)


@dataclass(frozen=True)
class LogLine:
    """One message; ``when`` has a time zone. A message of several lines is as many of these, with one time."""

    when: datetime
    text: str


@dataclass(frozen=True)
class XidEvent:
    """One error report of the GPU driver."""

    when: datetime
    pci: str
    xid: int
    text: str
    """What follows the number, without process and name."""
    line: str


def log_lines(text: str) -> tuple[LogLine, ...]:
    """All messages. An empty log is an error: the kernel always says something when it starts."""
    messages: list[LogLine] = []
    for line in lines(text, "the kernel log"):
        match = _LINE.fullmatch(line)
        if match is None:
            # dmesg indents the further lines of a message, and leaves the time away.
            if messages and (line.startswith(" ") or not line):
                messages.append(LogLine(messages[-1].when, line.strip()))
                continue
            raise ParseError(f"the kernel log has the line '{shown(line)}', expected one that begins with a time")
        try:
            when = datetime.fromisoformat(match["when"].replace(",", "."))
        except ValueError as error:
            raise ParseError(f"the kernel log has the time '{match['when']}' ({error})") from error
        messages.append(LogLine(when, match["text"]))
    return tuple(messages)


def xid_events(messages: tuple[LogLine, ...]) -> tuple[XidEvent, ...]:
    """The Xid events, in the log's order. A line that names an Xid and can't be read is an error, not no event."""
    events = []
    for message in messages:
        if not _ANY_XID.search(message.text):
            continue
        match = _XID.search(message.text)
        if match is None:
            raise ParseError(f"the kernel log names an Xid in a line that can't be read: '{shown(message.text, 200)}'")
        said = re.sub(r"^\s*pid=[^,]*,\s*name=[^,]*,", "", match["text"]).strip()
        events.append(XidEvent(message.when, pci_address(match["pci"]), int(match["xid"]), said, message.text))
    return tuple(events)
