"""Turns refusals and lost connections into errors that name the node, what was seen, and the next step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aiohttp
from redfish import aio

from metalyard.redfish import messages
from metalyard.redfish.errors import (
    BmcError,
    CredentialsError,
    NotFoundError,
    NotReadyError,
    PasswordChangeError,
    RequestTimeoutError,
    SessionsFullError,
    UnreachableError,
    UntrustedError,
)

Scrub = Callable[[str], str]

RUN_AGAIN = "Run the same command again; it goes on where this one stopped."


def connection_error(node: str, address: str, method: str, path: str, error: Exception) -> BmcError:
    """For a request that got no answer."""
    cause = error.__cause__
    if isinstance(cause, aiohttp.ServerFingerprintMismatch):
        return UntrustedError(
            f"{node}: the BMC at {address} shows a certificate with SHA-256 {cause.got.hex()}, "
            f"expected {cause.expected.hex()}",
            "Find out why it changed. If the new one is right, write it as bmc.fingerprint into the plan.",
        )
    if isinstance(cause, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return UntrustedError(
            f"{node}: the certificate of the BMC at {address} is not trusted ({_reason(cause)})",
            "Name the authority that signed it as bmc.tls.ca in the plan, or the certificate itself as this node's "
            "bmc.fingerprint (its SHA-256).",
        )
    if isinstance(error, aio.RedfishInvalidTargetError):
        return BmcError(
            f"{node}: the BMC links to {path}, which is not on {address}",
            "This is a defect of the BMC's firmware: look for a newer one.",
        )
    if isinstance(cause, aiohttp.ConnectionTimeoutError):
        return UnreachableError(
            f"{node}: no connection to the BMC at {address}: no answer",
            "Check that the BMC has power and network, and bmc.address in the plan.",
            sent=False,
        )
    if isinstance(error, aio.RedfishTimeoutError):
        return RequestTimeoutError(
            f"{node}: the BMC at {address} did not answer {method} {path} in time",
            "Check the BMC's network; raise bmc.timeout in the plan if it is only slow. A BMC that stays silent "
            "needs a reset.",
        )
    if isinstance(cause, aiohttp.ClientConnectorError):
        return UnreachableError(
            f"{node}: no connection to the BMC at {address}: {_reason(cause)}",
            "Check that the BMC has power and network, and bmc.address in the plan.",
            sent=False,
            passing=isinstance(cause.os_error, ConnectionRefusedError | ConnectionResetError),
        )
    return UnreachableError(
        f"{node}: the BMC at {address} broke the connection during {method} {path} ({_reason(cause or error)})",
        RUN_AGAIN,
        passing=True,
    )


def login_error(node: str, address: str, user: str, error: Exception, scrub: Scrub) -> BmcError:
    """For a login that did not succeed."""
    if isinstance(error, aio.RedfishPasswordChangeRequiredError):
        return PasswordChangeError(
            f"{node}: the BMC wants its password changed before anything else",
            "Run the bmc stage: `metalyard bringup --stage bmc`.",
            account=error.password_change_uri,
        )
    if isinstance(error, aio.RedfishAuthenticationError):
        return _bad_credentials(node, user)
    if isinstance(error, aio.RedfishHTTPError):
        refused = refusal(node, "POST", "the session", error.response, scrub)
        if set(refused.ids) & messages.SESSIONS_FULL:
            return SessionsFullError(
                f"{node}: the BMC has no room for another session",
                "Close sessions that nobody uses (their owners, or the BMC's web page), or wait until they run out.",
                status=refused.status,
                ids=refused.ids,
            )
        if set(refused.ids) & messages.BAD_CREDENTIALS:
            return _bad_credentials(node, user)
        return refused
    if isinstance(error, aio.RedfishProtocolError):
        return BmcError(
            f"{node}: what answers at {address} is no Redfish service ({scrub(str(error))})",
            "Check bmc.address in the plan.",
        )
    return connection_error(node, address, "POST", "the session", error)


def refusal(node: str, method: str, path: str, response: Any, scrub: Scrub) -> BmcError:
    """For an answer that is an error."""
    try:
        body = response.dict
    except aio.RedfishProtocolError:
        body = None
    ids = messages.ids(body)
    said = scrub(messages.said(body))
    kinds = set(ids)
    text = f"{node}: the BMC refused {method} {path}: HTTP {response.status}{f', {said}' if said else ''}"
    if kinds & messages.PASSWORD_CHANGE:
        return PasswordChangeError(
            f"{node}: the BMC wants its password changed before anything else",
            "Run the bmc stage: `metalyard bringup --stage bmc`.",
        )
    if kinds & messages.SESSIONS_FULL:
        return BmcError(text, "Close sessions on the BMC that nobody uses.", status=response.status, ids=ids)
    if kinds & messages.NOT_READY or response.status in (429, 503):
        error = NotReadyError(
            text, "The BMC is still starting; run the command again in a minute.", status=response.status, ids=ids
        )
        seconds = str(response.getheader("Retry-After") or "").strip()
        error.retry_after = float(seconds) if seconds.isdigit() else None
        return error
    if response.status in (404, 410):
        return NotFoundError(text, RUN_AGAIN, status=response.status, ids=ids)
    if response.status in (401, 403):
        return BmcError(
            text,
            "Give the account the role Administrator on the BMC.",
            status=response.status,
            ids=ids,
        )
    return BmcError(
        text,
        "Look into the BMC's log for the reason, and run the command again.",
        status=response.status,
        ids=ids,
    )


def _bad_credentials(node: str, user: str) -> BmcError:
    whom = f" of '{user}'" if user else ""
    return CredentialsError(
        f"{node}: the BMC does not take the password{whom}",
        f"Put the right one into the secret entry 'bmc/{node}', or reset the BMC's account to the factory password.",
    )


def _reason(cause: BaseException) -> str:
    inner = getattr(cause, "os_error", None) or getattr(cause, "certificate_error", None)
    return getattr(inner, "strerror", None) or str(inner or cause) or type(cause).__name__
