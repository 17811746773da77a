"""``metalyard virtual``: the rack on one machine, for the demo, for tests, and to rehearse a fault."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from metalyard.cli.console import console, print_json
from metalyard.cli.options import inventory_option, json_option, planned_node, site_plan

if TYPE_CHECKING:
    from metalyard.plan import SitePlan


def _home(plan: SitePlan) -> Path:
    """The rack's own folder is the one around the site's state folder."""
    return plan.state_dir.parent


@click.group(short_help="Run a rack on this machine.")
@inventory_option
def virtual() -> None:
    """Run a rack on this machine: emulated BMCs and MAAS, node containers, a simulated fabric."""


@virtual.command()
@inventory_option
@click.option("--scenario", default="demo", show_default=True, help="Which faults it starts with.")
def up(scenario: str) -> None:
    """Start the virtual rack; what runs already is left as it is."""
    from metalyard.virtual import rack

    plan = site_plan()
    rack.up(plan, _home(plan), scenario, lambda text: click.echo(text))
    click.echo("Next step: metalyard bringup")


@virtual.command()
@inventory_option
def down() -> None:
    """End the virtual rack: containers, emulators and their network."""
    from metalyard.virtual import rack

    plan = site_plan()
    rack.down(plan, _home(plan), lambda text: click.echo(text))
    click.echo("The virtual rack is down.")


@virtual.command()
@inventory_option
@json_option
def status(as_json: bool) -> None:
    """Say what of the virtual rack runs, and which faults are in it."""
    from metalyard.virtual import rack

    plan = site_plan()
    found = rack.status(plan, _home(plan))
    if as_json:
        print_json(found)
        return
    from metalyard.report.rackview import rack_table

    console().print(rack_table(found))


@virtual.command()
@json_option
def faults(as_json: bool) -> None:
    """List the faults there are, with what each one does."""
    from metalyard.report.rackview import fault_table
    from metalyard.virtual import faultbook

    records = {name: record.model_dump(mode="json") for name, record in faultbook.catalogue().items()}
    if as_json:
        print_json(records)
    else:
        console().print(fault_table(records))


@virtual.command()
@inventory_option
@click.argument("node")
@click.argument("fault")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--clear", is_flag=True, help="Take the fault out again.")
def fault(node: str, fault: str, arguments: tuple[str, ...], clear: bool) -> None:
    """Put FAULT into NODE, such as `gpu_off_bus`; KEY=VALUE are the fault's arguments."""
    from metalyard.virtual import rack

    plan = site_plan()
    wrong = [argument for argument in arguments if "=" not in argument]
    if wrong:
        raise click.UsageError(f"Expected KEY=VALUE, found '{wrong[0]}'.")
    given: dict[str, Any] = {key: _value(value) for key, _, value in (text.partition("=") for text in arguments)}
    name = planned_node(plan, node).name
    if clear:
        rack.clear(plan, _home(plan), name, fault)
        click.echo(f"{name}: {fault} is out again")
    else:
        rack.fault(plan, _home(plan), name, fault, **given)
        click.echo(f"{name}: {fault} is in. Next step: metalyard bringup --stage prove --stage admit --limit {name}")


def _value(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdigit() else text
