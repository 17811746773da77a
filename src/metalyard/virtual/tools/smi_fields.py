"""The fields of ``nvidia-smi --query-gpu``: name to how it is read from a GPU of the hardware model.

Names, units and words as driver 570 prints them (``nvidia-smi --help-query-gpu``).
"""

from __future__ import annotations

from typing import Any, Callable, Dict

from metalyard.virtual.tools import node

Gpu = Dict[str, Any]
Reader = Callable[[Gpu], str]

IDLE_CLOCKS = "P0"


def yes(value: object) -> str:
    """A flag as nvidia-smi words it."""
    return "Yes" if value else "No"


def fabric_state() -> str:
    """``Completed`` once a fabric manager has trained the NVLinks."""
    return "Completed" if node.running("nv-fabricmanager") else "In Progress"


def fabric_status() -> str:
    """The result of the fabric's registration, as NVML words it."""
    return "Success" if node.running("nv-fabricmanager") else "N/A"


def _count(key: str) -> Reader:
    return lambda gpu: str(gpu[key])


def _fixed(text: str) -> Reader:
    return lambda gpu: text


def _bus(part: int) -> Reader:
    return lambda gpu: "0x{}".format(gpu["pci_address"].replace(".", ":").split(":")[part][-4:])


FIELDS: dict[str, Reader] = {
    "timestamp": _fixed(""),
    "driver_version": lambda gpu: node.library_version() or "",
    "vgpu_driver_capability.heterogenous_multivGPU": _fixed("[N/A]"),
    "count": lambda gpu: str(gpu["__count"]),
    "name": _count("name"),
    "gpu_name": _count("name"),
    "serial": _count("serial"),
    "gpu_serial": _count("serial"),
    "uuid": _count("uuid"),
    "gpu_uuid": _count("uuid"),
    "pci.bus_id": _count("pci_address"),
    "gpu_bus_id": _count("pci_address"),
    "pci.domain": _bus(0),
    "pci.bus": _bus(1),
    "pci.device": _bus(2),
    "pci.device_id": _fixed("0x233010DE"),
    "pci.sub_device_id": _fixed("0x16C110DE"),
    "vgpu_device_capability.fractional_multiVgpu": _fixed("[N/A]"),
    "pcie.link.gen.current": _count("pcie_generation"),
    "pcie.link.gen.gpucurrent": _count("pcie_generation"),
    "pcie.link.gen.max": _fixed("5"),
    "pcie.link.gen.gpumax": _fixed("5"),
    "pcie.link.gen.hostmax": _fixed("5"),
    "pcie.link.width.current": _count("pcie_width"),
    "pcie.link.width.max": _fixed("16"),
    "index": _count("index"),
    "display_mode": _fixed("Enabled"),
    "display_attached": _fixed("No"),
    "display_active": _fixed("Disabled"),
    "persistence_mode": lambda gpu: "Enabled" if node.persistent() else "Disabled",
    "addressing_mode": _fixed("None"),
    "accounting.mode": _fixed("Disabled"),
    "vbios_version": _count("vbios"),
    "inforom.img": _fixed("G520.0200.00.05"),
    "inforom.oem": _fixed("2.1"),
    "inforom.ecc": _fixed("7.16"),
    "gpu_recovery_action": _count("recovery_action"),
    "reset_status.reset_required": lambda gpu: yes(gpu["recovery_action"] == "Reset"),
    "reset_status.drain_and_reset_recommended": lambda gpu: yes(gpu["recovery_action"] == "Drain and Reset"),
    "fan.speed": _fixed("[N/A]"),
    "pstate": _fixed(IDLE_CLOCKS),
    "clocks_event_reasons.supported": _fixed("0x00000000000001FF"),
    "clocks_event_reasons.active": _fixed("0x0000000000000001"),
    "clocks_event_reasons.gpu_idle": _fixed("Active"),
    "clocks_event_reasons.applications_clocks_setting": _fixed("Not Active"),
    "clocks_event_reasons.sw_power_cap": _fixed("Not Active"),
    "clocks_event_reasons.hw_slowdown": _fixed("Not Active"),
    "clocks_event_reasons.hw_thermal_slowdown": _fixed("Not Active"),
    "clocks_event_reasons.hw_power_brake_slowdown": _fixed("Not Active"),
    "clocks_event_reasons.sw_thermal_slowdown": _fixed("Not Active"),
    "clocks_event_reasons.sync_boost": _fixed("Not Active"),
    "memory.total": lambda gpu: "{} MiB".format(gpu["memory_mib"]),
    "memory.reserved": _fixed("551 MiB"),
    "memory.used": _fixed("4 MiB"),
    "memory.free": lambda gpu: "{} MiB".format(gpu["memory_mib"] - 555),
    "compute_mode": _fixed("Default"),
    "compute_cap": _fixed("9.0"),
    "utilization.gpu": _fixed("0 %"),
    "utilization.memory": _fixed("0 %"),
    "ecc.mode.current": _fixed("Enabled"),
    "ecc.mode.pending": _fixed("Enabled"),
    "ecc.errors.corrected.volatile.dram": _count("ecc_volatile_correctable"),
    "ecc.errors.corrected.volatile.sram": _fixed("0"),
    "ecc.errors.corrected.volatile.total": _count("ecc_volatile_correctable"),
    "ecc.errors.corrected.aggregate.dram": _count("ecc_volatile_correctable"),
    "ecc.errors.corrected.aggregate.sram": _fixed("0"),
    "ecc.errors.corrected.aggregate.total": _count("ecc_volatile_correctable"),
    "ecc.errors.uncorrected.volatile.dram": _count("ecc_volatile_uncorrectable"),
    "ecc.errors.uncorrected.volatile.sram": _fixed("0"),
    "ecc.errors.uncorrected.volatile.total": _count("ecc_volatile_uncorrectable"),
    "ecc.errors.uncorrected.aggregate.dram": _count("ecc_aggregate_uncorrectable"),
    "ecc.errors.uncorrected.aggregate.sram": _fixed("0"),
    "ecc.errors.uncorrected.aggregate.total": _count("ecc_aggregate_uncorrectable"),
    "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded": _fixed("No"),
    "retired_pages.single_bit_ecc.count": _fixed("[N/A]"),
    "retired_pages.double_bit.count": _fixed("[N/A]"),
    "retired_pages.pending": _fixed("[N/A]"),
    "temperature.gpu": _count("temperature_celsius"),
    "temperature.gpu.tlimit": lambda gpu: str(85 - gpu["temperature_celsius"]),
    "temperature.memory": lambda gpu: str(gpu["temperature_celsius"] + 9),
    "power.management": _fixed("Enabled"),
    "power.draw": lambda gpu: "{:.2f} W".format(gpu["power_watts"]),
    "power.draw.average": lambda gpu: "{:.2f} W".format(gpu["power_watts"]),
    "power.draw.instant": lambda gpu: "{:.2f} W".format(gpu["power_watts"]),
    "power.limit": lambda gpu: "{:.2f} W".format(gpu["power_limit_watts"]),
    "enforced.power.limit": lambda gpu: "{:.2f} W".format(gpu["power_limit_watts"]),
    "power.default_limit": _fixed("700.00 W"),
    "power.min_limit": _fixed("200.00 W"),
    "power.max_limit": _fixed("700.00 W"),
    "clocks.current.graphics": lambda gpu: "{} MHz".format(gpu["sm_clock_mhz"]),
    "clocks.current.sm": lambda gpu: "{} MHz".format(gpu["sm_clock_mhz"]),
    "clocks.current.memory": lambda gpu: "{} MHz".format(gpu["memory_clock_mhz"]),
    "clocks.current.video": _fixed("1545 MHz"),
    "clocks.applications.graphics": _fixed("1980 MHz"),
    "clocks.applications.memory": _fixed("2619 MHz"),
    "clocks.default_applications.graphics": _fixed("1980 MHz"),
    "clocks.default_applications.memory": _fixed("2619 MHz"),
    "clocks.max.graphics": _fixed("1980 MHz"),
    "clocks.max.sm": _fixed("1980 MHz"),
    "clocks.max.memory": _fixed("2619 MHz"),
    "mig.mode.current": _fixed("Disabled"),
    "mig.mode.pending": _fixed("Disabled"),
    "gsp.mode.current": _fixed("Enabled"),
    "gsp.mode.default": _fixed("Enabled"),
    "fabric.state": lambda gpu: fabric_state(),
    "fabric.status": lambda gpu: fabric_status(),
    "platform.module_id": lambda gpu: str(gpu["index"] + 1),
}
"""Readers by field name. ``__count`` is added by the caller."""

