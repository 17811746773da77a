"""Hardware models: the same at every start, and what plan, profile and baseline say."""

from __future__ import annotations

from pathlib import Path

from metalyard.plan import load_plan
from metalyard.plan.catalogue import load_baseline, load_profile
from metalyard.virtual import models
from metalyard.virtual.hardware import load, save

PLAN = load_plan(Path(__file__).parents[3] / "inventory" / "virtual")
BASELINE = load_baseline(PLAN)


def model(name: str = "gpu-r01-1", **firmware: str):
    node = PLAN.node(name)
    return models.generate(node, load_profile(PLAN, node.profile), BASELINE, firmware=firmware)


def test_a_model_is_the_same_at_every_start_and_no_two_nodes_share_a_part():
    assert model() == model()
    serials = [
        part.serial
        for node in PLAN.nodes
        for part in (*model(node.name).gpus, *model(node.name).dimms, *model(node.name).drives, *model(node.name).hcas)
    ]
    assert len(serials) == len(PLAN.nodes) * (8 + 32 + 8 + 8)
    assert len(set(serials)) == len(serials)


def test_a_model_is_what_the_profile_and_the_baseline_say():
    made = model()
    profile = load_profile(PLAN, "dgx-h100")
    assert len(made.gpus) == profile.gpu.count
    assert len(made.dimms) == profile.memory.dimm_count
    assert len({dimm.slot for dimm in made.dimms}) == profile.memory.dimm_count
    assert made.bios == profile.bios
    assert made.firmware["HostBIOS_0"] == "1.6.7"
    assert {gpu.vbios for gpu in made.gpus} == {"96.00.A5.00.01"}
    assert [hca.guid for hca in made.hcas] == list(PLAN.node("gpu-r01-1").hca_guids.values())


def test_firmware_that_is_behind_shows_in_the_parts_too():
    made = model(HostBIOS_0="1.5.1", HGX_FW_GPU_SXM_3="96.00.89.00.01")
    assert made.firmware["HostBIOS_0"] == "1.5.1"
    assert [gpu.index for gpu in made.gpus if gpu.vbios == "96.00.89.00.01"] == [2]
    assert any("BIOS 1.5.1" in line for line in made.kernel_log)


def test_a_model_survives_its_file_and_others_may_read_it(tmp_path):
    path = tmp_path / "gpu-r01-1" / "hardware.json"
    save(model(), path)
    assert load(path) == model()
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.parent.stat().st_mode & 0o777 == 0o755


def test_sysfs_holds_what_the_model_says_and_follows_it(tmp_path):
    made = model()
    models.write_sysfs(tmp_path / "ib", models.sysfs_infiniband(made))
    assert (tmp_path / "ib/mlx5_0/ports/1/state").read_text() == "4: ACTIVE\n"
    assert (tmp_path / "ib/mlx5_0/ports/1/rate").read_text() == "400 Gb/sec (4X NDR)\n"
    assert (tmp_path / "ib/mlx5_7/node_guid").read_text() == "b83f:d203:0001:0107\n"
    untouched = (tmp_path / "ib/mlx5_0/ports/1/state").stat().st_ino
    made.hcas[3].state, made.hcas[3].physical_state, made.hcas[3].rate_gbps = "Down", "Polling", 10
    made.hcas.pop()
    models.write_sysfs(tmp_path / "ib", models.sysfs_infiniband(made))
    assert (tmp_path / "ib/mlx5_3/ports/1/phys_state").read_text() == "2: Polling\n"
    assert (tmp_path / "ib/mlx5_3/ports/1/lid").read_text() == "0x0\n"
    assert not (tmp_path / "ib/mlx5_7").exists()
    assert (tmp_path / "ib/mlx5_0/ports/1/state").stat().st_ino == untouched
