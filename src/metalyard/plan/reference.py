"""The schema of plan, profile and baseline as tables for docs/site-plan.md; a test holds page and schema together."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from metalyard.plan.model import SitePlan
from metalyard.plan.profile import Baseline, Profile


def as_markdown() -> str:
    """One section a kind of object, in the order in which they are met."""
    return "\n".join(section for kind in (SitePlan, Profile, Baseline) for section in _sections(kind, set()))


def _sections(kind: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[str]:
    if kind in seen:
        return
    seen.add(kind)
    fields = {info.alias or name: info for name, info in kind.model_fields.items() if not info.exclude}
    lines = [f"### {kind.__name__}", "", (kind.__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " "), ""]
    lines += ["| field | kind | default | what it is |", "| --- | --- | --- | --- |"]
    for name, info in fields.items():
        lines.append(f"| `{name}` | {_kind(info.annotation)} | {_default(info)} | {info.description or ''} |")
    yield "\n".join(lines) + "\n"
    for info in fields.values():
        for inner in _models(info.annotation):
            yield from _sections(inner, seen)


def _default(info: Any) -> str:
    if info.is_required():
        return "required"
    value = info.default
    if value is PydanticUndefined or value is None or value == "" or isinstance(value, BaseModel):
        return ""
    return f"`{value}`"


def _kind(annotation: Any) -> str:
    origin = typing.get_origin(annotation)
    arguments = [argument for argument in typing.get_args(annotation) if argument is not type(None)]
    if origin is typing.Literal:
        return ", ".join(f"`{argument}`" for argument in typing.get_args(annotation))
    if origin is typing.Annotated:
        return _kind(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_kind(argument) for argument in arguments)
    if origin is list:
        return f"list of {_kind(arguments[0])}"
    if origin is tuple:
        return f"{len(arguments)} of {_kind(arguments[0])}"
    if origin is dict:
        return f"mapping to {_kind(arguments[1])}"
    names = {"str": "text", "int": "whole number", "float": "number", "bool": "yes or no", "Path": "path"}
    name = getattr(annotation, "__name__", "anything")
    return names.get(name, name)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models(argument)
