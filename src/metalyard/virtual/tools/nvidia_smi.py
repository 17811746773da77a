"""Emulates ``nvidia-smi`` of driver 570 over the hardware model.

Formats follow driver 570's own output: ``-L``, ``-q``, ``-q -x`` (nvsmi_device_v12.dtd), ``--query-gpu``, ``nvlink``.
A GPU that has fallen off the bus is treated as the driver does: every query says "Unable to determine the device handle
for GPU…: GPU is lost" in its place, goes on with the others, and ends with status 15 (NVML_ERROR_GPU_IS_LOST). With
``-x`` that line goes to standard error, so that the document stays well-formed.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Dict
from xml.sax.saxutils import escape

from metalyard.virtual.tools import node, smi_fields, smi_xml

Gpu = Dict[str, Any]

LOST = 15
NO_DRIVER = 9
MISMATCH = 18
BAD_ARGUMENT = 2
CUDA = "12.8"


def fail_without_driver() -> int | None:
    """The status and words of a node whose driver is not loaded, or is not the one that the libraries belong to."""
    library = node.library_version()
    loaded = node.loaded_module("nvidia")
    if library is None or loaded is None:
        print(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
            "Make sure that the latest NVIDIA driver is installed and running.\n"
        )
        return NO_DRIVER
    if loaded != library:
        print("Failed to initialize NVML: Driver/library version mismatch")
        print("NVML library version: {}".format(".".join(library.split(".")[:2])))
        return MISMATCH
    return None


def lost_line(gpu: Gpu) -> str:
    """What stands in the place of a lost GPU."""
    place = "GPU{}: {}".format(gpu["index"], gpu["pci_address"][4:])
    return f"Unable to determine the device handle for {place}: GPU is lost.  Reboot the system to recover this GPU"


def select(model: dict[str, Any], identifier: str | None) -> list[Gpu]:
    """The GPUs that ``-i`` names (index, UUID, serial or bus, comma-separated), or all; unknown ones end the tool."""
    every: list[Gpu] = model["gpus"]
    if identifier is None:
        return every
    chosen = []
    for word in identifier.split(","):
        match = [
            gpu
            for gpu in every
            if word in (str(gpu["index"]), gpu["uuid"], gpu["serial"])
            or gpu["pci_address"].lower().endswith(word.lower())
        ]
        if not match:
            print("No devices were found")
            raise SystemExit(6)
        chosen += match
    return chosen


def list_gpus(chosen: list[Gpu]) -> int:
    """``-L``."""
    for gpu in chosen:
        if gpu["on_bus"]:
            print("GPU {}: {} (UUID: {})".format(gpu["index"], gpu["name"], gpu["uuid"]))
        else:
            print(lost_line(gpu))
    return 0 if all(gpu["on_bus"] for gpu in chosen) else LOST


def query_xml(chosen: list[Gpu], total: int) -> int:
    """``-q -x``."""
    out = [
        '<?xml version="1.0" ?>',
        '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">',
        "<nvidia_smi_log>",
        f"\t<timestamp>{time.ctime()}</timestamp>",
        f"\t<driver_version>{node.library_version()}</driver_version>",
        f"\t<cuda_version>{CUDA}</cuda_version>",
        f"\t<attached_gpus>{total}</attached_gpus>",
    ]
    for gpu in chosen:
        if not gpu["on_bus"]:
            sys.stderr.write(lost_line(gpu) + "\n")
            continue
        out.append('\t<gpu id="{}">'.format(gpu["pci_address"]))
        out += smi_xml.lines([(name, _escaped(value)) for name, value in smi_xml.gpu_tree(gpu)], 2)
        out.append("\t</gpu>\n")
    out.append("</nvidia_smi_log>")
    print("\n".join(out))
    return 0 if all(gpu["on_bus"] for gpu in chosen) else LOST


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return escape(value)
    return [(name, _escaped(inner)) for name, inner in value]


def query_text(chosen: list[Gpu], total: int) -> int:
    """``-q``: the same tree in nvidia-smi's aligned text."""
    print("\n==============NVSMI LOG==============\n")
    for name, value in (
        ("Timestamp", time.ctime()),
        ("Driver Version", node.library_version()),
        ("CUDA Version", CUDA),
    ):
        print(f"{name:<50}: {value}")
    print("\n{:<50}: {}".format("Attached GPUs", total))
    for gpu in chosen:
        if not gpu["on_bus"]:
            print(lost_line(gpu))
            continue
        print("GPU {}".format(gpu["pci_address"]))
        _print_tree(smi_xml.gpu_tree(gpu), 1)
    return 0 if all(gpu["on_bus"] for gpu in chosen) else LOST


