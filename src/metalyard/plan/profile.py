"""Profiles and baselines: what a SKU looks like when it is right, and the versions tested together.

Data, one YAML file each; the package brings some, a site may add its own folder.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from metalyard.plan.model import Strict


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return value


Pattern = Annotated[str, AfterValidator(_pattern)]


class GpuProfile(Strict):
    """The GPUs of a SKU."""

    count: int = Field(ge=0)
    name: str = Field("", description="product name as nvidia-smi reports it")
    memory_mib: int = Field(0, ge=0)
    nvlinks: int = Field(0, ge=0, description="active NVLinks per GPU (18 on an H100 SXM5)")
    pcie_generation: int = 0
    pcie_width: int = 0
    power_limit_watts: float = 0
    max_temperature_celsius: float = Field(0, description="at rest, before burn-in")


class HcaProfile(Strict):
    """The InfiniBand adapters of a SKU."""

    count: int = Field(ge=0)
    devices: list[str] = []
    rate_gbps: float = Field(0, description="of each port, in Gb/s (400 for NDR)")
    state: str = "Active"
    physical_state: str = "LinkUp"


class CpuProfile(Strict):
    """Processors of the host."""

    sockets: int = Field(ge=0)
    model: Pattern = Field("", description="regular expression")


class MemoryProfile(Strict):
    """DIMMs of the host."""

    dimm_count: int = Field(ge=0)
    dimm_size_mib: int = Field(0, ge=0)


class DriveProfile(Strict):
    """NVMe drives of the host."""

    nvme_count: int = Field(ge=0)


class Profile(Strict):
    """One SKU when it is right. Zero means: this profile sets no expectation."""

    name: str
    vendor: str = Field(description="as the BMC's service root or system reports it")
    model: Pattern = Field(description="regular expression on the system's model")
    gpu: GpuProfile
    hca: HcaProfile
    cpu: CpuProfile
    memory: MemoryProfile
    drives: DriveProfile
    bios: dict[str, str | int | bool] = Field({}, description="BIOS attributes that must hold")
    max_clock_offset_seconds: float = 0.05


class FirmwareTarget(Strict):
    """The version one firmware component must have, and what brings it there."""

    component: str = Field(description="name of the component; see Baseline.firmware")
    match: Pattern = Field(description="regular expression on the FirmwareInventory member's Id")
    version: str
    image: str | None = Field(None, description="file name below the site's firmware folder, or an http(s) URL")
    activation: str = Field("none", description="none, bmc_reset, system_reset, power_cycle or ac_cycle")
    minutes: float = Field(5, description="how long it is expected to take")


class Baseline(Strict):
    """Versions that were tested together, pinned and named."""

    name: str
    profiles: list[str] = Field([], description="profiles it was tested with")
    firmware: list[FirmwareTarget] = []
    packages: dict[str, str] = Field({}, description="package name to version")
    driver: str = Field("", description="GPU driver version")
    fabric_manager: str = ""
    dcgm: str = ""
