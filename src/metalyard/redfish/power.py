"""Power and resets: only values that the BMC allows, every wait with a deadline."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from metalyard.redfish.client import ROOT, Answer, Bmc
from metalyard.redfish.documents import dig, link, text
from metalyard.redfish.errors import (
    BmcError,
    CredentialsError,
    DeadlineError,
    NotReadyError,
    PasswordChangeError,
    TaskFailedError,
    UnreachableError,
    UntrustedError,
)
from metalyard.redfish.layout import Layout, Placed, described
from metalyard.redfish.tasks import follow, task_of

OFF_ON = 300.0
"""Seconds for a host to go off or on."""
AFTER_OFF = 5.0
"""Seconds between off and on, so that supplies discharge and the BMC notices."""
BMC_BACK = 900.0
"""Seconds for a BMC to come back from its reset."""

_RESTART = ("ForceRestart", "GracefulRestart", "PowerCycle")
_OFF = ("ForceOff",)
_ON = ("On", "ForceOn")


async def power_state(bmc: Bmc, layout: Layout) -> str:
    """On, Off, PoweringOn or PoweringOff; ``Unknown`` where the BMC does not say."""
    return text(await bmc.get(layout.host[0]), "PowerState") or "Unknown"


async def allowed(bmc: Bmc, document: dict[str, Any], action: str) -> tuple[str, ...] | None:
    """The ResetTypes of an action, inline or from its ActionInfo; None where the BMC does not say."""
    described_action = dig(document, "Actions", action)
    inline = dig(described_action, "ResetType@Redfish.AllowableValues")
    if isinstance(inline, list):
        return tuple(str(value) for value in inline)
    info_path = dig(described_action, "@Redfish.ActionInfo")
    info = await bmc.find(info_path if isinstance(info_path, str) else link(described_action, "@Redfish.ActionInfo"))
    parameters = dig(info, "Parameters")
    for parameter in parameters if isinstance(parameters, list) else []:
        values = dig(parameter, "AllowableValues")
        if dig(parameter, "Name") == "ResetType" and isinstance(values, list):
            return tuple(str(value) for value in values)
    return None


async def reset(bmc: Bmc, placed: Placed, action: str, kinds: Sequence[str], *, deadline: float = OFF_ON) -> str:
    """Send the first of the ResetTypes that this resource allows, and follow its task. Returns that ResetType.

    A 409 (it is still going off) is asked again until the deadline; nothing else is sent twice.
    """
    document = placed[1]
    target = dig(document, "Actions", action, "target")
    if not isinstance(target, str):
        raise BmcError(
            f"{bmc.node}: {described(placed)} offers no {action.lstrip('#')}",
            "Reset the machine by hand, and run the command again.",
        )
    offered = await allowed(bmc, document, action)
    kind = next((kind for kind in kinds if offered is None or kind in offered), None)
    if kind is None:
        raise BmcError(
            f"{bmc.node}: {described(placed)} allows none of {', '.join(kinds)} (it allows {', '.join(offered or ())})",
            "Reset the machine by hand, and run the command again.",
        )

    async def accepted() -> Answer | None:
        try:
            return await bmc.post(target, {"ResetType": kind})
        except BmcError as error:
            if error.status == 409:
                return None
            raise

    answer = await bmc.pace.wait_for(accepted, deadline=min(deadline, 60.0), first=2.0)
    if answer is None:
        raise DeadlineError(
            f"{bmc.node}: {described(placed)} refuses {kind} as being in conflict with its state",
            "Look at the machine's power state, and run the command again.",
        )
    task = task_of(answer)
    if task is not None:
        await follow(bmc, task, deadline=deadline)
    return kind


async def wait_for_power(bmc: Bmc, layout: Layout, wanted: str, *, deadline: float = OFF_ON) -> None:
    """Wait until the host is On or Off. :class:`DeadlineError` names what it is instead."""
    state = "Unknown"

    async def there() -> bool | None:
        nonlocal state
        try:
            state = await power_state(bmc, layout)
        except (UnreachableError, NotReadyError):
            return None
        return True if state == wanted else None

    if await bmc.pace.wait_for(there, deadline=deadline) is None:
        raise DeadlineError(
            f"{bmc.node}: {described(layout.host)} is {state} {deadline:.0f} s after it was told to be {wanted}",
            "Look at the machine, its console and its BMC's log.",
        )


async def switch_off(bmc: Bmc, layout: Layout) -> bool:
    """Off without asking the operating system, and wait. False when it was off."""
    if await power_state(bmc, layout) == "Off":
        return False
    await reset(bmc, layout.host, "#ComputerSystem.Reset", _OFF)
    await wait_for_power(bmc, layout, "Off")
    return True


async def switch_on(bmc: Bmc, layout: Layout) -> bool:
    """On, and wait. False when it was on."""
    if await power_state(bmc, layout) == "On":
        return False
    await reset(bmc, layout.host, "#ComputerSystem.Reset", _ON)
    await wait_for_power(bmc, layout, "On")
    return True


async def restart(bmc: Bmc, layout: Layout) -> None:
    """Restart the host, so that what waits for a reset comes into force; a host that is off is switched on.

    A restart that the BMC accepts and then fails, as DGX H100 are known to, is done as off and on.
    """
    if await power_state(bmc, layout) == "Off":
        await switch_on(bmc, layout)
        return
    if not bmc.quirks.restart_by_off_on:
        offered = await allowed(bmc, layout.host[1], "#ComputerSystem.Reset")
        if offered is None or set(offered) & set(_RESTART):
            try:
                await reset(bmc, layout.host, "#ComputerSystem.Reset", _RESTART)
            except (TaskFailedError, DeadlineError):
                pass
            else:
                await wait_for_power(bmc, layout, "On")
                return
    await power_cycle(bmc, layout)


async def power_cycle(bmc: Bmc, layout: Layout) -> None:
    """Off, a pause, on: what staged firmware of baseboards waits for."""
    await switch_off(bmc, layout)
    await bmc.pace.sleep(AFTER_OFF)
    await switch_on(bmc, layout)


async def ac_cycle(bmc: Bmc, layout: Layout) -> None:
    """Take the standby power away, too, and wait for the BMC to come back.

    :class:`BmcError` where the BMC can't do that: then somebody must pull the plugs or switch the PDU.
    """
    for chassis in layout.chassis:
        offered = await allowed(bmc, chassis[1], "#Chassis.Reset")
        if offered is not None and "FullPowerCycle" in offered:
            await _going_away(bmc, chassis, "#Chassis.Reset", ("FullPowerCycle",))
            return
    raise BmcError(
        f"{bmc.node}: the new firmware needs the machine's power cut, and its BMC can't do that",
        "Switch both feeds off for half a minute (at the PDU), and run the command again.",
    )


async def reset_bmc(bmc: Bmc, layout: Layout) -> None:
    """Restart the BMC itself and wait until it answers with its systems again."""
    if layout.manager is None:
        raise BmcError(f"{bmc.node}: the BMC shows no manager to reset", "Reset it by hand, and run the command again.")
    await _going_away(bmc, layout.manager, "#Manager.Reset", ("GracefulRestart", "ForceRestart"))


async def _going_away(bmc: Bmc, placed: Placed, action: str, kinds: Sequence[str]) -> None:
    """A reset that takes the BMC away. Its task, if any, may go with it."""
    offered = await allowed(bmc, placed[1], action)
    kind = next((kind for kind in kinds if offered is None or kind in offered), None)
    uri = dig(placed[1], "Actions", action, "target")
    if kind is None or not isinstance(uri, str):
        raise BmcError(
            f"{bmc.node}: {described(placed)} allows none of {', '.join(kinds)}",
            "Reset it by hand, and run the command again.",
        )
    with suppress(UnreachableError):  # it may go before it can answer
        await bmc.post(uri, {"ResetType": kind})
    await wait_for_bmc(bmc)


async def wait_for_bmc(bmc: Bmc, *, settle: float = 10.0, deadline: float = BMC_BACK) -> None:
    """Wait until a BMC that is being reset shows its systems again. Its session may be lost: reads renew it.

    ``settle`` seconds are given to it to go away, so that the last answers of the old one are not taken for the new.
    """
    await bmc.pace.sleep(settle)
    last = "no answer"

    async def back() -> bool | None:
        nonlocal last
        bmc.forgive()
        try:
            root = await bmc.get(ROOT)
            systems = await bmc.get(link(root, "Systems") or f"{ROOT}Systems")
        except (CredentialsError, PasswordChangeError, UntrustedError):
            raise
        except BmcError as error:
            last = error.message
            return None
        return True if systems.get("Members") else None

    if await bmc.pace.wait_for(back, deadline=deadline, first=2.0) is None:
        raise DeadlineError(
            f"{bmc.node}: the BMC did not come back within {deadline:.0f} s of its reset ({last})",
            "Check its network and power; a BMC that stays away needs its power cut.",
        )
