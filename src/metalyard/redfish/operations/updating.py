"""The sweep ``bmc_firmware``: each component's version against the baseline, and the update of those behind."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from metalyard.plan.catalogue import CatalogueError, load_baseline
from metalyard.plan.model import Node
from metalyard.plan.profile import Baseline
from metalyard.redfish.client import Bmc
from metalyard.redfish.connections import Connections
from metalyard.redfish.errors import BmcError
from metalyard.redfish.facts import read_inventory
from metalyard.redfish.firmware import PATIENCE, Component, Inventory, compare, image_of, missing_targets, update
from metalyard.redfish.layout import Layout, read_layout
from metalyard.redfish.operations.common import at_bmc, diff, may_reset, sweep
from metalyard.redfish.pace import Pace
from metalyard.redfish.power import power_state, switch_off, switch_on
from metalyard.sweep import Context, HostResult

LISTED = 300.0
"""Seconds for a host that was just switched on to show all its firmware."""


async def firmware(context: Context, *, connections: Connections | None = None, pace: Pace | None = None) -> None:
    """Bring every node's firmware to the plan's baseline.

    ``data["components"]`` lists component, id, version, expected and action: ``none`` (right already), ``update``
    (check mode: it would be), ``updated``, or ``held`` (behind, and the node may not be reset now). Options:
    ``firmware_dir`` (folder of the images), ``reset`` and ``states`` as for ``bmc_configure``.
    """
    try:
        baseline = load_baseline(context.plan)
    except CatalogueError as error:
        for node in context.nodes:
            context.report(
                HostResult(
                    node.name,
                    failed=True,
                    message=f"{node.name}: {error}",
                    next_step="Correct the plan's baseline.",
                )
            )
        return

    async def work(node: Node, pool: Connections) -> HostResult:
        async with at_bmc(context, node, pool, pace, changing=context.check) as access:
            if access.change_first is not None:
                return HostResult(
                    node.name,
                    changed=True,
                    message=f"{node.name}: the BMC shows no firmware before its factory password is changed; "
                    "what would be updated can't be said yet",
                    data={"components": []},
                )
            bmc = access.bmc
            layout = await read_layout(bmc)
            was_off = await power_state(bmc, layout) == "Off"
            inventory = await read_inventory(bmc, layout)
            if was_off and missing_targets(inventory, baseline) and may_reset(context, node) and not context.check:
                context.progress(node.name, "switching the host on for its whole firmware inventory")
                inventory = await _inventory_when_on(bmc, layout, baseline)
            _covers(node, baseline, inventory)
            listed: list[dict[str, Any]] = []
            before: list[Component] = []
            for target in baseline.firmware:
                components = compare(inventory, target)
                behind = [component for component in components if not component.right]
                listed += [component.as_dict("none") for component in components if component.right]
                if not behind:
                    continue
                if target.activation != "none" and not may_reset(context, node):
                    listed += [component.as_dict("held") for component in behind]
                    continue
                image = image_of(target, _folder(context), node.name)
                before += behind
                if context.check:
                    listed += [component.as_dict("update") for component in behind]
                    continue
                try:
                    await update(bmc, layout, target, behind, image, partial(context.progress, node.name))
                except BmcError as error:
                    error.data["components"] = [*listed, *(component.as_dict("failed") for component in behind)]
                    raise
                listed += [{**component.as_dict("updated"), "version": component.expected} for component in behind]
            if was_off and not context.check:
                await switch_off(bmc, layout)
        return _result(context, node, listed, before)

    allowance = sum(2 * PATIENCE * target.minutes * 60 for target in baseline.firmware)
    await sweep(context, work, connections=connections, deadline=context.plan.bmc.deadline + allowance)


async def _inventory_when_on(bmc: Bmc, layout: Layout, baseline: Baseline) -> Inventory:
    """Adapters are listed only while the host is on, and late. What is listed in the end, complete or not."""
    await switch_on(bmc, layout)

    async def complete() -> Inventory | None:
        inventory = await read_inventory(bmc, layout)
        return None if missing_targets(inventory, baseline) else inventory

    found = await bmc.pace.wait_for(complete, deadline=LISTED)
    return found if found is not None else await read_inventory(bmc, layout)


def _folder(context: Context) -> Path | None:
    folder = context.options.get("firmware_dir")
    return Path(str(folder)).expanduser() if folder else None


def _covers(node: Node, baseline: Baseline, inventory: Inventory) -> None:
    """The baseline must speak of this machine, and the machine show what it speaks of: unknown is not current."""
    if baseline.profiles and node.profile not in baseline.profiles:
        raise BmcError(
            f"{node.name}: the baseline {baseline.name} was not tested with the profile {node.profile} "
            f"(only with {', '.join(baseline.profiles)})",
            "Name a baseline for it in the plan, or add the profile to the baseline once it is tested.",
        )
    missing = missing_targets(inventory, baseline)
    if missing:
        wanted = ", ".join(f"{target.component} ({target.match})" for target in missing)
        raise BmcError(
            f"{node.name}: the BMC's firmware inventory of {len(inventory)} entries has none for {wanted}",
            "Switch the host on: some entries are there only while it runs. Else correct the baseline.",
        )


def _result(context: Context, node: Node, listed: Sequence[dict[str, Any]], before: Sequence[Component]) -> HostResult:
    held = [item for item in listed if item["action"] == "held"]
    names = ", ".join(dict.fromkeys(f"{component.component} to {component.expected}" for component in before))
    said = f"{'would update' if context.check else 'updated'} {names}" if before else "no update"
    if not before and not held:
        said = f"firmware is at the baseline {context.plan.baseline}"
    waiting = ", ".join(f"{item['id']} {item['version']}" for item in held)
    return HostResult(
        node.name,
        changed=bool(before),
        message=f"{node.name}: {said}{f'; held until it may be reset: {waiting}' if held else ''}",
        diff=diff(
            node,
            "firmware",
            "".join(f"{component.id}: {component.version}\n" for component in before),
            "".join(f"{component.id}: {component.expected}\n" for component in before),
        ),
        data={"components": list(listed)},
    )
