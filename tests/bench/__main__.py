"""``make bench``: runs the benchmarks, or those that give the figures named, and writes build/bench.json."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from metalyard.files import write_atomically
from tests import bench
from tests.bench.measure import BENCHMARKS

OUTPUT = Path("build/bench.json")


def main(names: list[str]) -> int:
    """Run, print a table, and keep figures of earlier runs that were not measured again."""
    for module in pkgutil.iter_modules(bench.__path__):
        importlib.import_module(f"tests.bench.{module.name}") if module.name != "__main__" else None
    known = {figure for item in BENCHMARKS for figure in item.figures}
    if unknown := set(names) - known:
        print(f"no benchmark {', '.join(sorted(unknown))}; known are {', '.join(sorted(known))}", file=sys.stderr)
        return 2
    figures = [figure for item in BENCHMARKS if not names or set(item.figures) & set(names) for figure in item.run()]
    kept = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else []
    measured = {figure.name for figure in figures}
    rows = [row for row in kept if row["name"] not in measured] + [asdict(figure) for figure in figures]
    write_atomically(OUTPUT, json.dumps(rows, indent=1).encode(), mode=0o644)
    table = Table("figure", "value", "unit", "against")
    for figure in figures:
        table.add_row(figure.name, f"{figure.value:.2f}", figure.unit, figure.against)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
