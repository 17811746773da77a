"""The hardware model of one virtual node: what no container has, as data that every emulated tool reads.

One JSON file a node. The BMC emulator answers from it, and the tools in the node (``nvidia-smi``, ``ibstat``, …)
print from it, so that both tell the same story. A fault is a change of this model (see :mod:`.faults`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from metalyard.files import write_atomically


class Model(BaseModel):
    """Mutable data without unknown keys."""

    model_config = ConfigDict(extra="forbid")


class Gpu(Model):
    """One GPU, H100 SXM5 figures where nothing else is said."""

    index: int
    name: str = "NVIDIA H100 80GB HBM3"
    uuid: str
    serial: str
    pci_address: str
    on_bus: bool = True
    vbios: str = "96.00.74.00.01"
    memory_mib: int = 81559
    temperature_celsius: int = 31
    power_watts: float = 72.0
    power_limit_watts: float = 700.0
    pcie_generation: int = 5
    pcie_width: int = 16
    sm_clock_mhz: int = 1980
    memory_clock_mhz: int = 2619
    nvlinks_active: int = 18
    nvlinks_total: int = 18
    ecc_volatile_uncorrectable: int = 0
    ecc_volatile_correctable: int = 0
    ecc_aggregate_uncorrectable: int = 0
    remapped_correctable: int = 0
    remapped_uncorrectable: int = 0
    remap_pending: bool = False
    remap_failure: bool = False
    recovery_action: str = "None"


class Hca(Model):
    """One InfiniBand adapter with one port."""

    device: str
    guid: str
    pci_address: str
    firmware: str = "28.39.3560"
    serial: str = ""
    state: str = "Active"
    physical_state: str = "LinkUp"
    rate_gbps: int = 400


class Dimm(Model):
    """One memory module."""

    slot: str
    size_mib: int = 65536
    speed_mts: int = 4800
    serial: str = ""
    healthy: bool = True


class Drive(Model):
    """One NVMe drive."""

    device: str
    model: str = "SAMSUNG MZQL23T8HCLS-00A07"
    serial: str
    size_bytes: int = 3840755982336
    percentage_used: int = 0
    critical_warning: int = 0


class Hardware(Model):
    """One node's whole machine."""

    node: str
    serial: str
    vendor: str = "NVIDIA"
    product: str = "DGXH100"
    boot_mac: str
    cpu_model: str = "Intel(R) Xeon(R) Platinum 8480C"
    cpu_sockets: int = 2
    gpus: list[Gpu]
    hcas: list[Hca]
    dimms: list[Dimm]
    drives: list[Drive]
    firmware: dict[str, str]
    """Redfish FirmwareInventory member Id to version."""
    bios: dict[str, Any]
    clock_offset_seconds: float = 0.0
    kernel_log: list[str]
    """Lines as ``dmesg`` prints them, without the time stamp."""


def load(path: Path) -> Hardware:
    """Read a model from its file."""
    return Hardware.model_validate(json.loads(path.read_text()))


def save(model: Hardware, path: Path) -> None:
    """Replace a model's file as a whole: its reader, in a container that holds the folder, never sees half of it."""
    write_atomically(path, model.model_dump_json(indent=1).encode(), mode=0o644)
    # The node's own users read it too.
    path.parent.chmod(0o755)
