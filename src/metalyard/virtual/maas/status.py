"""The 23 statuses of a MAAS machine, and from which of them each operation may start (recorded from 3.7.3)."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """``status`` of a machine, as the API numbers it."""

    NEW = 0
    COMMISSIONING = 1
    FAILED_COMMISSIONING = 2
    MISSING = 3
    READY = 4
    RESERVED = 5
    DEPLOYED = 6
    RETIRED = 7
    BROKEN = 8
    DEPLOYING = 9
    ALLOCATED = 10
    FAILED_DEPLOYMENT = 11
    RELEASING = 12
    FAILED_RELEASING = 13
    DISK_ERASING = 14
    FAILED_DISK_ERASING = 15
    RESCUE_MODE = 16
    ENTERING_RESCUE_MODE = 17
    FAILED_ENTERING_RESCUE_MODE = 18
    EXITING_RESCUE_MODE = 19
    FAILED_EXITING_RESCUE_MODE = 20
    TESTING = 21
    FAILED_TESTING = 22


NAMES: dict[int, str] = {
    0: "New",
    1: "Commissioning",
    2: "Failed commissioning",
    3: "Missing",
    4: "Ready",
    5: "Reserved",
    6: "Deployed",
    7: "Retired",
    8: "Broken",
    9: "Deploying",
    10: "Allocated",
    11: "Failed deployment",
    12: "Releasing",
    13: "Releasing failed",
    14: "Disk erasing",
    15: "Failed disk erasing",
    16: "Rescue mode",
    17: "Entering rescue mode",
    18: "Failed to enter rescue mode",
    19: "Exiting rescue mode",
    20: "Failed to exit rescue mode",
    21: "Testing",
    22: "Failed testing",
}
"""``status_name`` by status."""

FILTER_NAMES: dict[str, int] = {status.name.lower(): int(status) for status in Status}
"""What ``GET machines/?status=`` takes."""

COMMISSIONABLE = frozenset({Status.NEW, Status.FAILED_COMMISSIONING, Status.READY, Status.BROKEN})
DEPLOYABLE = frozenset({Status.READY, Status.ALLOCATED})
RELEASABLE = frozenset(
    {
        Status.RESERVED,
        Status.DEPLOYED,
        Status.BROKEN,
        Status.DEPLOYING,
        Status.ALLOCATED,
        Status.FAILED_DEPLOYMENT,
        Status.FAILED_RELEASING,
        Status.FAILED_DISK_ERASING,
    }
)
TESTABLE = frozenset(
    {
        Status.FAILED_COMMISSIONING,
        Status.READY,
        Status.RESERVED,
        Status.DEPLOYED,
        Status.BROKEN,
        Status.ALLOCATED,
        Status.FAILED_DEPLOYMENT,
        Status.FAILED_RELEASING,
        Status.FAILED_DISK_ERASING,
        Status.FAILED_TESTING,
    }
)
RESCUABLE = TESTABLE - {Status.RESERVED}
ABORTABLE = frozenset({Status.COMMISSIONING, Status.DEPLOYING, Status.DISK_ERASING, Status.TESTING})
LINKABLE = frozenset(
    {Status.NEW, Status.READY, Status.FAILED_TESTING, Status.ALLOCATED, Status.BROKEN, Status.FAILED_COMMISSIONING}
)

FAILS_TO: dict[Status, Status] = {
    Status.COMMISSIONING: Status.FAILED_COMMISSIONING,
    Status.DEPLOYING: Status.FAILED_DEPLOYMENT,
    Status.RELEASING: Status.FAILED_RELEASING,
    Status.DISK_ERASING: Status.FAILED_DISK_ERASING,
    Status.ENTERING_RESCUE_MODE: Status.FAILED_ENTERING_RESCUE_MODE,
    Status.EXITING_RESCUE_MODE: Status.FAILED_EXITING_RESCUE_MODE,
    Status.TESTING: Status.FAILED_TESTING,
}
"""Where a machine ends when what it is doing fails."""

NODE_TIMEOUT_MINUTES: dict[Status, float] = {
    Status.COMMISSIONING: 30,
    Status.DEPLOYING: 60,
    Status.RELEASING: 5,
    Status.DISK_ERASING: 60,
    Status.TESTING: 30,
    Status.ENTERING_RESCUE_MODE: 10,
    Status.EXITING_RESCUE_MODE: 10,
}
"""How long a machine may stay in a passing status before MAAS gives it up."""

EVENT_NAMES: dict[Status, str] = {
    Status.COMMISSIONING: "Commissioning",
    Status.READY: "Ready",
    Status.DEPLOYING: "Deploying",
    Status.DEPLOYED: "Deployed",
    Status.RELEASING: "Releasing",
    Status.FAILED_COMMISSIONING: "Failed commissioning",
    Status.FAILED_TESTING: "Failed testing",
    Status.TESTING: "Testing",
    Status.ENTERING_RESCUE_MODE: "Entering rescue mode",
    Status.RESCUE_MODE: "Rescue mode",
}
"""Statuses that leave an event, and with it a status message, when they are entered."""
