"""GPU memory errors on Hopper: row remapping, uncorrectable errors, the SRAM threshold, and what the driver asks for.

Figures: NVIDIA's GPU memory error management guide. Retired pages belong to GPUs before Ampere and say nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from metalyard.gate.check import Subject, check
from metalyard.gate.checks.gpu import has_gpus
from metalyard.gate.finding import Finding, Owner
from metalyard.gate.parsers.common import ParseError, integer
from metalyard.gate.parsers.nvidia import GpuRecord, gpu_log, gpu_rows, pci_address
from metalyard.gate.xid import recovery_remedy

GUIDE = "NVIDIA GPU memory error management guide (Ampere and later)"
RMA = "Run the vendor's field diagnostics on the GPU; when they confirm it, have the GPU replaced (RMA)."


def _each(subject: Subject, judge: Callable[[GpuRecord, str], Iterator[Finding]], what: str) -> Iterator[Finding]:
    """Judge every GPU of the query by itself, under the number that nvidia-smi gives it elsewhere."""
    names = {}
    listed = subject.evidence["os"].probes.get("gpus")
    if listed is not None and listed.answered:
        try:
            rows, _ = gpu_rows(listed)
            names = {pci_address(row.values["pci.bus_id"]): row.part for row in rows}
        except ParseError:
            names = {}
    log = gpu_log(subject.probe("gpu_query"))
    good = 0
    for gpu in log.gpus:
        part = names.get(gpu.pci, f"gpu at {gpu.pci}")
        try:
            findings = list(judge(gpu, part))
        except ParseError as error:
            yield subject.unknown(str(error), part=part, part_serial=gpu.serial, measured="not readable")
            continue
        good += not findings
        yield from findings
    if unseen := sorted(set(names) - {gpu.pci for gpu in log.gpus}):
        yield subject.unknown(
            f"nvidia-smi -q says nothing of {', '.join(names[pci] for pci in unseen)}, which nvidia-smi lists"
        )
    if good:
        yield subject.passed(f"{what} on {good} GPUs", measured=f"{good} GPUs")


@check(
    "memory_errors.row_remap",
    needs=("gpu_query",),
    tolerates_failure=True,
    applies=has_gpus,
    remedy="Drain the node and reset the GPU, which completes the remapping; then prove the node again.",
    source=GUIDE,
)
def row_remap(subject: Subject) -> Iterator[Finding]:
    """Row remapping. A failure, confirmed by field diagnostics, is an RMA; a pending remap waits for a GPU reset.

    A failure is set by a remap on a bank with 8 uncorrectable rows remapped already, by a row remapped twice, or after
    512 uncorrectable remaps. A pending one alone is no fault of the part; before service is the cheap moment to reset.
    """

    def judge(gpu: GpuRecord, part: str) -> Iterator[Finding]:
        if gpu.flag("remapped_rows/remapped_row_failure"):
            yield subject.failed(
                f"{part}: row remapping has failed",
                part=part,
                part_serial=gpu.serial,
                measured="remapping failure",
                expected="no remapping failure",
                remedy=RMA,
                owner=Owner.VENDOR,
            )
        if gpu.flag("remapped_rows/remapped_row_pending"):
            yield subject.failed(
                f"{part}: a row remapping is pending until the GPU is reset",
                part=part,
                part_serial=gpu.serial,
                measured="pending",
                expected="nothing pending",
            )
        for kind, words in (("unc", "uncorrectable"), ("corr", "correctable")):
            rows = gpu.integer(f"remapped_rows/remapped_row_{kind}")
            if rows:
                yield subject.watch(
                    f"{part}: {rows} rows are remapped for {words} errors",
                    part=part,
                    part_serial=gpu.serial,
                    measured=f"{rows} rows",
                    expected="0 rows",
                    remedy="Follow the count by the GPU's serial number; a rising one ends in a failure.",
                )

    yield from _each(subject, judge, "no row remapping")


@check(
    "memory_errors.remap_reserve",
    needs=("gpu_query",),
    tolerates_failure=True,
    applies=has_gpus,
    owner=Owner.VENDOR,
    remedy="Follow the GPU by its serial number: a bank without spare rows fails at the next error.",
    source=GUIDE,
)
def remap_reserve(subject: Subject) -> Iterator[Finding]:
    """The histogram of spare rows per memory bank: banks with few or none left, before a remapping fails."""
    base = "remapped_rows/row_remapper_histogram"

    def judge(gpu: GpuRecord, part: str) -> Iterator[Finding]:
        counts = {
            level: integer(gpu.text(f"{base}/row_remapper_histogram_{level}"), f"{part}: {level}", "bank(s)")
            for level in ("max", "high", "partial", "low", "none")
        }
        if not any(counts.values()):
            yield subject.unknown(f"{part}: the histogram of spare rows counts no bank at all", part=part)
        for level, words in (("none", "no spare row"), ("low", "few spare rows")):
            if counts[level]:
                yield subject.watch(
                    f"{part}: {counts[level]} memory banks have {words} left",
                    part=part,
                    part_serial=gpu.serial,
                    measured=f"{counts[level]} banks",
                    expected="0 banks",
                )

    yield from _each(subject, judge, "spare rows in every memory bank")


@check(
    "memory_errors.uncorrectable",
    needs=("gpu_query",),
    tolerates_failure=True,
    applies=has_gpus,
    remedy="Drain the node, reset the GPU, and prove the node again; the count follows the GPU's serial number.",
    source=GUIDE,
)
def uncorrectable(subject: Subject) -> Iterator[Finding]:
    """Uncorrectable errors since the driver was loaded, and correctable ones, which make a GPU slow."""

    def judge(gpu: GpuRecord, part: str) -> Iterator[Finding]:
        mode = gpu.text("ecc_mode/current_ecc")
        if mode != "Enabled":
            yield subject.failed(
                f"{part}: ECC is {mode}, expected Enabled",
                part=part,
                part_serial=gpu.serial,
                measured=mode,
                expected="Enabled",
                remedy="Enable ECC (nvidia-smi -e 1) and boot again.",
            )
            return
        base = "ecc_errors/volatile"
        counts = {
            name: gpu.integer(f"{base}/{name}")
            for name in ("sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_uncorrectable")
        }
        bad = {name.replace("_", " "): count for name, count in counts.items() if count}
        if bad:
            told = ", ".join(f"{count} {name}" for name, count in bad.items())
            yield subject.failed(
                f"{part}: {told} errors since the driver was loaded, expected none",
                part=part,
                part_serial=gpu.serial,
                measured=told,
                expected="0",
            )
        small = gpu.integer(f"{base}/sram_correctable") + gpu.integer(f"{base}/dram_correctable")
        if small:
            yield subject.watch(
                f"{part}: {small} correctable errors since the driver was loaded",
                part=part,
                part_serial=gpu.serial,
                measured=small,
                expected="0",
                remedy="Compare the rate with the fleet's: correcting errors slows the GPU, and with it the whole job.",
            )

    yield from _each(subject, judge, "ECC on, no errors")


@check(
    "memory_errors.sram_threshold",
    needs=("gpu_query",),
    tolerates_failure=True,
    applies=has_gpus,
    owner=Owner.VENDOR,
    remedy=RMA,
    source=GUIDE,
)
def sram_threshold(subject: Subject) -> Iterator[Finding]:
    """The driver's SRAM flag: more than 4 unique uncorrectable errors in a bank (parity), more than 2 (SECDED)."""

    def judge(gpu: GpuRecord, part: str) -> Iterator[Finding]:
        if gpu.flag("ecc_errors/aggregate/sram_threshold_exceeded"):
            yield subject.failed(
                f"{part}: uncorrectable SRAM errors have exceeded the vendor's threshold",
                part=part,
                part_serial=gpu.serial,
                measured="exceeded",
                expected="not exceeded",
            )

    yield from _each(subject, judge, "SRAM errors below the threshold")


@check(
    "memory_errors.recovery_action",
    needs=("gpu_query",),
    tolerates_failure=True,
    applies=has_gpus,
    remedy="Do what the driver asks for, then prove the node again.",
    source="NVML, nvmlDeviceGetFieldValues: NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; nvidia-smi -q, GPU Recovery Action",
)
def recovery_action(subject: Subject) -> Iterator[Finding]:
    """What the driver itself asks for: none, reset, reboot, drain P2P, drain and reset."""

    def judge(gpu: GpuRecord, part: str) -> Iterator[Finding]:
        action = gpu.text("gpu_recovery_action")
        remedy = recovery_remedy(action)
        if remedy is None:
            raise ParseError(f"{part}: the driver asks for '{action}', which is not known")
        if remedy:
            yield subject.failed(
                f"{part}: the driver asks for: {action}",
                part=part,
                part_serial=gpu.serial,
                measured=action,
                expected="None",
                remedy=remedy,
            )

    yield from _each(subject, judge, "no recovery asked for")
