"""Hardware models of the rack's nodes, generated from plan, profile and baseline: healthy ones, before any fault."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any

from metalyard.plan.model import Node
from metalyard.plan.profile import Baseline, Profile
from metalyard.virtual.hardware import Dimm, Drive, Gpu, Hardware, Hca

NAMESPACE = uuid.UUID("6d657461-6c79-4172-8d00-000000000001")
"""Of the name-based UUIDs, so that a node's parts are the same at every start of the rack."""

GPU_SLOTS = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
"""PCI buses of the GPUs in a DGX H100, by nvidia-smi's index."""

HCA_SLOTS = ("18", "40", "4f", "5e", "9a", "c0", "ce", "dc")
"""PCI buses of the compute network's adapters in a DGX H100."""

DIMM_CHANNELS = "ABCDEFGH"

COMPANIONS: dict[str, str] = {
    "CPLDMB_0": "0.2.1.9",
    "CPLDMID_0": "0.2.1.3",
    "EROT_BIOS_0": "00.04.0026.0000_n00",
    "EROT_BMC_0": "00.04.0026.0000_n00",
    "HGX_FW_BMC_0": "HGX-22.10-1-rc67",
    "HGX_FW_ERoT_BMC_0": "00.02.0182.0000_n00",
    "HGX_FW_FPGA_0": "2.53",
    "HGX_FW_NVSwitch_0": "96.10.57.00.01",
    "HGX_FW_NVSwitch_1": "96.10.57.00.01",
    "HGX_FW_NVSwitch_2": "96.10.57.00.01",
    "HGX_FW_NVSwitch_3": "96.10.57.00.01",
    "HGX_FW_PCIeSwitch_0": "1.7.5F",
    "PCIeSwitch_0": "0.0.7",
    "PCIeSwitch_1": "1.0.7",
    **{f"PSU_{index}": "0204.0201.0202" for index in range(6)},
}
"""Components that no baseline names yet, with the versions of a DGX H100's firmware package."""

BOOT_LOG = (
    "Linux version 6.1.0-28-amd64 (debian-kernel@lists.debian.org)",
    "Command line: BOOT_IMAGE=/boot/vmlinuz-6.1.0-28-amd64 root=LABEL=root ro console=ttyS0,115200 iommu=pt",
    "DMI: NVIDIA DGXH100/DGXH100, BIOS {bios}",
    "smp: Brought up {sockets} nodes, {cores} CPUs",
    "EDAC i10nm: v0.0.6",
    "nvidia-nvlink: Nvlink Core is being initialized, major device number 234",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {driver}  Release Build",
    "nvidia-modeset: Loading NVIDIA UNIX Open Kernel Mode Setting Driver for x86_64  {driver}",
)
"""What a healthy DGX H100 says at boot, in short; each GPU and adapter adds its own lines."""


def generate(node: Node, profile: Profile, baseline: Baseline, *, firmware: dict[str, str] | None = None) -> Hardware:
    """A healthy machine as the plan, its profile and the baseline describe it.

    ``firmware`` overrides versions by inventory Id: a starting condition, such as a BIOS that is behind.
    """
    versions = {**COMPANIONS, **_baseline_firmware(baseline, profile.gpu.count), **(firmware or {})}
    gpus = [_gpu(node, index, profile, versions) for index in range(profile.gpu.count)]
    hcas = [_hca(node, index, device, profile) for index, device in enumerate(profile.hca.devices)]
    drives = [
        Drive(device=f"nvme{index}n1", serial=f"S64FNE0R{_digits(node, 'drive', index, 6)}")
        for index in range(profile.drives.nvme_count)
    ]
    dimms = [
        Dimm(
            slot=_dimm_slot(index, profile),
            size_mib=profile.memory.dimm_size_mib or 65536,
            serial=f"80CE0{_digits(node, 'dimm', index, 8)}",
        )
        for index in range(profile.memory.dimm_count)
    ]
    model = Hardware(
        node=node.name,
        serial=node.serial,
        vendor=profile.vendor,
        boot_mac=node.boot_mac,
        cpu_sockets=profile.cpu.sockets or 2,
        gpus=gpus,
        hcas=hcas,
        dimms=dimms,
        drives=drives,
        firmware=versions,
        bios={**profile.bios},
        kernel_log=[],
    )
    model.kernel_log = boot_log(model, baseline.driver)
    return model


