"""What the operations share: a signed-in BMC for each node, and when a node may be reset."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from metalyard.plan.lifecycle import MAIN_LINE, State, reached
from metalyard.plan.model import Node
from metalyard.redfish.access import Access, signed_in
from metalyard.redfish.connections import Connections
from metalyard.redfish.errors import BmcError
from metalyard.redfish.pace import Pace
from metalyard.secrets import SecretsError, resolve
from metalyard.sweep import Context, HostResult, fan_out

Work = Callable[[Node, Connections], Awaitable[HostResult]]


async def sweep(
    context: Context, work: Work, *, connections: Connections | None = None, deadline: float | None = None
) -> None:
    """Run ``work`` for every node over one pool of connections; ``deadline`` in seconds for one node."""

    async def over(pool: Connections) -> None:
        await fan_out(
            context,
            lambda node: work(node, pool),
            concurrency=context.plan.bmc.concurrency,
            deadline=deadline or context.plan.bmc.deadline,
        )

    if connections is not None:
        await over(connections)
        return
    async with Connections(context.plan) as pool:
        await over(pool)


@asynccontextmanager
async def at_bmc(
    context: Context, node: Node, connections: Connections, pace: Pace | None, *, changing: bool = True
) -> AsyncIterator[Access]:
    """A signed-in BMC. ``changing`` as False: it must not want its password changed before anything else."""
    context.progress(node.name, "signing in to the BMC")
    async with signed_in(node, context.plan, context.secrets, connections, pace=pace) as access:
        if access.change_first is not None and not changing:
            raise access.change_first
        yield access


def factory_password(context: Context) -> str | None:
    """The password as delivered, where it is still known: only to tell that a BMC has it."""
    try:
        return resolve(context.plan.bmc.factory_password, context.plan)
    except SecretsError:
        return None


def may_reset(context: Context, node: Node) -> bool:
    """Whether the node may be reset now: as the option ``reset`` says, else only before it is provisioned.

    A node whose state nobody told is not reset.
    """
    said = context.options.get("reset")
    if said is not None:
        if said not in ("now", "later"):
            raise BmcError(f"{node.name}: reset '{said}' is not known", "Say now or later.")
        return bool(said == "now")
    name = (context.options.get("states") or {}).get(node.name)
    try:
        state = State(str(name))
    except ValueError:
        return False
    return state in MAIN_LINE and not reached(state, State.PROVISIONED)


def diff(node: Node, what: str, before: str, after: str) -> list[dict[str, Any]]:
    """One diff in Ansible's form; none where nothing differs."""
    if before == after:
        return []
    header = f"{node.name}: {what}"
    return [{"before": before, "after": after, "before_header": header, "after_header": header}]
