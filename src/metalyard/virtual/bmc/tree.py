"""A model's resource tree: records of data, and what they say of one machine at one moment.

A model is a folder of YAML files. ``model.yml`` holds its constants; every other file is a list of records, each one
resource or one resource per element of a list. Expressions stand in ``{{ }}`` (Jinja2); a string that is one
expression as a whole has that expression's value and type, and ``omit`` leaves its property out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import yaml
from jinja2 import Environment, StrictUndefined
from pydantic import BaseModel, ConfigDict, Field

OMIT = object()
Compiled = Callable[[Mapping[str, Any]], Any]


class Rule(BaseModel):
    """What a writable property accepts."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["string", "integer", "boolean", "list", "object"]
    values: list[Any] | None = None
    minimum: int | None = None
    maximum: int | None = Field(None, description="largest number, or longest string")


class Record(BaseModel):
    """One resource of the tree, or one for each element of ``each``.

    ``collection`` ``links`` or ``embedded`` gives the resource its Members, which are the tree's resources one level
    below. ``patch`` names the writable properties (dotted); ``on_get``, ``on_patch``, ``on_post``, ``on_delete`` and
    ``actions`` (last part of the target, to handler) name functions of :mod:`metalyard.virtual.bmc.handlers`.
    """

    model_config = ConfigDict(extra="forbid")

    path: str
    type: str = ""
    each: str | None = None
    when: str | None = None
    body: dict[str, Any] = {}
    collection: Literal["links", "embedded"] | None = None
    patch: dict[str, Rule] = {}
    on_get: str | None = Field(None, description="answers a GET itself, where there is more to say than a body")
    on_patch: str | None = None
    on_post: str | None = None
    on_delete: str | None = None
    actions: dict[str, str] = {}
    settings_of: str | None = Field(None, description="path of the resource whose future settings these are")
    privilege: str = "ConfigureComponents"
    hidden: bool = Field(False, description="answers writes only")


@dataclass(frozen=True)
class Resource:
    """One resource: its record, and the element that it stands for."""

    path: str
    record: Record
    item: Any = None
    index: int = 0
    action: str = ""
    """Handler's name where this is an action's target."""


@dataclass(frozen=True)
class Model:
    """A model read from its folder."""

    name: str
    constants: dict[str, Any]
    records: tuple[Record, ...]

    def index(self, context: Mapping[str, Any]) -> dict[str, Resource]:
        """Every resource and action target of one machine at this moment, by path, in the model's order."""
        found: dict[str, Resource] = {}
        for record in self.records:
            for item, number in _elements(record, context):
                scope = {**context, "item": item, "index": number}
                if record.when is not None and not _expression(record.when)(scope):
                    continue
                path = str(_compiled_text(record.path)(scope))
                found[path] = Resource(path, record, item, number)
                for target, handler in record.actions.items():
                    found[f"{path}/Actions/{target}"] = Resource(
                        f"{path}/Actions/{target}", record, item, number, action=handler
                    )
        return found

    def render(self, resource: Resource, context: Mapping[str, Any]) -> dict[str, Any]:
        """A resource's body with its OData annotations, without Members and ETag."""
        scope = {**context, "item": resource.item, "index": resource.index, "path": resource.path}
        body: dict[str, Any] = {"@odata.id": resource.path}
        if resource.record.type:
            name = resource.record.type.partition(".")[0]
            body["@odata.context"] = f"/redfish/v1/$metadata#{name}.{name}"
            body["@odata.type"] = f"#{resource.record.type}.{name}"
        body.update(_body(resource.record)(scope))
        return body


@cache
def load_model(name: str) -> Model:
    """Read a model by its folder's name; ``ValueError`` names the file and record that is wrong."""
    folder = files("metalyard.virtual.bmc") / "models" / name
    if not folder.is_dir():
        known = sorted(entry.name for entry in (files("metalyard.virtual.bmc") / "models").iterdir() if entry.is_dir())
        raise ValueError(f"no BMC model '{name}'; there are: {', '.join(known)}")
    constants = yaml.safe_load((folder / "model.yml").read_text())
    records: list[Record] = []
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        if not entry.name.endswith(".yml") or entry.name == "model.yml":
            continue
        for number, raw in enumerate(yaml.safe_load(entry.read_text())):
            try:
                records.append(Record.model_validate(raw))
            except ValueError as error:
                raise ValueError(f"model '{name}', {entry.name}, record {number}: {error}") from error
    return Model(name, constants, tuple(records))


_environment = Environment(undefined=StrictUndefined, autoescape=False)  # noqa: S701 - JSON, no HTML


def _elements(record: Record, context: Mapping[str, Any]) -> Iterator[tuple[Any, int]]:
    if record.each is None:
        yield None, 0
        return
    for number, item in enumerate(_expression(record.each)(context)):
        yield item, number


@cache
def _expression(source: str) -> Compiled:
    compiled = _environment.compile_expression(source, undefined_to_none=False)
    return lambda scope: compiled(**scope)


@cache
def _compiled_text(source: str) -> Compiled:
    if "{{" not in source:
        return lambda scope: source
    inner = source.strip()
    if inner.startswith("{{") and inner.endswith("}}") and inner.count("{{") == 1:
        return _expression(inner[2:-2].strip())
    template = _environment.from_string(source)
    return lambda scope: template.render(**scope)


def _compile(value: Any) -> Compiled:
    if isinstance(value, str):
        return _compiled_text(value)
    if isinstance(value, dict):
        if "$each" in value:
            elements, body = _expression(value["$each"]), _compile(value["$item"])
            return lambda scope: [
                body({**scope, "element": element, "number": number}) for number, element in enumerate(elements(scope))
            ]
        parts = {key: _compile(part) for key, part in value.items()}

        def build(scope: Mapping[str, Any]) -> dict[str, Any]:
            made = {}
            for key, part in parts.items():
                result = part(scope)
                if result is not OMIT:
                    made[key] = result
            return made

        return build
    if isinstance(value, list):
        items = [_compile(part) for part in value]
        return lambda scope: [item(scope) for item in items]
    return lambda scope: value


_bodies: dict[int, Compiled] = {}


def _body(record: Record) -> Compiled:
    # Records live as long as their cached model, so that their identity is a sound key.
    compiled = _bodies.get(id(record))
    if compiled is None:
        compiled = _bodies[id(record)] = _compile(record.body)
    return compiled
