"""GPUs: that all of them are there, answer, and are what the profile says."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from metalyard.gate.check import Subject, check
from metalyard.gate.finding import Finding, Owner
from metalyard.gate.parsers.common import ParseError
from metalyard.gate.parsers.nvidia import GpuRow, gpu_rows

PROFILE = "the node's profile"
MAX_CLOCKS: Mapping[str, tuple[int, int]] = {"NVIDIA H100 80GB HBM3": (1980, 2619)}
"""Product to highest SM and memory clock in MHz (H100 SXM5: NVIDIA's data sheet, and as nvidia-smi prints them)."""


def has_gpus(subject: Subject) -> bool:
    """Whether the profile has GPUs at all."""
    return subject.profile.gpu.count > 0


def _each(subject: Subject, judge: Callable[[GpuRow], Iterator[Finding]], what: str) -> Iterator[Finding]:
    """Judge every GPU by itself: a value of one that can't be read leaves the others judged."""
    rows, _ = gpu_rows(subject.probe("gpus"))
    good = 0
    for row in rows:
        try:
            findings = list(judge(row))
        except ParseError as error:
            yield subject.unknown(str(error), part=row.part, part_serial=row.serial, measured="not readable")
            continue
        good += not findings
        yield from findings
    if good:
        yield subject.passed(f"{what} of {good} GPUs as expected", measured=f"{good} GPUs")


def _bmc_serials(subject: Subject) -> set[str]:
    """Serial numbers of the GPUs that the BMC sees, empty where it says none."""
    facts = subject.also("facts", "bmc")
    if facts is None:
        return set()
    try:
        gpus = json.loads(facts).get("gpus") or []
        return {str(gpu["serial"]) for gpu in gpus if gpu.get("serial")}
    except (ValueError, AttributeError, TypeError, KeyError):
        return set()


@check(
    "gpu.count",
    needs=("gpus",),
    tolerates_failure=True,
    applies=has_gpus,
    owner=Owner.OPERATOR,
    remedy="Cold-boot the node. If the GPU stays away, have the vendor replace it, with the Xid and the BMC's log.",
    source=f"{PROFILE}; nvidia-smi(1): a lost GPU ends it with status 15",
)
def count(subject: Subject) -> Iterator[Finding]:
    """All GPUs of the profile, no more and no less, and each one answers. Zero rows are zero GPUs.

    Where a GPU is missing and the BMC still lists it, its serial number is told.
    """
    expected = subject.profile.gpu.count
    rows, lost = gpu_rows(subject.probe("gpus"))
    absent = _bmc_serials(subject) - {row.serial for row in rows}
    serial = absent.pop() if len(absent) == 1 else ""
    about = f" (by the BMC, the one with serial {serial} is missing)" if serial else ""
    for gpu in lost:
        yield subject.failed(
            f"{gpu} does not answer ({gpu.why}); {len(rows)} of {expected} GPUs do{about}",
            part=str(gpu),
            part_serial=serial if len(lost) == 1 else "",
            measured=f"{len(rows)} GPUs",
            expected=f"{expected} GPUs",
        )
    if len(rows) + len(lost) != expected:
        yield subject.failed(
            f"the driver lists {len(rows)} GPUs, expected {expected}{about}",
            part_serial=serial,
            measured=f"{len(rows)} GPUs",
            expected=f"{expected} GPUs",
        )
    elif not lost:
        yield subject.passed(f"{expected} GPUs answer", measured=f"{expected} GPUs", expected=f"{expected} GPUs")


@check(
    "gpu.identity",
    needs=("gpus",),
    tolerates_failure=True,
    applies=has_gpus,
    owner=Owner.VENDOR,
    remedy="Compare the part with the order; have a wrong one exchanged, or give the node the profile that it fits.",
    source=PROFILE,
)
def identity(subject: Subject) -> Iterator[Finding]:
    """The product's name, and a serial number of its own for each GPU: the ledger follows parts by it."""
    name = subject.profile.gpu.name
    rows, _ = gpu_rows(subject.probe("gpus"))
    twice = {serial for serial, seen in Counter(row.serial for row in rows).items() if serial and seen > 1}
    listed = _bmc_serials(subject)

    def judge(row: GpuRow) -> Iterator[Finding]:
        seen, serial = row.text("name"), row.text("serial")
        if name and seen != name:
            yield subject.failed(
                f"{row.part} is a {seen}, expected {name}",
                part=row.part,
                part_serial=serial,
                measured=seen,
                expected=name,
            )
        if serial in twice:
            yield subject.failed(f"{row.part} has serial {serial}, which another GPU has, too", part=row.part)
        if listed and serial not in listed:
            yield subject.watch(
                f"{row.part} has serial {serial}, which the BMC does not list",
                part=row.part,
                part_serial=serial,
                measured=serial,
                expected="a serial that the BMC lists",
                owner=Owner.OPERATOR,
                remedy="Read the BMC again; where it stays, see whether a GPU was replaced without an AC cycle.",
            )

    yield from _each(subject, judge, "name and serial")


@check(
    "gpu.driver",
    needs=("gpus",),
    tolerates_failure=True,
    applies=has_gpus,
    remedy="Run the stage configure again, then reboot the node, so that the baseline's driver is the one loaded.",
    source="the baseline (versions tested together)",
)
def driver(subject: Subject) -> Iterator[Finding]:
    """The driver that is loaded is the baseline's: an installed package alone may wait for a reboot."""
    expected = subject.baseline.driver
    rows, _ = gpu_rows(subject.probe("gpus"))
    seen = sorted({row.text("driver_version") for row in rows})
    if not rows:
        yield subject.unknown("no GPU answers, so the driver's version is not known")
    elif not expected:
        yield subject.passed(f"driver {', '.join(seen)}; the baseline names none", measured=", ".join(seen))
    elif seen == [expected]:
        yield subject.passed(f"driver {expected}", measured=expected, expected=expected)
    else:
        yield subject.failed(
            f"the loaded driver is {', '.join(seen)}, expected {expected} by baseline {subject.baseline.name}",
            measured=", ".join(seen),
            expected=expected,
        )


@check(
    "gpu.vbios",
    needs=("gpus",),
    tolerates_failure=True,
    applies=has_gpus,
    remedy="Run the stage firmware again, then power-cycle the node, so that the GPUs start with the new VBIOS.",
    source="the baseline's GPU firmware; where it names none, that all GPUs of a node have the same",
)
def vbios(subject: Subject) -> Iterator[Finding]:
    """The VBIOS that runs: an update that waits for a power cycle shows in the BMC's inventory and not here."""
    targets = {target.version for target in subject.baseline.firmware if re.search(target.match, "HGX_FW_GPU_SXM_1")}
    rows, _ = gpu_rows(subject.probe("gpus"))
    common = Counter(row.values["vbios_version"] for row in rows).most_common(1)
    expected = {version.upper() for version in targets} or {version.upper() for version, _ in common}

    def judge(row: GpuRow) -> Iterator[Finding]:
        seen = row.text("vbios_version")
        if seen.upper() not in expected:
            yield subject.failed(
                f"{row.part} runs VBIOS {seen}, expected {', '.join(sorted(expected))}",
                part=row.part,
                part_serial=row.serial,
                measured=seen,
                expected=", ".join(sorted(expected)),
            )

    yield from _each(subject, judge, "VBIOS")


@check(
    "gpu.memory",
    needs=("gpus",),
    tolerates_failure=True,
    applies=has_gpus,
    owner=Owner.VENDOR,
    remedy="Reset the GPU and look again; a size that stays wrong is a fault or another product: have it exchanged.",
    source=PROFILE,
)
def memory(subject: Subject) -> Iterator[Finding]:
    """Memory size of each GPU."""
    expected = subject.profile.gpu.memory_mib

    def judge(row: GpuRow) -> Iterator[Finding]:
        seen = row.integer("memory.total")
        if expected and seen != expected:
            yield subject.failed(
                f"{row.part} has {seen} MiB of memory, expected {expected} MiB",
                part=row.part,
                part_serial=row.serial,
                measured=f"{seen} MiB",
                expected=f"{expected} MiB",
            )

    yield from _each(subject, judge, "memory size")


@check(
    "gpu.pcie",
    needs=("gpus",),
    tolerates_failure=True,
    applies=has_gpus,
    owner=Owner.VENDOR,
    remedy="Cold-boot the node. If the link stays slow, reseat the GPU tray; then have the vendor look at it.",
    source=PROFILE,
)
def pcie(subject: Subject) -> Iterator[Finding]:
    """PCIe generation and width as trained: a narrow link halves what the GPU gets from host and adapter."""
    gpu = subject.profile.gpu

    def judge(row: GpuRow) -> Iterator[Finding]:
        generation, width = row.integer("pcie.link.gen.current"), row.integer("pcie.link.width.current")
        if generation < gpu.pcie_generation or width < gpu.pcie_width:
            yield subject.failed(
                f"{row.part} is connected by PCIe {generation} x{width}, "
                f"expected PCIe {gpu.pcie_generation} x{gpu.pcie_width}",
                part=row.part,
                part_serial=row.serial,
                measured=f"PCIe {generation} x{width}",
                expected=f"PCIe {gpu.pcie_generation} x{gpu.pcie_width}",
            )

    yield from _each(subject, judge, "PCIe link")


@check(
    "gpu.temperature",
    needs=("gpus",),
    tolerates_failure=True,
    applies=has_gpus,
    owner=Owner.DATA_CENTRE,
    remedy="See to airflow, fans and inlet temperature, and that open slots are closed; then the heat sink.",
    source=f"{PROFILE} (at rest, before burn-in)",
)
def temperature(subject: Subject) -> Iterator[Finding]:
    """Temperature at rest: a GPU that is warm with nothing to do is not cooled."""
    limit = subject.profile.gpu.max_temperature_celsius

    def judge(row: GpuRow) -> Iterator[Finding]:
        seen = row.number("temperature.gpu")
        if limit and seen > limit:
            yield subject.failed(
                f"{row.part} has {seen:g} °C at rest, expected at most {limit:g} °C",
                part=row.part,
                part_serial=row.serial,
                measured=f"{seen:g} °C",
                expected=f"at most {limit:g} °C",
            )

    yield from _each(subject, judge, "temperature")


@check(
    "gpu.power_limit",
    needs=("gpus",),
    tolerates_failure=True,
    applies=has_gpus,
    remedy="Set the limit back (nvidia-smi -pl), and find what lowered it: a power cap by BMC or a service.",
    source=f"{PROFILE} (H100 SXM5: 700 W, NVIDIA's data sheet)",
)
def power_limit(subject: Subject) -> Iterator[Finding]:
    """The power limit: one GPU that is capped holds up a whole job."""
    expected = subject.profile.gpu.power_limit_watts

    def judge(row: GpuRow) -> Iterator[Finding]:
        seen = row.number("power.limit")
        row.number("power.draw")
        if expected and abs(seen - expected) > 0.5:
            yield subject.failed(
                f"{row.part} has a power limit of {seen:g} W, expected {expected:g} W",
                part=row.part,
                part_serial=row.serial,
                measured=f"{seen:g} W",
                expected=f"{expected:g} W",
            )

    yield from _each(subject, judge, "power limit")


@check(
    "gpu.clocks",
    needs=("gpus",),
    tolerates_failure=True,
    applies=has_gpus,
    owner=Owner.VENDOR,
    remedy="Compare VBIOS and product with the other GPUs; a GPU of another clock is another product.",
    source="H100 SXM5: 1,980 MHz SM and 2,619 MHz memory (NVIDIA's data sheet, nvidia-smi -q -d CLOCK)",
)
def clocks(subject: Subject) -> Iterator[Finding]:
    """The highest clocks that the GPU offers, for the products whose figures are known."""

    def judge(row: GpuRow) -> Iterator[Finding]:
        known = MAX_CLOCKS.get(row.text("name"))
        seen = (row.integer("clocks.max.sm"), row.integer("clocks.max.memory"))
        if known and seen != known:
            yield subject.failed(
                f"{row.part} clocks up to {seen[0]} MHz (memory {seen[1]} MHz), "
                f"expected {known[0]} MHz (memory {known[1]} MHz)",
                part=row.part,
                part_serial=row.serial,
                measured=f"{seen[0]} and {seen[1]} MHz",
                expected=f"{known[0]} and {known[1]} MHz",
            )

    yield from _each(subject, judge, "highest clocks")
