"""The virtual rack that the journeys run on: fresh for each module, ended after it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from metalyard.plan import load_plan

ROOT = Path(__file__).parents[2]
PLAN = ROOT / "inventory" / "virtual"
BIN = Path(sys.executable).parent
LONGEST = 900
"""Seconds that one command of a journey may take; ten times what it does take."""


@dataclass
class Site:
    """The virtual site, driven as a person does: by its commands."""

    home: Path

    def run(self, *words: str, check: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        done = subprocess.run(
            [str(BIN / words[0]), *words[1:]],
            cwd=ROOT,
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    def metalyard(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run ``metalyard`` on the virtual site."""
        return self.run("metalyard", *words, **{"METALYARD_SITE": str(PLAN), **environment})

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start ``metalyard`` in a session of its own, to be killed."""
        return subprocess.Popen(
            [str(BIN / "metalyard"), *words],
            cwd=ROOT,
            env=self.environment(METALYARD_SITE=str(PLAN)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a person whose PATH has the virtual environment."""
        return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "NO_COLOR": "1", **more}

    def status(self) -> dict[str, dict[str, Any]]:
        """What ``metalyard status --json`` says, by node."""
        done = self.metalyard("status", "--json")
        answer = json.loads(done.stdout)
        return {node["name"]: node for node in answer["nodes"]}

    def states(self) -> dict[str, str]:
        """State of each node."""
        return {name: node["state"] for name, node in self.status().items()}


def kill_hard(process: subprocess.Popen[str]) -> None:
    """``kill -9`` of the controller alone: what it started must not outlive it for long."""
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=30)


def wait_for(condition: Any, seconds: float, what: str) -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            pytest.fail(f"after {seconds:.0f} s still not: {what}")
        time.sleep(0.3)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A fresh virtual rack with the demo's three faults."""
    if os.geteuid() != 0:
        pytest.skip("the virtual rack needs root for podman: run as root or with sudo")
    home = load_plan(PLAN).state_dir.parent
    rack = Site(home)
    rack.metalyard("virtual", "down")
    shutil.rmtree(home, ignore_errors=True)
    up = rack.metalyard("virtual", "up")
    assert up.returncode == 0, up.stdout + up.stderr
    yield rack
    rack.metalyard("virtual", "down")
