"""The virtual rack's own state for a terminal: machines, services, and the faults that are in or could be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from metalyard.report.table import plain_table


def rack_table(found: Mapping[str, Any]) -> RenderableType:
    """Machines with power and container, then services, faults and problems."""
    if not found.get("running"):
        return Text("The virtual rack is not up. Next step: metalyard virtual up")
    faults: dict[str, list[str]] = {}
    for placed in found.get("faults", []):
        faults.setdefault(str(placed.get("node", "")), []).append(str(placed.get("fault", "")))
    machines = plain_table("machine", "power", "container", "faults")
    for name, state in found.get("nodes", {}).items():
        said = (state.get("power", ""), state.get("container", ""), ", ".join(faults.get(name, [])))
        machines.add_row(Text(name, style="bold"), *(Text(str(text)) for text in said))
    rest = [Text(f"{name}: {state}") for name, state in found.get("services", {}).items()]
    rest += [Text(f"problem: {problem}", style="bold red") for problem in found.get("problems", [])]
    return Group(machines, *rest, Text(f"scenario {found.get('scenario') or 'none'}"))


def fault_table(records: Mapping[str, Mapping[str, Any]]) -> RenderableType:
    """Each fault with its arguments and what it does."""
    table = plain_table("fault", "arguments", "what it does")
    for name, record in records.items():
        arguments = [
            f"{key}={'…' if argument.get('default') is None else argument['default']}"
            for key, argument in (record.get("arguments") or {}).items()
        ]
        description = " ".join(str(record.get("description", "")).split())
        table.add_row(Text(name, style="bold"), Text(" ".join(arguments)), Text(description))
    return table
