"""``metalyard check``: everything a bring-up needs, looked at before anything is touched."""

from __future__ import annotations

import asyncio

import click

from metalyard.cli.console import console, print_json
from metalyard.cli.failures import ERROR, OK
from metalyard.cli.options import inventory_option, json_option, limit_option, site_plan


@click.command(short_help="Look whether a bring-up has all it needs.")
@inventory_option
@limit_option
@click.option(
    "--offline",
    is_flag=True,
    help="The plan and what it names only: no credentials, no network. For CI of a plan's repository.",
)
@json_option
@click.pass_context
def check(context: click.Context, limit: str | None, offline: bool, as_json: bool) -> None:
    """Look at plan, profiles, credentials, BMCs, MAAS, ledger and SSH key. Nothing is changed."""
    from dataclasses import asdict

    from metalyard.report.choice import chosen
    from metalyard.report.table import looks_summary, looks_table
    from metalyard.runs import preflight

    plan = site_plan()
    nodes = chosen(plan, limit)
    looks = preflight.at_hand(plan)
    if not offline:
        looks += preflight.on_this_machine(plan)
        with console(error=True).status(f"asking {len(nodes)} BMCs and MAAS"):
            looks += asyncio.run(preflight.on_the_network(plan, nodes))
    failed = any(look.outcome == "failed" for look in looks)
    if as_json:
        print_json({"ready": not failed, "offline": offline, "looks": [asdict(look) for look in looks]})
    else:
        out = console()
        out.print(looks_table(looks))
        out.print(looks_summary(looks, offline))
    context.exit(ERROR if failed else OK)
