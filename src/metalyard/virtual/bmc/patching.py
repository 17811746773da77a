"""What a PATCH may change: a body held against the writable properties of its resource."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from metalyard.virtual.bmc.messages import RedfishError, message
from metalyard.virtual.bmc.tree import Rule

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "list": (list,),
    "object": (dict,),
}


def validated(
    rules: Mapping[str, Rule], body: Mapping[str, Any], current: Mapping[str, Any]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The part of ``body`` that may be written, and messages for the rest.

    Raises :class:`RedfishError` 400 when nothing is left to write, as the specification asks.
    """
    if not body:
        raise RedfishError(400, "EmptyJSON")
    change: dict[str, Any] = {}
    messages: list[dict[str, Any]] = []
    leaves = _leaves(rules, body)
    for path, value in leaves:
        refusal = _refusal(rules.get(path), path, value, current)
        if refusal is not None:
            messages.append(refusal)
            continue
        _set(change, path, value)
    if not leaves:
        raise RedfishError(400, "NoOperation")
    if not change:
        raise RedfishError.of(400, messages)
    return change, messages


def _leaves(rules: Mapping[str, Rule], body: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """The body's properties by dotted path, down to where a rule stands, without OData annotations."""
    found: list[tuple[str, Any]] = []
    for key, value in body.items():
        if "@" in key:
            continue
        path = f"{prefix}{key}"
        deeper = any(rule.startswith(f"{path}.") for rule in rules)
        if isinstance(value, dict) and deeper and path not in rules:
            found += _leaves(rules, value, f"{path}.")
        else:
            found.append((path, value))
    return found


def _refusal(rule: Rule | None, path: str, value: Any, current: Mapping[str, Any]) -> dict[str, Any] | None:
    name = path.rpartition(".")[2]
    related = ["#/" + path.replace(".", "/")]
    if rule is None:
        known = _get(current, path) is not _NOTHING
        return message("PropertyNotWritable" if known else "PropertyUnknown", name, related=related)
    shown = "*" if "password" in name.lower() else value if isinstance(value, str) else json.dumps(value)
    right_type = isinstance(value, _TYPES[rule.type]) and not (rule.type == "integer" and isinstance(value, bool))
    if not right_type:
        return message("PropertyValueTypeError", shown, name, related=related)
    if rule.values is not None and value not in rule.values:
        return message("PropertyValueNotInList", shown, name, related=related)
    if rule.type == "string" and rule.maximum is not None and len(value) > rule.maximum:
        return message("StringValueTooLong", shown, rule.maximum, related=related)
    if rule.type == "integer" and not (
        (rule.minimum is None or value >= rule.minimum) and (rule.maximum is None or value <= rule.maximum)
    ):
        return message("PropertyValueOutOfRange", shown, name, related=related)
    return None


_NOTHING = object()


def _get(body: Mapping[str, Any], path: str) -> Any:
    found: Any = body
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return _NOTHING
        found = found[part]
    return found


def _set(body: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for part in parents:
        body = body.setdefault(part, {})
    body[last] = value
