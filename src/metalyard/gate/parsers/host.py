"""What the host's own tools print: lscpu, dmidecode, nvme, chronyc, systemctl, dpkg-query, findmnt, ps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from metalyard.gate.parsers.common import ParseError, integer, json_document, lines, number, shown

UNITS = {"kB": 1 / 1024, "KB": 1 / 1024, "MB": 1, "GB": 1024, "TB": 1024 * 1024}
"""dmidecode's units in MiB: it counts in powers of two."""


def _fields(entries: Any) -> Iterator[tuple[str, str]]:
    """lscpu's fields, which newer versions nest below ``children``."""
    if not isinstance(entries, list):
        raise ParseError("lscpu: 'lscpu' is not a list of fields")
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("field"), str):
            raise ParseError("lscpu has an entry without 'field'")
        yield entry["field"].rstrip(":").strip(), str(entry.get("data") or "")
        if "children" in entry:
            yield from _fields(entry["children"])


def cpu(text: str) -> Mapping[str, str]:
    """``lscpu -J``: field (without colon) to value."""
    document = json_document(text, "the output of lscpu")
    if not isinstance(document, dict):
        raise ParseError("the output of lscpu is not an object")
    fields: dict[str, str] = {}
    for name, value in _fields(document.get("lscpu")):
        fields.setdefault(name, value)
    return fields


@dataclass(frozen=True)
class MemoryDevice:
    """One slot for a memory module; ``size_mib`` is None where nothing is in it."""

    slot: str
    size_mib: int | None
    serial: str
    speed: str


def memory_devices(text: str) -> tuple[MemoryDevice, ...]:
    """``dmidecode -t memory``: all slots. As many as the arrays say there are, when they say it."""
    whole = lines(text, "the output of dmidecode")
    if not whole[0].startswith("# dmidecode"):
        raise ParseError(f"dmidecode begins with '{shown(whole[0])}', expected '# dmidecode' and its version")
    blocks: list[tuple[str, dict[str, str]]] = []
    for line in whole:
        if re.fullmatch(r"Handle 0x[0-9A-Fa-f]+, DMI type \d+, \d+ bytes", line):
            blocks.append(("", {}))
        elif blocks and line and not line.startswith("\t") and not blocks[-1][0]:
            blocks[-1] = (line, blocks[-1][1])
        elif blocks and (field := re.fullmatch(r"\t(?P<name>[^\t:]+):\s*(?P<value>.*)", line)):
            blocks[-1][1][field["name"]] = field["value"].strip()
    slots = 0
    devices = []
    for title, fields in blocks:
        if title == "Physical Memory Array":
            slots += integer(fields.get("Number Of Devices", "missing"), "dmidecode: Number Of Devices")
        if title != "Memory Device":
            continue
        for name in ("Size", "Locator", "Speed"):
            if name not in fields:
                raise ParseError(f"dmidecode: the memory device in '{fields.get('Locator', '?')}' lacks '{name}'")
        devices.append(
            MemoryDevice(
                slot=fields["Locator"],
                size_mib=_size(fields["Size"], fields["Locator"]),
                serial=fields.get("Serial Number", ""),
                speed=fields.get("Configured Memory Speed", fields["Speed"]),
            )
        )
    if slots and slots != len(devices):
        raise ParseError(f"dmidecode: the memory arrays have {slots} slots, and {len(devices)} are described")
    return tuple(devices)


def _size(text: str, slot: str) -> int | None:
    if text == "No Module Installed":
        return None
    match = re.fullmatch(r"(\d+) (kB|KB|MB|GB|TB)", text)
    if not match:
        raise ParseError(f"dmidecode: the size of {slot} is '{shown(text)}', expected a number in MB, GB or TB")
    return round(int(match[1]) * UNITS[match[2]])


@dataclass(frozen=True)
class NvmeDrive:
    """One NVMe namespace that the host sees."""

    device: str
    model: str
    serial: str
    firmware: str
    size_bytes: int


def nvme_drives(text: str) -> tuple[NvmeDrive, ...]:
    """``nvme list -o json`` of nvme-cli 1.x and 2.x, and the nested form of 2.11 and later. No drive: none."""
    document = json_document(text, "the output of nvme list")
    if not isinstance(document, dict) or not isinstance(document.get("Devices", []), list):
        raise ParseError("the output of nvme list has no list 'Devices'")
    drives = []
    try:
        for entry in document.get("Devices", []):
            if "DevicePath" in entry:
                drives.append(_drive(entry["DevicePath"], entry, entry["PhysicalSize"]))
                continue
            for subsystem in entry["Subsystems"]:
                for controller in subsystem["Controllers"]:
                    spaces = controller.get("Namespaces") or subsystem.get("Namespaces") or []
                    drives += [_drive("/dev/" + one["NameSpace"], controller, one["PhysicalSize"]) for one in spaces]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ParseError(f"the output of nvme list lacks or garbles {error}") from error
    return tuple(drives)


