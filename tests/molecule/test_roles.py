"""Runs the Molecule scenario of each role that is on disk: ``pytest tests/molecule -n 2``; ``-k dcgm`` for one.

Each scenario has a node and a folder of its own, so that they run side by side. What Molecule said is kept in
``build/molecule/<role>.log``.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
BUILD = REPOSITORY / "build" / "molecule"
ROLES = sorted(path.parents[2].name for path in REPOSITORY.glob("roles/*/molecule/default/molecule.yml"))
CHECKOUT = hashlib.sha256(str(REPOSITORY).encode()).hexdigest()[:6]
"""Keeps the nodes of two checkouts on one machine apart."""
DEADLINE = 900.0
"""Seconds for one scenario."""

pytestmark = pytest.mark.rack


def environment(role: str) -> dict[str, str]:
    """What a scenario is called with: its own node and folder, and this interpreter's programs first."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
        "METALYARD_MOLECULE_NODE": f"molecule-{CHECKOUT}-{role.replace('_', '-')}",
        "MOLECULE_EPHEMERAL_DIRECTORY": str(BUILD / role),
        "ANSIBLE_FORCE_COLOR": "0",
        "NO_COLOR": "1",
        "PY_COLORS": "0",
    }


def molecule(role: str, *arguments: str) -> int:
    """Run Molecule for a role; returns its exit status, and -1 when it was not done in time."""
    with (BUILD / f"{role}.log").open("ab") as log:
        process = subprocess.Popen(
            [str(Path(sys.executable).parent / "molecule"), *arguments],
            cwd=REPOSITORY / "roles" / role,
            env=environment(role),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            return -1
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.mark.parametrize("role", ROLES)
def test_scenario(role: str) -> None:
    """Check mode on a bare node, converge, idempotence, and verify with its refusals."""
    BUILD.mkdir(parents=True, exist_ok=True)
    log = BUILD / f"{role}.log"
    log.unlink(missing_ok=True)
    status = molecule(role, "test")
    if status != 0:
        # Molecule takes the node away by itself, unless it was ended itself.
        molecule(role, "destroy")
    said = log.read_text(errors="replace").splitlines()
    # The end of the log is Molecule's own summary; what failed stands before it.
    failed = [
        number for number, line in enumerate(said) if line.startswith(("fatal:", "failed:", "[ERROR]", "CRITICAL"))
    ]
    last = failed[-1] if failed else len(said)
    assert status == 0, f"{role}: exit status {status}; see {log}\n" + "\n".join(said[max(0, last - 60) : last + 20])
