"""The rack's one process: all BMCs, the MAAS region, the package server, and the machines' power.

``python -m metalyard.virtual.daemon --plan PLAN --home HOME``; :mod:`.rack` starts it and speaks to it through the
socket ``HOME/daemon.sock``. It leaves the containers running when it ends: the next one takes them up.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web

from metalyard.files import write_atomically
from metalyard.plan import PlanError, load_plan
from metalyard.plan.model import SitePlan
from metalyard.virtual import faultbook, host, network, services
from metalyard.virtual.bmc.config import BmcConfig
from metalyard.virtual.bmc.server import BmcFleet
from metalyard.virtual.book import Book
from metalyard.virtual.faultbook import FaultError
from metalyard.virtual.hardware import Hardware, load
from metalyard.virtual.maas.region import MaasRegion
from metalyard.virtual.machine import Provisioner
from metalyard.virtual.nodes import ContainerMachine, Place

SOCKET = "daemon.sock"
PROCESS = "daemon.pid"
APT_PORT = 8081
REGION_SPEED = 2.0
"""MAAS's own waits are divided by this; more, and it looks before an emulated self test is over and powers on twice."""


def say(text: str) -> None:
    """A line of the log."""
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}", flush=True)


def made_of(plan: SitePlan) -> str:
    """Digest of the plan and of the emulators' own files: what a running process was started with."""
    total = hashlib.sha256(plan.model_dump_json().encode())
    for path in sorted(Path(__file__).parent.rglob("*")):
        if path.suffix in (".py", ".yml"):
            total.update(path.read_bytes())
    return total.hexdigest()


def start_time(pid: int) -> str:
    """When a process started, as the kernel counts: a number that is used again has another one. Empty: no process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return ""


class Rack:
    """Everything that runs in the process."""

    def __init__(self, plan: SitePlan, home: Path, bridge: str) -> None:
        self.plan = plan
        self.home = home
        self.bridge = bridge
        self.book = Book.open(plan, home)
        self.made_of = made_of(plan)
        self.gateway = network.gateway(plan)
        self.machines = {node.name: self._machine(node.name) for node in plan.nodes}
        self.fleet = BmcFleet([self._bmc(node.name) for node in plan.nodes])
        self.region = self._region()
        self.fabric = fabric_service(plan, home, bridge)
        self.stopping = asyncio.Event()
        self._changing = asyncio.Lock()
        self._runners: list[web.AppRunner] = []
        self._injected: dict[tuple[str, str], list[str]] = {}

    def _machine(self, name: str) -> ContainerMachine:
        node = self.plan.node(name)
        place = Place(
            site=self.plan.site,
            node=name,
            mac=node.boot_mac,
            address=node.address,
            model=self.book.folder(name),
            repository=self.home / "apt",
            seed=self.home / "seeds" / name,
            network=self.bridge,
        )
        return ContainerMachine(place, self._provisioner, say)

    def _provisioner(self) -> Provisioner:
        return self.region

    def _bmc(self, name: str) -> BmcConfig:
        node = self.plan.node(name)
        path = self.book.folder(name) / "hardware.json"

        def hardware() -> Hardware:
            return load(path)

        def firmware_live(component: str, version: str) -> None:
            say(f"{name}: {component} runs {version}")
            self.book.firmware_live(name, component, version)

        return BmcConfig(
            node=name,
            address=node.bmc.address,
            hardware=hardware,
            machine=self.machines[name],
            factory_user=self.plan.bmc.factory_user,
            factory_password=(self.home / "secrets" / "factory-password").read_text().strip(),
            model=node.profile,
            certificate=self.home / "tls" / "bmc.pem",
            key=self.home / "tls" / "bmc-key.pem",
            state_path=self.home / "bmc" / f"{name}.json",
            on_firmware=firmware_live,
        )

    def _region(self) -> MaasRegion:
        url = urlsplit(self.plan.maas.url)
        return MaasRegion(
            url.hostname or "127.0.0.1",
            url.port or 80,
            (self.home / "secrets" / "maas-api-key").read_text().strip(),
            bmc_ca=self.home / "tls" / "ca.pem",
            state_path=self.home / "maas" / "region.json",
            speed=REGION_SPEED,
            cidr=str(network.subnet(self.plan)),
            gateway=self.gateway,
        )

    async def start(self) -> None:
        """Open everything; ``OSError`` names an address that can't be had."""
        for folder in ("bmc", "maas"):
            (self.home / folder).mkdir(exist_ok=True, mode=0o700)
        for machine in self.machines.values():
            await machine.recover()
        await self.fleet.start()
        for node in self.plan.nodes:
            for data in self.book.bmc_faults(node.name):
                self.fleet.inject(node.name, data)
        await self.region.start()
        await self._packages()
        await self._control()

    async def stop(self) -> None:
        """Close everything; containers stay."""
        for machine in self.machines.values():
            await machine.detach()
        for runner in reversed(self._runners):
            await runner.cleanup()
        await self.region.stop()
        await self.fleet.stop()

    async def _packages(self) -> None:
        app = web.Application()
        app.router.add_static("/", self.home / "apt", show_index=True)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        self._runners.append(runner)
        await web.TCPSite(runner, self.gateway, APT_PORT).start()

    # The control socket

    async def _control(self) -> None:
        app = web.Application(middlewares=[_errors])
        app.router.add_get("/status", self._status)
        app.router.add_post("/faults", self._fault)
        app.router.add_delete("/faults", self._clear)
        app.router.add_post("/stop", self._stop)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        self._runners.append(runner)
        path = self.home / SOCKET
        path.unlink(missing_ok=True)
        # A socket's path may hold 107 characters only, which a home below a build folder exceeds.
        folder = os.open(self.home, os.O_RDONLY | os.O_DIRECTORY)
        try:
            await web.UnixSite(runner, f"/proc/self/fd/{folder}/{SOCKET}").start()
        finally:
            os.close(folder)
        path.chmod(0o600)

    async def _status(self, request: web.Request) -> web.Response:
        nodes = {
            name: {"power": machine.power_state, "boot": machine.last_boot} for name, machine in self.machines.items()
        }
        faults = [placed.model_dump() for placed in self.book.memory.faults]
        return web.json_response(
            {
                "site": self.plan.site,
                "scenario": self.book.memory.scenario,
                "nodes": nodes,
                "faults": faults,
                "pid": os.getpid(),
                "made_of": self.made_of,
            }
        )

    async def _fault(self, request: web.Request) -> web.Response:
        asked = await request.json()
        async with self._changing:
            placed = self.book.add(asked["node"], asked["fault"], asked.get("arguments") or {})
            await self._follow(placed.node, placed.fault)
        say(f"{placed.node}: fault {placed.fault} is in")
        return web.json_response(placed.model_dump())

    async def _clear(self, request: web.Request) -> web.Response:
        asked = await request.json()
        async with self._changing:
            placed = self.book.remove(asked["node"], asked["fault"])
            await self._follow(placed.node, placed.fault)
        say(f"{placed.node}: fault {placed.fault} is out")
        return web.json_response(placed.model_dump())

    async def _follow(self, node: str, name: str) -> None:
        """Bring fabric and BMC to what the book says now; models are read anew by whoever looks."""
        target = faultbook.fault(name).target
        if target == "cable" and self.fabric is not None and self.fabric.write_topology(self.book.cables()):
            await self.fabric.restart()
        if target == "bmc":
            self.fleet.clear(node)
            for data in self.book.bmc_faults(node):
                self.fleet.inject(node, data)

    async def _stop(self, request: web.Request) -> web.Response:
        self.stopping.set()
        return web.json_response({"pid": os.getpid()})


