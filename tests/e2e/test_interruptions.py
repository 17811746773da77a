"""Killed at any moment, the same command ends in the same place; a second operator is told who holds the node."""

from __future__ import annotations

import itertools
import random
import sqlite3
import time

import pytest

from tests.e2e.conftest import Site, kill_hard, wait_for

pytestmark = pytest.mark.rack

NODES = ("gpu-r01-1", "gpu-r02-2")
LIMIT = ",".join(NODES)
STAGES = ("discover", "bmc", "firmware", "provision", "configure", "prove")


def opened(site: Site, stage: str) -> int:
    """How often a stage was opened, in the ledger."""
    file = site.home / "state" / "ledger.sqlite"
    if not file.exists():
        return 0
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=10) as ledger:
        try:
            return ledger.execute("SELECT count(*) FROM stage_record WHERE stage = ?", (stage,)).fetchone()[0]
        except sqlite3.OperationalError:
            return 0


def test_killed_in_every_stage_and_run_again(site: Site):
    dice = random.Random(20261120)
    for stage in STAGES:
        count = opened(site, stage)
        process = site.start("bringup", "--limit", LIMIT)
        wait_for(
            lambda stage=stage, count=count, process=process: opened(site, stage) > count or process.poll() is not None,
            300,
            f"stage {stage} opened",
        )
        assert process.poll() is None, f"the run ended before stage {stage} could be interrupted"
        time.sleep(dice.uniform(0.0, 2.5))
        kill_hard(process)
    done = site.metalyard("bringup", "--limit", LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    states = site.states()
    assert {states[node] for node in NODES} == {"in_service"}
    with sqlite3.connect(site.home / "state" / "ledger.sqlite") as ledger:
        rows = ledger.execute("SELECT node, source, target FROM transition ORDER BY id").fetchall()
    for node in NODES:
        mine = [(source, target) for name, source, target in rows if name == node]
        assert mine[0][0] == "planned"
        assert mine[-1][1] == "in_service"
        assert all(a[1] == b[0] for a, b in itertools.pairwise(mine)), mine


def test_no_machine_stands_twice_in_maas(site: Site):
    status = site.metalyard("virtual", "status", "--json")
    assert status.returncode == 0, status.stderr
    for node in NODES:
        assert status.stdout.count(f'"{node}"') >= 1
    macs = [line for line in status.stdout.split('"') if line.startswith("0c:42:a1")]
    assert len(macs) == len(set(macs))


def test_a_second_operator_is_told_who_holds_the_node(site: Site):
    first = site.start("bringup", "--limit", NODES[0])
    try:
        wait_for(lambda: opened(site, "discover") and held(site), 60, "the first run holds the node")
        second = site.metalyard("bringup", "--limit", NODES[0])
        assert second.returncode == 4, second.stdout + second.stderr
        said = second.stdout + second.stderr
        assert "held by" in said.lower(), said
        assert "since" in said.lower(), said
    finally:
        first.wait(timeout=300)
    assert first.returncode == 0


def held(site: Site) -> bool:
    with sqlite3.connect(f"file:{site.home / 'state' / 'ledger.sqlite'}?mode=ro", uri=True, timeout=10) as ledger:
        return bool(ledger.execute("SELECT count(*) FROM lease WHERE node = ?", (NODES[0],)).fetchone()[0])


def test_an_interrupt_says_how_to_go_on(site: Site):
    process = site.start("bringup", "--limit", NODES[1])
    time.sleep(3)
    process.terminate()
    assert process.wait(timeout=60) not in (0, None)
    done = site.metalyard("bringup", "--limit", NODES[1])
    assert done.returncode == 0, done.stdout + done.stderr
