"""Takes nodes through their stages: starts the playbooks, follows them, and says how each node ended.

``kill -9`` of this process at any moment leaves no process behind and a ledger that the same command goes on from.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metalyard.ledger import Book, HistoryError, Ledger, LedgerError, RunView, StageView, Standing
from metalyard.plan.lifecycle import ASIDE, STAGES, Stage, State
from metalyard.plan.model import SitePlan
from metalyard.runs.events import Event, NodeStageEvent, RunEnded, RunStarted, write
from metalyard.runs.holder import Holder
from metalyard.runs.leases import GO_ON, begin, heartbeat, new_run_id
from metalyard.runs.player import Played, Player
from metalyard.runs.results import RunFolder
from metalyard.runs.stages import BAD, end_badly

COLLECTION = "metalyard.fleet"
ALL_IN_SERVICE = 0
ERROR = 1
NOT_ALL = 3
HELD = 4
INTERRUPTED = 130
HOST_TROUBLE = (0, 2, 4)
"""ansible-playbook's exit statuses that speak of hosts; any other speaks of the run as a whole."""
WORST = ("held", "interrupted", "failed", "unknown", "skipped", "open")


@dataclass(frozen=True)
class NodeOutcome:
    """How one node ended. ``outcome`` is its worst stage's in this run: ``passed`` when none went wrong."""

    node: str
    state: State
    outcome: str
    stage: str = ""
    reason: str = ""
    next_step: str = ""
    changed: int = 0
    """Tasks that changed something."""


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended.

    ``exit_code``: 0 all in service (or, of a part of the stages or a check, nothing went wrong), 3 not all, 1 an error
    of the run as a whole (``message`` says which), 4 a node is held by another run, 130 interrupted.
    """

    run: str
    check: bool
    exit_code: int
    message: str
    next_step: str
    counts: dict[str, int]
    nodes: dict[str, NodeOutcome]
    folder: Path
    resumes: str | None = None

    @property
    def changed(self) -> int:
        """Tasks that changed something, over all nodes."""
        return sum(node.changed for node in self.nodes.values())

    @property
    def interrupted(self) -> bool:
        """Whether an operator stopped it."""
        return self.exit_code == INTERRUPTED


@dataclass
class _Request:
    """What was asked for, once everything is settled."""

    plan: SitePlan
    plan_path: Path
    run: str
    limit: str | None
    stages: tuple[Stage, ...]
    check: bool
    resumes: str | None
    playbooks: list[str]
    extra_vars: Mapping[str, Any]
    tell: Callable[[Event], None]
    nodes: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether it goes all the way into service."""
        return not self.check and self.stages == STAGES


def bringup(
    plan: SitePlan,
    plan_path: Path,
    *,
    limit: str | None = None,
    stages: Sequence[Stage | str] | None = None,
    check: bool = False,
    resume: str | None = None,
    extra_vars: Mapping[str, Any] | None = None,
    on_event: Callable[[Event], None] | None = None,
    playbooks: Sequence[str] | None = None,
) -> RunOutcome:
    """Take the nodes of the plan (those that ``limit``, an Ansible pattern, names) through ``stages``, by default all.

    ``resume`` is the id of an interrupted run, or ``latest``; what is not given again is as it was there. ``on_event``
    is called from one thread that is not the caller's. ``playbooks`` are played instead of the collection's.

    SIGINT and SIGTERM end the run in order; the second one at once. Raises LedgerError where the ledger can't be used.
    """
    former = _former(plan, resume) if resume else None
    if former is not None:
        limit = limit or former.options.get("limit")
        stages = stages or former.options.get("stages")
    wanted = tuple(sorted({Stage(stage) for stage in stages}, key=STAGES.index)) if stages else STAGES
    names = ["bringup"] if wanted == STAGES else [stage.value for stage in wanted]
    request = _Request(
        plan=plan,
        plan_path=plan_path,
        run=new_run_id("check" if check else "bringup"),
        limit=limit or None,
        stages=wanted,
        check=check,
        resumes=former.id if former is not None else None,
        playbooks=list(playbooks or [f"{COLLECTION}.{name}" for name in names]),
        extra_vars=extra_vars or {},
        tell=on_event or (lambda event: None),
    )
    return _run(request)


