"""``metalyard release``: a person lets a node that was set aside go back to the start of its life."""

from __future__ import annotations

import click

from metalyard.cli.failures import HELD
from metalyard.cli.options import inventory_option, planned_node, site_plan


@click.command(short_help="Let a node that was set aside go back.")
@click.argument("node")
@inventory_option
@click.option("--reason", required=True, metavar="TEXT", help="What was done or decided; it is kept with the node.")
@click.pass_context
def release(context: click.Context, node: str, reason: str) -> None:
    """Let a quarantined or repaired NODE go back to 'planned', for the next bringup to take it up again."""
    from metalyard.ledger import Ledger
    from metalyard.plan.lifecycle import Actor, State
    from metalyard.runs.holder import Holder
    from metalyard.runs.leases import contested

    plan = site_plan()
    name = planned_node(plan, node).name
    who = Holder.of()
    with Ledger(plan.ledger_url) as ledger, ledger.write() as book:
        here = book.state(name)
        if here.state is State.PLANNED:
            click.echo(f"{name} is planned already. Next step: metalyard bringup --limit {name}")
            return
        lease = book.leases([name]).get(name)
        held = contested(book, lease, "", book.now)[1] if lease is not None else None
        if held:
            click.echo(f"{held}\nNext step: wait for that run to end, or stop it; then release {name} again.", err=True)
            context.exit(HELD)
        book.move(name, State.PLANNED, Actor.OPERATOR, run=None, reason=reason, here=here)
        book.decide(name, f"{who.user}@{who.host}", "release", reason)
    click.echo(f"{name}: {here.state} -> planned. Next step: metalyard bringup --limit {name}")
