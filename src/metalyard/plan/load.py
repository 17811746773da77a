"""Reads a site plan: one YAML file or a few, each error with file, line and field."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from metalyard.plan import model
from metalyard.plan.rules import Place, broken_rules

PLAN_NAMES = ("site.yml", "site.yaml")
MERGED = ("racks", "nodes", "switches", "cables", "hosts")
"""The lists that an included file may add to."""

_Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a plan, where it is, and what to do."""

    file: Path
    line: int
    field: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else str(self.file)
        return f"{where}: {self.field + ': ' if self.field else ''}{self.message}"


class PlanError(ValueError):
    """The plan can't be used; ``problems`` holds every reason found, in the order of the files."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


@dataclass
class _Document:
    """Plain data of a plan, and for each value the file and line it came from."""

    data: dict[str, Any]
    marks: dict[_Path, tuple[Path, int]] = field(default_factory=dict)

    def place(self, path: Place) -> tuple[Path, int]:
        """File and line of a value, or of the nearest thing around it."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.marks:
                return self.marks[path[:end]]
        return next(iter(self.marks.values()))


class _Loader(yaml.SafeLoader):
    """Safe YAML whose numbers are decimal only: MACs, GUIDs and times of day stay the text they were written as."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":int"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(0|[1-9][0-9]*)$"), list("-+0123456789"))


def load_plan(path: Path | str) -> model.SitePlan:
    """The checked plan of a file, or of the folder that holds ``site.yml``. :class:`PlanError` says what is wrong."""
    file = _plan_file(Path(path))
    document = _read(file)
    for position, name in enumerate(document.data.get("include") or []):
        if isinstance(name, str):
            _merge(document, (file.parent / name).resolve(), ("include", position))
    try:
        plan = model.SitePlan.model_validate({**document.data, "root": file.parent, "source": file})
    except ValidationError as error:
        raise PlanError(_sorted(_problems(error, document))) from None
    broken = [_problem(document, place, message) for place, message in broken_rules(plan)]
    if broken:
        raise PlanError(_sorted(broken))
    return plan


def _plan_file(path: Path) -> Path:
    if path.is_dir():
        for name in PLAN_NAMES:
            if (path / name).is_file():
                return (path / name).resolve()
        raise PlanError([Problem(path, 0, "", "no site.yml in this folder; `metalyard init` writes one")])
    if not path.is_file():
        raise PlanError([Problem(path, 0, "", "no such file; name a site plan or the folder that holds its site.yml")])
    return path.resolve()


def _read(file: Path) -> _Document:
    try:
        loader = _Loader(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(
            [Problem(file, 0, "", f"can't be read ({error.strerror}); check the path and its owner")]
        ) from None
    except UnicodeDecodeError as error:
        raise PlanError([Problem(file, 0, "", f"is not UTF-8 text ({error.reason} at byte {error.start})")]) from None
    except yaml.reader.ReaderError as error:
        raise PlanError([Problem(file, 0, "", f"holds a character that YAML does not allow: {error.reason}")]) from None
    try:
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            raise PlanError([Problem(file, 1, "", "expected a mapping at the top, such as `site: hall-a`")])
        document = _Document({})
        problems = [
            Problem(file, line, name, "stands twice; keep one") for name, line in _marks(root, (), file, document)
        ]
        if problems:
            raise PlanError(problems)
        document.data = loader.construct_document(root)
        return document
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        said = ", ".join(text for text in (error.context, error.problem) if text)
        raise PlanError([Problem(file, line, "", f"is not YAML: {said}")]) from None
    finally:
        loader.dispose()


def _marks(node: yaml.Node, path: _Path, file: Path, document: _Document) -> Iterator[tuple[str, int]]:
    """Note where every value stands; yields keys that stand twice, with their line."""
    document.marks[path] = (file, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else str(key)
            here = (*path, name)
            if name in seen:
                yield ".".join(map(str, here)), key.start_mark.line + 1
            seen.add(name)
            yield from _marks(value, here, file, document)
            document.marks[here] = (file, key.start_mark.line + 1)
    elif isinstance(node, yaml.SequenceNode):
        for position, value in enumerate(node.value):
            yield from _marks(value, (*path, position), file, document)


def _merge(document: _Document, file: Path, origin: _Path) -> None:
    if not file.is_file():
        at, line = document.place(origin)
        raise PlanError([Problem(at, line, "include", f"{file} does not exist")])
    part = _read(file)
    strange = [name for name in part.data if name not in MERGED]
    if strange:
        raise PlanError(
            [
                Problem(*part.place((name,)), name, f"an included file may hold only {', '.join(MERGED)}")
                for name in strange
            ]
        )
    for name, values in part.data.items():
        if not isinstance(values, list):
            raise PlanError([Problem(*part.place((name,)), name, "expected a list")])
        base = document.data.setdefault(name, [])
        if not isinstance(base, list):
            raise PlanError([Problem(*document.place((name,)), name, "expected a list")])
        offset = len(base)
        base.extend(values)
        for path, mark in part.marks.items():
            if len(path) > 1 and path[0] == name and isinstance(path[1], int):
                document.marks[(name, path[1] + offset, *path[2:])] = mark


def _problem(document: _Document, path: Place, message: str) -> Problem:
    file, line = document.place(path)
    return Problem(file, line, _field(path, document.data), message)


def _field(path: Place, data: Any) -> str:
    """``nodes[gpu-1].bmc.address``: list items by name where they have one."""
    text = ""
    for step in path:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            data = None
        if isinstance(step, int):
            name = data.get("name") or data.get("label") if isinstance(data, dict) else None
            text += f"[{name or step}]"
        else:
            text += f".{step}" if text else str(step)
    return text


def _problems(error: ValidationError, document: _Document) -> Iterator[Problem]:
    for item in error.errors():
        path = tuple(step for step in item["loc"] if step != "[key]")
        if item["type"] == "missing":
            yield _problem(document, path, "is missing")
        elif item["type"] == "extra_forbidden":
            yield _problem(document, path, _unknown_key(path))
        elif item["type"] == "string_type" and isinstance(item["input"], int | float):
            yield _problem(document, path, f"YAML reads {item['input']!r} as a number; put it in quotes")
        else:
            said = item["msg"].removeprefix("Value error, ")
            shown = item.get("input")
            seen = f" (found {shown!r})" if isinstance(shown, str | int | float | bool) else ""
            yield _problem(document, path, f"{said[:1].lower()}{said[1:]}{seen}")


def _unknown_key(path: Place) -> str:
    known = _known_keys(model.SitePlan, path[:-1])
    close = difflib.get_close_matches(str(path[-1]), known, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(sorted(known))}"
    return f"is not a field of the plan; {hint}"


def _known_keys(kind: type[BaseModel], path: Place) -> list[str]:
    """Names of the fields at a place in the schema."""
    for step in path:
        if isinstance(step, int):
            continue
        info = next((f for n, f in kind.model_fields.items() if step in (n, f.alias)), None)
        inner = _inner_model(info.annotation) if info is not None else None
        if inner is None:
            return []
        kind = inner
    return [info.alias or name for name, info in kind.model_fields.items() if not info.exclude]


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _inner_model(argument)
        if found is not None:
            return found
    return None


def _sorted(problems: Any) -> list[Problem]:
    return sorted(problems, key=lambda problem: (str(problem.file), problem.line, problem.field))
