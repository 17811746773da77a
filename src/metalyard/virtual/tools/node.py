"""What every tool of a virtual node reads: the hardware model, and what is installed and loaded on the node."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

RACK = Path(os.environ.get("METALYARD_VIRTUAL_RACK", "/opt/virtual-rack"))
"""Mounted by the rack; holds ``hardware.json`` and ``sysfs-infiniband``."""

SHARE = Path(os.environ.get("METALYARD_VIRTUAL_SHARE", "/usr/share/metalyard-virtual"))
"""Brought by packages: ``default`` (a model for containers outside a rack) and ``modules`` (kernel modules)."""

RUN = Path(os.environ.get("METALYARD_VIRTUAL_RUN", "/run/metalyard-virtual"))
"""State since boot: loaded modules, running services."""


def folder() -> Path:
    """Where the node's model lies: the rack's, else the package's default."""
    return RACK if (RACK / "hardware.json").exists() else SHARE / "default"


def hardware() -> dict[str, Any]:
    """The node's hardware model; ends the tool with a clear message when there is none."""
    path = folder() / "hardware.json"
    try:
        loaded: dict[str, Any] = json.loads(path.read_text())
        return loaded
    except (OSError, ValueError) as error:
        sys.stderr.write(f"virtual node: no hardware model at {path}: {error}\n")
        raise SystemExit(70) from None


def gpus(model: dict[str, Any]) -> list[dict[str, Any]]:
    """The GPUs that are on the bus."""
    return [gpu for gpu in model["gpus"] if gpu["on_bus"]]


def loaded_module(name: str) -> str | None:
    """The version of a kernel module that is loaded on this node; None when it is not loaded."""
    path = RUN / "modules" / name
    return path.read_text().strip() if path.exists() else None


def known_modules() -> dict[str, dict[str, Any]]:
    """Kernel modules that can be loaded: those of the kernel, and those that packages have brought, by name."""
    known: dict[str, dict[str, Any]] = {}
    for path in sorted((SHARE / "modules").glob("*.json")):
        for name, module in json.loads(path.read_text()).items():
            known[name.replace("-", "_")] = module
    return known


def running(service: str) -> bool:
    """Whether an emulated daemon of that name runs."""
    path = RUN / f"{service}.pid"
    try:
        return Path("/proc", path.read_text().strip()).exists()
    except OSError:
        return False


def persistent() -> bool:
    """Whether the driver stays initialised without a client: by its daemon, or set by ``nvidia-smi -pm 1``."""
    return running("nvidia-persistenced") or (RUN / "persistence-mode").exists()


def library_version() -> str | None:
    """The version of the driver's user-space libraries that is installed; None without them."""
    path = SHARE / "nvidia-library-version"
    return path.read_text().strip() if path.exists() else None
