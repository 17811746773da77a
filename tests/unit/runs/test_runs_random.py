"""Any sequence of calls, by any operators, keeps the ledger consistent: no state is jumped over."""

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from staged_rack import GONE, bring_up, dump, fresh, hold_true, verdict

from metalyard.gate.finding import Outcome
from metalyard.ledger import HistoryError, Ledger
from metalyard.plan.lifecycle import STAGES, Actor, Stage, State
from metalyard.runs import stages
from metalyard.runs.holder import Holder
from metalyard.runs.leases import finish

NODES = ("gpu-r01-1", "gpu-r01-2", "gpu-r01-3")
HOLDERS = (Holder.of(), Holder.of(1), GONE)
some = st.lists(st.sampled_from(NODES), min_size=1, max_size=3, unique=True)
stage = st.one_of(st.sampled_from(STAGES), st.integers(0, 8).map(STAGES.__getitem__))
outcome = st.sampled_from([Outcome.PASS, Outcome.PASS, Outcome.WATCH, Outcome.FAIL, Outcome.UNKNOWN])


@pytest.fixture(scope="module")
def machine(site, empty_ledger):
    class Calls(RuleBasedStateMachine):
        runs = Bundle("runs")

        def __init__(self):
            super().__init__()
            self.folder = tempfile.TemporaryDirectory()
            self.plan = fresh(site, empty_ledger, Path(self.folder.name) / "state")
            self.ids = itertools.count()

        @initialize(target=runs, last=st.sampled_from([Stage.DISCOVER, Stage.IMAGES, Stage.PROVE, Stage.ADMIT]))
        def somewhere(self, last):
            """Nodes that have come some way already: random calls alone seldom get far."""
            run = "20261119T000000Z-bringup-0000"
            bring_up(self.plan, NODES, run=run, upto=last, holder=HOLDERS[0])
            return run, HOLDERS[0]

        def teardown(self):
            self.folder.cleanup()

        def call(self, function, *arguments, **named):
            """A refusal must say so and leave no trace."""
            before = dump(self.plan)
            try:
                return function(self.plan, *arguments, **named)
            except HistoryError as error:
                refused = error
            assert refused.next_step
            assert dump(self.plan) == before
            return None

        @rule(target=runs, stage=stage, hosts=some, who=st.sampled_from(HOLDERS))
        def begin(self, stage, hosts, who):
            run = f"20261120T000000Z-bringup-{next(self.ids):04}"
            self.call(stages.open_stage, stage, hosts, run=run, holder=who)
            return run, who

        @rule(run=runs, stage=stage, hosts=some)
        def open(self, run, stage, hosts):
            self.call(stages.open_stage, stage, hosts, run=run[0], holder=run[1])

        @rule(run=runs, hosts=some, last=stage)
        def whole_stages(self, run, hosts, last):
            """Several stages in order, as far as the decisions allow."""
            for step in STAGES[: STAGES.index(last) + 1]:
                opening = self.call(stages.open_stage, step, hosts, run=run[0], holder=run[1])
                if opening is None:
                    return
                if step is Stage.PROVE:
                    self.call(stages.record_verdicts, run[0], [verdict(host) for host in opening.go])
                if step is Stage.ADMIT:
                    self.call(stages.settle, run[0], {host: verdict(host) for host in opening.go})
                self.call(stages.close_stage, step, run[0], opening.go)

        @rule(run=runs, stage=stage, hosts=some)
        def close(self, run, stage, hosts):
            self.call(stages.close_stage, stage, run[0], hosts)

        @rule(run=runs, stage=stage, host=st.sampled_from(NODES), aside=st.booleans())
        def fail(self, run, stage, host, aside):
            self.call(stages.fail_stage, stage, run[0], host, f"{host}: no", "look", aside=aside)

        @rule(run=runs, host=st.sampled_from(NODES), outcome=outcome)
        def judge(self, run, host, outcome):
            self.call(stages.record_verdict, run[0], verdict(host, outcome))

        @rule(run=runs, hosts=some, outcome=outcome)
        def settle(self, run, hosts, outcome):
            """Also with verdicts that nobody wrote down."""
            self.call(stages.settle, run[0], {host: verdict(host, outcome) for host in hosts})

        @rule(run=runs, host=st.sampled_from(NODES), outcome=outcome)
        def admit(self, run, host, outcome):
            self.call(stages.admit, run[0], host, verdict(host, outcome))

        @rule(run=runs)
        def end(self, run):
            finish(self.plan, run[0], "complete")

        @rule(host=st.sampled_from(NODES), to=st.sampled_from([State.PLANNED, State.IN_REPAIR, State.SPARE]))
        def decide(self, host, to):
            def move(plan):
                with Ledger(plan.ledger_url) as ledger, ledger.write() as book:
                    book.move(host, to, Actor.OPERATOR, run=None, reason="so be it")

            self.call(move)

        @invariant()
        def consistent(self):
            hold_true(self.plan)

    return Calls


def test_any_sequence_of_calls_keeps_the_ledger_consistent(machine):
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=20,
            stateful_step_count=20,
            deadline=None,
            phases=[Phase.reuse, Phase.generate],  # to shrink a failure takes minutes
            suppress_health_check=list(HealthCheck),
        ),
    )
