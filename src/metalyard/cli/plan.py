"""``metalyard plan``: what a bring-up would do, per node and stage; nothing is changed."""

from __future__ import annotations

import click

from metalyard.cli.console import console, print_json
from metalyard.cli.options import inventory_option, json_option, limit_option, site_plan, stage_option


@click.command(short_help="Say what a bring-up would do.")
@inventory_option
@limit_option
@stage_option
@click.option(
    "--online", is_flag=True, help="Ask BMCs and MAAS, too, what is off (reads only): versions, settings, machines."
)
@json_option
def plan(limit: str | None, stages: tuple[str, ...], online: bool, as_json: bool) -> None:
    """Say what a bring-up would do to each node, from where it stands. Nothing is changed."""
    from metalyard.plan.lifecycle import STAGES, Stage
    from metalyard.report.choice import chosen
    from metalyard.report.foreseen import as_data, summary, table
    from metalyard.runs.forecast import ask, expect

    site = site_plan()
    nodes = chosen(site, limit)
    asked = [stage for stage in STAGES if not stages or stage in {Stage(name) for name in stages}]
    expected = expect(site, nodes, asked)
    if online:
        with console(error=True).status(f"asking {len(nodes)} BMCs and MAAS"):
            expected = ask(site, nodes, expected)
    if as_json:
        print_json(as_data(site, expected))
        return
    out = console()
    out.print(table(expected))
    out.print(summary(site, expected))
