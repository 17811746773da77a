"""The Redfish messages this BMC speaks in, and the error answers made of them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml

BASE = "Base.1.12"
MESSAGE_TYPE = "#Message.v1_0_8.Message"


@cache
def _registry() -> dict[str, dict[str, Any]]:
    text = (files("metalyard.virtual.bmc") / "models" / "messages.yml").read_text()
    registry: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return registry


def message(name: str, *args: object, related: list[str] | None = None) -> dict[str, Any]:
    """One message object. ``name`` alone is of the Base registry; others carry theirs (``TaskEvent.1.0.…``)."""
    entry = _registry()[name]
    text = str(entry["message"])
    # From the last to the first, so that %10 is not taken for %1.
    for number in range(len(args), 0, -1):
        text = text.replace(f"%{number}", str(args[number - 1]))
    made: dict[str, Any] = {
        "@odata.type": MESSAGE_TYPE,
        "Message": text,
        "MessageArgs": [str(arg) for arg in args],
        "MessageId": name if "." in name else f"{BASE}.{name}",
        "Resolution": entry["resolution"],
        "Severity": entry["severity"],
    }
    if related:
        made["RelatedProperties"] = related
    return made


def error_body(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The body of an error answer."""
    return {
        "error": {
            "code": messages[0]["MessageId"],
            "message": messages[0]["Message"],
            "@Message.ExtendedInfo": messages,
        }
    }


def base_registry() -> dict[str, Any]:
    """The messages of the Base registry that this service uses, as a registry document."""
    entries = {}
    for name, entry in _registry().items():
        if "." in name:
            continue
        count = max((n for n in range(1, 10) if f"%{n}" in entry["message"]), default=0)
        entries[name] = {
            "Description": entry["message"],
            "Message": entry["message"],
            "MessageSeverity": entry["severity"],
            "NumberOfArgs": count,
            "ParamTypes": ["string"] * count,
            "Resolution": entry["resolution"],
            "Severity": entry["severity"],
        }
    return entries


class RedfishError(Exception):
    """A request that is refused: the HTTP status and the messages that say why."""

    def __init__(
        self,
        status: int,
        name: str,
        *args: object,
        related: list[str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(name)
        self.status = status
        self.messages = [message(name, *args, related=related)]
        self.headers = headers or {}

    @classmethod
    def of(cls, status: int, messages: list[dict[str, Any]]) -> RedfishError:
        """A refusal with several messages."""
        made = cls(status, "GeneralError")
        made.messages = messages
        return made
