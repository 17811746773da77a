"""Options that several commands share, and the site plan they lead to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from metalyard.plan import Node, SitePlan

Function = TypeVar("Function", bound=Callable[..., Any])
KEY = "metalyard.inventory"
VARIABLE = "METALYARD_SITE"


def _keep(context: click.Context, _parameter: click.Parameter, value: Path | None) -> None:
    """The option may stand after any word of a command; the last one counts."""
    if value is not None:
        context.meta[KEY] = value


def inventory_option(function: Function) -> Function:
    """``-i/--inventory``: the site plan."""
    return click.option(
        "-i",
        "--inventory",
        metavar="PATH",
        type=click.Path(path_type=Path),
        callback=_keep,
        expose_value=False,
        is_eager=True,
        help=f"Site plan, or the folder with its site.yml.  [default: ${VARIABLE}, or the only site.yml "
        "in ./inventory, or ./site.yml]",
    )(function)


def limit_option(function: Function) -> Function:
    """``--limit``: some nodes only."""
    return click.option(
        "--limit",
        metavar="PATTERN",
        default=None,
        help="Nodes, racks (rack_r01) or other groups, separated by commas; * and ? as wildcards, ! excludes.",
    )(function)


def stage_option(function: Function) -> Function:
    """``--stage``: some stages only."""
    from metalyard.plan.lifecycle import STAGES

    return click.option(
        "--stage",
        "stages",
        multiple=True,
        type=click.Choice([str(stage) for stage in STAGES]),
        help="This stage only; may be given several times.",
    )(function)


def json_option(function: Function) -> Function:
    """``--json``: for programs."""
    return click.option("--json", "as_json", is_flag=True, help="JSON for programs instead of text for people.")(
        function
    )


def site_plan() -> SitePlan:
    """The plan that this command is about; raises PlanError with every problem, or a usage error."""
    from metalyard.plan import load_plan

    return load_plan(plan_path())


def plan_path() -> Path:
    """Where the plan is: the option, the variable, or the only one at hand."""
    given = click.get_current_context().meta.get(KEY)
    if isinstance(given, Path):
        return given
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    here = Path("inventory")
    found = [folder for folder in (here, *sorted(here.glob("*/"))) if (folder / "site.yml").is_file()]
    if len(found) > 1:
        names = ", ".join(str(folder) for folder in found)
        raise click.UsageError(f"Several site plans are here ({names}). Name one with -i or in {VARIABLE}.")
    if found:
        return found[0]
    if Path("site.yml").is_file():
        return Path("site.yml")
    raise click.UsageError(
        f"No site plan is here. Name one with -i or in {VARIABLE}, or write one with `metalyard init DIR`."
    )


def planned_node(plan: SitePlan, name: str) -> Node:
    """The node of that name; a usage error with the closest names where the plan has none."""
    import difflib

    try:
        return plan.node(name)
    except KeyError:
        close = difflib.get_close_matches(name, [node.name for node in plan.nodes], n=3)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        raise click.UsageError(f"The plan {plan.source} has no node '{name}'.{hint}") from None
