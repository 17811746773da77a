"""``metalyard bringup``: takes nodes through their stages, and shows how."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from metalyard.cli.console import console
from metalyard.cli.failures import INTERRUPTED, resume_hint
from metalyard.cli.options import inventory_option, json_option, limit_option, site_plan, stage_option

if TYPE_CHECKING:
    from metalyard.plan import SitePlan
    from metalyard.runs.execute import RunOutcome

MANY = 16
"""A run of more nodes than this without a limit is asked about, on a terminal: a limit is easily forgotten."""


@click.command(short_help="Take nodes from power-on to in service.")
@inventory_option
@limit_option
@stage_option
@click.option("--check", is_flag=True, help="Read only; say what would change.")
@click.option("--diff", is_flag=True, help="Show at the end what changed, or with --check would change.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value="latest",
    metavar="[RUN]",
    help="Go on with an interrupted run, its limit and stages: the latest, or that one.",
)
@json_option
@click.option("-y", "--yes", is_flag=True, help=f"Don't ask before a run of more than {MANY} nodes without --limit.")
@click.pass_context
def bringup(
    context: click.Context,
    limit: str | None,
    stages: tuple[str, ...],
    check: bool,
    diff: bool,
    resume: str | None,
    as_json: bool,
    yes: bool,
) -> None:
    """Take the plan's nodes from power-on to in service.

    The same command after an interruption goes on where the last one stopped; a second run changes nothing.
    """
    from metalyard.cli.progress import follower
    from metalyard.report.choice import chosen
    from metalyard.runs.execute import bringup as run

    plan = site_plan()
    nodes = chosen(plan, limit)
    asking = len(nodes) > MANY and not (limit or check or resume or yes or as_json)
    if asking and at_a_terminal():
        click.confirm(f"This run is about all {len(nodes)} nodes of {plan.site}. Go on?", abort=True)
    if diff:
        os.environ["ANSIBLE_DIFF_ALWAYS"] = "True"
    out = console()
    progress = follower(out, [node.name for node in nodes], as_json=as_json)
    with progress:
        outcome = run(
            plan, plan.source, limit=limit, stages=stages or None, check=check, resume=resume, on_event=progress
        )
    if as_json:
        _as_json(outcome)
    else:
        if diff:
            _diffs(out, outcome)
        _result(out, plan, outcome)
    context.exit(outcome.exit_code)


def at_a_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _as_json(outcome: RunOutcome) -> None:
    import json

    data = {"event": "result", "changed": outcome.changed, **asdict(outcome)}
    click.echo(json.dumps(data, sort_keys=True, default=str))


def _diffs(out: Console, outcome: RunOutcome) -> None:
    from metalyard.report.diffs import changes

    for change in changes(outcome.folder):
        out.print(Text(f"{change.node}: {change.task}", style="bold"))
        for line in change.lines:
            out.print(Text(line, style={"+": "green", "-": "red"}.get(line[:1], "")))


def _result(out: Console, plan: SitePlan, outcome: RunOutcome) -> None:
    """The nodes with reasons, then a line that says it all, then the next step."""
    from metalyard.ledger import Ledger
    from metalyard.report import table
    from metalyard.report.data import build
    from metalyard.report.source import collect

    now = datetime.now(UTC)
    names = list(outcome.nodes)
    if outcome.check:
        out.print(
            table.outcomes(
                (n.node, n.state, n.outcome, n.changed, n.reason, n.next_step) for n in outcome.nodes.values()
            )
        )
    elif names:
        with Ledger(plan.ledger_url, read_only=True) as ledger, ledger.read() as view:
            site = build(plan, collect(plan, view, now=now), now, only=names)
        out.print(table.nodes(site, out.width))
        out.print(table.summary(site))
    out.print(table.changed(outcome.changed, outcome.check))
    if outcome.message:
        out.print(Text(outcome.message))
    if outcome.next_step:
        out.print(Text(f"Next step: {outcome.next_step}"))
    if outcome.exit_code == INTERRUPTED:
        click.echo(resume_hint(), err=True)
