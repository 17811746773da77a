"""One command takes the virtual rack from power-on to in service: eight nodes, three faults, each for its reason."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import PLAN, Site

pytestmark = pytest.mark.rack

IN_SERVICE = {"gpu-r01-1", "gpu-r01-2", "gpu-r01-4", "gpu-r02-2", "gpu-r02-4"}
ASIDE = {
    "gpu-r01-3": "serial",
    "gpu-r02-1": "GPU",
    "gpu-r02-3": "cable",
}


@pytest.fixture(scope="module")
def first(site: Site) -> subprocess.CompletedProcess[str]:
    """The first bring-up of a fresh rack."""
    return site.metalyard("bringup")


def test_check_finds_everything_reachable_before_anything_is_touched(site: Site):
    done = site.metalyard("check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(site.states().values()) == {"planned"}


def test_five_in_service_three_aside_each_for_its_reason(site: Site, first):
    assert first.returncode == 3, first.stdout + first.stderr
    status = site.status()
    assert {name for name, node in status.items() if node["state"] == "in_service"} == IN_SERVICE
    for name, word in ASIDE.items():
        assert status[name]["state"] == "quarantined", status[name]
        assert word in status[name]["reason"], status[name]
        assert status[name]["next_step"]


def test_the_table_says_it_too(first):
    for name, word in ASIDE.items():
        assert any(name in line and word in line for line in first.stdout.splitlines()), first.stdout


def test_the_lost_gpu_is_found_by_its_count_and_by_its_xid(site: Site, first):
    done = site.metalyard("status", "gpu-r02-1", "--json")
    findings = json.loads(done.stdout)["findings"]
    failed = {finding["check"] for finding in findings if finding["outcome"] == "fail"}
    assert any("xid" in name for name in failed), failed
    assert any("gpu" in name for name in failed), failed


def test_the_swapped_cable_names_both_ends(site: Site, first):
    done = site.metalyard("status", "gpu-r02-3", "--json")
    said = " ".join(f["summary"] for f in json.loads(done.stdout)["findings"] if f["outcome"] == "fail")
    for end in ("gpu-r02-3", "mlx5_0", "mlx5_2", "leaf-1", "leaf-2"):
        assert end in said, said


def test_the_wrong_machine_was_never_touched(site: Site, first):
    done = site.metalyard("status", "gpu-r01-3", "--json")
    stages = {stage["stage"] for stage in json.loads(done.stdout)["stages"]}
    assert stages == {"discover"}


def test_firmware_behind_the_baseline_was_brought_up(site: Site, first):
    done = site.metalyard("status", "gpu-r01-2", "--json")
    stages = {stage["stage"]: stage for stage in json.loads(done.stdout)["stages"]}
    assert stages["firmware"]["outcome"] == "passed"
    assert "1.6.7" in json.dumps(stages["firmware"]) or "1.6.7" in done.stdout


def test_the_report_is_one_page_with_every_node(site: Site, first):
    done = site.metalyard("report")
    assert done.returncode == 0, done.stderr
    page = next(word for word in done.stdout.split() if word.endswith(".html"))
    text = Path(page).read_text()
    assert all(name in text for name in IN_SERVICE | set(ASIDE))
    assert "<svg" in text
    assert "http://" not in text.replace("http://www.w3.org", "").replace("http://127.0.0.1", ""), (
        "nothing from outside"
    )


def test_no_secret_is_in_the_state_folder_in_the_clear(site: Site, first):
    secrets = {(site.home / "secrets" / name).read_text().strip() for name in ("factory-password", "maas-api-key")}
    secrets |= {part for secret in secrets for part in secret.split(":") if len(part) > 8}
    for path in (site.home / "state").rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not [s for s in secrets if s.encode() in data], path


def test_the_ledger_can_only_grow(site: Site, first):
    with sqlite3.connect(site.home / "state" / "ledger.sqlite") as ledger, pytest.raises(sqlite3.DatabaseError):
        ledger.execute("DELETE FROM transition")


def test_a_second_run_changes_nothing_and_says_so(site: Site, first):
    before = site.states()
    done = site.metalyard("bringup")
    assert done.returncode == 3
    assert "nothing changed" in done.stdout.lower(), done.stdout
    assert site.states() == before


def test_plain_ansible_does_the_same(site: Site, first):
    before = site.states()
    done = site.run(
        "ansible-playbook", "metalyard.fleet.bringup", "-i", str(PLAN), "--limit", "gpu-r01-1,gpu-r02-1,localhost"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed=0" in done.stdout
    assert site.states() == before


def test_a_fault_injected_later_is_found_and_repaired_nodes_come_back(site: Site, first):
    assert site.metalyard("virtual", "fault", "gpu-r02-4", "gpu_off_bus").returncode == 0
    done = site.metalyard("bringup", "--stage", "prove", "--stage", "admit", "--limit", "gpu-r02-4")
    assert done.returncode == 3, done.stdout + done.stderr
    assert site.states()["gpu-r02-4"] == "quarantined"
    assert site.metalyard("virtual", "fault", "gpu-r02-4", "gpu_off_bus", "--clear").returncode == 0
    assert site.metalyard("release", "gpu-r02-4", "--reason", "GPU reseated").returncode == 0
    done = site.metalyard("bringup", "--limit", "gpu-r02-4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert site.states()["gpu-r02-4"] == "in_service"
