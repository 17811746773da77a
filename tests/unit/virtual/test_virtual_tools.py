"""The emulated tools, run as programs: what they print of a healthy node, a broken one, and one without a driver."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree.ElementTree import Element, fromstring

import pytest
import yaml

from metalyard.gate.parsers import host as host_parsers
from metalyard.plan.model import Node
from metalyard.plan.profile import Baseline, Profile
from metalyard.virtual import emulated, faultbook, image, models
from metalyard.virtual.hardware import save

PROFILE = image.packaged(Profile, "profiles", image.DEFAULT_PROFILE)
BASELINE = image.packaged(Baseline, "baselines", image.DEFAULT_BASELINE)
NODE: Node = emulated.default_node()
RUN = "import sys; sys.argv = sys.argv[1:]; from metalyard.virtual.tools import {} as tool; sys.exit(tool.main())"


class Machine:
    """A node's files below a folder, and its tools on them."""

    def __init__(self, folder: Path) -> None:
        self.model = models.generate(NODE, PROFILE, BASELINE)
        self.rack, self.share, self.run = (folder / name for name in ("rack", "share", "run"))
        self.share.mkdir()
        (self.share / "modules").mkdir()
        (self.share / "modules/kernel.json").write_text(json.dumps(emulated.KERNEL_MODULES))
        (self.run / "modules").mkdir(parents=True)
        self.save()

    def save(self) -> None:
        save(self.model, self.rack / "hardware.json")

    def fault(self, name: str, **arguments: object) -> None:
        placed = faultbook.Placed(node=NODE.name, fault=name, arguments=arguments)
        self.model = faultbook.apply_hardware(placed, self.model)
        self.save()

    def driver(self, library: str, loaded: str | None) -> None:
        (self.share / "nvidia-library-version").write_text(library + "\n")
        if loaded:
            (self.run / "modules/nvidia").write_text(loaded + "\n")

    def service(self, name: str) -> None:
        (self.run / f"{name}.pid").write_text(f"{os.getpid()}\n")

    def tool(self, module: str, *words: str) -> subprocess.CompletedProcess[str]:
        places = {"METALYARD_VIRTUAL_RACK": self.rack, "METALYARD_VIRTUAL_SHARE": self.share}
        return subprocess.run(
            [sys.executable, "-c", RUN.format(module), *words],
            env={
                **os.environ,
                **{name: str(path) for name, path in places.items()},
                "METALYARD_VIRTUAL_RUN": str(self.run),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def smi(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.tool("nvidia_smi", "nvidia-smi", *words)


def xml(text: str) -> Element:
    return fromstring(text)  # noqa: S314 - it comes from the tool under test


@pytest.fixture
def machine(tmp_path) -> Machine:
    made = Machine(tmp_path)
    made.driver(BASELINE.driver, BASELINE.driver)
    return made


def test_eight_gpus_are_listed_as_the_real_tool_lists_them(machine):
    done = machine.smi("-L")
    lines = done.stdout.splitlines()
    assert (done.returncode, len(lines)) == (0, 8)
    assert lines[5] == f"GPU 5: NVIDIA H100 80GB HBM3 (UUID: {machine.model.gpus[5].uuid})"


def test_a_lost_gpu_is_said_in_its_place_and_by_the_status(machine):
    machine.fault("gpu_off_bus", index=5)
    line = (
        "Unable to determine the device handle for GPU5: 0000:C3:00.0: GPU is lost.  Reboot the system to recover "
        "this GPU"
    )
    listed = machine.smi("-L")
    assert listed.returncode == 15
    assert [text for text in listed.stdout.splitlines() if not text.startswith("GPU ")] == [line]
    queried = machine.smi("--query-gpu=index,serial", "--format=csv,noheader")
    assert queried.returncode == 15
    assert queried.stdout.splitlines()[5] == line
    assert len(queried.stdout.splitlines()) == 8
    document = machine.smi("-q", "-x")
    root = xml(document.stdout)
    assert (document.returncode, document.stderr.strip()) == (15, line)
    assert root.findtext("attached_gpus") == "7"
    assert machine.model.gpus[5].serial not in [gpu.findtext("serial") for gpu in root.iter("gpu")]


def test_the_document_holds_what_the_model_says(machine):
    machine.fault("row_remap_failure", index=3)
    machine.fault("gpu_pcie_narrow", index=1, width=8)
    root = xml(machine.smi("-q", "-x").stdout)
    gpus = list(root.iter("gpu"))
    assert [gpu.findtext("uuid") for gpu in gpus] == [gpu.uuid for gpu in machine.model.gpus]
    assert [gpu.findtext("remapped_rows/remapped_row_failure") for gpu in gpus] == [*["No"] * 3, "Yes", *["No"] * 4]
    assert gpus[1].findtext("pci/pci_gpu_link_info/link_widths/current_link_width") == "8x"
    assert gpus[0].findtext("fabric/state") == "In Progress"
    machine.service("nv-fabricmanager")
    root = xml(machine.smi("-q", "-x").stdout)
    assert root.findtext("gpu/fabric/state") == "Completed"
    assert root.findtext("gpu/fabric/status") == "Success"


def test_a_query_has_units_in_heading_and_values_as_asked(machine):
    fields = "--query-gpu=index,memory.total,power.limit,pci.bus_id"
    first = machine.smi(fields, "--format=csv").stdout.splitlines()
    assert first[0] == "index, memory.total [MiB], power.limit [W], pci.bus_id"
    assert first[1] == "0, 81559 MiB, 700.00 W, 00000000:1B:00.0"
    assert machine.smi(fields, "--format=csv,noheader,nounits").stdout.splitlines()[0] == (
        "0, 81559, 700.00, 00000000:1B:00.0"
    )
    wrong = machine.smi("--query-gpu=index,warmth", "--format=csv")
    assert (wrong.returncode, wrong.stdout.splitlines()[0]) == (2, 'Field "warmth" is not a valid field to query.')


def test_one_gpu_can_be_asked_for(machine):
    assert machine.smi("-i", "3", "--query-gpu=index", "--format=csv,noheader").stdout == "3\n"
    assert machine.smi("-i", machine.model.gpus[6].uuid, "-L").stdout.startswith("GPU 6:")
    gone = machine.smi("-i", "11", "-L")
    assert (gone.returncode, gone.stdout) == (6, "No devices were found\n")


def test_nvlinks_that_are_down_are_inactive(machine):
    machine.fault("nvlink_down", index=2, active=16)
    done = machine.smi("nvlink", "-s")
    block = done.stdout.split("GPU 2:")[1].split("GPU 3:")[0]
    assert block.count("26.562 GB/s") == 16
    assert re.findall(r"Link (\d+): <inactive>", block) == ["16", "17"]
    assert done.stdout.count("26.562 GB/s") == 8 * 18 - 2


@pytest.mark.parametrize(
    ("loaded", "status", "said"),
    [(None, 9, "couldn't communicate with the NVIDIA driver"), ("570.86.15", 18, "Driver/library version mismatch")],
)
def test_without_its_driver_it_fails_as_the_real_one(tmp_path, loaded, status, said):
    machine = Machine(tmp_path)
    machine.driver(BASELINE.driver, loaded)
    done = machine.smi("-L")
    assert done.returncode == status
    assert said in done.stdout


def test_the_kernel_log_has_the_formats_of_dmesg(machine):
    machine.fault("gpu_off_bus")
    plain = machine.tool("kernel_log", "dmesg").stdout.splitlines()
    assert re.fullmatch(r"\[    0\.000000\] Linux version .*", plain[0])
    assert plain[-1].endswith("GPU has fallen off the bus.")
    iso = machine.tool("kernel_log", "dmesg", "--time-format", "iso").stdout.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:\d\d Linux version .*", iso[0])
    errors = machine.tool("kernel_log", "dmesg", "--level=err").stdout.splitlines()
    assert errors
    assert all("Xid" in line or "fallen off" in line for line in errors)
    entries = json.loads(machine.tool("kernel_log", "dmesg", "-J").stdout)["dmesg"]
    assert len(entries) == len(plain)
    assert machine.tool("kernel_log", "dmesg", "--clear").returncode == 1


def test_modules_load_with_what_they_need(machine):
    assert machine.tool("modules", "modprobe", "rdma_ucm").returncode == 0
    listed = machine.tool("modules", "lsmod").stdout.splitlines()
    assert listed[0] == "Module                  Size  Used by"
    assert {line.split()[0] for line in listed[1:]} >= {"rdma_ucm", "rdma_cm", "ib_core", "ib_uverbs"}
    assert next(line for line in listed if line.startswith("ib_uverbs")).split()[2:] == ["1", "rdma_ucm"]
    missing = machine.tool("modules", "modprobe", "floppy")
    assert (missing.returncode, "Module floppy not found" in missing.stderr) == (1, True)
    assert machine.tool("modules", "modprobe", "-r", "rdma_ucm").returncode == 0
    assert "rdma_ucm" not in machine.tool("modules", "lsmod").stdout


def test_parts_are_read_by_the_gates_parsers(machine):
    machine.fault("dimm_missing", index=11)
    machine.fault("drive_missing", index=4)
    memory = host_parsers.memory_devices(machine.tool("inventory", "dmidecode", "-t", "memory").stdout)
    assert len(memory) == 32
    assert [device.slot for device in memory if device.size_mib is None] == [machine.model.dimms[11].slot]
    drives = host_parsers.nvme_drives(machine.tool("inventory", "nvme", "list", "-o", "json").stdout)
    assert [drive.serial for drive in drives] == [drive.serial for drive in machine.model.drives]
    cpu = host_parsers.cpu(machine.tool("inventory", "lscpu", "-J").stdout)
    assert (cpu["Socket(s)"], cpu["Model name"]) == ("2", "Intel(R) Xeon(R) Platinum 8480C")
    health = json.loads(machine.tool("inventory", "nvme", "smart-log", "/dev/nvme2", "-o", "json").stdout)
    assert health["critical_warning"] == 0
    assert machine.tool("inventory", "nvme", "smart-log", "/dev/nvme99").returncode == 1


def test_the_link_shows_in_lspci_where_it_is_narrow(machine):
    machine.fault("gpu_pcie_narrow", index=0, width=4)
    done = machine.tool("inventory", "lspci", "-vv", "-s", "1b:00.0")
    assert "Width x4 (downgraded)" in done.stdout
    assert machine.tool("inventory", "lspci", "-d", "10de:").stdout.count("3D controller") == 8
    assert machine.tool("inventory", "lspci", "-d", "15b3:").stdout.count("Infiniband controller") == 8


def test_dcgm_needs_its_engine_and_sees_what_is_wrong(machine):
    alone = machine.tool("dcgmi", "dcgmi", "discovery", "-l")
    assert (alone.returncode, "Unable to connect to host engine" in alone.stdout) == (255, True)
    machine.service("nv-hostengine")
    assert machine.tool("dcgmi", "dcgmi", "discovery", "-l").stdout.startswith("8 GPUs found.\n")
    assert "Healthy" in machine.tool("dcgmi", "dcgmi", "health", "-c").stdout
    machine.fault("gpu_off_bus", index=5)
    assert machine.tool("dcgmi", "dcgmi", "discovery", "-l").stdout.startswith("7 GPUs found.\n")
    report = json.loads(machine.tool("dcgmi", "dcgmi", "health", "-c", "-j").stdout)
    assert report["body"]["Overall Health"]["value"] == "Failure"
    assert list(report["body"]["GPU"]["children"]) == ["5"]


def test_the_cdi_specification_names_every_gpu_that_is_there(machine, tmp_path):
    machine.fault("gpu_off_bus", index=5)
    target = tmp_path / "cdi" / "nvidia.yaml"
    done = machine.tool("container_toolkit", "nvidia-ctk", "cdi", "generate", f"--output={target}")
    assert done.returncode == 0, done.stderr
    document = yaml.safe_load(target.read_text())
    names = {device["name"] for device in document["devices"]}
    assert document["kind"] == "nvidia.com/gpu"
    assert names == {"all"} | {str(i) for i in range(8) if i != 5} | {
        gpu.uuid for gpu in machine.model.gpus if gpu.index != 5
    }
    as_json = machine.tool("container_toolkit", "nvidia-ctk", "cdi", "generate", "--format=json")
    assert json.loads(as_json.stdout) == document


def test_containerd_learns_the_runtime_once(machine, tmp_path):
    target = tmp_path / "config.toml"
    words = ("nvidia-ctk", "runtime", "configure", "--runtime=containerd", f"--config={target}", "--set-as-default")
    assert machine.tool("container_toolkit", *words).returncode == 0
    first = target.read_text()
    assert first.count("runtimes.nvidia]") == 1
    assert first.count('default_runtime_name = "nvidia"') == 1
    assert machine.tool("container_toolkit", *words).returncode == 0
    assert target.read_text() == first


def test_daemons_refuse_what_the_real_ones_refuse(machine):
    (machine.share / "fabricmanager-version").write_text("570.86.15\n")
    wrong = machine.tool("daemons", "nv-fabricmanager")
    assert (wrong.returncode, "don't match with driver version 570.195.03" in wrong.stderr) == (1, True)
    (machine.run / "modules/nvidia").unlink()
    assert machine.tool("daemons", "nv-fabricmanager").returncode == 1
    assert machine.tool("daemons", "nvidia-persistenced").returncode == 1


def test_a_node_without_a_model_says_so(machine):
    (machine.rack / "hardware.json").unlink()
    done = machine.tool("inventory", "nvme", "list")
    assert (done.returncode, "no hardware model" in done.stderr) == (70, True)
