"""The heart of the emulated region: its memory, its clock, and the moves of a machine between statuses."""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from metalyard.virtual.maas.model import (
    BUILT_IN_SCRIPTS,
    BootImage,
    Interface,
    Link,
    MachineRecord,
    RegionState,
    Script,
    ScriptRun,
    ScriptSet,
    Subnet,
    User,
)
from metalyard.virtual.maas.power import PowerActionError, PowerConnError, RedfishDriver
from metalyard.virtual.maas.reply import ApiError
from metalyard.virtual.maas.status import EVENT_NAMES, NAMES, Status

UNREACHABLE = "No rack controllers can access the BMC of node {hostname}"


class Core:
    """What every part of the region shares. Everything runs on one event loop, so plain changes need no lock."""

    def __init__(
        self,
        driver: RedfishDriver,
        state_path: Path | None,
        *,
        cidr: str,
        gateway: str | None,
        speed: float,
        verify_field: bool = False,
    ) -> None:
        self.driver = driver
        redfish = ("power_address", "power_user", "power_pass", "node_id")
        self.power_fields: dict[str, tuple[str, ...]] = {
            "redfish": (*redfish, "power_verify_ssl") if verify_field else redfish,
            "manual": (),
            "": (),
        }
        self.speed = max(speed, 0.001)
        self._path = state_path
        self._tasks: set[asyncio.Task[None]] = set()
        self._power: dict[str, asyncio.Lock] = {}
        if state_path is not None and state_path.exists():
            self.state = RegionState.load(state_path)
        else:
            self.state = _new_state(cidr, gateway)

    # Memory and clock

    def save(self) -> None:
        """Bring the state to disk, where there is a file for it."""
        if self._path is not None:
            self.state.save(self._path)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Let work go on in the background until the region stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """End the background work; what was pending is taken up at the next start."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.driver.close()

    def user(self, username: str) -> User | None:
        """The user of that name."""
        return next((user for user in self.state.users if user.username == username), None)

    # Statuses

    def enter(self, machine: MachineRecord, status: Status, *, quiet: bool = False) -> None:
        """Move a machine to a status, with the event that a real region writes."""
        if machine.status != status:
            text = f"From '{NAMES[machine.status]}' to '{NAMES[status]}'"
            self.state.note(machine, "DEBUG", "Node changed status", text)
        machine.status = int(status)
        machine.since = time.time()
        if not quiet and status in EVENT_NAMES:
            self.state.note(machine, "INFO", EVENT_NAMES[status])

    def fail(self, machine: MachineRecord, status: Status, reason: str) -> None:
        """Move a machine to a failed status, with the reason where a person finds it."""
        self.enter(machine, status)
        machine.error_description = reason
        machine.status_message = f"Marking node failed - {reason}"
        machine.status_action = "mark_failed"
        for number in (machine.commissioning_set, machine.installation_set, machine.testing_set):
            self.finish(number, 3, only_open=True)

    def free(self, machine: MachineRecord) -> None:
        """Back to Ready and to nobody."""
        machine.owner = None
        machine.annotations = {}
        machine.locked = False
        self.clear_system(machine)
        for nic in machine.interfaces:
            for link in nic.links:
                if link.mode == "auto":
                    link.ip_address = None
        self.enter(machine, Status.READY, quiet=True)
        self.state.note(machine, "INFO", "Released")

    def clear_system(self, machine: MachineRecord) -> None:
        """Forget the operating system: the disk no longer counts."""
        machine.osystem = machine.distro_series = machine.user_data = ""
        machine.hwe_kernel = None
        machine.netboot = True

    # Script results

    def begin(self, machine: MachineRecord, kind: int, names: list[str]) -> int:
        """A new set of pending results."""
        now = round(time.time(), 3)
        number = self.state.next_id("set")
        known = {script.name: script.id for script in self.state.scripts}
        runs = [ScriptRun(self.state.next_id("run"), name, script_id=known.get(name), created=now) for name in names]
        self.state.sets[number] = ScriptSet(number, kind, machine.system_id, runs)
        return number

    def finish(self, number: int | None, status: int, *, only_open: bool = False) -> None:
        """End a set's results: 2 passed, 3 failed (the last one; those before it passed), 5 aborted."""
        entry = self.state.sets.get(number) if number is not None else None
        if entry is None:
            return
        open_runs = [run for run in entry.runs if run.ended is None]
        if only_open and not open_runs:
            return
        now = round(time.time(), 3)
        for run in open_runs:
            failed = status == 3 and run is open_runs[-1]
            run.status = 3 if failed else 2 if status == 3 else status
            run.exit_status = 1 if failed else 0 if run.status == 2 else None
            run.started = run.started or now
            run.ended = now

    # Power

    async def power(self, machine: MachineRecord, change: str) -> None:
        """Switch a machine over its BMC; raises what the driver raises. One change at a time for each machine."""
        if machine.power_type != "redfish":
            return
        lock = self._power.setdefault(machine.system_id, asyncio.Lock())
        async with lock:
            if change == "cycle":
                before = machine.boots
                machine.power_state = await self.driver.change(
                    machine.power_parameters, "on", booted=lambda: machine.boots > before
                )
            else:
                machine.power_state = await self.driver.change(
                    machine.power_parameters, "soft-off" if change == "soft-off" else "off"
                )

    async def power_or_refuse(self, machine: MachineRecord, change: str) -> None:
        """As :meth:`power`, with the answer that a blocking call of the API gives."""
        try:
            await self.power(machine, change)
        except PowerConnError:
            self.state.note(machine, "WARNING", "Failed to query node's BMC", self._unreachable(machine))
            self.save()
            raise ApiError(503, self._unreachable(machine)) from None
        except PowerActionError as error:
            raise ApiError(500, f"PowerActionError: {error}") from None

    async def query(self, machine: MachineRecord) -> str:
        """The power state now, asked of the BMC, with the answer that the API gives when it can't be had."""
        if machine.power_type != "redfish":
            return "unknown"
        try:
            machine.power_state = await self.driver.query(machine.power_parameters)
        except (PowerConnError, PowerActionError):
            machine.power_state = "unknown"
            raise ApiError(503, self._unreachable(machine)) from None
        return machine.power_state

    def _unreachable(self, machine: MachineRecord) -> str:
        return UNREACHABLE.format(hostname=machine.hostname)

    # Network

    def subnet(self, number: int | None) -> Subnet | None:
        """The subnet of that number."""
        return next((entry for entry in self.state.subnets if entry.id == number), None)

    def holder(self, address: str) -> MachineRecord | None:
        """The machine whose link has that address."""
        for machine in self.state.machines.values():
            for nic in machine.interfaces:
                if any(link.ip_address == address for link in nic.links):
                    return machine
        return None

    def free_address(self, subnet: Subnet) -> str | None:
        """The highest address of a subnet that no link has and that is not the gateway."""
        network = ipaddress.ip_network(subnet.cidr)
        taken = {link.ip_address for m in self.state.machines.values() for nic in m.interfaces for link in nic.links}
        last = int(network.broadcast_address) - 1
        for number in range(last, max(int(network.network_address), last - 65536), -1):
            address = str(ipaddress.ip_address(number))
            if address not in taken and address != subnet.gateway_ip:
                return address
        return None

    def attach(self, machine: MachineRecord) -> None:
        """The boot NIC as commissioning leaves it: on the first subnet's VLAN, address on deployment."""
        subnet = self.state.subnets[0] if self.state.subnets else None
        for nic in machine.interfaces:
            boots = nic is machine.boot_interface
            nic.vlan = subnet.vlan if subnet and boots else nic.vlan
            if subnet and boots:
                nic.discovered = nic.discovered or self.free_address(subnet)
                nic.links = [Link(self.state.next_id("link"), "auto", subnet.id)]
            else:
                nic.links = [Link(self.state.next_id("link"), "link_up")]

    def allot(self, machine: MachineRecord) -> None:
        """Give every automatic link its address, as a deployment does."""
        for nic in machine.interfaces:
            for link in nic.links:
                subnet = self.subnet(link.subnet)
                if link.mode == "auto" and subnet and link.ip_address is None:
                    link.ip_address = self.free_address(subnet)

    def addresses(self, machine: MachineRecord) -> list[str]:
        """The configured addresses with their prefix, the boot NIC's first."""
        found = []
        for nic in machine.interfaces:
            for link in nic.links:
                subnet = self.subnet(link.subnet)
                if subnet and link.ip_address:
                    found.append(f"{link.ip_address}/{ipaddress.ip_network(subnet.cidr).prefixlen}")
        return found

    def new_interface(self, index: int, mac: str) -> Interface:
        """A NIC as enlistment by the API makes it."""
        return Interface(self.state.next_id("interface"), f"eth{index}", mac.lower())


