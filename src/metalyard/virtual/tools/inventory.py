"""Emulates what lists a machine's parts, over the model: nvme-cli 2.4, dmidecode 3.4, lspci 3.9, lscpu 2.38."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from metalyard.virtual.tools import node

BLOCK = 512


def nvme() -> int:
    """``nvme list|smart-log DEVICE|version [-o json]``."""
    words = sys.argv[1:]
    as_json = "json" in words or "--output-format=json" in words or "-ojson" in words
    drives = node.hardware()["drives"]
    command = words[0] if words else ""
    if command == "version":
        print("nvme version 2.4 (git 2.4)")
        return 0
    if command == "list":
        return _nvme_list(drives, as_json)
    if command == "smart-log":
        names = [word for word in words[1:] if word.startswith("/dev/")]
        for drive in drives:
            if names and names[0] in ("/dev/" + drive["device"], "/dev/" + drive["device"].rsplit("n", 1)[0]):
                return _smart_log(drive, as_json)
        sys.stderr.write("{}: No such file or directory\n".format(names[0] if names else "smart-log"))
        return 1
    sys.stderr.write(f"ERROR: Invalid sub-command '{command}' for global extension nvme\n")
    return 1


def _nvme_list(drives: list[dict[str, Any]], as_json: bool) -> int:
    if as_json:
        devices = [
            {
                "NameSpace": 1,
                "DevicePath": "/dev/" + drive["device"],
                "GenericPath": "/dev/ng" + drive["device"][4:],
                "Firmware": "GDC5902Q",
                "Index": index,
                "ModelNumber": drive["model"],
                "ProductName": "Non-Volatile memory controller: Samsung Electronics Co Ltd NVMe SSD Controller PM9A3",
                "SerialNumber": drive["serial"],
                "UsedBytes": BLOCK * 8,
                "MaximumLBA": drive["size_bytes"] // BLOCK,
                "PhysicalSize": drive["size_bytes"],
                "SectorSize": BLOCK,
            }
            for index, drive in enumerate(drives)
        ]
        print(json.dumps({"Devices": devices}, indent=2))
        return 0
    print("{:<21} {:<21} {:<20} {:<40} {:<9}".format("Node", "Generic", "SN", "Model", "Namespace"))
    for drive in drives:
        path = "/dev/" + drive["device"]
        generic = "/dev/ng" + drive["device"][4:]
        print("{:<21} {:<21} {:<20} {:<40} {:<9}".format(path, generic, drive["serial"], drive["model"], "0x1"))
    return 0


def _smart_log(drive: dict[str, Any], as_json: bool) -> int:
    log = {
        "critical_warning": drive["critical_warning"],
        "temperature": 306,
        "avail_spare": 100,
        "spare_thresh": 10,
        "percent_used": drive["percentage_used"],
        "endurance_grp_critical_warning_summary": 0,
        "data_units_read": 1024,
        "data_units_written": 2048,
        "host_read_commands": 40960,
        "host_write_commands": 81920,
        "controller_busy_time": 1,
        "power_cycles": 12,
        "power_on_hours": 96,
        "unsafe_shutdowns": 2,
        "media_errors": 0,
        "num_err_log_entries": 0,
        "warning_temp_time": 0,
        "critical_comp_time": 0,
    }
    if as_json:
        print(json.dumps(log, indent=2))
        return 0
    print("Smart Log for NVME device:{} namespace-id:ffffffff".format(drive["device"]))
    for key, value in log.items():
        print(f"{key:<40}: {value}")
    return 0


def dmidecode() -> int:
    """``dmidecode [-t memory|system|17|1] [-s KEYWORD]``."""
    words = sys.argv[1:]
    model = node.hardware()
    strings = {
        "system-serial-number": model["serial"],
        "system-manufacturer": model["vendor"],
        "system-product-name": model["product"],
        "chassis-serial-number": model["serial"],
        "bios-version": model["firmware"].get("HostBIOS_0", "Unknown"),
    }
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        argument = value if equals else (words[index + 1] if index + 1 < len(words) else "")
        if name in ("-s", "--string"):
            if argument not in strings:
                sys.stderr.write(f"Invalid string keyword: {argument}\n")
                return 2
            print(strings[argument])
            return 0
    kinds = [word for word in words if word in ("memory", "17", "system", "1")] or ["1", "17"]
    print("# dmidecode 3.4\nGetting SMBIOS data from sysfs.\nSMBIOS 3.5.0 present.\n")
    if {"system", "1"} & set(kinds):
        print("Handle 0x0001, DMI type 1, 27 bytes\nSystem Information")
        print("\tManufacturer: {}\n\tProduct Name: {}".format(model["vendor"], model["product"]))
        print("\tSerial Number: {}\n".format(model["serial"]))
    if {"memory", "17"} & set(kinds):
        print("Handle 0x1000, DMI type 16, 23 bytes\nPhysical Memory Array")
        print("\tLocation: System Board Or Motherboard\n\tUse: System Memory")
        print("\tError Correction Type: Multi-bit ECC\n\tNumber Of Devices: {}\n".format(len(model["dimms"])))
        for index, dimm in enumerate(model["dimms"]):
            present = dimm["size_mib"] > 0
            print(f"Handle 0x{0x1100 + index:04X}, DMI type 17, 92 bytes\nMemory Device")
            print("\tSize: {}".format(f"{dimm['size_mib'] // 1024} GB" if present else "No Module Installed"))
            print("\tForm Factor: DIMM\n\tLocator: {}\n\tType: DDR5".format(dimm["slot"]))
            print("\tSpeed: {}".format(f"{dimm['speed_mts']} MT/s" if present else "Unknown"))
            print("\tSerial Number: {}".format(dimm["serial"] or "Unknown"))
            print("\tConfigured Memory Speed: {}\n".format(f"{dimm['speed_mts']} MT/s" if present else "Unknown"))
    return 0


SPEEDS = {1: "2.5GT/s", 2: "5GT/s", 3: "8GT/s", 4: "16GT/s", 5: "32GT/s"}


def lspci() -> int:
    """``lspci [-D] [-n|-nn] [-v|-vv|-vvv] [-d VENDOR:[DEVICE]] [-s SLOT]`` for GPUs and adapters."""
    words = sys.argv[1:]
    verbose = any(word.startswith("-") and not word.startswith("--") and "vv" in word for word in words)
    numbers = any(word.startswith("-") and word.count("n") == 2 for word in words)
    vendor = slot = ""
    for index, word in enumerate(words):
        if word == "-d" and index + 1 < len(words):
            vendor = words[index + 1].lower()
        if word == "-s" and index + 1 < len(words):
            slot = words[index + 1].lower()
    model = node.hardware()
    rows = [
        (
            gpu["pci_address"][4:].lower(),
            "10de:2330",
            "3D controller{}: NVIDIA Corporation GH100 [H100 SXM5 80GB]{} (rev a1)".format(
                " [0302]" if numbers else "", " [10de:2330]" if numbers else ""
            ),
            gpu["pcie_generation"],
            gpu["pcie_width"],
        )
        for gpu in node.gpus(model)
    ] + [
        (
            hca["pci_address"],
            "15b3:1021",
            "Infiniband controller{}: Mellanox Technologies MT2910 Family [ConnectX-7]{}".format(
                " [0207]" if numbers else "", " [15b3:1021]" if numbers else ""
            ),
            5,
            16,
        )
        for hca in model["hcas"]
    ]
    for address, identity, text, generation, width in sorted(rows):
        short = address if any("D" in word for word in words if word.startswith("-")) else address[5:]
        if vendor and not identity.startswith(vendor.split(":")[0]):
            continue
        if vendor and vendor.split(":")[1:] not in ([], [""], [identity.split(":")[1]]):
            continue
        if slot and not address.endswith(slot):
            continue
        print(f"{short} {text}")
        if verbose:
            state = "" if generation == 5 else " (downgraded)"
            narrow = "" if width == 16 else " (downgraded)"
            print("\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported")
            print(f"\t\tLnkSta:\tSpeed {SPEEDS.get(generation, 'unknown')}{state}, Width x{width}{narrow}\n")
    return 0


CORES_PER_SOCKET = 56


def lscpu() -> int:
    """``lscpu [-J]``: the model's processors; util-linux 2.38 nests below the vendor and the model."""
    model = node.hardware()
    sockets = model["cpu_sockets"]
    count = sockets * CORES_PER_SOCKET * 2
    fields: list[tuple[int, str, str]] = [
        (0, "Architecture:", "x86_64"),
        (1, "CPU op-mode(s):", "32-bit, 64-bit"),
        (1, "Address sizes:", "52 bits physical, 57 bits virtual"),
        (1, "Byte Order:", "Little Endian"),
        (0, "CPU(s):", str(count)),
        (1, "On-line CPU(s) list:", f"0-{count - 1}"),
        (0, "Vendor ID:", "GenuineIntel"),
        (1, "Model name:", model["cpu_model"]),
        (2, "CPU family:", "6"),
        (2, "Model:", "143"),
        (2, "Thread(s) per core:", "2"),
        (2, "Core(s) per socket:", str(CORES_PER_SOCKET)),
        (2, "Socket(s):", str(sockets)),
        (2, "Stepping:", "8"),
        (0, "NUMA:", ""),
        (1, "NUMA node(s):", str(sockets)),
    ]
    words = sys.argv[1:]
    if "-J" in words or "--json" in words:
        root: list[dict[str, Any]] = []
        levels = [root]
        for depth, name, value in fields:
            entry: dict[str, Any] = {"field": name, "data": value or None}
            del levels[depth + 1 :]
            levels[depth].append(entry)
            children: list[dict[str, Any]] = []
            entry["children"] = children
            levels.append(children)
        print(json.dumps({"lscpu": _childless(root)}, indent=3))
        return 0
    for depth, name, value in fields:
        print("{:<27}{}".format("  " * depth + name, value))
    return 0


def _childless(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same entries, with ``children`` only where there are some."""
    return [
        {key: _childless(value) if key == "children" else value for key, value in entry.items() if value != []}
        for entry in entries
    ]


def main() -> int:
    """Act as the program by whose name this was started."""
    programs = {"nvme": nvme, "dmidecode": dmidecode, "lspci": lspci, "lscpu": lscpu}
    return programs[Path(sys.argv[0]).name]()
