"""Virtual machines: containers of the node image under a BMC's power switch.

A boot from the network asks the provisioner; a deployment makes the container anew, with a NoCloud seed for the real
cloud-init, and is over when cloud-init is through and sshd answers. A boot from disk starts the container there is.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import os
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metalyard.files import write_atomically
from metalyard.virtual import host, image, packages
from metalyard.virtual.hardware import Hardware, load
from metalyard.virtual.machine import BootAction, BootSource, PowerState, Provisioner

NETWORK = "metalyard-virtual"
"""What the names of racks' networks begin with."""
RACK_LABEL = "metalyard.rack"
NODE_LABEL = "metalyard.node"
RACK_MOUNT = "/opt/virtual-rack"
SEED = "/var/lib/cloud/seed/nocloud"

REBOOTED = 129
"""Exit status of a container whose init called reboot(2): the kernel ends a PID namespace with SIGHUP for it."""

PARALLEL_STARTS = 4
"""Containers that are made at once: more of them only slow each other down."""


REMOVAL_TRIES = 20


async def _whole(work: Coroutine[Any, Any, Any]) -> None:
    """Do it to its end, also when the caller is cancelled meanwhile: podman cut short leaves mounts behind."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


@dataclass
class Timings:
    """How long things take, in seconds; a test sets them low."""

    commission: float = 2.0
    deploy_deadline: float = 240.0
    stop: int = 10


@dataclass
class Place:
    """Where a machine's things are, and what it is called. All paths are on the machine that carries the rack."""

    site: str
    node: str
    mac: str
    address: str
    """Planned, with prefix."""
    model: Path
    """The folder that holds ``hardware.json``; the container has it at ``/opt/virtual-rack``, read-only."""
    repository: Path
    seed: Path
    network: str
    image: str = image.IMAGE
    timings: Timings = field(default_factory=Timings)


def container_arguments(place: Place, address: str) -> list[str]:
    """The arguments of ``podman create`` for a node; without a MAC it gets any."""
    mac = f",mac={place.mac}" if place.mac else ""
    return [
        "create",
        f"--name={place.node}",
        f"--hostname={place.node}",
        f"--label={RACK_LABEL}={place.site}",
        f"--label={NODE_LABEL}={place.node}",
        "--systemd=always",
        "--privileged",
        f"--network={place.network}:ip={ipaddress.ip_interface(address).ip}{mac}",
        "--log-driver=none",
        f"--volume={place.model}:{RACK_MOUNT}:ro",
        f"--volume={place.repository}:{packages.MOUNT}:ro",
        f"--volume={place.seed}:{SEED}:ro",
        place.image,
        "/sbin/init",
    ]


