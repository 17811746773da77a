"""The host: power, boot override, BIOS settings, and what a reset brings to life."""

from __future__ import annotations

import asyncio
from typing import Any

from metalyard.virtual.bmc.handlers import tasks
from metalyard.virtual.bmc.messages import RedfishError
from metalyard.virtual.bmc.service import Answer, Bmc, Call
from metalyard.virtual.bmc.state import Task, timestamp
from metalyard.virtual.bmc.tree import Resource
from metalyard.virtual.machine import BootSource

ACTIVATED_BY = {
    "warm": frozenset({"system_reset"}),
    "cold": frozenset({"system_reset", "power_cycle"}),
    "ac": frozenset({"system_reset", "power_cycle", "ac_cycle", "bmc_reset"}),
}
"""Which staged firmware goes live: at a reset that keeps the power, at power on, when mains power comes back."""


async def reset(bmc: Bmc, call: Call, resource: Resource) -> Answer:
    """ComputerSystem.Reset and Chassis.Reset: accepted as a task, carried out in the order they came."""
    action = resource.path.rpartition("/")[2]
    body = call.body or {}
    if "ResetType" not in body:
        raise RedfishError(400, "ActionParameterMissing", action, "ResetType")
    kind = body["ResetType"]
    for name in body:
        if name not in ("ResetType", "@Redfish.OperationApplyTime"):
            raise RedfishError(400, "ActionParameterNotSupported", name, action)
    if not isinstance(kind, str):
        raise RedfishError(400, "ActionParameterValueTypeError", kind, "ResetType", action)
    if kind not in bmc.model.constants["reset_types"]:
        raise RedfishError(400, "ActionParameterValueNotInList", kind, "ResetType", action)
    if bmc.switching and bmc.quirks.busy_conflict:
        raise RedfishError(409, "ResourceInUse")
    task = bmc.state.new_task("Computer Reset")
    task.state = "Running"
    bmc.start_job(_carry_out(bmc, task, kind))
    return tasks.accepted(bmc, task)


async def _carry_out(bmc: Bmc, task: Task, kind: str) -> None:
    async with bmc.exclusive_power():
        try:
            async with asyncio.timeout(bmc.config.timings.machine):
                done = await _switch(bmc, kind)
        except TimeoutError:
            tasks.fail(bmc, task, "OperationFailed")
            return
        except Exception as error:
            tasks.fail(bmc, task, "InternalError")
            bmc.state.log("PowerUnit", f"{kind} failed: {error}", severity="Critical")
            return
    if done:
        tasks.complete(bmc, task)
    else:
        # The sentence that a recorded DGX gives, word for word.
        reason = (
            f"'{kind}' is unsuccessful. IPMI command for {kind} operation returned success but power state of "
            "chassis did not change !!"
        )
        tasks.fail(bmc, task, "ActionNotSupported", reason)


async def _switch(bmc: Bmc, kind: str) -> bool:
    machine = bmc.config.machine
    on = machine.power_state in ("On", "PoweringOn")
    if kind in ("ForceOff", "GracefulShutdown"):
        if on or machine.power_state == "PoweringOff":
            await machine.power_off(kind == "GracefulShutdown")
            bmc.state.log("System ACPI PowerState", "S4/S5: soft-off")
        return True
    if kind == "On":
        if not on:
            await power_on(bmc, "cold")
        return True
    if not on:
        return False
    await machine.power_off(False)
    await power_on(bmc, "warm")
    return True


async def power_on(bmc: Bmc, how: str) -> None:
    """Self test, then boot."""
    await asyncio.sleep(bmc.config.timings.post)
    await bmc.config.machine.power_on(self_test(bmc, how))
    bmc.state.changed()


def self_test(bmc: Bmc, how: str) -> BootSource:
    """What happens at every start of the host; returns what it boots from.

    Pending BIOS values and staged firmware are live afterwards, a one-time override is used up.
    """
    kept = bmc.state.kept
    if kept.bios_pending:
        kept.bios = {**kept.bios, **kept.bios_pending}
        kept.bios_pending = {}
    if kept.boot.pending_order is not None:
        kept.boot.order, kept.boot.pending_order = kept.boot.pending_order, None
    activate(bmc, how)
    source = boot_source(bmc)
    if kept.boot.enabled == "Once":
        kept.boot.enabled, kept.boot.target = "Disabled", "None"
    kept.last_reset = timestamp()
    bmc.state.log("SystemBoot/Restart", f"Booted from {source.target}")
    return source


