"""An emulated BMC in a thread of its own, for clients that block."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metalyard.virtual.bmc import BmcFleet
from metalyard.virtual.bmc.standalone import SwitchedMachine, fleet
from metalyard.virtual.hardware import Hardware

USER = "admin"
FACTORY = "factory-password"
PASSWORD = "a-better-one-1234"


@dataclass
class Running:
    """One BMC that answers, and what is behind it."""

    url: str
    ca: Path
    fleet: BmcFleet
    machine: SwitchedMachine
    hardware: Hardware
    user: str = USER
    password: str = PASSWORD

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None, password: str | None = None) -> Any:
        """One request with the standard library: the body of the answer; raises on a refusal."""
        credentials = base64.b64encode(f"{self.user}:{password or self.password}".encode()).decode()
        request = urllib.request.Request(  # noqa: S310 - the emulated BMC's own URL
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Basic {credentials}", "Content-Type": "application/json"},
        )
        context = ssl.create_default_context(cafile=str(self.ca))
        with urllib.request.urlopen(request, context=context, timeout=10) as answer:  # noqa: S310
            text = answer.read()
        return json.loads(text) if text else None


@contextmanager
def emulated(home: Path) -> Iterator[Running]:
    """Run a fleet of one until the block ends."""
    ready = threading.Event()
    found: dict[str, Any] = {}

    async def serve() -> None:
        stop = asyncio.Event()
        found["stop"], found["loop"] = stop, asyncio.get_running_loop()
        async with fleet(home, ["gpu-1"]) as (running, machines, hardware):
            found["running"] = Running(
                running.url("gpu-1"), home / "ca.pem", running, machines["gpu-1"], hardware["gpu-1"]
            )
            ready.set()
            await stop.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        finally:
            ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    assert "running" in found, "the emulated BMC did not start"
    try:
        yield found["running"]
    finally:
        found["loop"].call_soon_threadsafe(found["stop"].set)
        thread.join(10)
