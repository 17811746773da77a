"""What can go wrong between Metalyard and one BMC, each with the node's name and the next step."""

from __future__ import annotations

from typing import Any

from metalyard.sweep import NodeError


class BmcError(NodeError):
    """A BMC refused or could not do something.

    ``status`` is the HTTP status where there was an answer; ``ids`` are the last parts of its message ids
    (``PasswordChangeRequired``, ``SWC0700``).
    """

    def __init__(
        self,
        message: str,
        next_step: str,
        *,
        status: int | None = None,
        ids: tuple[str, ...] = (),
        unreachable: bool = False,
        aside: bool = False,
        **data: Any,
    ) -> None:
        super().__init__(message, next_step, unreachable=unreachable, aside=aside, **data)
        self.status = status
        self.ids = ids


class UnreachableError(BmcError):
    """Nothing answers at the address, or no longer.

    ``sent`` says whether a request may have reached the BMC, ``passing`` whether it may succeed a moment later.
    """

    def __init__(self, message: str, next_step: str, *, sent: bool = True, passing: bool = False) -> None:
        super().__init__(message, next_step, unreachable=True)
        self.sent = sent
        self.passing = passing


class RequestTimeoutError(UnreachableError):
    """One request got no answer in time; others may."""


class UntrustedError(BmcError):
    """The certificate is not the one expected. Never overridden."""


class CredentialsError(BmcError):
    """The BMC does not take the name and password."""


class PasswordChangeError(BmcError):
    """The BMC wants its password changed before anything else; ``account`` is the URI to change it at, if it said."""

    def __init__(self, message: str, next_step: str, *, account: str | None = None) -> None:
        super().__init__(message, next_step)
        self.account = account


class SessionsFullError(BmcError):
    """The BMC has no room for another session."""


class NotReadyError(BmcError):
    """The BMC answers, and says that it is still starting; ``retry_after`` in seconds where it said."""

    retry_after: float | None = None


class NotFoundError(BmcError):
    """There is no such resource."""


class GarbledError(BmcError):
    """The answer is no whole JSON object."""


class DeadlineError(BmcError):
    """Something was waited for and did not come in time."""


class TaskFailedError(BmcError):
    """The BMC accepted something, and failed at it."""
