"""The life of a node: names, transitions and who may make them, in one table.

``docs/lifecycle.md`` is generated from it (``metalyard.plan.lifecycle.as_markdown``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Where a node stands."""

    PLANNED = "planned"
    DISCOVERED = "discovered"
    BMC_READY = "bmc_ready"
    FIRMWARE_CURRENT = "firmware_current"
    PROVISIONED = "provisioned"
    CONFIGURED = "configured"
    PROVING = "proving"
    IN_SERVICE = "in_service"
    SPARE = "spare"
    QUARANTINED = "quarantined"
    IN_REPAIR = "in_repair"
    RETIRED = "retired"


class Stage(StrEnum):
    """A step in a node's life; one playbook each, in this order."""

    DISCOVER = "discover"
    BMC = "bmc"
    FIRMWARE = "firmware"
    PROVISION = "provision"
    CONFIGURE = "configure"
    FABRIC = "fabric"
    IMAGES = "images"
    PROVE = "prove"
    ADMIT = "admit"


class Actor(StrEnum):
    """Who may make a transition."""

    STAGE = "stage"
    GATE = "gate"
    OPERATOR = "operator"


STAGES: tuple[Stage, ...] = tuple(Stage)
MAIN_LINE: tuple[State, ...] = (
    State.PLANNED,
    State.DISCOVERED,
    State.BMC_READY,
    State.FIRMWARE_CURRENT,
    State.PROVISIONED,
    State.CONFIGURED,
    State.PROVING,
    State.IN_SERVICE,
)
ASIDE: frozenset[State] = frozenset({State.SPARE, State.QUARANTINED, State.IN_REPAIR, State.RETIRED})

STAGE_REACHES: dict[Stage, State] = {
    Stage.DISCOVER: State.DISCOVERED,
    Stage.BMC: State.BMC_READY,
    Stage.FIRMWARE: State.FIRMWARE_CURRENT,
    Stage.PROVISION: State.PROVISIONED,
    Stage.CONFIGURE: State.CONFIGURED,
    Stage.PROVE: State.PROVING,
    Stage.ADMIT: State.IN_SERVICE,
}
"""The state that a passed stage leaves a node in; ``fabric`` and ``images`` add findings and leave it where it is."""


@dataclass(frozen=True)
class Transition:
    """One allowed step: from, to, who, and when."""

    source: State
    target: State
    actor: Actor
    when: str


def _table() -> tuple[Transition, ...]:
    rows = []
    for stage, target in STAGE_REACHES.items():
        source = MAIN_LINE[MAIN_LINE.index(target) - 1]
        actor = Actor.GATE if target is State.IN_SERVICE else Actor.STAGE
        rows.append(Transition(source, target, actor, f"stage {stage} passed"))
    for source in MAIN_LINE:
        rows.append(Transition(source, State.QUARANTINED, Actor.STAGE, "the machine is not the planned one"))
    rows.append(Transition(State.QUARANTINED, State.DISCOVERED, Actor.STAGE, "it is the planned machine after all"))
    for source in (State.PROVING, State.IN_SERVICE):
        rows.append(Transition(source, State.QUARANTINED, Actor.GATE, "the gate's verdict is fail"))
    for source in (*MAIN_LINE, State.SPARE):
        rows.append(Transition(source, State.IN_REPAIR, Actor.OPERATOR, "taken out for repair"))
        rows.append(Transition(source, State.RETIRED, Actor.OPERATOR, "taken out for good"))
    for target in (State.IN_REPAIR, State.RETIRED, State.PLANNED, State.CONFIGURED):
        rows.append(Transition(State.QUARANTINED, target, Actor.OPERATOR, "a person decides"))
    rows.append(Transition(State.IN_REPAIR, State.PLANNED, Actor.OPERATOR, "repaired: bring it up again"))
    rows.append(Transition(State.IN_REPAIR, State.RETIRED, Actor.OPERATOR, "beyond repair"))
    rows.append(Transition(State.IN_SERVICE, State.SPARE, Actor.OPERATOR, "proven and kept in reserve"))
    rows.append(Transition(State.SPARE, State.PROVING, Actor.STAGE, "called in: proven again"))
    rows.append(
        Transition(State.IN_SERVICE, State.PROVING, Actor.GATE, "the gate's verdict is unknown: prove it again")
    )
    return tuple(rows)


TRANSITIONS: tuple[Transition, ...] = _table()


def allowed(source: State, target: State, actor: Actor) -> bool:
    """Whether ``actor`` may take a node from ``source`` to ``target``."""
    return any(t.source is source and t.target is target and t.actor is actor for t in TRANSITIONS)


def reached(state: State, target: State) -> bool:
    """Whether a node in ``state`` has come at least as far as ``target`` on the main line."""
    return state in MAIN_LINE and MAIN_LINE.index(state) >= MAIN_LINE.index(target)


def as_markdown() -> str:
    """The table as documentation."""
    lines = ["| from | to | who | when |", "| --- | --- | --- | --- |"]
    lines += [f"| {t.source} | {t.target} | {t.actor} | {t.when} |" for t in TRANSITIONS]
    return "\n".join(lines) + "\n"
