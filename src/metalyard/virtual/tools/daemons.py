"""Emulates NVIDIA's daemons: nv-fabricmanager, nv-hostengine and nvidia-persistenced.

Each checks at start what the real one checks (driver loaded, versions equal), says so in its words, leaves its
process id and runs until it is told to stop. Words: fabric manager 570, DCGM 4.4.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from metalyard.virtual.tools import node


def version(package: str) -> str:
    """The version of an emulated program, as its package left it."""
    path = node.SHARE / f"{package}-version"
    return path.read_text().strip() if path.exists() else "unknown"


def wait(name: str) -> int:
    """Run as that service until SIGTERM or SIGINT."""
    stopped = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.append(True))
    node.RUN.mkdir(parents=True, exist_ok=True)
    path = node.RUN / f"{name}.pid"
    path.write_text(f"{os.getpid()}\n")
    try:
        while not stopped:
            # pause() could miss a signal that came between the check and the call; a timed wait can't.
            signal.sigtimedwait([signal.SIGUSR2], 1.0)
    finally:
        path.unlink(missing_ok=True)
    return 0


def fabric_manager() -> int:
    """``nv-fabricmanager``: refuses to start without a driver or with one of another version."""
    own = version("fabricmanager")
    if sys.argv[1:] in (["-v"], ["--version"]):
        print(f"Fabric Manager version is : {own}")
        return 0
    driver = node.loaded_module("nvidia")
    if driver is None:
        sys.stderr.write(
            "request to query NVSwitch device information from NVSwitch driver failed with error:"
            "WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]\n"
        )
        return 1
    if driver != own:
        sys.stderr.write(
            f"fabric manager NVIDIA GPU driver interface version {own} don't match with driver version {driver}. "
            "Please update with matching NVIDIA driver package.\n"
        )
        return 1
    lost = [gpu for gpu in node.hardware()["gpus"] if not gpu["on_bus"]]
    print(f"Starting nvidia-fabricmanager version {own}", flush=True)
    for gpu in lost:
        print("NVLink training: GPU {} did not answer and is left out".format(gpu["pci_address"]), flush=True)
    print("Successfully configured all the available NVSwitches to route GPU NVLink traffic.", flush=True)
    return wait("nv-fabricmanager")


def host_engine() -> int:
    """``nv-hostengine``: DCGM's daemon; it starts without a driver too."""
    if "--version" in sys.argv[1:]:
        print(f"Version : {version('dcgm')}")
        return 0
    print(f"Host Engine version {version('dcgm')} started, listening on localhost:5555", flush=True)
    return wait("nv-hostengine")


def persistenced() -> int:
    """``nvidia-persistenced``: keeps the driver initialised."""
    if node.loaded_module("nvidia") is None:
        sys.stderr.write("nvidia-persistenced failed to initialize. Check syslog for more details.\n")
        return 1
    return wait("nvidia-persistenced")


def main() -> int:
    """Act as the daemon by whose name this was started."""
    name = Path(sys.argv[0]).name
    time.tzset()
    if name == "nv-fabricmanager":
        return fabric_manager()
    if name == "nvidia-persistenced":
        return persistenced()
    return host_engine()
