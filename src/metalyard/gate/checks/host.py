"""The host: processors, memory modules, drives, file systems, and processes that hang."""

from __future__ import annotations

import re
from collections.abc import Iterator

from metalyard.gate.check import Subject, check
from metalyard.gate.finding import Finding, Owner
from metalyard.gate.parsers.common import ParseError, integer
from metalyard.gate.parsers.host import cpu, memory_devices, mounts, nvme_drives, processes

PROFILE = "the node's profile"
FULL_PERCENT = 95
"""Share of a file system in use from which on it is told: images and logs need room."""


@check(
    "host.cpu",
    needs=("cpu",),
    owner=Owner.VENDOR,
    applies=lambda subject: subject.profile.cpu.sockets > 0,
    remedy="See the BMC's processor inventory; reseat or replace the processor that is missing or wrong.",
    source=PROFILE,
)
def processors(subject: Subject) -> Iterator[Finding]:
    """Sockets and model."""
    fields = cpu(subject.text("cpu"))
    wanted = subject.profile.cpu
    sockets = integer(fields.get("Socket(s)", "missing"), "lscpu: Socket(s)")
    model = fields.get("Model name", "")
    if not model:
        raise ParseError("lscpu does not tell the model name")
    if sockets != wanted.sockets:
        yield subject.failed(
            f"{sockets} processors, expected {wanted.sockets}",
            part="cpu",
            measured=f"{sockets} sockets",
            expected=f"{wanted.sockets} sockets",
        )
    if wanted.model and not re.search(wanted.model, model):
        yield subject.failed(
            f"the processor is '{model}', expected one that matches '{wanted.model}'",
            part="cpu",
            measured=model,
            expected=wanted.model,
        )
    elif sockets == wanted.sockets:
        yield subject.passed(f"{sockets} processors {model}", part="cpu", measured=f"{sockets} x {model}")


@check(
    "host.memory",
    needs=("memory",),
    owner=Owner.VENDOR,
    applies=lambda subject: subject.profile.memory.dimm_count > 0,
    remedy="Reseat the module in the named slot; replace it when it stays away.",
    source=PROFILE,
)
def memory(subject: Subject) -> Iterator[Finding]:
    """Count and size of the memory modules: one that is not trained at boot is simply not there."""
    wanted = subject.profile.memory
    slots = memory_devices(subject.text("memory"))
    fitted = [slot for slot in slots if slot.size_mib is not None]
    if len(fitted) != wanted.dimm_count:
        empty = [slot.slot for slot in slots if slot.size_mib is None]
        yield subject.failed(
            f"{len(fitted)} memory modules, expected {wanted.dimm_count}"
            + (f" (empty slots: {', '.join(empty[:16])})" if empty else ""),
            part=", ".join(empty[:4]) or "memory",
            measured=f"{len(fitted)} modules",
            expected=f"{wanted.dimm_count} modules",
        )
    wrong = [slot for slot in fitted if wanted.dimm_size_mib and slot.size_mib != wanted.dimm_size_mib]
    for slot in wrong:
        yield subject.failed(
            f"the memory module in {slot.slot} has {slot.size_mib} MiB, expected {wanted.dimm_size_mib} MiB",
            part=slot.slot,
            part_serial=slot.serial,
            measured=f"{slot.size_mib} MiB",
            expected=f"{wanted.dimm_size_mib} MiB",
        )
    speeds = {slot.speed for slot in fitted}
    if len(speeds) > 1:
        yield subject.watch(
            f"the memory modules run at different speeds: {', '.join(sorted(speeds))}",
            part="memory",
            measured=", ".join(sorted(speeds)),
            expected="one speed",
        )
    if not wrong and len(fitted) == wanted.dimm_count:
        yield subject.passed(
            f"{len(fitted)} memory modules of {wanted.dimm_size_mib} MiB", measured=f"{len(fitted)} modules"
        )


@check(
    "host.drives",
    needs=("drives",),
    owner=Owner.VENDOR,
    applies=lambda subject: subject.profile.drives.nvme_count > 0,
    remedy="Reseat the drive that is missing (the BMC lists the slots); replace it when it stays away.",
    source=PROFILE,
)
def drives(subject: Subject) -> Iterator[Finding]:
    """Count of NVMe drives, each with a size and a serial number of its own."""
    wanted = subject.profile.drives.nvme_count
    found = nvme_drives(subject.text("drives"))
    serials = {drive.serial for drive in found}
    for drive in found:
        if drive.size_bytes <= 0 or not drive.serial:
            yield subject.failed(
                f"{drive.device} tells a size of {drive.size_bytes} bytes and the serial '{drive.serial}'",
                part=drive.device,
                part_serial=drive.serial,
                measured=f"{drive.size_bytes} bytes",
                expected="a size and a serial",
            )
    if len(serials) != wanted:
        yield subject.failed(
            f"{len(serials)} NVMe drives, expected {wanted}",
            part="nvme",
            measured=f"{len(serials)} drives",
            expected=f"{wanted} drives",
        )
    else:
        yield subject.passed(f"{wanted} NVMe drives", measured=f"{wanted} drives", expected=f"{wanted} drives")


@check(
    "host.mounts",
    needs=("mounts",),
    remedy="See the kernel log for the file system's errors, check it, and make room where it is full.",
    source="Linux remounts a file system read-only on errors (errors=remount-ro)",
)
def file_systems(subject: Subject) -> Iterator[Finding]:
    """The root file system can be written, and those that hold the system's data are not full."""
    found = mounts(subject.text("mounts"))
    if not any(mount.target == "/" and mount.used_percent is not None for mount in found):
        raise ParseError("findmnt does not list the root file system and how full it is")
    healthy = True
    for mount in found:
        if mount.target == "/" and "ro" in mount.options:
            healthy = False
            yield subject.failed(
                "the root file system is read-only", part="/", measured="ro", expected="rw", owner=Owner.OPERATOR
            )
        if mount.target in ("/", "/var", "/boot", "/tmp") and (mount.used_percent or 0) >= FULL_PERCENT:  # noqa: S108
            healthy = False
            yield subject.watch(
                f"{mount.target} is {mount.used_percent} % full",
                part=mount.target,
                measured=f"{mount.used_percent} %",
                expected=f"below {FULL_PERCENT} %",
            )
    if healthy:
        yield subject.passed(f"{len(found)} file systems, the root writable", measured=f"{len(found)} file systems")


@check(
    "host.stuck_processes",
    needs=("processes",),
    remedy="See the process's stack in /proc; one that waits for a driver or file server that hangs needs a reboot.",
    source="proc(5): state D is uninterruptible sleep; the same process in it at two looks 2 s apart",
)
def stuck(subject: Subject) -> Iterator[Finding]:
    """Processes in uninterruptible sleep at both looks: what a hung driver or file server leaves."""
    before, after = processes(subject.text("processes"))
    waiting = {(one.pid, one.waits_in) for one in before if one.state == "D"}
    hung = [one for one in after if one.state == "D" and (one.pid, one.waits_in) in waiting]
    for one in hung:
        yield subject.watch(
            f"process {one.pid} ({one.name}) is in uninterruptible sleep, waiting in {one.waits_in}",
            part=one.name,
            measured=f"waiting in {one.waits_in}",
            expected="not stuck",
        )
    if not hung:
        yield subject.passed(f"none of {len(after)} processes is stuck", measured="0 stuck")
