"""Careful reading of Redfish resources: keys that real BMCs leave out, set to null, or fill with placeholders."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

Document = Mapping[str, Any]

_PLACEHOLDERS = re.compile(
    r"(?i)(0+|f+|x+|n/?a|none|null|nil|unknown|not specified|not available|default string|to be filled.*|no dimm)"
)


def text(document: object, *path: str) -> str | None:
    """A text without surrounding blanks; None for missing, null, empty and placeholders such as ``00000000``."""
    value = dig(document, *path)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    stripped = str(value).strip()
    return None if not stripped or _PLACEHOLDERS.fullmatch(stripped) else stripped


def number(document: object, *path: str) -> int | None:
    """A whole number; None for anything else."""
    value = dig(document, *path)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if math.isfinite(value) else None  # Python reads Infinity and NaN, which are no JSON


def dig(document: object, *path: str) -> Any:
    """A value below nested objects; None as soon as one is missing or no object."""
    for step in path:
        document = document.get(step) if isinstance(document, Mapping) else None
    return document


def link(document: object, *path: str) -> str | None:
    """The URI that a property links to, without a fragment; None where there is none."""
    return uri(dig(document, *path))


def links(document: object, *path: str) -> list[str]:
    """The URIs of a list of links, once each; entries that are no links are left out."""
    value = dig(document, *path)
    found = [uri(item) for item in value] if isinstance(value, list) else []
    return list(dict.fromkeys(item for item in found if item))


def uri(value: object) -> str | None:
    """The URI of one link object. Fragments go: they name a part of a resource, which is read whole."""
    target = value.get("@odata.id") if isinstance(value, Mapping) else None
    if not isinstance(target, str):
        return None
    return target.split("#", 1)[0] or None


def name_of(document: object, path: str) -> str:
    """The Id; where it is missing, the last segment of the URI."""
    return text(document, "Id") or path.rstrip("/").rsplit("/", 1)[-1]


def health(document: object) -> str | None:
    """OK, Warning or Critical; None when the BMC does not say."""
    return text(document, "Status", "Health") or text(document, "Status", "HealthRollup")


def state(document: object) -> str | None:
    """Enabled, Absent, Disabled and so on; None when the BMC does not say."""
    return text(document, "Status", "State")
