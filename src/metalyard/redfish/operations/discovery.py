"""The sweep ``bmc_discover``: find each BMC, read what its machine is, and hold its identity against the plan."""

from __future__ import annotations

from typing import Any

from metalyard.plan.model import Node
from metalyard.redfish.access import Access
from metalyard.redfish.accounts import ensure_own_password
from metalyard.redfish.connections import Connections
from metalyard.redfish.errors import BmcError
from metalyard.redfish.facts import Facts, read_facts
from metalyard.redfish.operations.common import at_bmc, diff, factory_password, sweep
from metalyard.redfish.pace import Pace
from metalyard.sweep import Context, HostResult


async def discover(context: Context, *, connections: Connections | None = None, pace: Pace | None = None) -> None:
    """Read the facts of every node (``data["facts"]``; see :mod:`metalyard.redfish.facts`). Reads only.

    One exception: a BMC that shows nothing before its password is changed gets its own one here, as the stage
    ``bmc`` would do; in check mode this is only said. A machine with another serial number than planned is set
    aside.
    """

    async def work(node: Node, pool: Connections) -> HostResult:
        async with at_bmc(context, node, pool, pace) as access:
            changed = await _unlocked(context, node, access)
            if changed is None:
                return HostResult(
                    node.name,
                    changed=True,
                    message=f"{node.name}: the BMC shows nothing before its factory password is changed; "
                    "this would be done first",
                    diff=_password_diff(node),
                )
            context.progress(node.name, "reading facts")
            facts = await read_facts(access.bmc)
            held = hold_identity(node, facts, sku_counts=access.bmc.quirks.serial_is_sku)
            gaps = f", {len(held['gaps'])} resources could not be read" if held["gaps"] else ""
            return HostResult(
                node.name,
                changed=changed,
                message=f"{node.name}: {held['vendor']} {held['model']}, serial {held['serial']}, "
                f"BIOS {held['bios_version']}, BMC {held['bmc_version']}, power {held['power_state']}{gaps}",
                diff=_password_diff(node) if changed else [],
                data={"facts": held},
            )

    await sweep(context, work, connections=connections)


async def _unlocked(context: Context, node: Node, access: Access) -> bool | None:
    """Whether the password was changed to get in; None where it must be, and this is check mode."""
    if access.change_first is None:
        return False
    if context.check:
        return None
    context.progress(node.name, "replacing the factory password, which the BMC demands")
    return await ensure_own_password(access, node, context.plan, context.secrets, factory_password(context))


def _password_diff(node: Node) -> list[dict[str, Any]]:
    return diff(node, "BMC account", "password: as delivered\n", "password: its own\n")


def hold_identity(node: Node, facts: Facts, *, sku_counts: bool) -> Facts:
    """The facts, with the planned serial as ``serial`` where the machine has it anywhere.

    The plan's serial may be the system's, the chassis' or the service tag. :class:`BmcError` with ``aside`` names
    what was found where it is none of them.
    """
    found = {where: serial for where, serial in facts["serials"].items() if sku_counts or where != "sku"}
    if node.serial.casefold() in {serial.casefold() for serial in found.values()}:
        return {**facts, "serial": node.serial}
    listed = ", ".join(f"{serial} ({where})" for where, serial in found.items()) or "none at all"
    raise BmcError(
        f"{node.name}: the machine at {node.bmc.address} is not the planned one: its serial is "
        f"{facts['serial'] or 'not given'}, expected {node.serial}",
        f"Look at the machine in rack {node.rack}, unit {node.unit}: correct the cabling of its BMC, or the plan's "
        f"serial or bmc.address. Serials that the BMC gives: {listed}.",
        aside=True,
        check="identity",
        measured=facts["serial"],
        expected=node.serial,
        facts=facts,
    )
