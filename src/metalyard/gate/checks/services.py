"""Services: none that the node's work needs has failed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from metalyard.gate.check import Subject, check
from metalyard.gate.finding import Finding
from metalyard.gate.parsers.host import units

ESSENTIAL = re.compile(
    r"(nvidia-.*|dcgm.*|chrony(d)?|ssh(d)?|containerd|docker|kubelet|slurmd|openibd|rdma-.*|opensm.*|"
    r"systemd-(networkd|resolved|journald|udevd|modules-load|sysctl)|netplan.*|local-fs|.*\.mount)(\.(service|target|socket))?"
)
"""Units without which a GPU node does not do its work; others that failed are told, and don't keep it out."""


@check(
    "services.failed",
    needs=("services",),
    remedy="See 'systemctl status UNIT' and its journal; mend it, then 'systemctl reset-failed UNIT'.",
    source="systemd's own state of each unit",
)
def failed_units(subject: Subject) -> Iterator[Finding]:
    """Units in the state failed."""
    found = [unit for unit in units(subject.text("services")) if unit.get("active", "failed") == "failed"]
    for unit in found:
        name = unit["unit"]
        say = subject.failed if ESSENTIAL.fullmatch(name) else subject.watch
        yield say(
            f"the unit {name} has failed ({unit.get('description', '')})",
            part=name,
            measured="failed",
            expected="not failed",
        )
    if not found:
        yield subject.passed("no unit has failed", measured="0 failed", expected="0 failed")