def activate(bmc: Bmc, how: str) -> None:
    """Make the staged firmware live that this kind of reset activates."""
    activated = {
        component: staged
        for component, staged in bmc.state.kept.staged.items()
        if (how == "bmc" and staged.activation == "bmc_reset") or staged.activation in ACTIVATED_BY.get(how, ())
    }
    for component, staged in activated.items():
        bmc.state.kept.firmware[component] = staged.version
        del bmc.state.kept.staged[component]
        bmc.state.log("Version Change", f"{component} runs {staged.version}")
        if bmc.config.on_firmware is not None:
            bmc.config.on_firmware(component, staged.version)
    if activated:
        bmc.state.save()


def boot_source(bmc: Bmc) -> BootSource:
    """What the machine boots from now: the override, or the first enabled entry of the boot order."""
    boot = bmc.state.kept.boot
    mode = boot.mode or "UEFI"
    if boot.enabled in ("Once", "Continuous") and boot.target != "None":
        return BootSource(boot.target, mode)
    options = {option["reference"]: option for option in bmc.model.constants["boot_options"]}
    for reference in boot.order or bmc.model.constants["boot_order"]:
        if reference in options:
            return BootSource(str(options[reference]["source"]), mode)
    return BootSource("Hdd", mode)


async def patch_boot(bmc: Bmc, call: Call, resource: Resource) -> None:
    """The boot override and order; the rest of the body is the overlay's. All or nothing."""
    body = dict(call.body or {})
    change: dict[str, Any] = body.pop("Boot", {})
    base = resource.record.settings_of
    if change and bmc.quirks.boot_settings_only and base is None:
        raise RedfishError(400, "PropertyNotWritable", "Boot", related=["#/Boot"])
    order = change.get("BootOrder")
    if order is not None:
        known = {option["reference"] for option in bmc.model.constants["boot_options"]}
        for entry in order:
            if entry not in known:
                raise RedfishError(400, "PropertyValueNotInList", entry, "BootOrder", related=["#/Boot/BootOrder"])
    boot = bmc.state.kept.boot
    if change.get("BootSourceOverrideEnabled") == "Disabled":
        boot.target = "None"
    boot.enabled = change.get("BootSourceOverrideEnabled", boot.enabled)
    boot.target = change.get("BootSourceOverrideTarget", boot.target)
    boot.mode = change.get("BootSourceOverrideMode", boot.mode)
    boot.http_uri = change.get("HttpBootUri", boot.http_uri)
    if order is not None:
        boot.pending_order = list(order)
    if body:
        # The settings resource stands for the system, so that both show what was written.
        bmc.state.kept.overlay.setdefault(base or resource.path, {}).update(body)
    bmc.state.save()


async def patch_bios(bmc: Bmc, call: Call, resource: Resource) -> None:
    """BIOS attributes for the next reset. All or nothing; a value already in force is not pending."""
    wanted = (call.body or {}).get("Attributes", {})
    current = bmc.bios()
    registry = bmc.model.constants["bios"]
    for name, value in wanted.items():
        related = [f"#/Attributes/{name}"]
        if name not in current:
            raise RedfishError(400, "PropertyUnknown", name, related=related)
        entry = registry.get(name, {})
        if entry.get("read_only"):
            raise RedfishError(400, "PropertyNotWritable", name, related=related)
        if "values" in entry and value not in entry["values"]:
            raise RedfishError(400, "PropertyValueNotInList", value, name, related=related)
        if type(value) is not type(current[name]) and current[name] is not None:
            raise RedfishError(400, "PropertyValueTypeError", value, name, related=related)
        if "minimum" in entry and not entry["minimum"] <= value <= entry["maximum"]:
            raise RedfishError(400, "PropertyValueOutOfRange", value, name, related=related)
    pending = {**bmc.state.kept.bios_pending, **wanted}
    bmc.state.kept.bios_pending = {name: value for name, value in pending.items() if value != current[name]}
    bmc.state.save()


async def reset_bios(bmc: Bmc, call: Call, resource: Resource) -> None:
    """Bios.ResetBios: the defaults at the next reset."""
    current = bmc.bios()
    defaults = {name: entry["default"] for name, entry in bmc.model.constants["bios"].items()}
    bmc.state.kept.bios_pending = {name: value for name, value in defaults.items() if value != current[name]}
    bmc.state.save()
