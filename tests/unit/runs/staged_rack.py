"""Takes nodes through their stages without machines, and holds a ledger against what must always be true of it."""

import shutil
from pathlib import Path

from sqlalchemy import text

from metalyard.gate.finding import Finding, Outcome, Verdict
from metalyard.ledger import Ledger
from metalyard.ledger.schema import Base
from metalyard.plan.lifecycle import STAGES, Actor, Stage, State, allowed
from metalyard.runs import stages
from metalyard.runs.holder import Holder

SITE = Path(__file__).parents[3] / "inventory" / "virtual"
GONE = Holder.of()
GONE = Holder(GONE.user, GONE.host, 2**22 + 1, 1, GONE.boot, GONE.machine, GONE.space)
"""A process of this machine that can't be: above the largest number."""


def read(plan):
    """A transaction that reads, as a context manager."""
    return Ledger(plan.ledger_url, read_only=True).read()


def verdict(node, outcome=Outcome.PASS):
    """A verdict with one finding."""
    finding = Finding("gpu.count", node, outcome, f"{node}: 7 of 8 GPUs", "gpu 5", remedy="Reseat it.")
    return Verdict(node, outcome, (finding,), {"os": "ab" * 32}, "rules")


def bring_up(plan, hosts, *, run=None, first=Stage.DISCOVER, upto=Stage.ADMIT, outcomes=None, holder=None, check=False):
    """Every stage in order, as the playbooks do; the run's id and the last stage's decisions."""
    opening = None
    for stage in STAGES[STAGES.index(first) : STAGES.index(upto) + 1]:
        opening = stages.open_stage(plan, stage, hosts, run=run, holder=holder, check=check)
        run, going = opening.run, opening.go
        if stage is Stage.PROVE:
            given = [verdict(host, (outcomes or {}).get(host, Outcome.PASS)) for host in going]
            stages.record_verdicts(plan, run, given, check=check)
        if stage is Stage.ADMIT:
            settled = stages.settle(plan, run, stages.verdicts(plan, run, going), check)
            for host in going:
                if settled[host].kind not in ("admitted", "kept"):
                    step = settled[host].next_step
                    stages.fail_stage(plan, stage, run, host, settled[host].reason, step, check=check)
            going = [host for host in going if settled[host].kind in ("admitted", "kept")]
        stages.close_stage(plan, stage, run, going, check=check)
    return run, opening


def dump(plan):
    """Every row of every table."""
    with read(plan) as view:
        return {
            name: sorted(map(repr, view.session.execute(text(f'SELECT * FROM "{name}"'))))  # noqa: S608
            for name in Base.metadata.tables
        }


def hold_true(plan):
    """What must be true of any ledger, whatever was called, in whatever order, and wherever it was killed."""
    with read(plan) as view:
        open_ones = [(r.run, r.node, r.stage) for r in view.stages(open_only=True)]
        assert len(open_ones) == len(set(open_ones)), "a stage of a node goes on twice in one run"
        ended = {known.id for known in view.runs(1000) if known.ended is not None}
        assert not ended & {run for run, _, _ in open_ones}, "a run has ended with a stage open"
        for node, here in view.states().items():
            at = State.PLANNED
            for number, step in enumerate(view.transitions(node), 1):
                assert step.sequence == number
                assert State(step.source) is at
                assert allowed(at, State(step.target), Actor(step.actor))
                at = State(step.target)
            assert at is here.state
            if at is State.IN_SERVICE:
                admission = view.admission(node)
                assert admission is not None
                row = next(v for v in view.verdicts(node=node) if v.id == admission.verdict)
                assert Outcome(row.outcome) in (Outcome.PASS, Outcome.WATCH)


def fresh(site, template, folder):
    """A plan on a copy of an empty ledger."""
    folder.mkdir(parents=True)
    shutil.copy(template, folder / "ledger.sqlite")
    return site.model_copy(update={"state": folder})