def user_data(machine: MachineRecord) -> bytes:
    """The user data of a deployment: MAAS never looks into it; what can't be decoded is handed on as nothing."""
    try:
        return base64.b64decode(machine.user_data)
    except (binascii.Error, ValueError):
        return b""


def _new_state(cidr: str, gateway: str | None) -> RegionState:
    now = round(time.time(), 3)
    state = RegionState()
    network = str(ipaddress.ip_network(cidr))
    state.subnets.append(Subnet(state.next_id("subnet"), network, network, gateway_ip=gateway))
    for name, kernel, origin in (
        ("ubuntu/noble", "ga-24.04", "Synced"),
        ("ubuntu/jammy", "ga-22.04", "Synced"),
        ("custom/bookworm", "generic", "Uploaded"),
    ):
        state.images.append(BootImage(state.next_id("image"), name, kernel, origin))
    for name, kind, hardware in BUILT_IN_SCRIPTS:
        state.scripts.append(
            Script(
                state.next_id("script"),
                name,
                kind,
                hardware,
                title=name,
                description=name,
                tags=["node"] if kind == 0 else ["commissioning", "storage"],
                timeout="0:05:00",
                default=True,
                created=now,
            )
        )
    state.config = {
        "maas_name": "virtual",
        "kernel_opts": "",
        "default_osystem": "ubuntu",
        "default_distro_series": "noble",
        "commissioning_distro_series": "noble",
        "default_storage_layout": "flat",
        "ntp_servers": "",
        "upstream_dns": "",
    }
    return state
