"""The virtual rack, for real: a machine from power-on over cloud-init to SSH, the fabric, faults, and nothing left."""

from __future__ import annotations

import asyncio
import subprocess
import time
from typing import Any

import pytest

from metalyard.maas import operations as maas
from metalyard.plan import load_plan
from metalyard.redfish import operations as redfish
from metalyard.secrets import FileSecretStore
from metalyard.sweep import Context, HostResult
from metalyard.virtual import host, rack
from tests.e2e.conftest import PLAN, Site

pytestmark = pytest.mark.rack

NODE = "gpu-r02-1"


class Shell:
    """Runs commands on hosts of the rack as the plan's SSH user does."""

    def __init__(self) -> None:
        self.plan = load_plan(PLAN)

    def __call__(self, name: str, command: str, *, check: bool = True) -> str:
        addresses = {entry.name: entry.address for entry in self.plan.hosts}
        addresses |= {node.name: node.address.split("/")[0] for node in self.plan.nodes}
        options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "ConnectTimeout=10")
        done = subprocess.run(
            [
                "ssh",
                *(word for option in options for word in ("-o", option)),
                "-i",
                str(self.plan.path(self.plan.ssh.key)),
                f"{self.plan.ssh.user}@{addresses[name]}",
                command,
            ],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        if check:
            assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout


@pytest.fixture(scope="module")
def shell() -> Shell:
    return Shell()


@pytest.fixture(scope="module")
def node(site: Site, tmp_path_factory) -> dict[str, HostResult]:
    """One machine taken through discovery, configuration and deployment; results by operation."""
    plan = load_plan(PLAN)
    store = FileSecretStore(tmp_path_factory.mktemp("secrets"))
    results: dict[str, HostResult] = {}
    steps: tuple[tuple[Any, dict[str, Any]], ...] = (
        (redfish.discover, {}),
        (redfish.configure, {"reset": "now"}),
        (maas.provision, {}),
    )
    for operation, options in steps:
        reported: list[HostResult] = []
        context = Context(plan=plan, nodes=[plan.node(NODE)], secrets=store, report=reported.append, options=options)
        asyncio.run(operation(context))
        assert len(reported) == 1
        assert not reported[0].failed, reported[0].message
        results[operation.__name__] = reported[0]
    return results


def containers() -> dict[str, str]:
    """Names and ids of the rack's containers."""
    done = subprocess.run(
        host.podman("ps", "--all", "--filter=label=metalyard.rack=virtual", "--format={{.Names}} {{.ID}}"),
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split() for line in done.stdout.splitlines())


def test_a_second_up_leaves_everything_as_it_is(site: Site):
    before = containers()
    status = site.metalyard("virtual", "status", "--json").stdout
    done = site.metalyard("virtual", "up", check=True)
    assert containers() == before
    assert set(before) == {"sm-1", "virtual-registry", "virtual-clock"}
    assert "up to date" in done.stdout
    assert site.metalyard("virtual", "status", "--json").stdout == status


def test_the_fabric_is_the_plans_with_the_demos_swap(site: Site, shell: Shell):
    text = shell("sm-1", "ibnetdiscover")
    assert text.count("\nCa\t") == 64
    assert text.count("\nSwitch\t") == 6
    assert "4xNDR" in text
    swapped = text.split('# "gpu-r02-3 mlx5_0"\n')[1].splitlines()[0]
    assert '"leaf-2"' in swapped


def test_a_cable_fault_shows_at_once_and_is_gone_after(site: Site, shell: Shell):
    site.metalyard("virtual", "fault", "gpu-r01-1", "cable_degraded", "device=mlx5_4", "width=1x", check=True)
    assert "gpu-r01-1 mlx5_4" in shell("sm-1", "ibnetdiscover | grep ' 1xNDR'")
    site.metalyard("virtual", "fault", "gpu-r01-1", "cable_degraded", "--clear", check=True)
    assert " 1xNDR" not in shell("sm-1", "ibnetdiscover")


def test_a_machine_is_deployed_through_bmc_region_and_cloud_init(site: Site, shell: Shell, node):
    assert node["provision"].changed
    assert shell(NODE, "hostname").strip() == NODE
    assert shell(NODE, "systemctl is-system-running").strip() == "running"
    assert f"node: {NODE}" in shell(NODE, "cat /etc/metalyard/node")


def test_its_packages_need_nothing_from_outside(site: Site, shell: Shell, node):
    names = "nvidia-driver-570-server-open nvidia-fabricmanager-570 infiniband-diags chrony containerd"
    shell(NODE, f"sudo apt-get update -qq && sudo apt-get install -y -qq {names} >/dev/null")
    shell(NODE, "sudo systemctl start nvidia-fabricmanager")
    assert shell(NODE, "sudo ibstat -l").split() == [f"mlx5_{index}" for index in range(8)]


def test_faults_show_in_the_tools(site: Site, shell: Shell, node):
    listed = shell(NODE, "nvidia-smi -L", check=False)
    assert len([line for line in listed.splitlines() if line.startswith("GPU ")]) == 7
    assert "79, pid=" in shell(NODE, "sudo dmesg")
    site.metalyard("virtual", "fault", NODE, "gpu_off_bus", "--clear", check=True)
    assert len(shell(NODE, "nvidia-smi -L").splitlines()) == 8
    site.metalyard("virtual", "fault", NODE, "cable_unplugged", "device=mlx5_6", check=True)
    assert "Down" in shell(NODE, "sudo ibstat mlx5_6")
    site.metalyard("virtual", "fault", NODE, "cable_unplugged", "--clear", check=True)
    assert "Active" in shell(NODE, "sudo ibstat mlx5_6")


def test_its_kernel_settings_are_its_own(site: Site, shell: Shell, node):
    with open("/proc/sys/vm/swappiness", encoding="ascii") as stream:
        before = stream.read()
    shell(NODE, "sudo sysctl -w vm.swappiness=11")
    assert shell(NODE, "cat /proc/sys/vm/swappiness").strip() == "11"
    with open("/proc/sys/vm/swappiness", encoding="ascii") as stream:
        assert stream.read() == before


def test_its_clock_is_measured_and_never_set(site: Site, shell: Shell, node):
    shell(NODE, "echo 'server 10.231.0.1 iburst' | sudo tee /etc/chrony/conf.d/rack.conf >/dev/null")
    shell(NODE, "sudo systemctl restart chrony && chronyc -a waitsync 20 0.05 0 1 >/dev/null")
    assert "Disabled control of system clock" in shell(NODE, "sudo journalctl -u chrony --no-pager")


def test_a_reboot_from_inside_comes_back(site: Site, shell: Shell, node):
    before = shell(NODE, "cut -d' ' -f22 /proc/1/stat").strip()
    shell(NODE, "sudo systemctl reboot", check=False)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if shell(NODE, "systemctl is-system-running --wait", check=False).strip() == "running":
            break
        time.sleep(1)
    assert shell(NODE, "cut -d' ' -f22 /proc/1/stat").strip() != before
    assert len(shell(NODE, "nvidia-smi -L").splitlines()) == 8


def test_a_killed_process_is_started_again_and_machines_stay(site: Site, shell: Shell, node):
    plan = load_plan(PLAN)
    before = containers()
    pid = int((site.home / "daemon.pid").read_text().split()[0])
    subprocess.run(["kill", "-9", str(pid)], check=True)
    assert rack.status(plan, site.home)["running"] is False
    site.metalyard("virtual", "up", check=True)
    found = rack.status(plan, site.home)
    assert found["running"]
    assert found["nodes"][NODE] == {"power": "On", "container": "running"}
    assert containers() == before


def test_what_is_wrong_is_said(site: Site):
    unknown = site.metalyard("virtual", "fault", "gpu-r01-1", "gpu_on_fire")
    assert unknown.returncode != 0
    assert "gpu_off_bus" in unknown.stderr + unknown.stdout
    other = site.metalyard("virtual", "up", "--scenario", "healthy")
    assert other.returncode != 0
    assert "virtual down" in other.stderr + other.stdout


def test_down_leaves_nothing_that_runs(site: Site):
    pid = (site.home / "daemon.pid").read_text().split()[0]
    site.metalyard("virtual", "down", check=True)
    assert containers() == {}
    # A process that has ended stays in the table until its parent, here the machine's init, has taken note.
    state = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True, check=False).stdout.strip()
    assert state[:1] in ("", "Z")
    site.metalyard("virtual", "down", check=True)
