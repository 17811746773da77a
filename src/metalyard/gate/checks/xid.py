"""Xid events: errors that the GPU driver wrote into the kernel log, judged by the vendor's immediate action."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from metalyard.gate.check import Subject, check
from metalyard.gate.finding import Finding, Outcome, Owner
from metalyard.gate.parsers.common import ParseError, shown
from metalyard.gate.parsers.kernel_log import XidEvent, log_lines, xid_events
from metalyard.gate.parsers.nvidia import gpu_rows, pci_address
from metalyard.gate.xid import ACTIONS, CATALOGUE, MEANINGS, WORKFLOWS, Action, recovery_remedy

BURST = timedelta(minutes=3)
"""Events of one kind on one GPU that follow each other within this time count once (NVIDIA's fleet practice)."""
PERSISTS = 3
"""Bursts of an Xid that may be ignored, from which on it persists."""

_OUTCOMES = {
    Action.RESTART_APPLICATION: Outcome.WATCH,
    Action.IGNORE: Outcome.PASS,
    Action.RESET_GPU: Outcome.FAIL,
    Action.REBOOT: Outcome.FAIL,
    Action.RESTART_VM: Outcome.FAIL,
    Action.CHECK_MECHANICALS: Outcome.FAIL,
    Action.ENABLE_ECC: Outcome.FAIL,
    Action.UPDATE: Outcome.FAIL,
    Action.WORKFLOW: Outcome.FAIL,
}
_REMEDIES = {
    Action.RESTART_APPLICATION: "Restart the application; if it comes back on this GPU, run hardware diagnostics.",
    Action.IGNORE: "Nothing at once; take it to the vendor's support if it persists.",
    Action.RESET_GPU: "Drain the node, reset the GPU (nvidia-smi -r), and prove the node again.",
    Action.REBOOT: "Reboot the node. If the Xid comes back after the second reboot, have the hardware inspected.",
    Action.RESTART_VM: "It is about a virtual machine's GPU: see that the node runs none, then reboot it.",
    Action.CHECK_MECHANICALS: "See that the GPU's power and connectors are seated.",
    Action.ENABLE_ECC: "Enable ECC (nvidia-smi -e 1) and boot again.",
    Action.UPDATE: "Update driver and firmware to the baseline.",
}
_THREAD = re.compile(r"GPC (?P<gpc>\d+),? *TPC (?P<tpc>\d+)")


def _bursts(events: Sequence[XidEvent]) -> int:
    """How often it happened, with what came in one burst counted once."""
    count, last = 0, None
    for event in sorted(events, key=lambda one: one.when):
        if last is None or event.when - last > BURST:
            count += 1
        last = event.when
    return count


def _parts(subject: Subject) -> dict[str, tuple[str, str]]:
    """PCI address to name and serial of the GPUs that answer."""
    document = subject.evidence["os"]
    probe = document.probes.get("gpus")
    if probe is None or not probe.answered:
        return {}
    try:
        rows, lost = gpu_rows(probe)
        known = {pci_address(row.values["pci.bus_id"]): (row.part, row.serial) for row in rows}
        known.update({gpu.pci: (str(gpu), "") for gpu in lost if gpu.pci})
        return known
    except ParseError:
        return {}


@check(
    "xid.events",
    needs=("kernel_log",),
    owner=Owner.OPERATOR,
    remedy="Do what the vendor's catalogue says for this Xid.",
    source=f"{CATALOGUE}, immediate action; repeated 13 and 31: NVIDIA's Xid documentation, hardware diagnostics",
)
def events(subject: Subject) -> Iterator[Finding]:
    """One finding per GPU and Xid, with bursts folded into one. An Xid that the catalogue lacks is unknown.

    Health by public gates differs from the catalogue (one takes 109 for harmless, one has no 94, 95, 109, 140, 143 and
    154); this follows the catalogue.
    """
    messages = log_lines(subject.text("kernel_log"))
    found = xid_events(messages)
    if not found:
        yield subject.passed(f"no Xid in {len(messages)} lines of the kernel log", measured="no Xid", expected="no Xid")
        return
    names = _parts(subject)
    grouped: dict[tuple[str, int], list[XidEvent]] = defaultdict(list)
    for event in found:
        grouped[event.pci, event.xid].append(event)
    for (pci, xid), group in grouped.items():
        part, serial = names.get(pci, (f"gpu at {pci}", ""))
        others = {other for place, other in grouped if place == pci and other != xid}
        yield _judge(subject, part, serial, group, others)


def _judge(subject: Subject, part: str, serial: str, group: list[XidEvent], others: set[int]) -> Finding:
    """One Xid on one GPU."""
    event, times = group[-1], _bursts(group)
    xid = event.xid
    action = ACTIONS.get(xid)
    often = "once" if times == 1 else f"{times} times"
    meaning = MEANINGS.get(xid)
    seen = f"{part} reported Xid {xid} {often}" + (f" ({meaning})" if meaning else "") + f": '{shown(event.text, 160)}'"

    def say(outcome: Outcome, advice: str, remedy: str, owner: Owner = Owner.OPERATOR) -> Finding:
        return subject.finding(
            outcome,
            f"{seen}; {advice}",
            part=part,
            part_serial=serial,
            measured=f"Xid {xid} x{times}",
            expected="no Xid",
            remedy=remedy,
            owner=owner,
        )

    if action is None:
        return say(Outcome.UNKNOWN, f"the catalogue has no action for it ({CATALOGUE})", "Look the Xid up at NVIDIA.")
    if action is Action.READ_TEXT:
        return _recovery(say, event)
    if xid == 45 and others:
        return say(Outcome.PASS, "it follows the other Xid of this GPU", "")
    if action is Action.WORKFLOW:
        remedy = WORKFLOWS.get(xid, "It is not one of this product's: take it to the vendor's support.")
        return say(Outcome.FAIL, "the vendor has a workflow for it", remedy)
    if _repeated(group, times):
        return say(
            Outcome.FAIL,
            "repeated at one place it is taken for a hardware fault",
            "Run the vendor's hardware diagnostics (dcgmi diag -r 3) on the GPU.",
            Owner.VENDOR,
        )
    if action is Action.IGNORE and times >= PERSISTS:
        return say(Outcome.WATCH, "it persists", _REMEDIES[action])
    return say(_OUTCOMES[action], f"the vendor says: {action}", _REMEDIES[action])


def _repeated(group: list[XidEvent], times: int) -> bool:
    """Xid 13 again on the same GPC and TPC, or Xid 31 again on the same GPU."""
    if group[0].xid == 31:
        return times > 1
    if group[0].xid != 13:
        return False
    places: dict[tuple[str, str], list[XidEvent]] = defaultdict(list)
    for event in group:
        if match := _THREAD.search(event.text):
            places[match["gpc"], match["tpc"]].append(event)
    return any(_bursts(place) > 1 for place in places.values())


def _recovery(say: Callable[[Outcome, str, str], Finding], event: XidEvent) -> Finding:
    """Xid 154: the recovery action that the driver asks for stands in its text."""
    match = re.search(r"\bto 0x[0-9a-fA-F]+ \((?P<action>[^)]+)\)", event.text)
    action = match["action"] if match else event.text
    remedy = recovery_remedy(action)
    if remedy is None:
        return say(Outcome.UNKNOWN, "the recovery action that it asks for is not known", "Look the Xid up at NVIDIA.")
    if not remedy:
        return say(Outcome.PASS, "the driver asks for no recovery any more", "")
    return say(Outcome.FAIL, f"the driver asks for: {action}", remedy)
