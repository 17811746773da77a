"""MAAS's 23 statuses and what a bring-up does next from each: data, so that none is forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

NEW, COMMISSIONING, FAILED_COMMISSIONING, READY = 0, 1, 2, 4
DEPLOYED, BROKEN, DEPLOYING, ALLOCATED, FAILED_DEPLOYMENT = 6, 8, 9, 10, 11


class Move(StrEnum):
    """What to do next."""

    COMMISSION = "commission"
    ALLOCATE = "allocate"
    DEPLOY = "deploy"
    WAIT = "wait"
    DONE = "done"
    BROKEN = "broken"
    STOP = "stop"


@dataclass(frozen=True)
class Next:
    """From one status: the move; whether the machine must be ours for it; what a person does where it stops.

    ``again`` is the operation that begins anew from a failure when the operator asks for it.
    """

    name: str
    move: Move
    ours: bool = False
    next_step: str = ""
    again: str | None = None


_LOGS = "Look at the machine's logs in MAAS and mend the cause"
_HANDS = "Somebody works on it in MAAS: finish that there"

TABLE: dict[int, Next] = {
    NEW: Next("New", Move.COMMISSION),
    COMMISSIONING: Next("Commissioning", Move.WAIT),
    FAILED_COMMISSIONING: Next(
        "Failed commissioning",
        Move.STOP,
        next_step=f"{_LOGS} (Commissioning tab); then commission it there, and run the same command again.",
        again="commission",
    ),
    3: Next("Missing", Move.STOP, next_step="Find the machine; then delete it in MAAS and run the same command again."),
    READY: Next("Ready", Move.ALLOCATE),
    5: Next("Reserved", Move.STOP, next_step="Release it in MAAS, then run the same command again."),
    DEPLOYED: Next("Deployed", Move.DONE, ours=True),
    7: Next("Retired", Move.STOP, next_step="Take it out of the plan, or delete it in MAAS to enlist it anew."),
    BROKEN: Next("Broken", Move.BROKEN),
    DEPLOYING: Next("Deploying", Move.WAIT, ours=True),
    ALLOCATED: Next("Allocated", Move.DEPLOY, ours=True),
    FAILED_DEPLOYMENT: Next(
        "Failed deployment",
        Move.STOP,
        next_step=f"{_LOGS} (Installation output); then release it there, and run the same command again.",
        again="release",
    ),
    12: Next("Releasing", Move.WAIT),
    13: Next(
        "Releasing failed",
        Move.STOP,
        next_step=f"{_LOGS}; then release it there, and run the same command again.",
        again="release",
    ),
    14: Next("Disk erasing", Move.WAIT),
    15: Next(
        "Failed disk erasing",
        Move.STOP,
        next_step=f"{_LOGS}; then release it there, and run the same command again.",
        again="release",
    ),
    16: Next("Rescue mode", Move.STOP, next_step=f"{_HANDS} (exit rescue mode), then run the same command again."),
    17: Next("Entering rescue mode", Move.STOP, next_step=f"{_HANDS}, then run the same command again."),
    18: Next(
        "Failed to enter rescue mode",
        Move.STOP,
        next_step=f"{_HANDS} (exit rescue mode), then run the same command again.",
    ),
    19: Next("Exiting rescue mode", Move.WAIT),
    20: Next(
        "Failed to exit rescue mode",
        Move.STOP,
        next_step=f"{_HANDS} (exit rescue mode), then run the same command again.",
    ),
    21: Next("Testing", Move.WAIT),
    22: Next(
        "Failed testing",
        Move.STOP,
        next_step=f"{_LOGS} (Tests tab); then override or repeat the tests there, and run the same command again.",
        again="override_failed_testing",
    ),
}


def after(status: int) -> Next:
    """The row of a status; one that MAAS has not had so far is a stop."""
    return TABLE.get(status) or Next(
        f"status {status}", Move.STOP, next_step="This MAAS has statuses that Metalyard does not know: report it."
    )
