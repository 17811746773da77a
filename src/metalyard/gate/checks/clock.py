"""The clock: far off, certificate validation and with it every installation fails."""

from __future__ import annotations

from collections.abc import Iterator

from metalyard.gate.check import Subject, check
from metalyard.gate.finding import Finding
from metalyard.gate.parsers.host import tracking

UNSYNCHRONISED = 16
"""NTP's stratum of a clock that follows none (RFC 5905); chrony prints 0 for it."""


@check(
    "clock.offset",
    needs=("clock",),
    remedy="See 'chronyc sources': are the site's NTP servers reachable? Then 'chronyc makestep'.",
    source="the node's profile; chronyc(1), tracking; RFC 5905 for stratum and leap status",
)
def offset(subject: Subject) -> Iterator[Finding]:
    """chrony follows a source, and the clock is no further from it than the profile allows."""
    limit = subject.profile.max_clock_offset_seconds
    seen = tracking(subject.text("clock"))
    if seen.leap == "Not synchronised" or not 0 < seen.stratum < UNSYNCHRONISED:
        yield subject.failed(
            f"the clock follows no source ({seen.leap}, stratum {seen.stratum})",
            part="clock",
            measured=f"{seen.leap}, stratum {seen.stratum}",
            expected="synchronised",
        )
    elif abs(seen.offset) > limit:
        yield subject.failed(
            f"the clock is {abs(seen.offset):.6f} s from {seen.reference}, expected at most {limit:g} s",
            part="clock",
            measured=f"{seen.offset:.6f} s",
            expected=f"at most {limit:g} s",
        )
    else:
        yield subject.passed(
            f"the clock is {abs(seen.offset):.6f} s from {seen.reference}",
            part="clock",
            measured=f"{seen.offset:.6f} s",
            expected=f"at most {limit:g} s",
        )
