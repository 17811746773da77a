"""NVIDIA's Xid catalogue as data: what the vendor says to do at once about each error of the GPU driver.

Source: NVIDIA Xid catalogue, as published in October 2025 (docs.nvidia.com/deploy/xid-errors, "immediate action").
An Xid that is not in it is not judged: unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

CATALOGUE = "NVIDIA Xid catalogue, October 2025"


class Action(StrEnum):
    """The vendor's immediate action."""

    RESTART_APPLICATION = "restart the application"
    IGNORE = "ignore"
    RESET_GPU = "reset the GPU"
    REBOOT = "reboot the machine"
    RESTART_VM = "restart the virtual machine"
    CHECK_MECHANICALS = "check the mechanicals"
    ENABLE_ECC = "enable ECC and boot again"
    UPDATE = "update software or firmware"
    WORKFLOW = "follow the vendor's workflow for it"
    READ_TEXT = "do what its text says"


def _numbers(text: str) -> Iterable[int]:
    for piece in text.split():
        first, _, last = piece.partition("-")
        yield from range(int(first), int(last or first) + 1)


_TABLE: Mapping[Action, str] = {
    Action.RESTART_APPLICATION: ("8 11 13 25 31 32 39-41 60 68-72 75-77 80 82-86 88 89 94 96-105 126-135 139"),
    Action.IGNORE: "37 38 43 44 63 66 67 92 93 121 137 141 152 153 157 160 161",
    Action.RESET_GPU: "46 62 64 95 109 110 119 120 136 140 143 155 156 158",
    Action.REBOOT: "79",
    Action.RESTART_VM: "151",
    Action.CHECK_MECHANICALS: "54",
    Action.ENABLE_ECC: "168",
    Action.UPDATE: "78",
    Action.WORKFLOW: "45 48 74 144-150 159",
    Action.READ_TEXT: "154",
}

ACTIONS: Mapping[int, Action] = {xid: action for action, numbers in _TABLE.items() for xid in _numbers(numbers)}
"""Xid to immediate action."""

WORKFLOWS: Mapping[int, str] = {
    45: "It is alone: restart the fabric manager, and the applications.",
    48: "An uncorrectable memory error: reset the GPU, then see its row remapping and the Xid 171 or 172 beside it.",
    74: "An NVLink error: reset the GPU; if it comes back, reseat the GPU, then look at the NVSwitch.",
    159: "Follow the vendor's workflow for Xid 159 (a fault of the link between chips).",
}
"""What to do where the vendor has a workflow of its own."""

MEANINGS: Mapping[int, str] = {
    13: "graphics engine exception",
    31: "GPU memory page fault",
    43: "GPU stopped processing",
    45: "preemptive cleanup, due to previous errors",
    48: "uncorrectable ECC error",
    54: "auxiliary power is not connected",
    61: "internal micro-controller breakpoint",
    62: "internal micro-controller halt",
    63: "row remapping event",
    64: "row remapping failure",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high single-bit ECC error rate",
    94: "contained memory error",
    95: "uncontained memory error",
    109: "context switch timeout",
    119: "GSP RPC timeout",
    120: "GSP error",
    140: "unrecovered ECC error",
    143: "GPU initialization failure",
    154: "GPU recovery action changed",
}
"""Short names of the common ones, for sentences."""

RECOVERY_TEXT: Mapping[str, str] = {
    "none": "",
    "gpu reset": "Reset the GPU.",
    "reset": "Reset the GPU.",
    "node reboot": "Reboot the machine.",
    "reboot": "Reboot the machine.",
    "os reboot": "Reboot the machine.",
    "pf flr": "Reset the GPU.",
    "drain p2p": "Drain the work that uses peer-to-peer traffic of this GPU, then reset it.",
    "drain and reset": "Drain the GPU's work, then reset it.",
}
"""The recovery action that the driver asks for (Xid 154, nvidia-smi -q), in lower case, to what a person does."""


def recovery_remedy(action: str) -> str | None:
    """What to do about a recovery action; empty for none, None for one that is not known."""
    plain = action.strip().lower().removesuffix(" required").strip()
    return RECOVERY_TEXT.get(plain)
