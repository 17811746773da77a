"""What the parsers share: the error, and numbers that must be numbers."""

from __future__ import annotations

import json
import math
import re
from typing import Any

UNREADABLE = re.compile(
    r"\[?(N/A|Not Supported|Unknown Error|GPU requires reset|GPU is lost|ERR!|Insufficient.*)\]?", re.I
)
"""What NVIDIA's tools print in the place of a value that they could not read."""


class ParseError(ValueError):
    """The output is not what the tool prints when all is well; says what was seen and expected."""


def shown(text: str, limit: int = 80) -> str:
    """A piece of output for a message: one line, no control characters, not too long."""
    clean = "".join(char if char.isprintable() else "·" for char in text)
    return clean if len(clean) <= limit else clean[:limit] + "…"


def number(text: str, what: str, unit: str = "") -> float:
    """A finite number, with exactly that unit behind it. ``what`` names the field in the error."""
    value = text.strip()
    if unit:
        if not value.endswith(" " + unit):
            raise ParseError(f"{what} is '{shown(value)}', expected a number in {unit}")
        value = value[: -len(unit) - 1]
    if not re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", value):
        raise ParseError(f"{what} is '{shown(text)}', expected a number{' in ' + unit if unit else ''}")
    result = float(value)
    if not math.isfinite(result):
        raise ParseError(f"{what} is '{shown(text)}', expected a finite number")
    return result


def integer(text: str, what: str, unit: str = "") -> int:
    """A whole number; see :func:`number`."""
    value = number(text, what, unit)
    if value != int(value):
        raise ParseError(f"{what} is '{shown(text)}', expected a whole number")
    return int(value)


def lines(text: str, what: str) -> list[str]:
    """Lines of a text that ends with a line's end. ``what`` names the output in the error."""
    if not text.strip():
        raise ParseError(f"{what} is empty")
    if not text.endswith("\n"):
        raise ParseError(f"{what} ends in the middle of a line: '{shown(text.rsplit(chr(10), 1)[-1])}'")
    return text[:-1].split("\n")


def json_document(text: str, what: str) -> Any:
    """A whole JSON document."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"{what} is not a whole JSON document ({error})") from error