def write_seed(folder: Path, action: BootAction, node: str) -> None:
    """The NoCloud seed of a deployment: what the region's metadata service would say."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    meta: dict[str, Any] = {
        "instance-id": action.instance_id or node,
        "local-hostname": action.hostname or node,
    }
    if action.ssh_keys:
        meta["public-keys"] = action.ssh_keys
    write_atomically(folder / "meta-data", json.dumps(meta, indent=1).encode() + b"\n")
    write_atomically(folder / "user-data", action.user_data or b"#cloud-config\n{}\n")


def cloud_init_failure(status: str) -> str:
    """What went wrong, in one line, from ``cloud-init status --long``."""
    lines = [line.strip() for line in status.splitlines() if line.strip()]
    after = [lines[index + 1 :] for index, line in enumerate(lines) if line == "detail:"]
    detail = " ".join(after[0]) if after and after[0] else " ".join(lines)
    return detail[:400] or "cloud-init said nothing"


class ContainerMachine:
    """One machine; implements :class:`~metalyard.virtual.machine.Machine`."""

    _starts: asyncio.Semaphore | None = None

    def __init__(self, place: Place, provisioner: Callable[[], Provisioner], say: Callable[[str], None]) -> None:
        self.node = place.node
        self.place = place
        self._provisioner = provisioner
        self._say = say
        self._state: PowerState = "Off"
        self._switch = asyncio.Lock()
        self._boot: asyncio.Task[None] | None = None
        self._end: asyncio.Task[None] | None = None
        self._init: int | None = None
        self.last_boot = ""
        """What the machine did at its last power on, for people."""

    @property
    def power_state(self) -> PowerState:
        """As the BMC reports it."""
        return self._state

    def hardware(self) -> Hardware:
        """The model as it is now."""
        return load(self.place.model / "hardware.json")

    async def recover(self) -> None:
        """Take up the container that a former daemon left: a machine that runs is on."""
        self._state = "On" if await self._running() else "Off"
        if self._state == "On":
            await self._watch()

    async def power_on(self, boot: BootSource) -> None:
        """Switch on and boot in the background; nothing when it is on."""
        async with self._switch:
            if self._state == "On":
                return
            self._state = "PoweringOn"
            self._boot = asyncio.create_task(self._run_boot(boot), name=f"boot {self.node}")
            self._state = "On"

    async def power_off(self, graceful: bool) -> None:
        """Switch off; what a boot was doing ends where it is."""
        async with self._switch:
            if self._state == "Off":
                return
            self._state = "PoweringOff"
            self._unwatch()
            await self._end_boot()
            with contextlib.suppress(host.CommandError):
                if graceful:
                    await host.run_podman("stop", "-t", str(self.place.timings.stop), self.node, check=False)
                else:
                    await host.run_podman("kill", "--signal=KILL", self.node, check=False)
            for _ in range(100):
                if not await self._running():
                    break
                await asyncio.sleep(0.1)
            self._state = "Off"

    async def _watch(self) -> None:
        """Hear of the end of the container's init, by a descriptor of its process."""
        self._unwatch()
        found = await host.run_podman("inspect", "--format={{.State.Pid}}", self.node, check=False)
        try:
            self._init = os.pidfd_open(int(found.stdout.strip() or 0))
        except (OSError, ValueError):
            # It has ended already.
            self._end = asyncio.create_task(self._ended(), name=f"end of {self.node}")
            return
        asyncio.get_running_loop().add_reader(self._init, self._heard)

    def _heard(self) -> None:
        self._unwatch()
        self._end = asyncio.create_task(self._ended(), name=f"end of {self.node}")

    def _unwatch(self) -> None:
        if self._init is not None:
            asyncio.get_running_loop().remove_reader(self._init)
            os.close(self._init)
            self._init = None

    async def _ended(self) -> None:
        """The init is gone: once podman has noticed, act on its exit status."""
        for _ in range(100):
            found = await host.run_podman(
                "inspect", "--format={{.State.Running}} {{.State.ExitCode}}", self.node, check=False
            )
            running, _, status = found.stdout.strip().partition(" ")
            if running == "false":
                await self.exited(int(status or 0))
                return
            if not running:
                return
            await asyncio.sleep(0.1)

    async def exited(self, status: int) -> None:
        """The container ended by itself: a reboot starts it again, a shutdown is a machine that is off."""
        async with self._switch:
            if self._state != "On" or await self._running():
                return
            if self._boot is not None and not self._boot.done():
                # A deployment that is under way finds out by itself, and tells the region.
                return
            if status == REBOOTED:
                self._boot = asyncio.create_task(self._run_boot(BootSource("Hdd")), name=f"reboot {self.node}")
            else:
                self._state = "Off"
                self._say(f"{self.node}: shut down from inside")

    async def detach(self) -> None:
        """End the machine's own tasks and leave the container as it is."""
        self._unwatch()
        await self._end_boot()
        if self._end is not None and not self._end.done():
            self._end.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._end

    async def _end_boot(self) -> None:
        task, self._boot = self._boot, None
        if task is not None and not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run_boot(self, boot: BootSource) -> None:
        """Boot; whatever fails is told to the provisioner, or to people where that is not its business."""
        action = BootAction("local")
        provisioner = self._provisioner()
        try:
            if boot.network:
                action = await provisioner.boot(self.place.mac)
            self._say(f"{self.node}: boots from {boot.target}: {action.kind}")
            self.last_boot = action.kind
            if action.kind == "commission":
                await asyncio.sleep(self.place.timings.commission)
                await provisioner.commissioned(self.place.mac, self.hardware().model_dump())
            elif action.kind == "deploy":
                async with asyncio.timeout(self.place.timings.deploy_deadline):
                    await self._deploy(action)
                self._say(f"{self.node}: deployed")
                await provisioner.deployed(self.place.mac)
            elif action.kind == "local":
                await self._start_existing()
        except Exception as error:  # the machine stands there as a real one would: on, and of no use
            reason = "not done in time" if isinstance(error, TimeoutError) else f"{error or type(error).__name__}"
            if "is already allocated to container" in reason:
                # A podman that was killed between taking the address and writing its container down.
                reason += (
                    "; where podman has no such container, 'metalyard virtual down' and then 'up' "
                    "give the rack another network"
                )
            self._say(f"{self.node}: {action.kind} failed: {reason}")
            if action.kind in ("commission", "deploy"):
                with contextlib.suppress(Exception):
                    await provisioner.failed(self.place.mac, reason)

    async def _deploy(self, action: BootAction) -> None:
        if ContainerMachine._starts is None:
            ContainerMachine._starts = asyncio.Semaphore(PARALLEL_STARTS)
        write_seed(self.place.seed, action, self.node)
        address = action.addresses[0] if action.addresses else self.place.address
        async with ContainerMachine._starts:
            await _whole(self.remove())
            command = container_arguments(self.place, _with_prefix(address, self.place.address))
            await _whole(host.run_podman(*command))
            await _whole(host.run_podman("start", self.node))
        await self._watch()
        await self._settle()

    async def _settle(self) -> None:
        """Wait until cloud-init is through and sshd runs; the deadline is the caller's."""
        wait = "cloud-init status --wait >/dev/null 2>&1; exec cloud-init status --long"
        deadline = self.place.timings.deploy_deadline
        done = await host.run_podman("exec", self.node, "sh", "-c", wait, deadline=deadline, check=False)
        if "status: done" not in done.stdout:
            raise host.CommandError(f"cloud-init did not finish: {cloud_init_failure(done.stdout or done.stderr)}")
        ssh = await host.run_podman("exec", self.node, "systemctl", "is-active", "ssh.service", check=False)
        if ssh.stdout.strip() != "active":
            raise host.CommandError(f"sshd is {ssh.stdout.strip() or 'not there'} after cloud-init")

    async def _start_existing(self) -> None:
        if not await self.exists():
            self._say(f"{self.node}: no bootable device: nothing has been deployed")
            return
        await _whole(host.run_podman("start", self.node))
        await self._watch()

    async def exists(self) -> bool:
        """Whether something has been deployed on the machine's disk."""
        return (await host.run_podman("container", "exists", self.node, check=False)).status == 0

    async def remove(self) -> None:
        """Wipe the disk. ``-t 0``: a parallel removal with a grace period leaves some containers behind in silence.

        A container that has just been killed is still being unmounted by podman's own cleanup: tried again then.
        """
        for left in reversed(range(REMOVAL_TRIES)):
            done = await host.run_podman("rm", "--force", "--ignore", "-t", "0", self.node, check=left == 0)
            if done.status == 0:
                return
            await asyncio.sleep(0.5)

    async def wipe(self) -> None:
        """Off, and nothing left of it."""
        await self.power_off(graceful=False)
        await self.remove()
        shutil.rmtree(self.place.seed, ignore_errors=True)

    async def _running(self) -> bool:
        result = await host.run_podman("inspect", "--format={{.State.Running}}", self.node, check=False)
        return result.stdout.strip() == "true"


def _with_prefix(address: str, planned: str) -> str:
    """An address of the region, which may come without its prefix."""
    return address if "/" in address else f"{address}/{ipaddress.ip_interface(planned).network.prefixlen}"