@web.middleware
async def _errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """What a caller asked wrongly is said in words."""
    try:
        return await handler(request)
    except (FaultError, host.CommandError, KeyError, ValueError) as error:
        return web.json_response({"error": str(error)}, status=400)


def fabric_service(plan: SitePlan, home: Path, bridge: str) -> services.FabricService | None:
    """The fabric's service; None where the plan has no fabric."""
    entry = services.fabric_host(plan)
    if entry is None:
        return None
    return services.FabricService(plan, home, entry, network.subnet(plan).prefixlen, bridge)


async def run(plan: SitePlan, home: Path) -> None:
    """Start, serve until told to stop, and end in order."""
    bridge = await network.find(plan)
    if bridge is None:
        raise network.NetworkError("the rack has no network: 'metalyard virtual up' makes it")
    rack = Rack(plan, home, bridge)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, rack.stopping.set)
    own = os.getpid()
    write_atomically(home / PROCESS, f"{own} {start_time(own)}\n".encode())
    try:
        await rack.start()
        say("ready")
        await rack.stopping.wait()
        say("stopping")
    finally:
        await rack.stop()
        (home / SOCKET).unlink(missing_ok=True)
        (home / PROCESS).unlink(missing_ok=True)


def main() -> int:
    """Command line; exit status 1 with a reason when it can't start."""
    parser = argparse.ArgumentParser(description="The virtual rack's process.")
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--home", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        plan = load_plan(arguments.plan)
        asyncio.run(run(plan, arguments.home.resolve()))
    except (PlanError, FaultError, network.NetworkError, OSError, ValueError) as error:
        say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
