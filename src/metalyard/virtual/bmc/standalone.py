"""BMCs without a rack: a machine that only switches, a DGX H100's hardware, and a fleet of them on loopback.

For tests of Redfish clients, ours and others'. ``python -m metalyard.virtual.bmc`` runs it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from metalyard.virtual.bmc.config import BmcConfig, Timings
from metalyard.virtual.bmc.server import BmcFleet
from metalyard.virtual.bmc.tls import ensure_authority
from metalyard.virtual.hardware import Dimm, Drive, Gpu, Hardware, Hca
from metalyard.virtual.machine import BootSource, PowerState

QUICK = Timings(post=0.01, update=0.05, bmc_reset=0.1, machine=10.0)
"""For tests: everything takes as little time as it may."""


class SwitchedMachine:
    """A machine with a power switch and nothing else; remembers what it was booted from."""

    def __init__(self, node: str, *, on: bool = False, seconds: float = 0.0) -> None:
        self.node = node
        self.seconds = seconds
        self.boots: list[BootSource] = []
        self.shutdowns: list[bool] = []
        self._state: PowerState = "On" if on else "Off"

    @property
    def power_state(self) -> PowerState:
        """On, Off, or on the way."""
        return self._state

    async def power_on(self, boot: BootSource) -> None:
        """Switch on."""
        if self._state == "On":
            return
        self._state = "PoweringOn"
        await asyncio.sleep(self.seconds)
        self.boots.append(boot)
        self._state = "On"

    async def power_off(self, graceful: bool) -> None:
        """Switch off."""
        if self._state == "Off":
            return
        self._state = "PoweringOff"
        await asyncio.sleep(self.seconds)
        self.shutdowns.append(graceful)
        self._state = "Off"


def dgx_h100(node: str = "gpu-1", serial: str = "1660623000001", boot_mac: str = "0c:42:a1:00:01:01") -> Hardware:
    """A whole DGX H100 as delivered."""
    firmware = {
        "CPLDMB_0": "0.2.1.8",
        "CPLDMID_0": "0.2.1.3",
        "EROT_BIOS_0": "04.0083.0000",
        "EROT_BMC_0": "04.0083.0000",
        "HGX_FW_BMC_0": "HGX-22.10-1-rc57",
        "HGX_FW_FPGA_0": "2.37",
        "HostBIOS_0": "1.6.7",
        "HostBMC_0": "24.09.17",
        **{f"HGX_FW_GPU_SXM_{n}": "96.00.A5.00.01" for n in range(1, 9)},
        **{f"HGX_FW_NVSwitch_{n}": "96.10.4A.00.01" for n in range(4)},
        **{f"PSU_{n}": "0204.0201.0202" for n in range(6)},
    }
    return Hardware(
        node=node,
        serial=serial,
        boot_mac=boot_mac,
        gpus=[
            Gpu(
                index=n,
                uuid=f"GPU-9dad5bfd-a732-23fe-40ad-{int(serial):011x}{n}",
                serial=f"165292300{n:04d}",
                pci_address=f"0000:{0x1B + 16 * n:02x}:00.0",
                vbios="96.00.A5.00.01",
            )
            for n in range(8)
        ],
        hcas=[
            Hca(
                device=f"mlx5_{n}",
                guid=f"0xb83fd2030001010{n}",
                pci_address=f"0000:{0x18 + 16 * n:02x}:00.0",
                serial=f"MT2250X0{n:04d}",
            )
            for n in range(8)
        ],
        dimms=[Dimm(slot=f"CPU{n // 16}_DIMM_{n % 16}", serial=f"40155B{n:02X}") for n in range(32)],
        drives=[Drive(device=f"nvme{n}", serial=f"S6ANNE0W{n:06d}") for n in range(8)],
        firmware=firmware,
        bios={
            "NumaNodesPerSocket": 1,
            "SubNumaClustering": "Enabled",
            "HyperThreading": "Enabled",
            "VirtualizationTechnologyDirectedIO": "Disabled",
            "PowerPerformanceProfile": "MaximumPerformance",
        },
        kernel_log=[],
    )


@contextlib.asynccontextmanager
async def fleet(
    home: Path,
    nodes: Sequence[str] = ("gpu-1",),
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    user: str = "admin",
    password: str = "factory-password",  # noqa: S107 - the emulated machine's, as delivered
    timings: Timings = QUICK,
    quirks: Mapping[str, Any] | None = None,
    keep: bool = False,
) -> AsyncIterator[tuple[BmcFleet, dict[str, SwitchedMachine], dict[str, Hardware]]]:
    """A running fleet with its machines and hardware by node; ``home/ca.pem`` verifies its certificates.

    Port 0 takes free ones. Only with ``keep`` does the BMCs' state survive, in ``home``.
    """
    authority = ensure_authority(home)
    machines = {node: SwitchedMachine(node) for node in nodes}
    hardware = {
        node: dgx_h100(node, str(1660623000001 + number), f"0c:42:a1:00:01:{number + 1:02x}")
        for number, node in enumerate(nodes)
    }
    configs = []
    for number, node in enumerate(nodes):
        certificate, key = home / f"{node}.pem", home / f"{node}-key.pem"
        authority.issue(node, [host, "localhost"], certificate, key)
        configs.append(
            BmcConfig(
                node=node,
                address=f"{host}:{port + number if port else 0}",
                hardware=lambda node=node: hardware[node],  # type: ignore[misc]
                machine=machines[node],
                factory_user=user,
                factory_password=password,
                quirks=quirks or {},
                certificate=certificate,
                key=key,
                state_path=home / f"{node}.json" if keep else None,
                timings=timings,
            )
        )
    running = BmcFleet(configs)
    await running.start()
    try:
        yield running, machines, hardware
    finally:
        await running.stop()
