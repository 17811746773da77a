"""The sweep ``bmc_configure``: the BMC's own password, time servers, boot mode, and the BIOS profile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from metalyard.plan.catalogue import CatalogueError, load_profile
from metalyard.plan.model import Node
from metalyard.redfish.access import Access
from metalyard.redfish.accounts import ensure_own_password, needs_rotation
from metalyard.redfish.bios import BiosDrift, BiosState, Value, apply_bios, drift, read_bios, write_bios
from metalyard.redfish.boot import mode_is_right, read_boot, set_mode
from metalyard.redfish.client import Bmc
from metalyard.redfish.connections import Connections
from metalyard.redfish.errors import BmcError
from metalyard.redfish.layout import Layout, read_layout
from metalyard.redfish.ntp import read_time_servers, set_time_servers
from metalyard.redfish.operations.common import at_bmc, diff, factory_password, may_reset, sweep
from metalyard.redfish.pace import Pace
from metalyard.sweep import Context, HostResult


@dataclass
class _Done:
    """What was changed at one node, or would be."""

    diff: list[dict[str, Any]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    pending: dict[str, Value] = field(default_factory=dict)

    def add(self, words: str, entries: list[dict[str, Any]]) -> None:
        self.words.append(words)
        self.diff += entries


async def configure(context: Context, *, connections: Connections | None = None, pace: Pace | None = None) -> None:
    """Bring every BMC to the plan. ``data["pending"]`` holds the BIOS attributes that wait for the next reset.

    Option ``reset``: ``now`` or ``later``; without it, now where ``states`` (node to lifecycle state) says that the
    node is not provisioned yet. A pending attribute is not a change again.
    """

    async def work(node: Node, pool: Connections) -> HostResult:
        done = _Done()
        async with at_bmc(context, node, pool, pace) as access:
            await _password(context, node, access, done)
            if access.change_first is None:
                layout = await read_layout(access.bmc)
                await _time(context, node, access.bmc, layout, done)
                await _boot_mode(context, node, access.bmc, layout, done)
                await _bios(context, node, access.bmc, layout, done)
        would = "would change: " if context.check else "changed: "
        said = would + ", ".join(done.words) if done.words else "as planned"
        waiting = f"; waiting for the next reset: {', '.join(sorted(done.pending))}" if done.pending else ""
        return HostResult(
            node.name,
            changed=bool(done.words),
            message=f"{node.name}: {said}{waiting}",
            diff=done.diff,
            data={"pending": done.pending},
        )

    await sweep(context, work, connections=connections)


async def _password(context: Context, node: Node, access: Access, done: _Done) -> None:
    factory = factory_password(context)
    if not needs_rotation(access, factory):
        return
    before = "its own, not confirmed" if access.credential.origin == "pending" else "as delivered"
    if access.credential.origin == "current" and access.credential.password != factory:
        before = "its own, to be replaced"
    entries = diff(node, "BMC account", f"password: {before}\n", "password: its own\n")
    if not context.check:
        context.progress(node.name, "replacing the BMC's password")
        if not await ensure_own_password(access, node, context.plan, context.secrets, factory):
            return
    done.add("BMC password", entries)


async def _time(context: Context, node: Node, bmc: Bmc, layout: Layout, done: _Done) -> None:
    wanted = context.plan.bmc.ntp_servers
    if not wanted:
        return
    now = await read_time_servers(bmc, layout)
    if now.right(wanted):
        return
    after = f"ntp servers: {', '.join(wanted)}\n"
    if not context.check:
        context.progress(node.name, "setting time servers")
        after = (await set_time_servers(bmc, layout, now, wanted)).text()
    done.add("time servers", diff(node, "time servers", now.text(), after))


async def _boot_mode(context: Context, node: Node, bmc: Bmc, layout: Layout, done: _Done) -> None:
    wanted = context.plan.bmc.boot_mode
    now = await read_boot(bmc, layout)
    if mode_is_right(now, wanted):
        return
    after = f"boot mode: {wanted}\n"
    if not context.check:
        context.progress(node.name, "setting the boot mode")
        after = (await set_mode(bmc, layout, now, wanted)).text()
    done.add("boot mode", diff(node, "boot mode", now.text(), after))


async def _bios(context: Context, node: Node, bmc: Bmc, layout: Layout, done: _Done) -> None:
    state = await read_bios(bmc, layout)
    desired = _desired(context, node, bmc, state)
    if not desired:
        return
    if state is None:
        raise BmcError(
            f"{node.name}: the BMC shows no BIOS attributes, and the profile {node.profile} wants {len(desired)}",
            "Switch the host on once: some BMCs learn the attributes at its first start.",
        )
    left = drift(state, desired)
    if left.unknown:
        raise BmcError(
            f"{node.name}: this BIOS has no attribute {', '.join(left.unknown)}, "
            f"which the profile {node.profile} wants",
            "Correct the names under 'bios' in the profile, or bring the BIOS to the baseline's version first.",
        )
    if left.right:
        return
    reset_now = may_reset(context, node)
    if left.write and not context.check:
        context.progress(node.name, f"writing {len(left.write)} BIOS attributes")
        await write_bios(bmc, state, left.write)
    changes = {**left.write, **(left.waiting if reset_now else {})}
    if changes:
        done.add(f"BIOS {', '.join(sorted(changes))}", _bios_diff(node, state, left, changes))
    if not reset_now:
        done.pending = {**left.write, **left.waiting}
    elif not context.check:
        context.progress(node.name, "resetting the host to apply BIOS attributes")
        # A little less than the stage has, so that what did not take is named.
        await apply_bios(bmc, layout, desired, deadline=max(60.0, context.plan.bmc.deadline - 60.0))


def _desired(context: Context, node: Node, bmc: Bmc, state: BiosState | None) -> dict[str, Value]:
    """The profile's attributes, and the vendor's attribute of the boot mode where the profile does not speak of it."""
    try:
        profile = load_profile(context.plan, node.profile)
    except CatalogueError as error:
        raise BmcError(f"{node.name}: {error}", "Correct the node's profile in the plan.") from None
    desired: dict[str, Value] = dict(profile.bios)
    for name, values in bmc.quirks.boot_mode_attributes.items():
        if state is not None and name in state.current:
            desired.setdefault(name, values[context.plan.bmc.boot_mode])
    return desired


def _bios_diff(node: Node, state: BiosState, left: BiosDrift, changes: Mapping[str, Value]) -> list[dict[str, Any]]:
    def shown(values: Mapping[str, Any]) -> str:
        return "".join(f"{name}: {json.dumps(values[name])}\n" for name in sorted(values))

    before = {name: state.current.get(name) for name in changes}
    return diff(node, "BIOS attributes", shown(before), shown(changes))
