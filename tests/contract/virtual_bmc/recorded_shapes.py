"""What recorded machines answer, by resource type: property names with their JSON types."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

VARIABLE = "METALYARD_RECORDINGS"
REASON = f"{VARIABLE} is not set: it names the folder with the recordings redfish/*.tar.xz"
DGX = "nvidia_viking"
OTHERS = ("nvidia_gh200", "lenovo", "dell", "hpe")

Shape = dict[str, set[str]]
"""JSON types by dotted property; elements of an array stand under ``[]``."""


def archive(name: str) -> Path | None:
    """A recording's archive, or None where there are none on this machine."""
    folder = os.environ.get(VARIABLE)
    path = Path(folder or "", "redfish", f"{name}.tar.xz")
    return path if folder and path.is_file() else None


def files(path: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of an archive's regular files."""
    with tarfile.open(path) as tar:
        for member in tar:
            if member.isfile():
                stream = tar.extractfile(member)
                assert stream is not None
                yield member.name, stream.read()


def shapes(paths: Iterable[Path]) -> dict[str, Shape]:
    """The shape of every resource type, over all of its recorded instances."""
    found: dict[str, Shape] = {}
    for path in paths:
        for name, data in files(path):
            if not name.endswith("/index.json"):
                continue
            try:
                body = json.loads(data)
            except ValueError:
                continue  # recordings hold answers that are no JSON: error pages
            for typed in _resources(body):
                shape_of(typed, found.setdefault(kind_of(typed), {}))
    return found


def _resources(body: Any) -> Iterator[dict[str, Any]]:
    """The body, and the resources that a collection holds whole."""
    if not isinstance(body, dict) or "@odata.type" not in body:
        return
    yield body
    for member in body.get("Members") or []:
        if isinstance(member, dict) and "@odata.type" in member:
            yield member


def kind_of(body: Mapping[str, Any]) -> str:
    """A resource's type without its version."""
    return str(body["@odata.type"]).removeprefix("#").partition(".")[0]


def shape_of(value: Any, shape: Shape, path: str = "") -> Shape:
    """Add a body's properties and types to a shape."""
    if isinstance(value, dict):
        for key, part in value.items():
            place = f"{path}.{key}" if path else key
            shape.setdefault(place, set()).add(_type(part))
            shape_of(part, shape, place)
    elif isinstance(value, list):
        for part in value:
            place = f"{path}[]"
            shape.setdefault(place, set()).add(_type(part))
            shape_of(part, shape, place)
    return shape


def _type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return {str: "string", dict: "object", list: "array"}[type(value)]
