"""What can go wrong between this package and a MAAS region, each with what a person does about it.

No error carries a request, a header or the body of a 401: that body holds the key's secret.
"""

from __future__ import annotations


class MaasError(Exception):
    """MAAS did not do what it was asked. ``message`` says what was seen, ``next_step`` what to do."""

    def __init__(self, message: str, next_step: str) -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step


class MaasUnavailable(MaasError):
    """The region can't be reached, or does not answer as a region: nothing was done."""


class KeyRefused(MaasError):
    """The API key does not open this region."""


class NotAllowed(MaasError):
    """The key's user may not do this: not an administrator, not the owner, or the machine is locked."""


class NotFound(MaasError):
    """There is no such thing in this region."""


class Refused(MaasError):
    """The region did not accept the values (400); ``fields`` says which and why."""

    def __init__(self, message: str, next_step: str, fields: dict[str, list[str]]) -> None:
        super().__init__(message, next_step)
        self.fields = fields


class WrongState(MaasError):
    """The machine is not in a state that allows this (409): read it again, do not repeat."""


class OutcomeUnknown(MaasError):
    """A call that changes something broke off: it may have been done. Read again before anything else."""


class BmcTrouble(OutcomeUnknown):
    """The region's rack controllers do not get through to the machine's BMC."""
