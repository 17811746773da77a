"""Requests and answers of the emulated API: bodies in three encodings, errors in MAAS's own words."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any
from urllib.parse import parse_qsl

from metalyard.virtual.maas.model import User

TEXT = "text/plain; charset=utf-8"
BARE_TEXT = "text/plain"
JSON = "application/json; charset=utf-8"
API_HASH = "36763f1444f05f8c565d0292aabefcaa9ece4369"
ANSWER_HEADERS = {"Vary": "Authorization, Cookie", "X-Maas-Api-Hash": API_HASH, "X-Frame-Options": "DENY"}


class ApiError(Exception):
    """An answer that ends the request; ``body`` is text, or anything else as JSON."""

    def __init__(self, status: int, body: Any, *, kind: str | None = None, headers: dict[str, str] | None = None):
        super().__init__(f"{status} {body}")
        self.status = status
        self.body = body
        self.kind = kind or (TEXT if isinstance(body, str) else JSON)
        self.headers = headers or {}


def refused(**fields: list[str]) -> ApiError:
    """A form that did not validate: 400 with what is wrong with each field."""
    return ApiError(400, fields)


def not_found(what: str) -> ApiError:
    """No such object."""
    return ApiError(404, f"No {what} matches the given query.", kind=BARE_TEXT)


def forbidden() -> ApiError:
    """Not this user: 403 and not a word."""
    return ApiError(403, "")


def conflict(text: str) -> ApiError:
    """Not in this status."""
    return ApiError(409, text)


@dataclass
class Raw:
    """An answer that is not JSON."""

    body: bytes | str = ""
    status: int = 200
    kind: str = BARE_TEXT


@dataclass
class Request:
    """One call, decoded."""

    user: User
    args: dict[str, str]
    """From the path."""
    query: list[tuple[str, str]] = field(default_factory=list)
    form: list[tuple[str, str]] = field(default_factory=list)

    def get(self, key: str, default: str = "") -> str:
        """A form value."""
        return next((value for name, value in self.form if name == key), default)

    def has(self, key: str) -> bool:
        """Whether the form has that field."""
        return any(name == key for name, _ in self.form)

    def all(self, key: str) -> list[str]:
        """Every value of a repeated form field; commas part values too."""
        return [part for name, value in self.form if name == key for part in value.split(",") if part]

    def flag(self, key: str, default: bool = False) -> bool:
        """A form value as a boolean."""
        return truth(self.get(key)) if self.has(key) else default

    def wanted(self, key: str) -> list[str]:
        """Every value of a repeated query parameter."""
        return [value for name, value in self.query if name == key]


def truth(text: str) -> bool:
    """A boolean as HTML forms and Python clients write it."""
    return text.strip().lower() in ("1", "true", "on", "yes", "y", "t")


def decode(body: bytes, kind: str) -> list[tuple[str, str]]:
    """The fields of a body. A multipart body without a part, and broken JSON, are 400, as in MAAS."""
    if not body:
        return []
    if kind.startswith("multipart/form-data"):
        return _multipart(body, kind)
    if kind.startswith("application/json"):
        try:
            data = json.loads(body)
        except ValueError:
            raise ApiError(400, "Bad Request", kind=BARE_TEXT) from None
        if not isinstance(data, dict):
            raise ApiError(400, "Bad Request", kind=BARE_TEXT)
        return [(key, _text(value)) for key, given in data.items() for value in _many(given)]
    return parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)


def _multipart(body: bytes, kind: str) -> list[tuple[str, str]]:
    message = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body)
    fields = []
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if name and isinstance(content, bytes):
            fields.append((str(name), content.decode("utf-8", "replace")))
    if not fields:
        raise ApiError(400, "", kind=TEXT)
    return fields


def _many(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)
