"""OAuth 1.0 PLAINTEXT as MAAS checks it: each nonce once, timestamps within 300 seconds, the same texts."""

from __future__ import annotations

import re
import time
from urllib.parse import unquote

from metalyard.virtual.maas.model import User
from metalyard.virtual.maas.reply import ApiError

THRESHOLD = 300
_REQUIRED = (
    "oauth_consumer_key",
    "oauth_token",
    "oauth_signature",
    "oauth_signature_method",
    "oauth_timestamp",
    "oauth_nonce",
)


def parameters(header: str) -> dict[str, str] | None:
    """The parameters of an ``Authorization`` header; None when it holds no whole OAuth signature."""
    if not header.startswith("OAuth "):
        return None
    found = {key: unquote(value) for key, value in re.findall(r'(\w+)="([^"]*)"', header[6:])}
    return found if all(found.get(key) for key in _REQUIRED) else None


class OAuthGate:
    """Who a request comes from. Remembers nonces for as long as their timestamps would be taken."""

    def __init__(self) -> None:
        self._nonces: dict[tuple[str, str], float] = {}

    def user(self, header: str, users: list[User]) -> User | None:
        """The user; None for a request without a signature; ``ApiError`` 401 for one whose signature is bad."""
        given = parameters(header)
        if given is None:
            return None
        consumer, token = given["oauth_consumer_key"], given["oauth_token"]
        known = next((user for user in users if user.key and user.key.split(":")[0] == consumer), None)
        if known is None:
            raise _refused("Invalid API key.")
        _, right_token, secret = known.key.split(":")
        if token != right_token:
            raise _refused(f"'Invalid access token: {token}'")
        now = int(time.time())
        stamp = given["oauth_timestamp"]
        if not stamp.isdigit() or abs(now - int(stamp)) > THRESHOLD:
            raise _refused(
                f"'Expired timestamp: given {stamp} and now {now} has a greater difference than threshold {THRESHOLD}'"
            )
        if given["oauth_signature_method"] != "PLAINTEXT" or given["oauth_signature"] != f"&{secret}":
            # The real one says the right secret here: a client that logs this body has given its key away.
            raise _refused(f"'Invalid signature. Expected signature base string: &{secret}'")
        self._use(consumer, given["oauth_nonce"], now)
        return known

    def _use(self, consumer: str, nonce: str, now: float) -> None:
        if (consumer, nonce) in self._nonces:
            raise _refused(f"'Nonce already used: {nonce}'")
        if len(self._nonces) > 10_000:
            self._nonces = {key: when for key, when in self._nonces.items() if now - when <= 2 * THRESHOLD}
        self._nonces[consumer, nonce] = now


def _refused(text: str) -> ApiError:
    return ApiError(
        401,
        f"Authorization Error: {text}",
        kind="text/html; charset=utf-8",
        headers={"WWW-Authenticate": 'OAuth realm="OAuth"'},
    )