def _drive(path: str, about: Mapping[str, Any], size: Any) -> NvmeDrive:
    return NvmeDrive(
        device=path.rpartition("/")[2],
        model=str(about["ModelNumber"]).strip(),
        serial=str(about["SerialNumber"]).strip(),
        firmware=str(about["Firmware"]).strip(),
        size_bytes=int(size),
    )


@dataclass(frozen=True)
class Tracking:
    """``chronyc -c tracking``: how the clock stands against its source. Offsets in seconds."""

    reference: str
    stratum: int
    offset: float
    root_delay: float
    root_dispersion: float
    leap: str


def tracking(text: str) -> Tracking:
    """Read it: one line of fourteen values."""
    whole = lines(text, "the output of chronyc")
    values = whole[0].split(",")
    if len(whole) != 1 or len(values) != 14:
        raise ParseError(f"chronyc printed '{shown(text)}', expected one line of 14 values")
    return Tracking(
        reference=values[1] or values[0],
        stratum=integer(values[2], "chronyc: stratum"),
        offset=number(values[4], "chronyc: system time"),
        root_delay=number(values[10], "chronyc: root delay"),
        root_dispersion=number(values[11], "chronyc: root dispersion"),
        leap=values[13],
    )


def unit_properties(text: str) -> Mapping[str, str]:
    """``systemctl show``: property to value."""
    properties = {}
    for line in lines(text, "the output of systemctl show"):
        name, equals, value = line.partition("=")
        if not equals or not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name):
            raise ParseError(f"systemctl show has the line '{shown(line)}', expected Property=value")
        properties[name] = value
    return properties


def units(text: str) -> tuple[Mapping[str, str], ...]:
    """``systemctl list-units --output=json``: one mapping a unit."""
    document = json_document(text, "the output of systemctl list-units")
    if not isinstance(document, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("unit"), str) for entry in document
    ):
        raise ParseError("the output of systemctl list-units is not a list of units")
    return tuple({name: str(value) for name, value in entry.items()} for entry in document)


@dataclass(frozen=True)
class Package:
    """One Debian package.

    ``status`` is dpkg's: what is wanted (u i h r p), what is (n c H U F W t i), and R where it must be installed anew.
    ``ii`` is installed and configured.
    """

    name: str
    status: str
    version: str


def packages(text: str) -> Mapping[str, Package]:
    """The probe ``packages``: name (without architecture) to package."""
    found: dict[str, Package] = {}
    for line in lines(text, "the package list"):
        columns = line.split("\t")
        if len(columns) != 3 or not re.fullmatch(r"[uihrp][ncHUFWti][R ]?", columns[0]) or not columns[1]:
            raise ParseError(f"the package list has the line '{shown(line)}', expected status, name and version")
        name = columns[1].partition(":")[0]
        package = Package(name, columns[0].strip(), columns[2])
        # Of one package in two architectures the installed one counts.
        if name not in found or package.status == "ii":
            found[name] = package
    return found


@dataclass(frozen=True)
class Mount:
    """One file system."""

    target: str
    source: str
    kind: str
    options: tuple[str, ...]
    used_percent: int | None
    """None where the file system has no size (proc, sysfs)."""


def mounts(text: str) -> tuple[Mount, ...]:
    """``findmnt --json --list``."""
    document = json_document(text, "the output of findmnt")
    found = []
    try:
        for entry in document["filesystems"]:
            used = entry.get("use%")
            found.append(
                Mount(
                    target=entry["target"],
                    source=str(entry["source"]),
                    kind=entry["fstype"],
                    options=tuple(entry["options"].split(",")),
                    used_percent=None
                    if used in (None, "-")
                    else integer(str(used).rstrip("%"), f"use% of {entry['target']}"),
                )
            )
    except (KeyError, TypeError, AttributeError) as error:
        raise ParseError(f"the output of findmnt lacks or garbles {error}") from error
    return tuple(found)


@dataclass(frozen=True)
class Process:
    """One process at one look."""

    state: str
    pid: int
    waits_in: str
    name: str


def processes(text: str) -> tuple[tuple[Process, ...], tuple[Process, ...]]:
    """The probe ``processes``: two looks, a moment apart."""
    looks: list[list[Process]] = [[]]
    for line in lines(text, "the process list"):
        if line == "--":
            looks.append([])
            continue
        match = re.fullmatch(r"(?P<state>[A-Zt])\s+(?P<pid>\d+)\s+(?P<wchan>\S+)\s+(?P<name>.*\S)\s*", line)
        if not match:
            raise ParseError(f"the process list has the line '{shown(line)}', expected state, pid, wait channel, name")
        looks[-1].append(Process(match["state"], int(match["pid"]), match["wchan"], match["name"]))
    if len(looks) != 2 or not all(looks):
        raise ParseError(f"the process list holds {len(looks)} looks, expected 2 with processes in each")
    return tuple(looks[0]), tuple(looks[1])