WORDS = {
    "uuid": "GPU UUID",
    "vbios_version": "VBIOS Version",
    "pci": "PCI",
    "gpu_temp": "GPU Current Temp",
    "fb_memory_usage": "FB Memory Usage",
    "ecc_mode": "ECC Mode",
    "ecc_errors": "ECC Errors",
    "remapped_row_corr": "Correctable Error",
    "remapped_row_unc": "Uncorrectable Error",
    "remapped_row_pending": "Pending",
    "remapped_row_failure": "Remapping Failure Occurred",
    "serial": "Serial Number",
    "pci_bus_id": "Bus Id",
}


def _print_tree(tree: smi_xml.Tree, depth: int) -> None:
    for name, value in tree:
        words = WORDS.get(name) or " ".join(word.capitalize() for word in name.split("_")).replace("Gpu", "GPU")
        indent = "    " * depth
        if isinstance(value, str):
            print("{:<50}: {}".format(indent + words, value.strip() or "None"))
        else:
            print(indent + words)
            _print_tree(value, depth + 1)


def query_fields(
    chosen: list[Gpu], total: int, fields: str, layout: str, readers: dict[str, smi_fields.Reader] | None = None
) -> int:
    """``--query-gpu=…`` and its siblings with ``--format=csv[,noheader][,nounits]``."""
    options = layout.split(",")
    if "csv" not in options:
        print('"--format=" switch is missing. Option "--query-*=" requires "--format=csv".')
        return BAD_ARGUMENT
    known = readers if readers is not None else smi_fields.FIELDS
    names = [name.strip() for name in fields.split(",")]
    for name in names:
        if smi_fields.ALIASES.get(name, name) not in known:
            print(f'Field "{name}" is not a valid field to query.\n')
            return BAD_ARGUMENT
    units = "nounits" not in options
    if "noheader" not in options:
        print(", ".join(name + smi_fields.unit(smi_fields.ALIASES.get(name, name)) for name in names))
    for gpu in chosen:
        if not gpu["on_bus"]:
            print(lost_line(gpu))
            continue
        row = []
        for name in names:
            name = smi_fields.ALIASES.get(name, name)
            value = known[name](dict(gpu, __count=total))
            if name == "timestamp":
                value = time.strftime("%Y/%m/%d %H:%M:%S.000")
            if not units and smi_fields.unit(name):
                value = value.split(" ")[0]
            row.append(value)
        print(", ".join(row))
    return 0 if all(gpu["on_bus"] for gpu in chosen) else LOST


def nvlink(chosen: list[Gpu], errors: bool) -> int:
    """``nvlink --status`` or ``nvlink --errorcounters``."""
    for gpu in chosen:
        if not gpu["on_bus"]:
            print(lost_line(gpu))
            continue
        print("GPU {}: {} (UUID: {})".format(gpu["index"], gpu["name"], gpu["uuid"]))
        for link in range(gpu["nvlinks_total"]):
            active = link < gpu["nvlinks_active"]
            if errors:
                for counter in ("Replay", "Recovery", "CRC"):
                    print(f"\t Link {link}: {counter} Errors: 0")
            elif active:
                print(f"\t Link {link}: 26.562 GB/s")
            else:
                print(f"\t Link {link}: <inactive>")
    return 0 if all(gpu["on_bus"] for gpu in chosen) else LOST


def persistence(chosen: list[Gpu], wanted: str) -> int:
    """``-pm 0|1``: kept until the next boot, for all GPUs at once."""
    if wanted not in ("0", "1", "ENABLED", "DISABLED"):
        print('Option "-pm" requires 0/DISABLED or 1/ENABLED.')
        return BAD_ARGUMENT
    if os.geteuid() != 0:
        print("Unable to set persistence mode: Insufficient Permissions\nTerminating early due to previous errors.")
        return 4
    on = wanted in ("1", "ENABLED")
    if on:
        (node.RUN / "persistence-mode").write_text("1\n")
    else:
        (node.RUN / "persistence-mode").unlink(missing_ok=True)
    for gpu in chosen:
        if gpu["on_bus"]:
            print("{} persistence mode for GPU {}.".format("Enabled" if on else "Disabled", gpu["pci_address"]))
        else:
            print(lost_line(gpu))
    print("All done.")
    return 0 if all(gpu["on_bus"] for gpu in chosen) else LOST


