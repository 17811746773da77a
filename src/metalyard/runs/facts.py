"""What stages learn of nodes: facts and parts, into the ledger; where nodes stand, out of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from metalyard.ledger import Ledger, PartSeen
from metalyard.plan.lifecycle import Stage, State
from metalyard.plan.model import SitePlan
from metalyard.runs.leases import ours
from metalyard.sweep import HostResult


def record_result(plan: SitePlan, run: str, stage: Stage, result: HostResult, check: bool = False) -> None:
    """Keep what a sweep learnt of one node; see :func:`record_results`."""
    record_results(plan, run, stage, [result], check=check)


def record_results(plan: SitePlan, run: str, stage: Stage, results: Iterable[HostResult], check: bool = False) -> None:
    """Keep facts and parts of the nodes whose sweep went well; what is known already is not written again."""
    good = [result for result in results if result.data and not (result.failed or result.unreachable or result.aside)]
    if check or not good:
        return
    with Ledger(plan.ledger_url) as ledger, ledger.write() as book:
        ours(book, run, [result.host for result in good])
        for result in good:
            facts = result.data.get("facts")
            body = facts if isinstance(facts, dict) else result.data
            book.learn(run, result.host, stage, body)
            book.sight(run, result.host, parts_of(body))


def parts_of(body: Mapping[str, Any]) -> list[PartSeen]:
    """The parts that facts list under ``parts``."""
    found = body.get("parts")
    return [
        PartSeen(
            kind=str(part.get("kind") or ""),
            slot=str(part.get("part") or ""),
            serial=str(part.get("serial") or "").strip(),
            model=str(part.get("model") or ""),
            firmware=str(part.get("firmware") or ""),
        )
        for part in (found if isinstance(found, list) else [])
        if isinstance(part, dict)
    ]


def states(plan: SitePlan, hosts: Sequence[str]) -> dict[str, State]:
    """Where each node stands; nothing is written."""
    with Ledger(plan.ledger_url, read_only=True) as ledger, ledger.read() as view:
        return {name: here.state for name, here in view.states(hosts).items()}