def _baseline_firmware(baseline: Baseline, gpus: int) -> dict[str, str]:
    """Inventory Id to version, for the Ids of this SKU that the baseline's expressions name."""
    known = ["HostBMC_0", "HostBIOS_0", *(f"HGX_FW_GPU_SXM_{index + 1}" for index in range(gpus)), *COMPANIONS]
    return {
        name: target.version
        for target in baseline.firmware
        for name in known
        if re.search(target.match, name) is not None
    }


def _identity(node: Node, kind: str, index: int) -> uuid.UUID:
    return uuid.uuid5(NAMESPACE, f"{node.serial}/{kind}/{index}")


def _digits(node: Node, kind: str, index: int, length: int) -> str:
    return str(_identity(node, kind, index).int)[:length]


def _gpu(node: Node, index: int, profile: Profile, firmware: dict[str, str]) -> Gpu:
    return Gpu(
        index=index,
        name=profile.gpu.name or "NVIDIA H100 80GB HBM3",
        uuid=f"GPU-{_identity(node, 'gpu', index)}",
        serial=f"165{_digits(node, 'gpu', index, 10)}",
        pci_address=f"00000000:{GPU_SLOTS[index % len(GPU_SLOTS)].upper()}:00.0",
        vbios=firmware.get(f"HGX_FW_GPU_SXM_{index + 1}", "96.00.89.00.01"),
        memory_mib=profile.gpu.memory_mib or 81559,
        power_limit_watts=profile.gpu.power_limit_watts or 700.0,
        nvlinks_active=profile.gpu.nvlinks,
        nvlinks_total=profile.gpu.nvlinks,
        # Neighbours in one airflow differ by a few degrees and watts; the same ones at every start.
        temperature_celsius=28 + _identity(node, "heat", index).int % 6,
        power_watts=68.0 + _identity(node, "power", index).int % 90 / 10,
    )


def _hca(node: Node, index: int, device: str, profile: Profile) -> Hca:
    return Hca(
        device=device,
        guid=node.hca_guids.get(device, f"0xb83fd203{_identity(node, 'hca', index).int & 0xFFFFFFFF:08x}"),
        pci_address=f"0000:{HCA_SLOTS[index % len(HCA_SLOTS)]}:00.0",
        serial=f"MT2{_digits(node, 'hca', index, 9)}",
        rate_gbps=int(profile.hca.rate_gbps) or 400,
    )


