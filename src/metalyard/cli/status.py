"""``metalyard status``: where every node stands, since when, why, and what comes next; or one node in detail."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from metalyard.cli.console import console, print_json
from metalyard.cli.options import inventory_option, json_option, limit_option, planned_node, site_plan


@click.command(short_help="Say where each node stands and why.")
@click.argument("node", required=False)
@inventory_option
@limit_option
@json_option
def status(node: str | None, limit: str | None, as_json: bool) -> None:
    """Say where each node stands, or of one NODE its stages, findings and parts."""
    from metalyard.ledger import Ledger
    from metalyard.report import table
    from metalyard.report.choice import chosen
    from metalyard.report.data import build
    from metalyard.report.source import collect

    plan = site_plan()
    names = [planned_node(plan, node).name] if node else [entry.name for entry in chosen(plan, limit)]
    now = datetime.now(UTC)
    with Ledger(plan.ledger_url, read_only=True) as ledger, ledger.read() as view:
        site = build(plan, collect(plan, view, now=now), now, only=names)
    if as_json:
        print_json(table.node_data(site.nodes[0]) if node else table.as_data(site))
        return
    out = console()
    if node:
        out.print(table.detail(site.nodes[0]))
        return
    out.print(table.nodes(site, out.width))
    out.print(table.summary(site))
    out.print(table.last_run(site))
