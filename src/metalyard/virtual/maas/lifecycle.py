"""The operations that move a machine: commission, test, deploy, release, abort, broken, locks, rescue.

Each answers as the real one does, which is now and then the old status: abort and release are read again.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

from metalyard.virtual.maas.core import Core
from metalyard.virtual.maas.model import Drive, MachineRecord
from metalyard.virtual.maas.render import machine as render
from metalyard.virtual.maas.reply import ApiError, Request, conflict, forbidden, refused
from metalyard.virtual.maas.status import (
    ABORTABLE,
    COMMISSIONABLE,
    DEPLOYABLE,
    EVENT_NAMES,
    FAILS_TO,
    NAMES,
    NODE_TIMEOUT_MINUTES,
    RELEASABLE,
    RESCUABLE,
    TESTABLE,
    Status,
)

Json = dict[str, Any]
BAD_CREDENTIALS = "Unable to power control the node. Please check power credentials."


def must_edit(machine: MachineRecord, request: Request) -> None:
    """The owner and administrators may change a machine, while it is not locked."""
    if machine.locked or not (request.user.is_superuser or machine.owner == request.user.username):
        raise forbidden()


def must_administer(request: Request) -> None:
    """Administrators only."""
    if not request.user.is_superuser:
        raise forbidden()


async def commission(core: Core, machine: MachineRecord, request: Request) -> Json:
    """Boot the ephemeral system and take stock; blocks on the BMC."""
    must_administer(request)
    if machine.status not in COMMISSIONABLE:
        raise refused(__all__=["Commission is not available because of the current state of the node."])
    chosen = _scripts(core, request, "commissioning_scripts", 0)
    tests = _scripts(core, request, "testing_scripts", 2)
    if not machine.power_type:
        raise ApiError(500, "Unconfigured power type. Please configure the power type and try again.")
    before = Status(machine.status)
    built_in = [script.name for script in core.state.scripts if script.type == 0 and script.default]
    machine.commissioning_set = core.begin(machine, 0, built_in + [name for name in chosen if name not in built_in])
    if tests or not request.has("testing_scripts"):
        machine.testing_set = core.begin(machine, 2, tests or ["smartctl-validate"])
    machine.owner = request.user.username
    machine.keep_networking = request.flag("skip_networking")
    machine.netboot = True
    core.enter(machine, Status.COMMISSIONING)
    machine.pending = "cycle"
    answer = render(core.state, machine)
    try:
        await core.power_or_refuse(machine, "cycle")
    except ApiError:
        who = request.user.username
        text = f"({who}) - Aborting COMMISSIONING and reverting to {before.name}. {BAD_CREDENTIALS}"
        core.enter(machine, before, quiet=True)
        core.state.note(machine, "WARNING", "Failed to query node's BMC", text)
        for number in (machine.commissioning_set, machine.testing_set):
            core.state.sets.pop(number or 0, None)
        raise
    finally:
        machine.pending = ""
        core.save()
    return answer


async def test(core: Core, machine: MachineRecord, request: Request) -> Json:
    """Run test scripts; blocks on the BMC."""
    must_administer(request)
    names = _scripts(core, request, "testing_scripts", 2)
    if machine.status == Status.NEW:
        raise ApiError(
            400,
            "Unable to start machine testing; this node has never been commissioned. Please use the 'Commission' "
            "action to commission & test this machine.",
        )
    if machine.status not in TESTABLE:
        raise refused(__all__=["Test is not available because of the current state of the node."])
    before = Status(machine.status)
    machine.previous_status = int(before)
    machine.testing_set = core.begin(machine, 2, names or ["smartctl-validate"])
    machine.owner = machine.owner or request.user.username
    core.enter(machine, Status.TESTING)
    try:
        await core.power_or_refuse(machine, "cycle")
    except ApiError:
        core.enter(machine, before, quiet=True)
        raise
    return render(core.state, machine)


async def override_failed_testing(core: Core, machine: MachineRecord, request: Request) -> Json:
    """Accept a machine whose tests failed."""
    must_administer(request)
    if machine.status != Status.FAILED_TESTING:
        raise conflict(f"Cannot override testing for a node in state: {NAMES[machine.status]}.")
    if machine.osystem:
        core.enter(machine, Status.DEPLOYED, quiet=True)
    else:
        machine.owner = None
        core.enter(machine, Status.READY, quiet=True)
    return render(core.state, machine)


async def deploy(core: Core, machine: MachineRecord, request: Request) -> Json:
    """Install; allocates a Ready machine first. Answers at once, the power follows."""
    if machine.status not in DEPLOYABLE:
        raise conflict(f"Can't deploy a machine that is in the '{NAMES[machine.status]}' state")
    if machine.status == Status.ALLOCATED:
        must_edit(machine, request)
    osystem, series, kernel = _image(core, machine, request)
    if not machine.drives:
        problem = {"storage": ["Mount the root '/' filesystem to be able to deploy this node."]}
        raise ApiError(400, problem, kind="application/json")
    machine.owner = request.user.username
    machine.osystem, machine.distro_series, machine.hwe_kernel = osystem, series, kernel
    machine.user_data = request.get("user_data")
    machine.deployments += 1
    machine.netboot = True
    machine.installation_set = core.begin(machine, 1, ["/tmp/install.log"])  # noqa: S108  the result's name in MAAS
    core.enter(machine, Status.DEPLOYING)
    machine.pending = "cycle"
    answer = render(core.state, machine)
    core.allot(machine)
    core.spawn(power_later(core, machine))
    return answer


async def release(core: Core, machine: MachineRecord, request: Request) -> Json:
    """Give a machine back; it is off and Ready a little later."""
    if machine.owner or machine.locked:
        must_edit(machine, request)
    if machine.status in (Status.READY, Status.RELEASING):
        return render(core.state, machine)
    if machine.status not in RELEASABLE:
        raise conflict(f"Machine cannot be released in its current state ('{NAMES[machine.status]}').")
    if request.flag("erase"):
        core.enter(machine, Status.DISK_ERASING)
        machine.pending = "cycle"
        core.spawn(power_later(core, machine))
    else:
        _start_release(core, machine)
        if machine.power_state == "off" and machine.status == Status.RELEASING:
            machine.pending = ""
            core.free(machine)
        else:
            core.spawn(power_later(core, machine))
    return render(core.state, machine)


def _start_release(core: Core, machine: MachineRecord) -> None:
    core.clear_system(machine)
    core.enter(machine, Status.RELEASING)
    machine.pending = "off"


async def abort(core: Core, machine: MachineRecord, request: Request) -> Json:
    """Stop what the machine is doing; answers with the old status."""
    if machine.status not in ABORTABLE:
        raise conflict(f"Cannot abort in current state: node {machine.system_id} is in state {NAMES[machine.status]}.")
    must_edit(machine, request)
    was = Status(machine.status)
    what = {Status.COMMISSIONING: "commissioning", Status.DEPLOYING: "deployment", Status.TESTING: "testing"}
    core.state.note(machine, "INFO", f"Aborted {what.get(was, 'disk erasing')}")
    if was == Status.COMMISSIONING:
        machine.owner = None
    answer = render(core.state, machine)
    await core.power_or_refuse(machine, "off")
    machine.pending = ""
    for number in (machine.commissioning_set, machine.testing_set):
        core.finish(number, 5)
    target = {
        Status.COMMISSIONING: Status.NEW,
        Status.DEPLOYING: Status.ALLOCATED,
        Status.TESTING: Status(machine.previous_status),
        Status.DISK_ERASING: Status.FAILED_DISK_ERASING,
    }[was]
    core.enter(machine, target, quiet=True)
    if target == Status.READY:
        machine.owner = None
    return answer


async def mark_broken(core: Core, machine: MachineRecord, request: Request) -> Json:
    """Set a machine aside, with the reason. By its owner only: an administrator who is not gets 403."""
    if machine.owner != request.user.username or machine.locked:
        raise forbidden()
    was = Status(machine.status)
    if was in RELEASABLE and was != Status.BROKEN:
        _start_release(core, machine)
        core.spawn(power_later(core, machine))
    if was != Status.BROKEN:
        machine.previous_status = int(was)
    core.enter(machine, Status.BROKEN, quiet=True)
    machine.error_description = request.get("comment") or request.get("error_description")
    return render(core.state, machine)


async def mark_fixed(core: Core, machine: MachineRecord, request: Request) -> Json:
    """Take a machine back from Broken: to Ready, or Deployed where it was that."""
    must_administer(request)
    if machine.status != Status.BROKEN:
        raise conflict("Can't mark a non-broken node as 'Ready'.")
    machine.error_description = ""
    if machine.previous_status == Status.DEPLOYED:
        core.enter(machine, Status.DEPLOYED, quiet=True)
    else:
        machine.owner = None
        core.enter(machine, Status.READY, quiet=True)
    return render(core.state, machine)


async def lock(core: Core, machine: MachineRecord, request: Request) -> Json:
    """Keep a deployed machine from being released."""
    if not (request.user.is_superuser or machine.owner == request.user.username):
        raise forbidden()
    if machine.locked:
        raise conflict("Machine is already locked")
    if machine.status not in (Status.DEPLOYED, Status.DEPLOYING):
        raise conflict("Can't lock, node is not deployed or deploying")
    machine.locked = True
    return render(core.state, machine)


async def unlock(core: Core, machine: MachineRecord, request: Request) -> Json:
    """The other way round."""
    if not (request.user.is_superuser or machine.owner == request.user.username):
        raise forbidden()
    if not machine.locked:
        raise conflict("Machine is not locked")
    machine.locked = False
    return render(core.state, machine)


async def power_on(core: Core, machine: MachineRecord, request: Request) -> Json:
    """Switch on; blocks on the BMC."""
    must_edit(machine, request)
    if machine.owner is None:
        raise conflict("Can't start node: it hasn't been allocated.")
    answer = render(core.state, machine)
    await core.power_or_refuse(machine, "cycle")
    return answer


async def power_off(core: Core, machine: MachineRecord, request: Request) -> Json:
    """Switch off; blocks on the BMC."""
    if not (request.user.is_superuser or machine.owner == request.user.username):
        raise forbidden()
    answer = render(core.state, machine)
    await core.power_or_refuse(machine, "soft-off" if request.get("stop_mode") == "soft" else "off")
    return answer | {"power_state": machine.power_state} if machine.owner else answer


async def rescue_mode(core: Core, machine: MachineRecord, request: Request) -> Json:
    """Boot the ephemeral system for a person to look around."""
    must_administer(request)
    if machine.status not in RESCUABLE:
        raise conflict(f"Invalid transition: {NAMES[machine.status]} -> Entering rescue mode.")
    machine.previous_status = int(machine.status)
    machine.owner = machine.owner or request.user.username
    core.enter(machine, Status.ENTERING_RESCUE_MODE)
    answer = render(core.state, machine)
    await core.power_or_refuse(machine, "cycle")
    return answer


async def exit_rescue_mode(core: Core, machine: MachineRecord, request: Request) -> Json:
    """Back to what the machine was before."""
    must_administer(request)
    if machine.status not in (Status.RESCUE_MODE, Status.ENTERING_RESCUE_MODE, Status.FAILED_EXITING_RESCUE_MODE):
        raise conflict(f"Invalid transition: {NAMES[machine.status]} -> Exiting rescue mode.")
    core.enter(machine, Status.EXITING_RESCUE_MODE)
    answer = render(core.state, machine)
    before = Status(machine.previous_status)
    await core.power_or_refuse(machine, "cycle" if before == Status.DEPLOYED else "off")
    core.enter(machine, before, quiet=True)
    core.state.note(machine, "INFO", "Exited rescue mode")
    if before == Status.READY:
        machine.owner = None
    return answer


# What follows a call, and what the machine itself reports


async def power_later(core: Core, machine: MachineRecord) -> None:
    """Do a machine's pending power change, and what comes with its end."""
    change = machine.pending
    if not change:
        return
    try:
        await core.power(machine, change)
    except Exception as error:  # a defect of the driver must not leave the machine at it for ever
        verb = "on" if change == "cycle" else "off"
        if (target := FAILS_TO.get(Status(machine.status))) is not None:
            core.fail(machine, target, f"Power {verb} for the node failed: {error}")
    else:
        if change == "off" and machine.status == Status.RELEASING:
            core.free(machine)
        elif change == "off" and machine.status == Status.BROKEN:
            machine.annotations = {}
            for nic in machine.interfaces:
                for link in nic.links:
                    link.ip_address = None if link.mode == "auto" else link.ip_address
    if machine.pending == change:
        machine.pending = ""
    core.save()


