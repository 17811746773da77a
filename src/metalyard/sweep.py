"""One process, many hosts: the contract between what sweeps (Redfish, MAAS) and what asked for it (a run).

An operation is ``async def operation(context: Context) -> None`` that calls ``context.report`` once for each node of
``context.nodes``, as each one ends. :func:`fan_out` is the usual way to write one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from metalyard.plan.model import Node, SitePlan


class Secrets(Protocol):
    """Where secrets are kept; see :mod:`metalyard.secrets`."""

    def read(self, name: str) -> dict[str, Any] | None:
        """The entry, or None when there is none."""
        ...

    def write(self, name: str, entry: dict[str, Any]) -> None:
        """Keep an entry, on disk before this returns."""
        ...


@dataclass
class HostResult:
    """What a sweep did to one host.

    ``message`` names node, part, seen, expected; ``next_step`` says what a person does about a failure.
    ``diff`` is a list of Ansible diffs ``{"before": str, "after": str, "before_header": …, "after_header": …}``.
    ``data`` is what later stages or the ledger want (facts, parts, versions). No secrets anywhere.
    ``aside`` is set where the machine is not the planned one and must not go on (a wrong serial).
    """

    host: str
    changed: bool = False
    failed: bool = False
    unreachable: bool = False
    aside: bool = False
    message: str = ""
    next_step: str = ""
    diff: list[dict[str, Any]] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


class NodeError(Exception):
    """One node can't go on; the others do. Becomes a failed :class:`HostResult`."""

    def __init__(
        self, message: str, next_step: str, *, unreachable: bool = False, aside: bool = False, **data: Any
    ) -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step
        self.unreachable = unreachable
        self.aside = aside
        self.data = data


@dataclass(frozen=True)
class Context:
    """What an operation gets. In ``check`` mode it reads and says what it would change, and changes nothing."""

    plan: SitePlan
    nodes: Sequence[Node]
    secrets: Secrets
    report: Callable[[HostResult], None]
    check: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    progress: Callable[[str, str], None] = lambda host, text: None
    """Called with a host and a short present-tense text (``waiting for commissioning, 3 min``)."""


async def fan_out(
    context: Context,
    work: Callable[[Node], Awaitable[HostResult]],
    *,
    concurrency: int,
    deadline: float,
) -> None:
    """Run ``work`` for every node, at most ``concurrency`` at once, each at most ``deadline`` seconds.

    An exception of one node is that node's failure: :class:`NodeError` speaks for itself, a time-out names the
    deadline, anything else is reported as a defect with its type. No exception reaches the other nodes.
    """
    gate = asyncio.Semaphore(concurrency)

    async def one(node: Node) -> None:
        async with gate:
            started = time.monotonic()
            try:
                async with asyncio.timeout(deadline):
                    result = await work(node)
            except NodeError as error:
                result = HostResult(
                    host=node.name,
                    failed=not error.unreachable,
                    unreachable=error.unreachable,
                    aside=error.aside,
                    message=error.message,
                    next_step=error.next_step,
                    data=dict(error.data),
                )
            except TimeoutError:
                result = HostResult(
                    host=node.name,
                    failed=True,
                    message=f"{node.name}: not done within the deadline of {deadline:.0f} s",
                    next_step="Run the same command again; it goes on where this one stopped.",
                )
            except Exception as error:  # one node's defect must not end the sweep of a hall
                result = HostResult(
                    host=node.name,
                    failed=True,
                    message=f"{node.name}: unexpected {type(error).__name__}: {error}",
                    next_step="This is a defect of Metalyard or an answer it does not know: report it with this line.",
                )
            result.seconds = round(time.monotonic() - started, 3)
            context.report(result)

    await asyncio.gather(*(one(node) for node in context.nodes))
