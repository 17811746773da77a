"""What ``nvidia-smi`` prints: the CSV of --query-gpu, the XML of -q -x, and nvlink -s."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass

from metalyard.gate.evidence import Probe
from metalyard.gate.parsers.common import UNREADABLE, ParseError, integer, lines, number, shown

COLUMNS: Mapping[str, str] = {
    "index": "",
    "name": "",
    "uuid": "",
    "serial": "",
    "pci.bus_id": "",
    "vbios_version": "",
    "memory.total": "MiB",
    "temperature.gpu": "",
    "power.draw": "W",
    "power.limit": "W",
    "pcie.link.gen.current": "",
    "pcie.link.width.current": "",
    "clocks.max.sm": "MHz",
    "clocks.max.memory": "MHz",
    "ecc.errors.uncorrected.volatile.total": "",
    "ecc.errors.corrected.volatile.total": "",
    "ecc.errors.uncorrected.aggregate.total": "",
    "driver_version": "",
}
"""Columns of the probe ``gpus`` and the unit that each has in its heading and behind each value."""

_BUS_ID = re.compile(r"(?P<domain>[0-9A-Fa-f]{4,8}):(?P<rest>[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(\.[0-7])?)")
_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PCI = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"
_LOST = re.compile(
    r"Unable to determine the device handle for GPU ?"
    rf"((?P<pci>{_PCI})|(?P<index>\d+)(: ?(?P<place>{_PCI}))?): ?(?P<why>.*)"
)
_NVLINK_GPU = re.compile(r"GPU (?P<index>\d+): (?P<name>.+) \(UUID: (?P<uuid>GPU-[0-9a-f-]{36})\)")
_NVLINK_LINK = re.compile(r"\s+Link (?P<link>\d+): (?P<state><inactive>|(?P<speed>\d+(\.\d+)?) GB/s)")


EXIT_STATUS: Mapping[int, str] = {
    2: "it was called with an argument that this version does not know",
    3: "the GPU can't do what was asked",
    4: "it was not run as root",
    6: "no such GPU was found",
    8: "a GPU's power cables are not attached properly",
    9: "the driver is not loaded",
    10: "the kernel found a problem with a GPU's interrupts",
    12: "the library libnvidia-ml was not found",
    13: "the library libnvidia-ml is of another version",
    14: "a GPU's infoROM is corrupt",
    15: "a GPU has fallen off the bus or is out of reach",
    18: "driver and library are of different versions",
    255: "the driver had an internal error",
}
"""What an exit status of nvidia-smi says (nvidia-smi(1), "return value"; 18 is NVML's version mismatch)."""
LOST = 15


@dataclass(frozen=True)
class LostGpu:
    """A GPU that nvidia-smi knows of and can't reach. Number and address as far as it says them."""

    index: int | None
    pci: str | None
    why: str

    def __str__(self) -> str:
        name = "gpu" if self.index is None else f"gpu {self.index}"
        return f"{name} at {self.pci}" if self.pci else name


@dataclass(frozen=True)
class Answer:
    """What nvidia-smi said of the GPUs that it reaches, and which ones it does not."""

    text: str
    lost: tuple[LostGpu, ...]


def answer(probe: Probe) -> Answer:
    """Tell the lines about lost GPUs from the rest. Status 15 with such a line is an answer about the others, too.

    :class:`ParseError` for any other failure, with what the exit status says.
    """
    lost: dict[tuple[int | None, str | None], LostGpu] = {}
    kept = []
    for stream in (probe.stdout, probe.stderr):
        for line in stream.splitlines(keepends=True):
            match = _LOST.fullmatch(line.strip())
            if match:
                place = match["pci"] or match["place"]
                one = LostGpu(
                    index=None if match["index"] is None else int(match["index"]),
                    pci=pci_address(place) if place else None,
                    why=match["why"].strip(),
                )
                lost[one.index, one.pci] = one
            elif stream is probe.stdout:
                kept.append(line)
    if probe.exit_status != 0 and not (probe.exit_status == LOST and lost):
        raise ParseError(failure(probe))
    return Answer("".join(kept), tuple(lost.values()))


def failure(probe: Probe) -> str:
    """Why a call of nvidia-smi failed, in a sentence."""
    status = probe.exit_status
    meaning = EXIT_STATUS.get(status, "the manual does not say what that is") if status is not None else "no status"
    said = shown((probe.stdout.strip() or probe.stderr.strip()).split("\n")[0], 160)
    return f"'{' '.join(probe.command[:3])[:60]}' ended with status {status}: {meaning}" + (
        f" ('{said}')" if said else ""
    )


def pci_address(text: str) -> str:
    """A PCI address in one writing, ``0000:5e:00.0``, from nvidia-smi's or the kernel log's (without function)."""
    match = _BUS_ID.fullmatch(text.strip())
    if not match:
        raise ParseError(f"'{shown(text)}' is not a PCI address such as 00000000:5E:00.0")
    rest = match["rest"].lower()
    return f"{int(match['domain'], 16):04x}:{rest if '.' in rest else rest + '.0'}"


@dataclass(frozen=True)
class GpuRow:
    """One GPU of the probe ``gpus``; every value as it stands, read by the accessors."""

    values: Mapping[str, str]

    def text(self, column: str) -> str:
        """A value that must be readable. :class:`ParseError` for ``[N/A]`` and its like."""
        value = self.values[column]
        if not value or UNREADABLE.fullmatch(value):
            raise ParseError(f"GPU {self.values['index']}: {column} is '{shown(value)}', expected a value")
        return value

    def number(self, column: str) -> float:
        """A number, without its unit."""
        return number(self.text(column), f"GPU {self.values['index']}: {column}", COLUMNS[column])

    def integer(self, column: str) -> int:
        """A whole number, without its unit."""
        return integer(self.text(column), f"GPU {self.values['index']}: {column}", COLUMNS[column])

    @property
    def index(self) -> int:
        """The number that nvidia-smi gives the GPU."""
        return int(self.values["index"])

    @property
    def part(self) -> str:
        """How findings name it."""
        return f"gpu {self.index}"

    @property
    def serial(self) -> str:
        """Its serial number, empty where it can't be read (which gpu.identity finds)."""
        value = self.values["serial"]
        return "" if UNREADABLE.fullmatch(value) else value


def gpu_rows(probe: Probe) -> tuple[tuple[GpuRow, ...], tuple[LostGpu, ...]]:
    """The GPUs of the probe ``gpus``, in the tool's order, and the lost ones. No GPU at all is none, not an error."""
    said = answer(probe)
    return _rows(lines(said.text, "the GPU list")), said.lost


def _rows(whole: list[str]) -> tuple[GpuRow, ...]:
    if whole == ["No devices were found"]:
        return ()
    rows = list(csv.reader(io.StringIO("\n".join(whole)), skipinitialspace=True, strict=True))
    expected = [f"{column} [{unit}]" if unit else column for column, unit in COLUMNS.items()]
    if rows[0] != expected:
        missing = [column for column in expected if column not in rows[0]]
        raise ParseError(
            f"the GPU list has the columns '{shown(', '.join(rows[0]), 300)}', "
            f"expected {'also ' + ', '.join(missing) if missing else 'those of the probe, in its order'}"
        )
    gpus = []
    for row in rows[1:]:
        if len(row) != len(expected):
            raise ParseError(
                f"the GPU list has a line of {len(row)} values, expected {len(expected)}: '{shown(','.join(row))}'"
            )
        values = dict(zip(COLUMNS, (value.strip() for value in row), strict=True))
        if not values["index"].isdecimal():
            raise ParseError(f"a GPU's index is '{shown(values['index'])}', expected a number")
        gpus.append(GpuRow(values))
    for column in ("index", "uuid", "pci.bus_id"):
        seen = [gpu.values[column] for gpu in gpus]
        if len(set(seen)) != len(seen):
            raise ParseError(f"two GPUs have the same {column}: {', '.join(seen)}")
    for gpu in gpus:
        if not _UUID.fullmatch(gpu.values["uuid"]):
            raise ParseError(f"GPU {gpu.index}: uuid is '{shown(gpu.values['uuid'])}', expected GPU- and 32 digits")
        pci_address(gpu.values["pci.bus_id"])
    return tuple(gpus)


@dataclass(frozen=True)
class GpuRecord:
    """One GPU of ``nvidia-smi -q -x``."""

    pci: str
    element: ElementTree.Element

    def optional(self, path: str) -> str | None:
        """Text of an element, None where this driver does not print it."""
        found = self.element.find(path)
        return None if found is None else (found.text or "").strip()

    def text(self, path: str) -> str:
        """Text that must be there and readable; ``None`` as a word is a value."""
        value = self.optional(path)
        if not value or UNREADABLE.fullmatch(value):
            seen = "missing" if value is None else f"'{shown(value)}'"
            raise ParseError(f"GPU {self.pci}: {path} is {seen}, expected a value")
        return value

    def integer(self, path: str, unit: str = "") -> int:
        """A whole number that must be there."""
        return integer(self.text(path), f"GPU {self.pci}: {path}", unit)

    def flag(self, path: str) -> bool:
        """Yes or No, and nothing else."""
        value = self.text(path)
        if value not in ("Yes", "No"):
            raise ParseError(f"GPU {self.pci}: {path} is '{shown(value)}', expected Yes or No")
        return value == "Yes"

    @property
    def serial(self) -> str:
        """Its serial number, empty where it can't be read."""
        value = self.optional("serial") or ""
        return "" if UNREADABLE.fullmatch(value) else value


@dataclass(frozen=True)
class GpuLog:
    """All of ``nvidia-smi -q -x``."""

    driver: str
    gpus: tuple[GpuRecord, ...]
    lost: tuple[LostGpu, ...]


def gpu_log(probe: Probe) -> GpuLog:
    """Read the XML. It must be whole, and describe as many GPUs as it says are attached, but for the lost ones."""
    said = answer(probe)
    text = said.text
    if "<!ENTITY" in text:
        raise ParseError("the GPU query declares entities, which nvidia-smi never does")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 (no entities, see above; and the document is sealed)
    except ElementTree.ParseError as error:
        raise ParseError(f"the GPU query is not whole XML ({error})") from error
    if root.tag != "nvidia_smi_log":
        raise ParseError(f"the GPU query is a '{shown(root.tag)}', expected an nvidia_smi_log")
    attached = integer(root.findtext("attached_gpus", "missing"), "the GPU query's attached_gpus")
    gpus = tuple(GpuRecord(pci_address(gpu.get("id", "")), gpu) for gpu in root.findall("gpu"))
    if not len(gpus) <= attached <= len(gpus) + len(said.lost):
        raise ParseError(f"the GPU query says {attached} GPUs are attached and describes {len(gpus)}")
    if len({gpu.pci for gpu in gpus}) != len(gpus):
        raise ParseError("the GPU query describes one PCI address twice")
    driver = root.findtext("driver_version", "").strip()
    if not driver:
        raise ParseError("the GPU query has no driver_version")
    return GpuLog(driver, gpus, said.lost)


@dataclass(frozen=True)
class NvlinkGpu:
    """One GPU's NVLinks: link number to GB/s in one direction, None for an inactive one."""

    index: int
    uuid: str
    links: Mapping[int, float | None]


def nvlinks(probe: Probe) -> tuple[NvlinkGpu, ...]:
    """Read ``nvidia-smi nvlink -s``. A GPU whose links are all inactive may say so in a sentence: no links."""
    gpus: list[NvlinkGpu] = []
    current: dict[int, float | None] | None = None
    for line in lines(answer(probe).text, "the NVLink list"):
        if head := _NVLINK_GPU.fullmatch(line.rstrip()):
            current = {}
            gpus.append(NvlinkGpu(int(head["index"]), head["uuid"], current))
        elif (link := _NVLINK_LINK.fullmatch(line.rstrip())) and current is not None:
            if int(link["link"]) in current:
                raise ParseError(f"the NVLink list has link {link['link']} of GPU {gpus[-1].index} twice")
            current[int(link["link"])] = None if link["speed"] is None else float(link["speed"])
        elif not line.strip() or (current is not None and "all links are inActive" in line):
            continue
        else:
            raise ParseError(f"the NVLink list has the line '{shown(line)}', expected a GPU or one of its links")
    if len({gpu.index for gpu in gpus}) != len(gpus) or len({gpu.uuid for gpu in gpus}) != len(gpus):
        raise ParseError("the NVLink list has one GPU twice")
    return tuple(gpus)