def commissioned(core: Core, machine: MachineRecord, hardware: Json) -> None:
    """The ephemeral system is through: commissioning, a test, or an erasure."""
    if machine.status == Status.COMMISSIONING:
        _take_stock(core, machine, hardware)
        core.finish(machine.commissioning_set, 2)
        if machine.testing_set is not None:
            core.finish(machine.testing_set, 2)
        if not machine.keep_networking or not machine.boot_interface or not machine.boot_interface.links:
            core.attach(machine)
        machine.owner = None
        machine.error_description = ""
        core.enter(machine, Status.READY)
    elif machine.status == Status.TESTING:
        core.finish(machine.testing_set, 2)
        before = Status(machine.previous_status)
        core.enter(machine, before, quiet=True)
        if before == Status.READY:
            machine.owner = None
        elif before == Status.DEPLOYED:
            machine.pending = "cycle"
            core.spawn(power_later(core, machine))
    elif machine.status == Status.DISK_ERASING:
        _start_release(core, machine)
        core.spawn(power_later(core, machine))


def deployed(core: Core, machine: MachineRecord) -> None:
    """The installed system is up."""
    if machine.status == Status.DEPLOYING:
        core.finish(machine.installation_set, 2)
        machine.netboot = False
        core.enter(machine, Status.DEPLOYED)


