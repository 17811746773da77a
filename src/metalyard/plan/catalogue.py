"""Finds profiles and baselines: the site's own folder first, then those the package brings."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from metalyard.plan.model import SitePlan, Strict
from metalyard.plan.profile import Baseline, Profile

Kind = TypeVar("Kind", bound=Strict)


class CatalogueError(ValueError):
    """A profile or baseline is not there or is not right; the text says which and why."""


def load_profile(plan: SitePlan, name: str) -> Profile:
    """The profile of that name."""
    found: Profile = _load(Profile, "profiles", plan.path(plan.profiles) if plan.profiles else None, name)
    return found


def load_baseline(plan: SitePlan, name: str | None = None) -> Baseline:
    """The baseline of that name, or the plan's own."""
    found: Baseline = _load(
        Baseline, "baselines", plan.path(plan.baselines) if plan.baselines else None, name or plan.baseline
    )
    return found


@lru_cache(maxsize=256)
def _load(kind: type[Kind], folder: str, own: Path | None, name: str) -> Kind:
    packaged = Path(str(resources.files("metalyard.plan") / folder))
    folders = [f for f in (own, packaged) if f is not None]
    for place in folders:
        file = place / f"{name}.yml"
        if file.is_file():
            return _read(kind, file)
    known = sorted({f.stem for place in folders if place.is_dir() for f in place.glob("*.yml")})
    raise CatalogueError(
        f"no {folder[:-1]} '{name}'; known are {', '.join(known) or 'none'} (looked in {_said(folders)})"
    )


def _said(folders: list[Path]) -> str:
    return " and ".join(str(folder) for folder in folders)


def _read(kind: type[Kind], file: Path) -> Kind:
    try:
        data: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
        return kind.model_validate(data)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CatalogueError(f"{file} can't be read: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise CatalogueError(f"{file}: {where}: {first['msg']}") from error
