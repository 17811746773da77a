"""Reads the messages in a Redfish answer, and knows those ids that change what a client does next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

NOT_READY = frozenset({"SYS518", "SWC0700", "RAC0508", "ServiceTemporarilyUnavailable", "ServiceInUnknownState"})
"""The service runs and can't work yet: just after a boot."""
SESSIONS_FULL = frozenset({"RAC0218", "SessionLimitExceeded"})
PASSWORD_CHANGE = frozenset({"PasswordChangeRequired", "SWC1908"})
BAD_CREDENTIALS = frozenset({"UnauthorizedLoginAttempt", "ResourceAtUriUnauthorized", "NoValidSession", "RAC0212"})
UPDATE_BUSY = frozenset({"UpdateInProgress", "ResourceInUse", "RED026", "SUP029"})
GOOD = frozenset({"Success", "NoError", "Created", "NoOperation", "SYS413", "TaskCompletedOK"})


def messages(body: object) -> list[Mapping[str, Any]]:
    """Every extended message of an answer, wherever the vendor put it."""
    return [item for item in _all(body) if isinstance(item, Mapping)]


def ids(body: object) -> tuple[str, ...]:
    """The last part of each message id, and of ``error.code``, once each."""
    found = [str(item.get("MessageId") or "") for item in messages(body)]
    error = body.get("error") if isinstance(body, Mapping) else None
    if isinstance(error, Mapping):
        found.append(str(error.get("code") or ""))
    return tuple(dict.fromkeys(last_part(text) for text in found if text))


def said(body: object, limit: int = 3) -> str:
    """What the BMC said, in one line; empty when it said nothing that helps."""
    texts: list[str] = []
    for item in messages(body):
        text = " ".join(str(item.get("Message") or "").split())
        if last_part(str(item.get("MessageId") or "")) in GOOD:
            continue
        if text and text not in texts:
            texts.append(text)
    if not texts and isinstance(body, Mapping):
        error = body.get("error")
        message = error.get("message") if isinstance(error, Mapping) else None
        texts = [" ".join(str(message).split())] if message else []
    return "; ".join(texts[:limit])[:600]


def last_part(message_id: str) -> str:
    """``Base.1.12.PropertyUnknown`` is ``PropertyUnknown``."""
    return message_id.rsplit(".", 1)[-1]


def _all(body: object) -> Iterator[object]:
    if not isinstance(body, Mapping):
        return
    error = body.get("error")
    for holder in (body, error if isinstance(error, Mapping) else {}):
        extended = holder.get("@Message.ExtendedInfo")
        yield from extended if isinstance(extended, list) else _one(extended)
    held = body.get("Messages")
    if isinstance(held, Iterable) and not isinstance(held, (str, Mapping)):
        yield from held


def _one(value: object) -> Iterator[object]:
    if value is not None:
        yield value
