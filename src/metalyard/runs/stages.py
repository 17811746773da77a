"""Opens and closes the stages of nodes' lives in the ledger. Each function is one transaction: all of it or nothing.

Called by Ansible's action plugins, in one process for all hosts of a play. In check mode nothing is written to the
ledger. A node is worked on by one run at a time: :func:`open_stage` takes its lease, and every later call of that run
first makes sure that it still has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from metalyard.ledger import Book, HistoryError, Ledger, Standing
from metalyard.ledger.view import StageView, stamp
from metalyard.plan.lifecycle import MAIN_LINE, STAGE_REACHES, STAGES, Actor, Stage, State, allowed, reached
from metalyard.plan.model import SitePlan
from metalyard.runs import events
from metalyard.runs.admissions import (
    Settlement,
    admit,
    breaker,
    keep_evidence,
    quarantine,
    record_verdict,
    record_verdicts,
    settle,
    verdicts,
)
from metalyard.runs.events import NodeStageEvent
from metalyard.runs.facts import record_result, record_results, states
from metalyard.runs.holder import Holder
from metalyard.runs.leases import GO_ON, begin, bury, contested, new_run_id, ours, release, shown
from metalyard.runs.results import RunFolder

__all__ = [
    "Decision",
    "Settlement",
    "StageOpening",
    "admit",
    "breaker",
    "close_stage",
    "fail_stage",
    "keep_evidence",
    "new_run_id",
    "open_stage",
    "quarantine",
    "record_result",
    "record_results",
    "record_verdict",
    "record_verdicts",
    "release",
    "settle",
    "states",
    "verdicts",
]
HELD_STEP = "Wait for that run to end, or ask its operator to stop it; then run again."
BAD = ("failed", "unknown", "interrupted")


@dataclass(frozen=True)
class Decision:
    """What a stage is to do with a node. ``reason`` is a whole sentence with its next step."""

    kind: Literal["go", "skip", "held"]
    reason: str = ""
    next_step: str = ""


@dataclass(frozen=True)
class StageOpening:
    """The run that the stage belongs to, and what becomes of each host."""

    run: str
    decisions: dict[str, Decision] = field(default_factory=dict)

    @property
    def go(self) -> list[str]:
        """The hosts to work on."""
        return [host for host, decision in self.decisions.items() if decision.kind == "go"]


def needed(stage: Stage) -> State | None:
    """How far a node must have come for a stage; None for the first."""
    if stage is Stage.DISCOVER:
        return None
    if stage in (Stage.FABRIC, Stage.IMAGES):
        return State.CONFIGURED
    return MAIN_LINE[MAIN_LINE.index(STAGE_REACHES[stage]) - 1]


# -- opening ----------------------------------------------------------------------------------------------------------


def _aside(stage: Stage, here: Standing) -> Decision | None:
    """Whether the node is set aside: it is passed over, but for one whose identity discover can look at again."""
    node, state, since = here.node, here.state, shown(here.since)
    why = f": {here.reason}" if here.reason else ""
    if state is State.QUARANTINED:
        if here.actor is Actor.STAGE and stage is Stage.DISCOVER:
            return None
        step = here.next_step or "Put right what the reason names."
        if here.actor is not Actor.STAGE:
            step += f" Then `metalyard release {node} --reason …`, and run the same command again."
        return Decision("skip", f"{node} is quarantined since {since}{why}", step)
    if state is State.IN_REPAIR:
        return Decision(
            "skip", f"{node} is in repair since {since}{why}", f"When repaired: `metalyard release {node} --reason …`."
        )
    if state is State.RETIRED:
        return Decision("skip", f"{node} is retired since {since}{why}", "Take it out of the plan.")
    if state is State.SPARE:
        return Decision("skip", f"{node} is a spare since {since}{why}", "Nothing, until it is called in.")
    return None


def _decide(stage: Stage, here: Standing, earlier: StageView | None, check: bool) -> Decision:
    aside = _aside(stage, here)
    if aside is not None:
        return aside
    if earlier is not None:
        reason = f"{here.node} did not pass stage {earlier.stage} of this run: {earlier.message}"
        return Decision("skip", reason, earlier.next_step or GO_ON)
    need = needed(stage)
    if check and stage in (Stage.BMC, Stage.FIRMWARE, Stage.PROVISION):
        need = None  # what these read is there before the stages that come first have changed anything
    if need is not None and not reached(here.state, need):
        reason = f"{here.node} is {here.state}; stage {stage} needs it to be {need} first."
        first = next(s for s in STAGES if STAGE_REACHES.get(s) not in (None, *_behind(here.state)))
        step = f"Run `metalyard bringup --limit {here.node}`; it starts with stage {first}."
        if check:
            step = "Nothing now: a run without --check takes it there."
        return Decision("skip", reason, step)
    return Decision("go")


def _behind(state: State) -> tuple[State, ...]:
    return MAIN_LINE[: MAIN_LINE.index(state) + 1] if state in MAIN_LINE else ()


def open_stage(
    plan: SitePlan,
    stage: Stage,
    hosts: Sequence[str],
    *,
    run: str | None = None,
    check: bool = False,
    holder: Holder | None = None,
) -> StageOpening:
    """Begin a stage for hosts: take their leases, pass over those set aside, and say what each is to do.

    ``run`` is the run's id; without one, the open run of ``holder`` goes on, or a new one begins. ``holder`` is the
    process that lives as long as the run does, by default :meth:`Holder.ambient`.
    """
    holder = holder or Holder.ambient()
    names = list(dict.fromkeys(hosts))
    if check:
        run = run or new_run_id("check")
        with Ledger(plan.ledger_url, read_only=True) as ledger, ledger.read() as view:
            states = view.states(names)
        decisions = {name: _decide(stage, states[name], None, True) for name in names}
        _tell(plan, run, stage, decisions)
        return StageOpening(run, decisions)
    with Ledger(plan.ledger_url) as ledger, ledger.write() as book:
        run = run or _run_of(book, holder) or new_run_id("ansible")
        begin(book, plan, run, holder)
        if (known := book.run(run)) is not None and known.ended is not None:
            raise HistoryError(f"Run {run} has ended at {shown(known.ended)}.", "Start a new one.")
        decisions = _open(book, stage, names, run, holder)
    _tell(plan, run, stage, decisions)
    return StageOpening(run, decisions)


def _run_of(book: Book, holder: Holder) -> str | None:
    """The run that this process has begun and not ended: plain ansible-playbook has no other memory of it."""
    return next((known.id for known in book.open_runs() if known.holder == holder.as_dict()), None)


def _open(book: Book, stage: Stage, names: list[str], run: str, holder: Holder) -> dict[str, Decision]:
    leases = book.leases(names)
    states = book.states(names)
    last = {
        (record.node, record.stage): record
        for record in book.stages(run=run, nodes=names)
        if STAGES.index(record.stage) < STAGES.index(stage)
    }
    earlier = {record.node: record for record in last.values() if record.outcome in BAD}
    decisions: dict[str, Decision] = {}
    for name in names:
        why, held = contested(book, leases[name], run, book.now) if name in leases else (None, None)
        if held is not None:
            decisions[name] = Decision("held", held, HELD_STEP)
            continue
        decisions[name] = _decide(stage, states[name], earlier.get(name), False)
        if why is not None and decisions[name].kind == "go":
            previous = str(Holder.from_dict(leases[name].holder))
            former = leases[name].run
            book.take_over(leases[name], run, holder.as_dict(), previous, why)
            if not book.leases(run=former):
                bury(book, former, why)
    book.take([name for name in names if decisions[name].kind == "go"], run, holder.as_dict())
    records = book.begin_stages(run, stage, names)
    for name, decision in decisions.items():
        if decision.kind != "go":
            outcome = "skipped" if decision.kind == "skip" else "held"
            book.end_stage(records[name], outcome, message=decision.reason, next_step=decision.next_step)
    return decisions


# -- closing ----------------------------------------------------------------------------------------------------------


def close_stage(
    plan: SitePlan,
    stage: Stage,
    run: str,
    passed: Iterable[str],
    check: bool = False,
    changed: Mapping[str, bool] | None = None,
) -> None:
    """End a stage as passed for these hosts, and take each one step on where the stage leads on.

    Closing twice changes nothing, and a stage that ended otherwise before stays so. ``admit`` moves nobody: that is the
    gate's; see :mod:`metalyard.runs.admissions`. HistoryError for a host whose stage was never opened.
    """
    names = list(dict.fromkeys(passed))
    if check:
        _tell(plan, run, stage, dict.fromkeys(names, ("passed", "", "")))
        return
    told: dict[str, tuple[str, str, str]] = {}
    with Ledger(plan.ledger_url) as ledger, ledger.write() as book:
        records = {record.node: record for record in book.stages(run=run, stage=stage, nodes=names)}
        for name in names:
            if name not in records:
                raise HistoryError(
                    f"{name}: stage {stage} of run {run} was never opened.", "This is a defect: report it."
                )
        mine = [name for name in names if records[name].ended is None]
        ours(book, run, mine)
        states = book.states(mine)
        for name in mine:
            book.end_stage(records[name], "passed", changed=(changed or {}).get(name))
            step_on(book, stage, run, states[name])
            told[name] = ("passed", "", "")
    _tell(plan, run, stage, told)


def step_on(book: Book, stage: Stage, run: str, here: Standing) -> None:
    """Take a node to the state that a passed stage leaves it in, where it is not there or further already."""
    target = STAGE_REACHES.get(stage)
    if target is None or reached(here.state, target) or not allowed(here.state, target, Actor.STAGE):
        return
    if here.state is State.QUARANTINED and here.actor is not Actor.STAGE:
        return  # the gate set it aside; only a person brings it back
    book.move(here.node, target, Actor.STAGE, run=run, reason=f"stage {stage} passed", here=here)


def fail_stage(
    plan: SitePlan,
    stage: Stage,
    run: str,
    host: str,
    message: str,
    next_step: str,
    *,
    aside: bool = False,
    check: bool = False,
    data: Mapping[str, Any] | None = None,
    outcome: Literal["failed", "unknown"] = "failed",
) -> None:
    """End a stage as failed for a host, with the sentence and the next step that its operator reads.

    ``aside`` quarantines a node whose machine is not the planned one. ``outcome`` is ``unknown`` where nobody knows how
    far it came (the node went out of reach).
    """
    if not check:
        with Ledger(plan.ledger_url) as ledger, ledger.write() as book:
            records = book.stages(run=run, stage=stage, node=host)
            if records and records[-1].ended is not None:
                return
            ours(book, run, [host])
            record = records[-1] if records else book.begin_stages(run, stage, [host])[host]
            end_badly(book, record, outcome, message, next_step, aside=aside, data=data)
    _tell(plan, run, stage, {host: (outcome, message, next_step)})


def end_badly(
    book: Book,
    record: StageView,
    outcome: str,
    message: str,
    next_step: str,
    *,
    aside: bool = False,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Write down a failure, and the quarantine of a machine that is not the planned one."""
    book.end_stage(record, outcome, message=message, next_step=next_step, data=data)
    here = book.state(record.node)
    if aside and allowed(here.state, State.QUARANTINED, Actor.STAGE):
        book.move(
            record.node,
            State.QUARANTINED,
            Actor.STAGE,
            run=record.run,
            reason=message,
            next_step=next_step,
            evidence=data,
            here=here,
        )


# -- telling ----------------------------------------------------------------------------------------------------------


def _tell(plan: SitePlan, run: str, stage: Stage, what: Mapping[str, Decision | tuple[str, str, str]]) -> None:
    """Let whoever follows the run know, after the ledger does."""
    now = stamp()
    lines = []
    for node, word in what.items():
        if isinstance(word, Decision):
            status = {"go": "running", "skip": "skipped", "held": "held"}[word.kind]
            word = (status, word.reason, word.next_step)
        lines.append(NodeStageEvent(node, stage.value, word[0], word[1], word[2], now, run))
    events.write(RunFolder.of(plan.state_dir, run).path, lines)
