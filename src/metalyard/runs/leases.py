"""Who works on a node: whether a lease still counts, and what becomes of a run that died."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from metalyard import __version__
from metalyard.ledger import Book, HistoryError, Ledger, View
from metalyard.ledger.schema import Lease
from metalyard.ledger.view import moment
from metalyard.plan.model import SitePlan
from metalyard.runs.holder import Holder

STALE_SECONDS = 600.0
"""After this long without a sign of life, a run on another machine counts as dead."""
GO_ON = "Run the same command again; it goes on where this one stopped."


def new_run_id(verb: str) -> str:
    """A run's id: when it began, what for, and four digits that keep two of the same second apart."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{verb}-{secrets.token_hex(2)}"


def shown(text: str | None) -> str:
    """A time for a sentence: to the second."""
    return f"{moment(text):%Y-%m-%d %H:%M:%S} UTC" if text else "the beginning"


def dead(lease: Lease, now: str, ended: bool) -> str | None:
    """Why a lease no longer counts, or None where its holder works, or may. ``ended``: its run has."""
    holder = Holder.from_dict(lease.holder)
    why = holder.gone()
    if why is not None:
        return why
    if ended:
        return f"run {lease.run} has ended"
    silent = (moment(now) - moment(lease.heartbeat)).total_seconds()
    if silent > STALE_SECONDS and not holder.alive():
        return f"no sign of life from {holder} for {silent / 60:.0f} min"
    return None


def bury(book: Book, run: str, why: str) -> None:
    """End a run that died: what it left open, and the run itself. Its leases stay until they are taken over."""
    for record in book.stages(run=run, open_only=True):
        message = f"{record.node}: run {run} stopped in stage {record.stage}: {why}"
        book.end_stage(record, "interrupted", message=message, next_step=GO_ON)
    book.end_run(run, "interrupted", f"{why}; {GO_ON}")


def bury_the_dead(book: Book, but: str) -> None:
    """End every run whose process is certainly gone."""
    for known in book.open_runs():
        if known.id != but and (why := Holder.from_dict(known.holder).gone()) is not None:
            bury(book, known.id, why)


def begin(
    book: Book,
    plan: SitePlan,
    run: str,
    holder: Holder,
    *,
    options: Mapping[str, Any] | None = None,
    resumes: str | None = None,
) -> None:
    """Write down that a run begins, where it has not been; first end those that died."""
    verb = run.split("-")[1] if run.count("-") > 1 else run
    new = book.begin_run(
        run,
        verb=verb,
        site=plan.site,
        holder=holder.as_dict(),
        version=__version__,
        options=options,
        resumes=resumes,
    )
    if new:
        bury_the_dead(book, run)


def contested(view: View, lease: Lease, run: str, now: str) -> tuple[str | None, str | None]:
    """Why the node may be taken over from another run, or the sentence that says who holds it; or neither."""
    if lease.run == run:
        return None, None
    owner = view.run(lease.run)
    why = dead(lease, now, owner is None or owner.ended is not None)
    if why is not None:
        return why, None
    holder = Holder.from_dict(lease.holder)
    return None, f"{lease.node} is held by {holder}, run {lease.run}, since {shown(lease.since)}."


def ours(book: Book, run: str, nodes: Iterable[str]) -> None:
    """Make sure that this run still holds these nodes, and say that it works. HistoryError where it does not."""
    names = list(nodes)
    leases = book.leases(names)
    for name in names:
        lease = leases.get(name)
        if lease is None or lease.run != run:
            now = f"run {lease.run} ({Holder.from_dict(lease.holder)}) has it" if lease else "no run has it now"
            raise HistoryError(
                f"{name} is no longer held by run {run}: {now}.",
                "Nothing was written. Let the other run end, then run the same command again.",
            )
    book.beat(run)


def release(plan: SitePlan, run: str, hosts: Iterable[str] | None = None) -> int:
    """Give back a run's leases, all or those of ``hosts``; how many there were."""
    with Ledger(plan.ledger_url) as ledger, ledger.write() as book:
        return book.free(run, hosts)


def heartbeat(plan: SitePlan, run: str) -> int:
    """Say that a run still works; on how many nodes."""
    with Ledger(plan.ledger_url) as ledger, ledger.write() as book:
        return book.beat(run)


def finish(plan: SitePlan, run: str, outcome: str, message: str = "") -> None:
    """End a run: what it left open, its leases, and the run itself. Ending twice changes nothing."""
    with Ledger(plan.ledger_url) as ledger, ledger.write() as book:
        for record in book.stages(run=run, open_only=True):
            text = f"{record.node}: stage {record.stage} of run {run} was not closed"
            book.end_stage(record, "interrupted", message=text, next_step=GO_ON)
        book.end_run(run, outcome, message)
        book.free(run)
