"""``metalyard init``: a new site with a plan that explains every field."""

from __future__ import annotations

import re
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from metalyard.plan.model import HOSTNAME

MARK = "example-site"
"""The name that the scaffold carries."""


@click.command(short_help="Write a new site with a commented plan.")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", help="The site's name.  [default: the folder's]")
def init(folder: Path, name: str | None) -> None:
    """Write a new site into DIR: a commented plan, folders for profiles and baselines, a README."""
    from metalyard.plan import load_plan

    site = name or re.sub(r"[^a-z0-9-]+", "-", folder.resolve().name.lower()).strip("-")[:63] or "site"
    if not re.fullmatch(HOSTNAME, site):
        raise click.UsageError(f"'{site}' is no name for a site: use lower-case letters, digits and hyphens.")
    files = dict(_files(resources.files("metalyard.cli") / "scaffold", Path()))
    there = [folder / path for path in files if (folder / path).exists()]
    if there:
        raise click.UsageError(f"{there[0]} is there already, and nothing is overwritten. Name another folder.")
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.replace(MARK, site), encoding="utf-8")
    load_plan(folder)
    click.echo(f"The site {site} is in {folder}. Next step: edit {folder / 'site.yml'}, then `metalyard check`.")


def _files(place: Traversable, below: Path) -> list[tuple[Path, str]]:
    """Every file of the scaffold; ``gitignore`` gets its dot, which packaging would hide."""
    found: list[tuple[Path, str]] = []
    for entry in sorted(place.iterdir(), key=lambda item: item.name):
        if entry.is_dir():
            found += _files(entry, below / entry.name)
        else:
            name = ".gitignore" if entry.name == "gitignore" else entry.name
            found.append((below / name, entry.read_text(encoding="utf-8")))
    return found
