"""``metalyard report``: the page of a run, or of how everything stands now."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from metalyard.cli.failures import ERROR
from metalyard.cli.options import inventory_option, site_plan


@click.command(short_help="Write the report as one HTML file.")
@inventory_option
@click.option("--run", "run", metavar="ID", help="The nodes of that run only ('last' for the latest).")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write it.  [default: report.html in the state folder, or in the run's folder]",
)
@click.option("--open/--no-open", "show", default=False, help="Show it in a browser.")
def report(run: str | None, output: Path | None, show: bool) -> None:
    """Write the report as one HTML file, and print its path."""
    from metalyard.ledger import Ledger
    from metalyard.report import page
    from metalyard.report.data import build
    from metalyard.report.source import collect

    plan = site_plan()
    now = datetime.now(UTC)
    with Ledger(plan.ledger_url, read_only=True) as ledger, ledger.read() as view:
        if run == "last":
            run = next((known.id for known in view.runs(limit=1)), run)
        try:
            records = collect(plan, view, run=run, now=now)
        except KeyError:
            known = ", ".join(entry.id for entry in view.runs(limit=5)) or "none"
            raise click.UsageError(f"The ledger has no run '{run}'. The latest are: {known}.") from None
    folder = plan.state_dir / "runs" / run if run else plan.state_dir
    target = page.write(build(plan, records, now), output or folder / "report.html")
    click.echo(str(target))
    if show and click.launch(target.as_uri()) != 0:
        click.echo("No browser could be started; open the file above by hand.", err=True)
        click.get_current_context().exit(ERROR)
