"""A machine's power and boots, with podman played by a double; and the rack's clock."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from metalyard.plan.profile import Baseline, Profile
from metalyard.virtual import emulated, host, image, models, nodes, timeserver
from metalyard.virtual.hardware import save
from metalyard.virtual.machine import BootAction, BootSource, Machine, Provisioner

PXE, DISK = BootSource("Pxe"), BootSource("Hdd")


class Podman:
    """Keeps containers as podman does, as far as a machine asks."""

    def __init__(self) -> None:
        self.containers: dict[str, bool] = {}
        self.calls: list[tuple[str, ...]] = []
        self.cloud_init = "status: done\n"
        self.delay = 0.0
        self.fail = ""
        self.busy = 0
        self.pid = os.getpid()
        self.exit_code = 0

    async def __call__(self, *words: str, deadline: float = 1, check: bool = True, stdin: bytes | None = None):
        self.calls.append(words)
        verb, name = words[0], words[-1]
        if verb == "rm" and self.busy:
            self.busy -= 1
            return host.Finished(125, "", "device or resource busy")
        if verb == self.fail:
            raise host.CommandError(f"podman {verb}: exit status 125: no space left on device")
        out, status = "", 0
        if verb == "create":
            name = next(word.split("=")[1] for word in words if word.startswith("--name="))
            self.containers[name] = False
        elif verb == "start":
            self.containers[name] = True
        elif verb in ("stop", "kill") and name in self.containers:
            self.containers[name] = False
        elif verb == "rm":
            self.containers.pop(name, None)
        elif verb == "container":
            status = 0 if name in self.containers else 1
        elif verb == "inspect" and "Pid" in words[1]:
            out = str(self.pid if self.containers.get(name) else 0)
        elif verb == "inspect":
            out = str(self.containers.get(name, "")).lower()
            out += f" {self.exit_code}" if "ExitCode" in words[1] else ""
        elif verb == "exec" and "cloud-init" in words[-1]:
            await asyncio.sleep(self.delay)
            out = self.cloud_init
        elif verb == "exec":
            out = "active\n"
        return host.Finished(status, out, "")


class Region:
    """Says what to boot and remembers what it was told."""

    def __init__(self, *actions: BootAction) -> None:
        self.actions = list(actions)
        self.heard: list[tuple[str, Any]] = []

    async def boot(self, mac: str) -> BootAction:
        return self.actions.pop(0) if self.actions else BootAction("none")

    async def commissioned(self, mac: str, hardware: dict[str, Any]) -> None:
        self.heard.append(("commissioned", hardware["serial"]))

    async def deployed(self, mac: str) -> None:
        self.heard.append(("deployed", mac))

    async def failed(self, mac: str, reason: str) -> None:
        self.heard.append(("failed", reason))


DEPLOY = BootAction("deploy", b"#cloud-config\nusers: []\n", "gpu-1", instance_id="abc-1", ssh_keys=["ssh-ed25519 A"])


@pytest.fixture
def podman(monkeypatch) -> Podman:
    double = Podman()
    monkeypatch.setattr(host, "run_podman", double)
    nodes.ContainerMachine._starts = None
    return double


def machine(tmp_path: Path, region: Region, **timings: float) -> nodes.ContainerMachine:
    profile = image.packaged(Profile, "profiles", image.DEFAULT_PROFILE)
    baseline = image.packaged(Baseline, "baselines", image.DEFAULT_BASELINE)
    save(models.generate(emulated.default_node(), profile, baseline), tmp_path / "node" / "hardware.json")
    place = nodes.Place(
        site="test",
        node="gpu-1",
        mac="0c:42:a1:00:00:01",
        address="10.231.0.101/24",
        model=tmp_path / "node",
        repository=tmp_path / "apt",
        seed=tmp_path / "seed",
        network="metalyard-virtual-1",
        timings=nodes.Timings(**{"commission": 0.01, **timings}),
    )
    made = nodes.ContainerMachine(place, lambda: region, lambda text: None)
    assert isinstance(made, Machine)
    assert isinstance(region, Provisioner)
    return made


_sleep = asyncio.sleep


async def _at_once(seconds: float) -> None:
    await _sleep(0)


async def settled(made: nodes.ContainerMachine) -> None:
    if made._boot is not None:
        await asyncio.wait_for(asyncio.shield(made._boot), 5)


async def test_commissioning_reports_the_hardware_and_leaves_no_disk(tmp_path, podman):
    region = Region(BootAction("commission"))
    made = machine(tmp_path, region)
    await made.power_on(PXE)
    assert made.power_state == "On"
    await settled(made)
    assert region.heard == [("commissioned", "1660000000000")]
    assert podman.containers == {}


async def test_a_deployment_makes_the_disk_with_its_seed_and_reports(tmp_path, podman):
    region = Region(DEPLOY)
    made = machine(tmp_path, region)
    await made.power_on(PXE)
    await settled(made)
    assert region.heard == [("deployed", "0c:42:a1:00:00:01")]
    assert podman.containers == {"gpu-1": True}
    assert (tmp_path / "seed/user-data").read_bytes() == DEPLOY.user_data
    meta = yaml.safe_load((tmp_path / "seed/meta-data").read_text())
    assert meta == {"instance-id": "abc-1", "local-hostname": "gpu-1", "public-keys": ["ssh-ed25519 A"]}
    assert (tmp_path / "seed").stat().st_mode & 0o777 == 0o700
    create = next(call for call in podman.calls if call[0] == "create")
    assert "--network=metalyard-virtual-1:ip=10.231.0.101,mac=0c:42:a1:00:00:01" in create
    assert f"--volume={tmp_path / 'node'}:/opt/virtual-rack:ro" in create


async def test_a_second_deployment_starts_from_an_empty_disk(tmp_path, podman):
    region = Region(DEPLOY, DEPLOY)
    made = machine(tmp_path, region)
    for _ in range(2):
        await made.power_on(PXE)
        await settled(made)
        await made.power_off(graceful=False)
    verbs = [call[0] for call in podman.calls if call[0] in ("rm", "create", "start")]
    assert verbs == ["rm", "create", "start"] * 2


async def test_a_boot_from_disk_starts_what_is_there_and_nothing_else(tmp_path, podman):
    region = Region(DEPLOY)
    made = machine(tmp_path, region)
    await made.power_on(DISK)
    await settled(made)
    assert podman.containers == {}
    await made.power_off(graceful=True)
    await made.power_on(PXE)
    await settled(made)
    await made.power_off(graceful=True)
    assert (podman.containers, made.power_state) == ({"gpu-1": False}, "Off")
    await made.power_on(DISK)
    await settled(made)
    assert podman.containers == {"gpu-1": True}
    assert [call[0] for call in podman.calls].count("create") == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cloud_init": "status: error\ndetail:\nmodule users_groups failed\n"}, "module users_groups failed"),
        ({"fail": "create"}, "no space left"),
        ({"delay": 5.0}, "not done in time"),
    ],
)
async def test_a_deployment_that_fails_is_told_to_the_region(tmp_path, podman, change, said):
    vars(podman).update(change)
    region = Region(DEPLOY)
    made = machine(tmp_path, region, deploy_deadline=0.3)
    await made.power_on(PXE)
    await settled(made)
    assert [what for what, _ in region.heard] == ["failed"]
    assert said in region.heard[0][1]
    assert made.power_state == "On"


async def test_power_off_in_the_middle_of_a_deployment_ends_it_in_silence(tmp_path, podman):
    podman.delay = 5.0
    region = Region(DEPLOY)
    made = machine(tmp_path, region)
    await made.power_on(PXE)
    await asyncio.sleep(0.05)
    await made.power_off(graceful=False)
    assert (region.heard, podman.containers["gpu-1"], made.power_state) == ([], False, "Off")


async def test_a_container_that_is_still_being_cleaned_up_is_removed_in_the_end(tmp_path, podman, monkeypatch):
    monkeypatch.setattr(nodes.asyncio, "sleep", _at_once)
    podman.busy = 3
    region = Region(DEPLOY)
    made = machine(tmp_path, region)
    await made.power_on(PXE)
    await settled(made)
    assert [what for what, _ in region.heard] == ["deployed"]


async def test_a_command_of_podman_is_never_cut_short(tmp_path, podman, monkeypatch):
    """A container that is being made when the power goes is made to its end, and then killed."""
    ended: list[str] = []
    plain = podman.__call__

    async def slow(*words: str, **options: Any) -> host.Finished:
        if words[0] == "create":
            await asyncio.sleep(0.2)
            ended.append("create")
        return await plain(*words, **options)

    monkeypatch.setattr(host, "run_podman", slow)
    made = machine(tmp_path, Region(DEPLOY))
    await made.power_on(PXE)
    await asyncio.sleep(0.05)
    await made.power_off(graceful=False)
    assert ended == ["create"]
    assert podman.containers == {"gpu-1": False}


async def test_power_is_idempotent(tmp_path, podman):
    region = Region(DEPLOY, DEPLOY)
    made = machine(tmp_path, region)
    await made.power_off(graceful=False)
    await asyncio.gather(*(made.power_on(PXE) for _ in range(3)))
    await settled(made)
    assert len(region.heard) == 1
    await asyncio.gather(*(made.power_off(graceful=False) for _ in range(3)))
    assert made.power_state == "Off"


async def test_a_reboot_from_inside_comes_back_and_a_shutdown_stays_off(tmp_path, podman):
    made = machine(tmp_path, Region(DEPLOY))
    await made.power_on(PXE)
    await settled(made)
    podman.containers["gpu-1"] = False
    await made.exited(nodes.REBOOTED)
    await settled(made)
    assert (podman.containers["gpu-1"], made.power_state) == (True, "On")
    podman.containers["gpu-1"] = False
    await made.exited(130)
    assert made.power_state == "Off"


@pytest.mark.parametrize(("code", "state"), [(nodes.REBOOTED, "On"), (130, "Off")])
async def test_the_end_of_a_containers_init_is_heard(tmp_path, podman, code, state):
    made = machine(tmp_path, Region(DEPLOY))
    init = await asyncio.create_subprocess_exec("sleep", "60")
    podman.pid = init.pid
    await made.power_on(PXE)
    await settled(made)
    podman.containers["gpu-1"], podman.exit_code, podman.pid = False, code, os.getpid()
    init.kill()
    await init.wait()
    for _ in range(100):
        if made.power_state == state and podman.containers["gpu-1"] == (state == "On"):
            break
        await asyncio.sleep(0.05)
    assert (made.power_state, podman.containers["gpu-1"]) == (state, state == "On")
    await made.detach()


async def test_a_new_daemon_takes_up_machines_that_run(tmp_path, podman):
    podman.containers["gpu-1"] = True
    made = machine(tmp_path, Region())
    assert made.power_state == "Off"
    await made.recover()
    assert made.power_state == "On"
    await made.detach()


def test_the_reason_of_a_failure_is_one_line():
    assert nodes.cloud_init_failure("status: error\ndetail:\n  a\n  b\n") == "a b"
    assert nodes.cloud_init_failure("") == "cloud-init said nothing"


async def test_the_clock_answers_as_ntp_does():
    server = timeserver.TimeServer()
    port = await server.start("127.0.0.1", 0)
    answers: asyncio.Queue[bytes] = asyncio.Queue()

    class Client(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            answers.put_nowait(data)

    loop = asyncio.get_running_loop()
    client, _ = await loop.create_datagram_endpoint(Client, remote_addr=("127.0.0.1", port))
    try:
        client.sendto(b"short")
        client.sendto(bytes([0x24]) + bytes(47))
        client.sendto(bytes([0x23]) + bytes(39) + struct.pack("!Q", 12345))
        data = await asyncio.wait_for(answers.get(), 5)
    finally:
        client.close()
        server.stop()
    head, stratum, _, _, _, _, _, _, origin, received, sent = timeserver.PACKET.unpack(data)
    assert (head & 7, (head >> 3) & 7, stratum, origin) == (4, 4, timeserver.STRATUM, 12345)
    assert abs(received / 2**32 - timeserver.NTP_EPOCH - time.time()) < 1
    assert received <= sent
    assert answers.empty()


async def test_a_command_that_hangs_is_ended(tmp_path):
    started = time.monotonic()
    with pytest.raises(host.CommandError, match="not done within"):
        await host.run(["sleep", "60"], deadline=0.2)
    assert time.monotonic() - started < 10
    with pytest.raises(host.CommandError, match="exit status 3: broken"):
        await host.run(["sh", "-c", "echo broken >&2; exit 3"])
    assert (await host.run(["cat"], stdin=b"hello")).stdout == "hello"


def test_what_is_missing_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr(host, "_which", lambda program: None if program == "mmdebstrap" else "/bin/true")
    assert "mmdebstrap" in host.missing()
    monkeypatch.setattr(host.shutil, "which", lambda program, path=None: None)
    with pytest.raises(host.HostError, match="mmdebstrap"):
        host.prepare(lambda text: None)


def test_containers_are_called_with_the_racks_settings():
    assert host.CONTAINERS_CONF.is_file()
    assert f"CONTAINERS_CONF={host.CONTAINERS_CONF}" in host.podman("ps")
    assert json.dumps(host.podman("ps")[-2:]) == '["podman", "ps"]'
