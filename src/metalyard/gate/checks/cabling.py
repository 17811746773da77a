"""The node's InfiniBand cables, as the whole fabric's discovery saw them, held against the plan."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from metalyard.fabric.compare import CableFinding, Fault, affecting, compare
from metalyard.fabric.topology import FabricError, parse_ibnetdiscover
from metalyard.gate.check import Subject, check
from metalyard.gate.finding import Finding, Outcome, Owner
from metalyard.gate.parsers.common import ParseError
from metalyard.plan.cables import CablePlan

_OUTCOMES = {"fail": Outcome.FAIL, "watch": Outcome.WATCH, "unknown": Outcome.UNKNOWN}


@lru_cache(maxsize=2)
def _faults(cables: CablePlan, text: str) -> tuple[CableFinding, ...]:
    """The fabric's faults; all nodes of a run are judged by the same ones."""
    return compare(cables, parse_ibnetdiscover(text))


def _has_cables(subject: Subject) -> bool:
    return any(link.medium == "ib" for link in subject.cables.of_node(subject.node.name))


@check(
    "cabling.links",
    kind="fabric",
    needs=("ibnetdiscover",),
    applies=_has_cables,
    owner=Owner.DATA_CENTRE,
    remedy="Plug the cable in where the plan has it.",
    source="the site plan's cables",
)
def links(subject: Subject) -> Iterator[Finding]:
    """Each cable at the node: there, in the planned ports, at the planned width and speed. Both ends are named."""
    name = subject.node.name
    try:
        faults = affecting(_faults(subject.cables, subject.text("ibnetdiscover")), name)
    except FabricError as error:
        raise ParseError(str(error)) from error
    own = [link for link in subject.cables.of_node(name) if link.medium == "ib"]
    for fault in faults:
        operator = fault.fault in (Fault.UNPLANNED, Fault.UNSEEN, Fault.UNKNOWN_DEVICE, Fault.DUPLICATE_GUID)
        yield subject.finding(
            _OUTCOMES[fault.severity],
            fault.summary,
            part=fault.part,
            measured=fault.measured,
            expected=fault.expected,
            remedy=fault.remedy,
            owner=Owner.OPERATOR if operator else Owner.DATA_CENTRE,
        )
    if not any(fault.severity != "watch" for fault in faults):
        yield subject.passed(f"{len(own)} InfiniBand cables are as planned", measured=f"{len(own)} cables")
