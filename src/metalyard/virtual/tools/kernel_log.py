"""Emulates ``dmesg`` of util-linux 2.38 over the hardware model's kernel log.

The container's own kernel is the host's: its log would tell of the host. Lines start at second 0 and are spread evenly
as at a boot; ``-T`` counts from the start of the node's first process, ``--time-format iso`` likewise.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
import time
from typing import Any, Iterator

from metalyard.virtual.tools import node

FACILITY = "kern"
LEVELS = ("emerg", "alert", "crit", "err", "warn", "notice", "info", "debug")


def level(line: str) -> str:
    """The level a line of this text has on a real machine."""
    if re.search(r"\bXid\b|fallen off|Machine Check|\b[Ee]rror\b|[Uu]ncorrect", line):
        return "err"
    if re.search(r"warn|degraded|available PCIe bandwidth, limited", line, re.IGNORECASE):
        return "warn"
    return "info"


def booted() -> float:
    """When the node's first process started, in seconds since the epoch."""
    try:
        with open("/proc/1/stat", encoding="ascii") as stream:
            ticks = int(stream.read().rsplit(")", 1)[1].split()[19])
        with open("/proc/uptime", encoding="ascii") as stream:
            uptime = float(stream.read().split()[0])
        return time.time() - uptime + ticks / 100.0
    except (OSError, ValueError, IndexError):
        return time.time()


def entries(lines: list[str]) -> Iterator[tuple[float, str, str]]:
    """Seconds since boot, level and text of each line."""
    for index, line in enumerate(lines):
        yield index * 0.104729, level(line), line


def main() -> int:
    """``dmesg`` with the options that tools use; others that only change colours or paging are taken and ignored."""
    wanted = None
    style = "raw-time"
    as_json = decode = False
    arguments = list(sys.argv[1:])
    while arguments:
        word = arguments.pop(0)
        name, _, value = word.partition("=")
        if name in ("-l", "--level"):
            wanted = set((value or (arguments.pop(0) if arguments else "")).split(","))
        elif name in ("-f", "--facility"):
            facilities = (value or (arguments.pop(0) if arguments else "")).split(",")
            if FACILITY not in facilities:
                return 0
        elif name == "--time-format":
            style = value or (arguments.pop(0) if arguments else "")
        elif name in ("-T", "--ctime"):
            style = "ctime"
        elif name in ("-t", "--notime"):
            style = "notime"
        elif name in ("-J", "--json"):
            as_json = True
        elif name in ("-x", "--decode"):
            decode = True
        elif name in ("-V", "--version"):
            print("dmesg from util-linux 2.38.1")
            return 0
        elif name in ("-C", "--clear", "-c", "--read-clear", "-w", "--follow", "-W", "--follow-new"):
            sys.stderr.write(f"dmesg: {word}: the node's kernel log is part of its hardware model\n")
            return 1
        elif name in ("--color", "-L", "-P", "--nopager", "-k", "--kernel", "-H", "-r", "--raw") or name == "":
            continue
        else:
            sys.stderr.write(f"dmesg: unrecognized option '{word}'\n")
            return 1
    rows = [row for row in entries(node.hardware()["kernel_log"]) if wanted is None or row[1] in wanted]
    if as_json:
        document: dict[str, Any] = {
            "dmesg": [{"fac": FACILITY, "pri": name, "time": f"{at:12.6f}", "msg": text} for at, name, text in rows]
        }
        print(json.dumps(document, indent=3))
        return 0
    start = booted()
    for at, name, text in rows:
        if style == "ctime":
            stamp = f"[{time.ctime(start + at)}] "
        elif style == "iso":
            moment = datetime.datetime.fromtimestamp(start + at, datetime.timezone.utc).astimezone()
            stamp = moment.isoformat(timespec="microseconds").replace(".", ",") + " "
        elif style == "notime":
            stamp = ""
        else:
            stamp = f"[{at:12.6f}] "
        prefix = f"{FACILITY:<6}:{name:<6}: " if decode else ""
        print(prefix + stamp + text)
    return 0
