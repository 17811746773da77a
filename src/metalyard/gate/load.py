"""Finds the checks: those of the package, those of installed packages (``metalyard.checks``), those in a folder.

The order is that of their ids, so that two runs judge alike; :func:`rules_digest` says which rules judged.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import pkgutil
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import ModuleType

from metalyard.gate import checks as builtin
from metalyard.gate.check import Check, with_origin

GROUP = "metalyard.checks"
"""Entry points of this group name a module with checks."""
_RULES = ("metalyard.gate", "metalyard.fabric")
"""Packages whose code decides: parsers, catalogue, judge, comparison with the plan."""


class CheckError(ValueError):
    """A check file can't be used: which one, and why. No run goes on without a check that it was told to use."""


def load_checks(folder: Path | None = None) -> tuple[Check, ...]:
    """All checks, by id. ``folder`` holds a site's own files; :class:`CheckError` for one that can't be used."""
    found: dict[str, tuple[Check, str]] = {}
    for check, where in _all(folder):
        if check.id in found:
            raise CheckError(f"two checks have the id '{check.id}': {found[check.id][1]} and {where}; rename one")
        found[check.id] = (check, where)
    return tuple(check for _, (check, _) in sorted(found.items()))


def rules_digest(checks: Iterable[Check]) -> str:
    """SHA-256 of the rules: each check's declaration, and the code that it and the judge come with."""
    declared = [
        [one.id, one.kind, list(one.needs), one.owner.value, one.remedy, one.source, one.tolerates_failure, one.origin]
        for one in sorted(checks, key=lambda one: one.id)
    ]
    text = json.dumps([_package_digest(), declared], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _all(folder: Path | None) -> Iterator[tuple[Check, str]]:
    for info in sorted(pkgutil.iter_modules(builtin.__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{builtin.__name__}.{info.name}")
        yield from ((check, module.__name__) for check in _of(module))
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        try:
            module = point.load()
            origin = _source_digest(module)
        except Exception as error:
            raise CheckError(
                f"the checks '{point.name}' ({point.value}) can't be loaded: {type(error).__name__}: {error}; "
                "mend or uninstall the package that brings them"
            ) from error
        yield from ((with_origin(check, origin), point.value) for check in _of(module))
    if folder is not None:
        yield from _of_folder(folder)


def _of_folder(folder: Path) -> Iterator[tuple[Check, str]]:
    if not folder.is_dir():
        raise CheckError(f"{folder} is not a folder; name one that holds check files (*.py)")
    for path in sorted(folder.glob("*.py")):
        if path.name.startswith("_"):
            continue
        name = f"metalyard_site_checks.{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise CheckError(f"{path} is not a Python file; remove it from the folder of checks")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise CheckError(f"{path} can't be loaded: {type(error).__name__}: {error}; mend it") from error
        own = _of(module)
        if not own:
            raise CheckError(f"{path} holds no check; declare one with @check, or move the file away")
        origin = hashlib.sha256(path.read_bytes()).hexdigest()
        yield from ((with_origin(check, origin), str(path)) for check in own)


def _of(module: ModuleType) -> list[Check]:
    """The checks that a module declares, not those that it imports."""
    return [
        value
        for _, value in sorted(vars(module).items())
        if isinstance(value, Check) and value.function.__module__ == module.__name__
    ]


def _source_digest(module: ModuleType) -> str:
    if module.__file__ is None:
        raise ImportError("it is not a module of one file")
    return hashlib.sha256(Path(module.__file__).read_bytes()).hexdigest()


@cache
def _package_digest() -> str:
    """SHA-256 over the package's own code that decides."""
    digest = hashlib.sha256()
    for package in _RULES:
        for name, source in sorted(_sources(files(package))):
            digest.update(f"{package}/{name}\0".encode())
            digest.update(source)
    return digest.hexdigest()


def _sources(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".py"):
            yield prefix + entry.name, entry.read_bytes()
