"""One sweep's view of a MAAS region: the client, who we are there, and what is asked once for all nodes."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from metalyard.maas.client import MaasClient
from metalyard.maas.errors import MaasError
from metalyard.maas.machine import Machine
from metalyard.maas.watch import Watch
from metalyard.plan.model import Node
from metalyard.sweep import Context, HostResult, NodeError, fan_out

GATHER_SECONDS = 0.1
"""How long tags are gathered, so that one call puts a tag on many machines."""


@dataclass
class Changes:
    """What was changed, or in check mode would be, on one host; no secrets."""

    host: str
    rows: list[tuple[str, str, str]] = field(default_factory=list)

    def note(self, what: str, before: str, after: str) -> None:
        """One value that changes."""
        self.rows.append((what, before, after))

    def diff(self) -> list[dict[str, Any]]:
        """As Ansible shows it."""
        if not self.rows:
            return []
        before = "".join(f"{what}: {old}\n" for what, old, _ in self.rows if old)
        after = "".join(f"{what}: {new}\n" for what, _, new in self.rows if new)
        header = f"{self.host} in MAAS"
        return [{"before": before, "after": after, "before_header": header, "after_header": header}]


class Tagger:
    """Puts tags on machines and takes them off, many at a time, and looks whether it came about."""

    def __init__(self, client: MaasClient) -> None:
        self._client = client
        self._gathered: dict[tuple[str, bool], dict[str, asyncio.Future[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def set(self, tag: str, system_id: str, *, on: bool) -> None:
        """One tag of one machine; :class:`MaasError` when MAAS has it otherwise after the call."""
        batch = self._gathered.setdefault((tag, on), {})
        if not batch:
            task = asyncio.create_task(self._flush(tag, on))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        future = batch.setdefault(system_id, asyncio.get_running_loop().create_future())
        await asyncio.shield(future)

    async def _flush(self, tag: str, on: bool) -> None:
        await asyncio.sleep(GATHER_SECONDS)
        batch = self._gathered.pop((tag, on))
        ids = sorted(batch)
        try:
            await self._client.tag(tag, add=ids if on else (), remove=() if on else ids)
            found = {machine.system_id: machine for machine in await self._client.machines(ids=ids)}
        except Exception as error:  # whatever it is, each node that waits is told
            for future in batch.values():
                future.set_exception(error)
            return
        for system_id, future in batch.items():
            machine = found.get(system_id)
            if machine is not None and (tag in machine.tags) is on:
                future.set_result(None)
            else:
                seen = "MAAS has no such machine" if machine is None else "MAAS did not do it, and said nothing"
                verb = "put on" if on else "taken off"
                future.set_exception(
                    MaasError(
                        f"tag {tag} could not be {verb} {system_id}: {seen}", "Run again; look at the tag in MAAS."
                    )
                )


@dataclass
class Site:
    """What every node's work needs."""

    context: Context
    client: MaasClient
    me: str
    watch: Watch
    tagger: Tagger
    machines: dict[str, list[Machine]]
    """By boot MAC, as found at the start."""
    power: asyncio.Semaphore
    """For calls that block on a BMC."""
    pause: float
    """Seconds between two looks."""

    async def sweep(self, work: Callable[[Node], Awaitable[HostResult]], deadline: float) -> None:
        """Every node's work at once; what MAAS says about one node is that node's failure."""

        async def guarded(node: Node) -> HostResult:
            try:
                return await work(node)
            except MaasError as error:
                raise NodeError(f"{node.name}: {error.message}", error.next_step) from None

        concurrency = max(1, len(self.context.nodes))
        await fan_out(self.context, guarded, concurrency=concurrency, deadline=deadline)

    def one(self, node: Node, found: list[Machine]) -> Machine | None:
        """The one machine with the node's boot MAC; several are for a person to sort out."""
        if len(found) > 1:
            ids = ", ".join(f"{machine.system_id} ({machine.hostname})" for machine in found)
            raise NodeError(
                f"{node.name}: MAAS has {len(found)} machines with the boot MAC {node.boot_mac}, expected one: {ids}",
                "Delete all but one of them in MAAS, then run the same command again.",
            )
        return found[0] if found else None


@asynccontextmanager
async def opened(context: Context) -> AsyncIterator[Site]:
    """The region, asked what all nodes need. :class:`MaasError` when it is not to be had at all."""
    async with MaasClient.from_plan(context.plan) as client:
        me = await client.whoami()
        if not me.get("is_superuser"):
            raise MaasError(
                f"the API key at {client.url} belongs to '{me.get('username')}', who is not an administrator",
                "Use the key of an administrator: only those may commission and set power parameters.",
            )
        found: dict[str, list[Machine]] = {node.boot_mac: [] for node in context.nodes}
        for machine in await client.machines(macs=[node.boot_mac for node in context.nodes]):
            for nic in machine.nics:
                if nic.mac in found and machine not in found[nic.mac]:
                    found[nic.mac].append(machine)
        pause = float(context.options.get("poll_seconds", 2.0))
        async with Watch(client, pause) as watch:
            yield Site(
                context,
                client,
                str(me.get("username", "")),
                watch,
                Tagger(client),
                found,
                asyncio.Semaphore(context.plan.maas.parallel_power_calls),
                pause,
            )


async def with_site(context: Context, work: Callable[[Site], Awaitable[None]]) -> None:
    """Run ``work`` on the opened region; what keeps all nodes from it is said of each node."""
    reported: set[str] = set()

    def report(result: HostResult) -> None:
        reported.add(result.host)
        context.report(result)

    inner = Context(
        context.plan, context.nodes, context.secrets, report, context.check, context.options, context.progress
    )
    try:
        async with opened(inner) as site:
            await work(site)
    except MaasError as error:
        for node in context.nodes:
            if node.name not in reported:
                context.report(
                    HostResult(
                        host=node.name,
                        failed=True,
                        message=f"{node.name}: {error.message}",
                        next_step=error.next_step,
                    )
                )


async def ensure_tags(site: Site, wanted: dict[str, str]) -> list[str]:
    """Make the tags (name to comment) that the region has not; those that were missing, in check mode too."""
    have = set(await site.client.names("tags/"))
    missing = [name for name in wanted if name not in have]
    if not site.context.check:
        for name in missing:
            await site.client.create_tag(name, wanted[name])
    return missing


def subnet_of(subnets: list[dict[str, Any]], address: str) -> dict[str, Any] | None:
    """The narrowest subnet that an address is in."""
    ip = ipaddress.ip_interface(address).ip
    holding = [subnet for subnet in subnets if ip in ipaddress.ip_network(str(subnet.get("cidr")))]
    return max(holding, key=lambda subnet: ipaddress.ip_network(str(subnet["cidr"])).prefixlen, default=None)
