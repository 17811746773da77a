"""How long a newcomer waits for the demo, and what a node costs the controller.

Measured in a fresh clone of the committed tree, without its virtual environment and node image, on a machine whose
system packages are installed already: installing those depends on the archive, not on us.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from tests.bench.measure import Figure, benchmark

ROOT = Path(__file__).parents[2]
NODES = 8


def _timed(*command: str, cwd: Path) -> float:
    started = time.monotonic()
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "MAKEFLAGS")}
    subprocess.run(command, cwd=cwd, check=True, env=environment)
    return time.monotonic() - started


@benchmark("demo_first_seconds", "demo_second_seconds", "bringup_controller_cpu_seconds_per_node")
def demo() -> list[Figure]:
    """First and second ``make demo`` in a clone, then a bring-up alone for the controller's CPU seconds."""
    _timed("make", "down", cwd=ROOT)
    subprocess.run(["podman", "image", "rm", "--force", "localhost/metalyard-node:bookworm"], check=False)
    folder = Path(tempfile.mkdtemp(prefix="metalyard-bench-"))
    clone = folder / "metalyard"
    try:
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        first = _timed("make", "demo", cwd=clone)
        second = _timed("make", "demo", cwd=clone)
        _timed("make", "down", cwd=clone)
        shutil.rmtree(clone / "build")
        binary = str(clone / ".venv" / "bin" / "metalyard")
        subprocess.run([binary, "virtual", "-i", "inventory/virtual", "up"], cwd=clone, check=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([binary, "bringup", "-i", "inventory/virtual"], cwd=clone, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        _timed("make", "down", cwd=clone)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return [
        Figure("demo_first_seconds", first, "s", "900 s allowed on 2 cores"),
        Figure("demo_second_seconds", second, "s", "300 s allowed on 2 cores"),
        Figure("bringup_controller_cpu_seconds_per_node", cpu / NODES, "s", f"{NODES} nodes, all nine stages"),
    ]