def _former(plan: SitePlan, resume: str) -> RunView:
    """The run to go on with: by its id, or the latest that did not come to its end."""
    with Ledger(plan.ledger_url, read_only=True) as ledger, ledger.read() as view:
        if resume != "latest":
            found = view.run(resume)
            if found is None:
                raise HistoryError(f"The ledger knows no run {resume}.", "Look at `metalyard status` for the runs.")
            if found.ended is None and Holder.from_dict(found.holder).alive():
                holder = Holder.from_dict(found.holder)
                raise HistoryError(f"Run {resume} still goes on ({holder}).", "Wait for it, or stop it.")
            return found
        for known in view.runs(limit=1000):
            if known.outcome == "interrupted" or (
                known.outcome == "open" and not Holder.from_dict(known.holder).alive()
            ):
                return known
    raise HistoryError("No run was interrupted: there is nothing to resume.", "Run without --resume.")


def _run(request: _Request) -> RunOutcome:
    plan, run, holder = request.plan, request.run, Holder.of()
    if not request.check:
        options = {"limit": request.limit, "stages": [stage.value for stage in request.stages]}
        with Ledger(plan.ledger_url) as ledger, ledger.write() as book:
            begin(book, plan, run, holder, options=options, resumes=request.resumes)
    folder = RunFolder.of(plan.state_dir, run).path
    seen: dict[str, list[NodeStageEvent]] = {}
    broken: list[BaseException] = []

    def tell(event: Event) -> None:
        if isinstance(event, NodeStageEvent):
            seen.setdefault(event.node, []).append(event)
        if broken:
            return
        try:
            request.tell(event)
        except Exception as error:  # a display that fails must not end the run of a hall
            broken.append(error)

    def beat() -> None:
        if request.check:
            return
        try:
            heartbeat(plan, run)
        except LedgerError as error:
            (folder / "heartbeat.log").write_text(f"{error.message}\n", encoding="utf-8")

    tell(RunStarted(run, folder))
    player = Player(folder, tell, beat)
    try:
        played = player.play(
            request.playbooks,
            inventory=request.plan_path,
            environment={**holder.environment(), "METALYARD_RUN": run},
            limit=request.limit,
            check=request.check,
            extra_vars=request.extra_vars,
            forks=max(5, min(len(plan.nodes), 16 * (os.cpu_count() or 1), 100)),
        )
    except BaseException as error:
        if not request.check:
            with Ledger(plan.ledger_url) as ledger, ledger.write() as book:
                _finalise(book, request, player.played, "error", f"{type(error).__name__} in the controller")
        raise
    outcome = _conclude(request, played, folder, seen)
    for event in player.follower.poll():
        tell(event)
    tell(RunEnded(run, _word(outcome.exit_code), outcome.message))
    if broken:
        raise broken[0]
    return outcome


def _word(code: int) -> str:
    return {ALL_IN_SERVICE: "complete", NOT_ALL: "not_all", HELD: "held", INTERRUPTED: "interrupted"}.get(code, "error")


# -- the end ----------------------------------------------------------------------------------------------------------


def _conclude(request: _Request, played: Played, folder: Path, seen: Mapping[str, list[NodeStageEvent]]) -> RunOutcome:
    """Close what is still open, work out how each node ended, and end the run; in the ledger unless it was a check."""
    plan, run = request.plan, request.run
    if request.check:
        with Ledger(plan.ledger_url, read_only=True) as ledger, ledger.read() as view:
            standings = view.states(seen)
        ends = {name: _last_words(events) for name, events in seen.items()}
        nodes = {name: _outcome(standings[name], ends[name], played) for name in standings}
        code, message, step = _judge(request, played, nodes)
    else:
        with Ledger(plan.ledger_url) as ledger, ledger.write() as book:
            closed = _close(book, request, played)
            records = book.stages(run=run)
            standings = book.states({record.node for record in records})
            ends = {name: _worst([r for r in records if r.node == name]) for name in standings}
            nodes = {name: _outcome(standings[name], ends[name], played) for name in standings}
            code, message, step = _judge(request, played, nodes)
            book.end_run(run, _word(code), message)
            book.free(run)
        write(folder, closed)
    order = {node.name: place for place, node in enumerate(plan.nodes)}
    nodes = dict(sorted(nodes.items(), key=lambda item: order.get(item[0], len(order))))
    counts = dict(Counter(node.state.value for node in nodes.values()))
    return RunOutcome(run, request.check, code, message, step, counts, nodes, folder, request.resumes)