def _dimm_slot(index: int, profile: Profile) -> str:
    per_socket = max(1, profile.memory.dimm_count // max(1, profile.cpu.sockets or 2))
    socket, place = divmod(index, per_socket)
    return f"CPU{socket}_DIMM_{DIMM_CHANNELS[place // 2 % len(DIMM_CHANNELS)]}{place % 2 + 1}"


def boot_log(model: Hardware, driver: str) -> list[str]:
    """The kernel's lines of a boot with this hardware, without time stamps."""
    values: dict[str, Any] = {
        "bios": model.firmware.get("HostBIOS_0", "unknown"),
        "sockets": model.cpu_sockets,
        "cores": model.cpu_sockets * 112,
        "driver": driver or "570.195.03",
    }
    lines = [line.format(**values) for line in BOOT_LOG]
    lines += [f"nvidia {gpu.pci_address[4:].lower()}: enabling device (0140 -> 0142)" for gpu in model.gpus]
    for hca in model.hcas:
        lines.append(f"mlx5_core {hca.pci_address}: firmware version: {hca.firmware}")
        lines.append(f"mlx5_core {hca.pci_address}: 504.112 Gb/s available PCIe bandwidth (32.0 GT/s PCIe x16 link)")
    lines += [f"nvme {drive.device.removesuffix('n1')}: 128/0/0 default/read/poll queues" for drive in model.drives]
    return lines


STATES = {"Down": 1, "Initializing": 2, "Armed": 3, "Active": 4}
PHYSICAL_STATES = {"Sleep": 1, "Polling": 2, "Disabled": 3, "LinkUp": 5, "LinkErrorRecovery": 6}
SYSFS_STATES = {"Down": "DOWN", "Initializing": "INIT", "Armed": "ARMED", "Active": "ACTIVE"}
LANE_RATES = {
    400: "400 Gb/sec (4X NDR)",
    200: "200 Gb/sec (4X HDR)",
    100: "100 Gb/sec (4X EDR)",
    10: "10 Gb/sec (4X SDR)",
}


def sysfs_infiniband(model: Hardware, lids: dict[str, int] | None = None) -> dict[str, str]:
    """What the kernel shows below ``/sys/class/infiniband``, by relative path: enough for ibstat and ibv_devices.

    ``lids`` gives each device's local identifier where a subnet manager has assigned one.
    """
    files: dict[str, str] = {}
    for index, hca in enumerate(model.hcas):
        guid = hca.guid.removeprefix("0x")
        words = ":".join(guid[place : place + 4] for place in range(0, 16, 4))
        active = hca.physical_state == "LinkUp"
        lid = (lids or {}).get(hca.device, index + 1) if active else 0
        port = f"{hca.device}/ports/1"
        files |= {
            f"{hca.device}/node_type": "1: CA\n",
            f"{hca.device}/node_guid": f"{words}\n",
            f"{hca.device}/sys_image_guid": f"{words}\n",
            f"{hca.device}/node_desc": f"{model.node} {hca.device}\n",
            f"{hca.device}/fw_ver": f"{hca.firmware}\n",
            f"{hca.device}/hca_type": "MT4129\n",
            f"{hca.device}/hw_rev": "0\n",
            f"{hca.device}/board_id": "MT_0000000838\n",
            f"{port}/state": f"{STATES[hca.state]}: {SYSFS_STATES[hca.state]}\n",
            f"{port}/phys_state": f"{PHYSICAL_STATES[hca.physical_state]}: {hca.physical_state}\n",
            f"{port}/rate": f"{LANE_RATES.get(hca.rate_gbps, f'{hca.rate_gbps} Gb/sec (4X)')}\n",
            f"{port}/lid": f"0x{lid:x}\n",
            f"{port}/lid_mask_count": "0\n",
            f"{port}/sm_lid": f"0x{1 if active else 0:x}\n",
            f"{port}/sm_sl": "0\n",
            f"{port}/cap_mask": "0xa751e848\n",
            f"{port}/link_layer": "InfiniBand\n",
            f"{port}/gids/0": f"fe80:0000:0000:0000:{words}\n",
            f"{port}/pkeys/0": "0xffff\n",
        }
        for counter in COUNTERS:
            files[f"{port}/counters/{counter}"] = "0\n"
    return files


COUNTERS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_xmit_discards",
    "port_xmit_wait",
)
"""The port counters that say how good a link is."""


def write_sysfs(folder: Path, files: dict[str, str]) -> None:
    """Bring a folder to hold exactly these files, changing only what differs: a container holds the folder itself."""
    for path in sorted(folder.rglob("*"), reverse=True):
        relative = str(path.relative_to(folder))
        if path.is_file() and relative not in files:
            path.unlink()
        elif path.is_dir() and not any(name.startswith(relative + "/") for name in files):
            path.rmdir()
    for name, content in files.items():
        target = folder / name
        if not target.exists() or target.read_text() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            # Replaced as a whole, so that a reader sees no half; no fsync: a start of the rack writes all of it anew.
            part = target.with_name(f".{target.name}.part")
            part.write_text(content)
            part.chmod(0o644)
            part.replace(target)
    for path in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
        path.chmod(0o755)