def failed(core: Core, machine: MachineRecord, reason: str) -> None:
    """What the machine was booted for did not work."""
    target = FAILS_TO.get(Status(machine.status))
    if target is None:
        return
    if target in EVENT_NAMES:  # scripts failed: the reason stands in the history, not in the description
        core.state.note(machine, "DEBUG", f"Node {NAMES[machine.status].lower()} failure", reason)
        core.finish(machine.testing_set if target == Status.FAILED_TESTING else machine.commissioning_set, 3)
        if target == Status.FAILED_COMMISSIONING and machine.testing_set in core.state.sets:
            core.state.sets[machine.testing_set or 0].runs.clear()
        core.enter(machine, target)
    else:
        core.fail(machine, target, reason)


def expire(core: Core) -> None:
    """Give up the machines that stayed too long in a passing status, as MAAS does."""
    now = time.time()
    for machine in core.state.machines.values():
        status = Status(machine.status)
        minutes = NODE_TIMEOUT_MINUTES.get(status)
        if minutes is not None and now - machine.since > minutes * 60:
            text = f"Node operation '{NAMES[status]}' timed out after {minutes:g} minutes."
            core.fail(machine, FAILS_TO[status], text)
            core.save()


def _take_stock(core: Core, machine: MachineRecord, hardware: Json) -> None:
    machine.hardware = {
        "system_vendor": hardware.get("vendor", "Unknown"),
        "system_product": hardware.get("product", "Unknown"),
        "system_serial": hardware.get("serial", "Unknown"),
        "chassis_serial": hardware.get("serial", "Unknown"),
        "cpu_model": hardware.get("cpu_model", "Unknown"),
    }
    machine.cpu_count = int(hardware.get("cpu_sockets", 2)) * 56
    machine.memory = sum(int(dimm.get("size_mib", 0)) for dimm in hardware.get("dimms", []))
    machine.drives = [
        Drive(
            core.state.next_id("drive"),
            str(drive.get("device", f"nvme{index}n1")).rsplit("/", 1)[-1],
            int(drive.get("size_bytes", 0)),
            str(drive.get("model", "")),
            str(drive.get("serial", "")),
            str(uuid.uuid4()),
            ["ssd"],
        )
        for index, drive in enumerate(hardware.get("drives", []))
    ]
    for nic in machine.interfaces:
        nic.link_speed = nic.link_speed or 10000


def _scripts(core: Core, request: Request, field: str, kind: int) -> list[str]:
    known = {name for script in core.state.scripts if script.type == kind for name in (script.name, *script.tags)}
    wanted = [name for name in request.all(field) if name != "none"]
    for name in wanted:
        if name not in known:
            raise refused(**{field: [f"Select a valid choice. {name} is not one of the available choices."]})
    return wanted


def _image(core: Core, machine: MachineRecord, request: Request) -> tuple[str, str, str]:
    names = sorted(image.name for image in core.state.images)
    wanted = request.get("distro_series") or core.state.config["default_distro_series"]
    image = next((i for i in core.state.images if wanted in (i.name, i.name.split("/")[1])), None)
    if image is None:
        choices = ", ".join(f"'{name}'" for name in ["", *names])
        raise refused(distro_series=[f"'{wanted}' is not a valid distro_series.  It should be one of: {choices}."])
    kernel = request.get("hwe_kernel")
    if kernel and kernel != image.kernel:
        where = f"{image.name} on {machine.architecture}"
        raise refused(hwe_kernel=[f"{kernel} is not available for {where}."])
    osystem, series = image.name.split("/")
    return osystem, series, image.kernel