def summary(chosen: list[Gpu]) -> int:
    """The table that ``nvidia-smi`` without options prints."""
    version = node.library_version() or ""
    print(time.ctime())
    print("+" + "-" * 89 + "+")
    print("| {:<87} |".format(f"NVIDIA-SMI {version:<22} Driver Version: {version:<14} CUDA Version: {CUDA}"))
    print("|" + "-" * 41 + "+" + "-" * 24 + "+" + "-" * 22 + "|")
    print("| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |")
    print("| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |")
    print("|" + "=" * 41 + "+" + "=" * 24 + "+" + "=" * 22 + "|")
    persistent = "On" if node.persistent() else "Off"
    for gpu in chosen:
        if not gpu["on_bus"]:
            print(lost_line(gpu))
            continue
        name = "{:>3}  {:<27}{:>6}".format(gpu["index"], gpu["name"], persistent)
        power = "{:.0f}W / {:>4.0f}W".format(gpu["power_watts"], gpu["power_limit_watts"])
        heat = "N/A {:>4}C    P0 {:>22}".format(gpu["temperature_celsius"], power)
        memory = "4MiB / {:>6}MiB".format(gpu["memory_mib"])
        print("| {:<39} | {:>18} Off | {:>20} |".format(name, gpu["pci_address"], gpu["ecc_volatile_uncorrectable"]))
        print(f"| {heat:<39} | {memory:>22} |      0%      Default |")
        print("|{:<41}|{:<24}|{:>21} |".format("", "", "Disabled"))
        print("+" + "-" * 41 + "+" + "-" * 24 + "+" + "-" * 22 + "+")
    return 0 if all(gpu["on_bus"] for gpu in chosen) else LOST


def main() -> int:
    """Read the options as nvidia-smi does and print."""
    words = list(sys.argv[1:])
    if words in (["--version"], ["-h"], ["--help"]):
        version = node.library_version() or "unknown"
        print(f"NVIDIA-SMI version  : {version}")
        print(f"NVML version        : {'.'.join(version.split('.')[:2])}")
        print(f"DRIVER version      : {node.loaded_module('nvidia') or 'Not loaded'}")
        print(f"CUDA Version        : {CUDA}")
        return 0
    wanted: dict[str, str] = {}
    mode = "summary"
    if words and words[0] == "nvlink":
        mode = words.pop(0)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name in ("-i", "--id", "-f", "--filename", "-d", "--display", "-pm", "--persistence-mode"):
            wanted[name.lstrip("-")] = value if equals else (words.pop(0) if words else "")
        elif name in ("--query-gpu", "--query-remapped-rows", "--format"):
            wanted[name.lstrip("-")] = value
            if name != "--format":
                mode = name.lstrip("-")
        elif mode == "nvlink" and name in ("-s", "--status", "-e", "--errorcounters"):
            wanted["errors"] = "yes" if name in ("-e", "--errorcounters") else ""
        elif name in ("-L", "--list-gpus"):
            mode = "list"
        elif name in ("-q", "--query"):
            mode = "query"
        elif name in ("-x", "--xml-format"):
            wanted["xml"] = "yes"
        else:
            print(f'Invalid combination of input arguments. Please run "nvidia-smi -h" for help.\n(at "{word}")')
            return BAD_ARGUMENT
    status = fail_without_driver()
    if status is not None:
        return status
    model = node.hardware()
    chosen = select(model, wanted.get("i", wanted.get("id")))
    total = len(node.gpus(model))
    if "pm" in wanted or "persistence-mode" in wanted:
        return persistence(chosen, wanted.get("pm") or wanted.get("persistence-mode") or "")
    if mode == "list":
        return list_gpus(chosen)
    if mode == "query":
        return query_xml(chosen, total) if wanted.get("xml") else query_text(chosen, total)
    if mode == "query-gpu":
        return query_fields(chosen, total, wanted["query-gpu"], wanted.get("format", ""))
    if mode == "query-remapped-rows":
        rows = wanted["query-remapped-rows"]
        return query_fields(chosen, total, rows, wanted.get("format", ""), smi_fields.REMAPPED)
    if mode == "nvlink":
        return nvlink(chosen, bool(wanted.get("errors")))
    return summary(chosen)
