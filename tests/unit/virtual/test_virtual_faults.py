"""Fault records and the rack's memory: what a fault changes, that it leaves nothing behind, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from metalyard.gate import load_checks
from metalyard.plan import load_plan
from metalyard.plan.catalogue import load_baseline, load_profile
from metalyard.virtual import fabric, faultbook, models
from metalyard.virtual.bmc.faults import BmcFault
from metalyard.virtual.book import Book
from metalyard.virtual.faultbook import FaultError, Placed
from metalyard.virtual.hardware import load

PLAN = load_plan(Path(__file__).parents[3] / "inventory" / "virtual")
NODE = PLAN.node("gpu-r02-1")
HEALTHY = models.generate(NODE, load_profile(PLAN, NODE.profile), load_baseline(PLAN))
FAULTS = list(faultbook.catalogue())


@pytest.mark.parametrize("name", FAULTS)
def test_every_record_changes_what_it_says_and_nothing_else(name):
    record = faultbook.fault(name)
    placed = Placed(node=NODE.name, fault=name)
    before = HEALTHY.model_copy(deep=True)
    cables = fabric.as_planned(PLAN)
    changed = {
        "hardware": faultbook.apply_hardware(placed, HEALTHY) != HEALTHY,
        "cable": faultbook.apply_cables(placed, cables) != cables,
        "bmc": bool(faultbook.bmc_faults(placed)),
    }
    assert [target for target, differs in changed.items() if differs] == [record.target]
    assert before == HEALTHY
    assert record.name == name
    for data in faultbook.bmc_faults(placed):
        BmcFault.model_validate(data)


def test_expectations_name_checks_that_there_are():
    known = {check.id for check in load_checks()}
    named = {expect.check for record in faultbook.catalogue().values() for expect in record.expect}
    assert named <= known


def test_a_gpu_off_the_bus_is_in_the_kernel_log_as_the_driver_writes_it():
    placed = Placed(node=NODE.name, fault="gpu_off_bus", arguments={"index": 5})
    model = faultbook.apply_hardware(placed, HEALTHY)
    assert [gpu.index for gpu in model.gpus if not gpu.on_bus] == [5]
    assert "NVRM: Xid (PCI:0000:c3:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus." in (
        model.kernel_log
    )


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("gpu_on_fire", {}, "gpu_off_bus"),
        ("gpu_off_bus", {"number": 5}, "index"),
        ("gpu_off_bus", {"index": 8}, "0 to 7"),
        ("gpu_off_bus", {"index": "five"}, "five"),
        ("gpu_pcie_narrow", {"width": 3}, "1, 2, 4, 8"),
        ("nvlink_down", {"active": "many"}, "nvlinks_active"),
    ],
)
def test_what_does_not_fit_is_said(name, given, said):
    with pytest.raises(FaultError, match=said):
        faultbook.apply_hardware(Placed(node=NODE.name, fault=name, arguments=given), HEALTHY)


def test_a_cable_fault_at_an_adapter_without_a_cable_is_said():
    placed = Placed(node=NODE.name, fault="cable_unplugged", arguments={"device": "mlx5_9"})
    with pytest.raises(FaultError, match="gpu-r02-1:mlx5_9"):
        faultbook.apply_cables(placed, fabric.as_planned(PLAN))


def book(home: Path, scenario: str = "healthy") -> Book:
    return Book.begin(PLAN, home, faultbook.scenario(scenario))


def files(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in (home / "nodes").rglob("*") if path.is_file()}


def test_the_demo_has_its_three_faults_and_its_starting_conditions(tmp_path):
    made = book(tmp_path, "demo")
    assert load(made.folder("gpu-r01-3") / "hardware.json").serial != PLAN.node("gpu-r01-3").serial
    assert not load(made.folder("gpu-r02-1") / "hardware.json").gpus[5].on_bus
    assert {cable.ends for cable in made.cables() if cable.label in ("C049", "C051")} == {
        ("gpu-r02-3:mlx5_2", "leaf-1:13"),
        ("gpu-r02-3:mlx5_0", "leaf-2:13"),
    }
    old = load(made.folder("gpu-r01-2") / "hardware.json")
    assert old.firmware["HostBIOS_0"] == "1.5.1"
    assert {load(path).bios["SubNumaClustering"] for path in (tmp_path / "nodes").glob("*/hardware.json")} == {
        "Enabled"
    }


def test_a_fault_that_is_taken_out_leaves_nothing_behind(tmp_path):
    made = book(tmp_path)
    before = files(tmp_path)
    for name in FAULTS:
        made.add("gpu-r01-4", name, {})
    assert files(tmp_path) != before
    for name in FAULTS:
        made.remove("gpu-r01-4", name)
    assert files(tmp_path) == before
    assert made.cables() == fabric.as_planned(PLAN)


def test_an_unplugged_cable_shows_at_the_adapter(tmp_path):
    made = book(tmp_path)
    made.add("gpu-r01-4", "cable_unplugged", {"device": "mlx5_3"})
    folder = made.folder("gpu-r01-4")
    assert (folder / "sysfs-infiniband/mlx5_3/ports/1/state").read_text() == "1: DOWN\n"
    assert (folder / "sysfs-infiniband/mlx5_2/ports/1/state").read_text() == "4: ACTIVE\n"


def test_a_fault_that_does_not_fit_changes_nothing(tmp_path):
    made = book(tmp_path, "demo")
    before, memory = files(tmp_path), made.memory.model_copy(deep=True)
    with pytest.raises(FaultError):
        made.add("gpu-r01-1", "gpu_off_bus", {"index": 99})
    with pytest.raises(FaultError):
        made.add("gpu-r02-3", "cable_unplugged", {"device": "mlx5_9"})
    with pytest.raises(FaultError, match="gpu-r09-1"):
        made.add("gpu-r09-1", "gpu_off_bus", {})
    with pytest.raises(FaultError, match="it has none"):
        made.remove("gpu-r01-1", "gpu_off_bus")
    assert (files(tmp_path), made.memory) == (before, memory)


def test_memory_survives_the_process(tmp_path):
    made = book(tmp_path, "demo")
    made.firmware_live("gpu-r01-2", "HostBIOS_0", "1.6.7")
    made.add("gpu-r01-1", "nvlink_down", {})
    again = Book.open(PLAN, tmp_path)
    assert again.memory == made.memory
    assert load(again.folder("gpu-r01-2") / "hardware.json").firmware["HostBIOS_0"] == "1.6.7"
    assert book(tmp_path, "demo").memory == made.memory


def test_another_scenario_takes_the_place_of_the_first_ones_faults(tmp_path):
    book(tmp_path, "demo")
    made = book(tmp_path, "healthy")
    assert made.memory.faults == []
    assert made.cables() == fabric.as_planned(PLAN)


def test_a_damaged_memory_is_named(tmp_path):
    book(tmp_path)
    path = tmp_path / "rack.json"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(FaultError, match=r"rack\.json"):
        Book.open(PLAN, tmp_path)


def test_a_scenario_of_ones_own_is_a_file(tmp_path):
    shutil.copy(faultbook.SCENARIOS / "demo.yml", tmp_path / "mine.yml")
    assert faultbook.scenario(str(tmp_path / "mine.yml")).name == "demo"
    with pytest.raises(FaultError, match="demo, healthy"):
        faultbook.scenario("nonesuch")
    (tmp_path / "bad.yml").write_text("name: bad\nfault: []\n")
    with pytest.raises(FaultError, match=r"bad\.yml"):
        faultbook.scenario(str(tmp_path / "bad.yml"))
