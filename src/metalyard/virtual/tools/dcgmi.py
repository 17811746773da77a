"""Emulates ``dcgmi`` of DCGM 4.4: discovery and health over the hardware model.

Needs the host engine, as the real one does. A GPU off the bus is missing from the discovery; its fatal Xid shows in
health.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from metalyard.virtual.tools import node
from metalyard.virtual.tools.daemons import version

CELL = 70
NVSWITCHES = 4


def rule(*widths: int, fill: str = "-") -> str:
    """A line of a table."""
    return "+" + "+".join(fill * (width + 2) for width in widths) + "+"


def row(*cells: tuple[str, int]) -> str:
    """A row of a table."""
    return "|" + "|".join(f" {text:<{width}} " for text, width in cells) + "|"


def discovery() -> int:
    """``dcgmi discovery -l``."""
    gpus = node.gpus(node.hardware()) if node.loaded_module("nvidia") else []
    print(f"{len(gpus)} GPU{'' if len(gpus) == 1 else 's'} found.")
    print(rule(6, CELL - 2))
    print(row(("GPU ID", 6), ("Device Information", CELL - 2)))
    print(rule(6, CELL - 2))
    for gpu in gpus:
        print(row((str(gpu["index"]), 6), ("Name: " + gpu["name"], CELL - 2)))
        print(row(("", 6), ("PCI Bus ID: " + gpu["pci_address"], CELL - 2)))
        print(row(("", 6), ("Device UUID: " + gpu["uuid"], CELL - 2)))
        print(rule(6, CELL - 2))
    switches = NVSWITCHES if node.running("nv-fabricmanager") else 0
    print(f"{switches} NvSwitches found.")
    print(rule(9))
    print(row(("Switch ID", 9)))
    print(rule(9))
    for switch in range(switches):
        print(row((str(switch), 9)))
        print(rule(9))
    if not switches:
        print(rule(9))
    print("0 ConnectX found.")
    print(rule(8))
    print(row(("ConnectX", 8)))
    print(rule(8))
    print(rule(8))
    print("0 CPUs found.")
    print(rule(6, CELL - 2))
    print(row(("CPU ID", 6), ("Device Information", CELL - 2)))
    print(rule(6, CELL - 2))
    print(rule(6, CELL - 2))
    return 0


def incidents(model: dict[str, Any]) -> list[tuple[int, str, str]]:
    """GPU index, system and text of what is wrong, as the health watches would have seen it."""
    found = []
    for gpu in model["gpus"]:
        index = gpu["index"]
        address = gpu["pci_address"][4:].lower()
        for line in model["kernel_log"]:
            match = re.search(r"Xid \(PCI:([0-9a-fA-F:]+)[^)]*\): (\d+)", line)
            if match and address.startswith(match.group(1).lower()):
                found.append((index, "PCIe" if match.group(2) == "79" else "All", f"Detected XID {match.group(2)}"))
        if gpu["on_bus"] and gpu["ecc_volatile_uncorrectable"]:
            found.append((index, "Memory", f"Detected {gpu['ecc_volatile_uncorrectable']} volatile DBE errors"))
        if gpu["on_bus"] and gpu["remap_failure"]:
            found.append((index, "Memory", "A row remapping failed"))
        down = gpu["nvlinks_total"] - gpu["nvlinks_active"]
        if gpu["on_bus"] and down:
            found.append((index, "NVLink", f"{down} NvLinks are down"))
    return found


def health(check: bool, as_json: bool) -> int:
    """``dcgmi health -c [-j]`` and ``-s``."""
    if not check:
        print("Health monitor systems set successfully.")
        return 0
    found = incidents(node.hardware())
    overall = "Failure" if found else "Healthy"
    if as_json:
        entities = {
            str(index): {"value": "Failure", "children": {system: {"value": text}}} for index, system, text in found
        }
        body = {"Overall Health": {"value": overall}, "GPU": {"children": entities}}
        print(json.dumps({"header": ["Health Monitor Report"], "body": body}, indent=2))
        return 0
    print(rule(25, 56))
    print("| {:<85}|".format("Health Monitor Report"))
    print(rule(25, 56, fill="="))
    print(row(("Overall Health", 25), (overall, 56)))
    if found:
        print(row(("GPU", 25), ("", 56)))
    for index, system, text in found:
        print(row((f"-> {index}", 25), ("Failure", 56)))
        print(row(("   -> Errors", 25), ("", 56)))
        print(row((f"      -> {system}", 25), (text, 56)))
    print(rule(25, 56))
    return 0


def main() -> int:
    """Read the command as dcgmi does."""
    words = sys.argv[1:]
    if words[:1] in (["-v"], ["--version"]):
        print(f"dcgmi  version: {version('dcgm')}")
        return 0
    if words[:1] not in (["discovery"], ["health"]):
        print("Error: unknown subsystem '{}'; this one knows discovery and health.".format(" ".join(words[:1])))
        return 255
    if not node.running("nv-hostengine"):
        print("Error: unable to establish a connection to the specified host: localhost")
        print("Error: Unable to connect to host engine. Host engine connection invalid/disconnected.")
        return 255
    if words[0] == "discovery":
        if not {"-l", "--list"} & set(words):
            print("Error: discovery needs -l.")
            return 255
        return discovery()
    return health(bool({"-c", "--check"} & set(words)), bool({"-j", "--json"} & set(words)))
