"""The fabric manager, which trains the NVLinks of a machine with NVSwitches: CUDA does not start without it."""

from __future__ import annotations

from collections.abc import Iterator

from metalyard.gate.check import Subject, check
from metalyard.gate.finding import Finding
from metalyard.gate.parsers.common import ParseError
from metalyard.gate.parsers.host import packages, unit_properties
from metalyard.gate.parsers.nvidia import gpu_log

GUIDE = "NVIDIA Fabric Manager user guide: its version must be the driver's; the service must run before any CUDA work"


def _has_nvswitches(subject: Subject) -> bool:
    """A SKU with NVLinks on eight GPUs goes through NVSwitches."""
    return subject.profile.gpu.count >= 8 and subject.profile.gpu.nvlinks > 0


@check(
    "fabric_manager.service",
    needs=("fabric_manager",),
    applies=_has_nvswitches,
    remedy="See 'journalctl -u nvidia-fabricmanager'; then start it: systemctl restart nvidia-fabricmanager.",
    source=GUIDE,
)
def service(subject: Subject) -> Iterator[Finding]:
    """The service is loaded, active and running."""
    unit = unit_properties(subject.text("fabric_manager"))
    wanted = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running"}
    if missing := sorted(set(wanted) - set(unit)):
        raise ParseError(f"systemctl show lacks {', '.join(missing)}")
    wrong = {name: unit[name] for name, value in wanted.items() if unit[name] != value}
    if wrong:
        told = ", ".join(f"{name} {value}" for name, value in wrong.items())
        yield subject.failed(
            f"the service nvidia-fabricmanager is not running: {told}",
            part="nvidia-fabricmanager",
            measured=told,
            expected="loaded, active, running",
        )
        return
    restarts = unit.get("NRestarts", "0")
    if restarts not in ("", "0"):
        yield subject.watch(
            f"the service nvidia-fabricmanager was restarted {restarts} times since boot",
            part="nvidia-fabricmanager",
            measured=f"{restarts} restarts",
            expected="0 restarts",
        )
    yield subject.passed("the service nvidia-fabricmanager is running", measured="running", expected="running")


@check(
    "fabric_manager.version",
    needs=("gpu_query", "packages"),
    tolerates_failure=True,
    applies=_has_nvswitches,
    remedy="Install the fabric manager of the loaded driver's version (stage configure), or boot into the new driver.",
    source=GUIDE,
)
def version(subject: Subject) -> Iterator[Finding]:
    """The installed fabric manager has the version of the driver that is loaded."""
    driver = gpu_log(subject.probe("gpu_query")).driver
    if not subject.probe("packages").usable:
        raise ParseError("the package list was not read to its end")
    installed = {
        package.name: package.version
        for package in packages(subject.text("packages")).values()
        if package.name.startswith("nvidia-fabricmanager") and package.status == "ii"
    }
    if not installed:
        yield subject.failed("no package nvidia-fabricmanager is installed", measured="none", expected=driver)
    for name, full in installed.items():
        seen = full.partition(":")[2] or full
        seen = seen.rpartition("-")[0] or seen
        if seen == driver:
            yield subject.passed(
                f"{name} is of the driver's version {driver}", part=name, measured=full, expected=driver
            )
        else:
            yield subject.failed(
                f"{name} is of version {seen}, the loaded driver is {driver}",
                part=name,
                measured=full,
                expected=driver,
            )


@check(
    "fabric_manager.gpus",
    needs=("gpu_query",),
    tolerates_failure=True,
    applies=_has_nvswitches,
    remedy="Restart nvidia-fabricmanager and see its log; a GPU that does not register needs a reset.",
    source="nvidia-smi -q, Fabric: state Completed and status Success once the fabric manager has registered a GPU",
)
def registered(subject: Subject) -> Iterator[Finding]:
    """Every GPU that answers is registered with the NVLink fabric."""
    good = 0
    gpus = gpu_log(subject.probe("gpu_query")).gpus
    for gpu in gpus:
        state, status = gpu.text("fabric/state"), gpu.optional("fabric/status") or "not told"
        if (state, status) == ("Completed", "Success"):
            good += 1
            continue
        yield subject.failed(
            f"gpu at {gpu.pci} is not registered with the NVLink fabric: state {state}, status {status}",
            part=f"gpu at {gpu.pci}",
            part_serial=gpu.serial,
            measured=f"{state}, {status}",
            expected="Completed, Success",
        )
    if good:
        yield subject.passed(f"{good} GPUs are registered with the NVLink fabric", measured=f"{good} GPUs")