ALIASES = {
    "clocks.gr": "clocks.current.graphics",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.video": "clocks.current.video",
    "clocks.applications.gr": "clocks.applications.graphics",
    "clocks.applications.mem": "clocks.applications.memory",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks.max.mem": "clocks.max.memory",
    **{
        name.replace("clocks_event_reasons", "clocks_throttle_reasons"): name
        for name in FIELDS
        if name.startswith("clocks_event_reasons")
    },
}

UNITS = {
    "memory.": " [MiB]",
    "utilization.": " [%]",
    "power.draw": " [W]",
    "power.limit": " [W]",
    "enforced.power": " [W]",
    "power.default_limit": " [W]",
    "power.min_limit": " [W]",
    "power.max_limit": " [W]",
    "clocks.": " [MHz]",
    "fan.speed": " [%]",
}

REMAPPED = {
    "gpu_uuid": FIELDS["uuid"],
    "gpu_bus_id": FIELDS["pci.bus_id"],
    "gpu_name": FIELDS["name"],
    "gpu_serial": FIELDS["serial"],
    "remapped_rows.correctable": _count("remapped_correctable"),
    "remapped_rows.uncorrectable": _count("remapped_uncorrectable"),
    "remapped_rows.pending": lambda gpu: yes(gpu["remap_pending"]),
    "remapped_rows.failure": lambda gpu: yes(gpu["remap_failure"]),
    "remapped_rows.histogram.max": _fixed("2560"),
    "remapped_rows.histogram.high": _fixed("0"),
    "remapped_rows.histogram.partial": _fixed("0"),
    "remapped_rows.histogram.low": _fixed("0"),
    "remapped_rows.histogram.none": _fixed("0"),
}
"""Readers of ``--query-remapped-rows``."""


def unit(field: str) -> str:
    """The unit a field's heading shows, such as `` [MiB]``."""
    for start, text in UNITS.items():
        if field.startswith(start):
            return text
    return ""