def _finalise(book: Book, request: _Request, played: Played, outcome: str, message: str) -> None:
    """End a run whose playing failed."""
    _close(book, request, played)
    book.end_run(request.run, outcome, message)
    book.free(request.run)


def _close(book: Book, request: _Request, played: Played) -> list[NodeStageEvent]:
    """End the stages that the playbooks left open: nobody may take one for passed, or for going on."""
    closed = []
    for record in book.stages(run=request.run, open_only=True):
        outcome, message, step = _why_open(request, played, record)
        end_badly(book, record, outcome, message, step)
        closed.append(NodeStageEvent(record.node, record.stage.value, outcome, message, step, book.now, record.run))
    return closed


def _why_open(request: _Request, played: Played, record: StageView) -> tuple[str, str, str]:
    """Outcome, sentence and next step of a stage that the playbooks left open."""
    name, trouble = record.node, played.trouble.get(record.node)
    if played.stopped is not None:
        return (
            "interrupted",
            f"{name}: stage {record.stage} was interrupted by {played.stopped.name}",
            _resume(request.run),
        )
    if trouble is None:
        why = f"{name}: stage {record.stage} did not come to its end (ansible-playbook ended with {played.status})"
        return "unknown", why, GO_ON
    if trouble.unreachable:
        why = f"{name} went out of reach in stage {record.stage}, task '{trouble.task}': {trouble.message}"
        return "unknown", why, f"Look whether {name} runs and answers on SSH; at its BMC, if it does not. {GO_ON}"
    text = trouble.message if trouble.message.startswith(name) else f"{name}: {trouble.message}"
    return "failed", f"{text} (task '{trouble.task}')", GO_ON


def _resume(run: str) -> str:
    return f"Run the same command again, or `metalyard bringup --resume {run}`; it goes on where this one stopped."


def _worst(records: Sequence[StageView]) -> NodeStageEvent:
    """The stage that says how a node ended: the last that went wrong, else the last."""
    latest = {record.stage: record for record in records}
    bad = [record for record in latest.values() if record.outcome in (*BAD, "held")]
    skipped = [record for record in latest.values() if record.outcome == "skipped"]
    record = (bad or skipped or list(latest.values()))[0 if bad or skipped else -1]
    return NodeStageEvent(record.node, record.stage, record.outcome, record.message, record.next_step)


def _last_words(events: Sequence[NodeStageEvent]) -> NodeStageEvent:
    """The same from the events of a check, which writes no records."""
    latest = {event.stage: event for event in events}
    ranked = [event for event in latest.values() if event.status in WORST]
    return min(ranked, key=lambda event: WORST.index(event.status)) if ranked else events[-1]


def _outcome(here: Standing, end: NodeStageEvent, played: Played) -> NodeOutcome:
    reason, step = end.text, end.next_step
    if here.state in ASIDE and end.status != "held":
        reason, step = here.reason or reason, here.next_step or step
    status = "passed" if end.status == "running" else end.status
    return NodeOutcome(here.node, here.state, status, end.stage, reason, step, played.changed.get(here.node, 0))


def _judge(request: _Request, played: Played, nodes: Mapping[str, NodeOutcome]) -> tuple[int, str, str]:
    """Exit code, sentence and next step for the whole run."""
    if played.stopped is not None:
        return INTERRUPTED, f"Interrupted by {played.stopped.name}; what was done is recorded.", _resume(request.run)
    if played.status not in HOST_TROUBLE or not nodes:
        where = f"See {request.plan.state_dir / 'runs' / request.run / 'artifacts' / 'ansible' / 'stdout'}."
        return ERROR, f"ansible-playbook ended with {played.status} before its time:\n{played.tail}".rstrip(), where
    held = sorted((node for node in nodes.values() if node.outcome == "held"), key=lambda node: node.node)
    if held:
        return HELD, held[0].reason, held[0].next_step
    if request.whole:
        good = [node for node in nodes.values() if node.state in (State.IN_SERVICE, State.SPARE)]
        good = [node for node in good if node.outcome not in BAD]
        verb = "in service"
    else:
        aside = ASIDE - {State.SPARE}
        fine = ("passed", "skipped") if request.check else ("passed",)
        good = [node for node in nodes.values() if node.outcome in fine and node.state not in aside]
        verb = "as asked"
    message = f"{len(good)} of {len(nodes)} nodes {verb}."
    if len(good) == len(nodes):
        return ALL_IN_SERVICE, message, ""
    return NOT_ALL, message, "See each node's reason and next step."
