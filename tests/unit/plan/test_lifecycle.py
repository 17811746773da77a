"""The table of states: no way into service but through the gate, and documentation that is the table."""

from pathlib import Path

from metalyard.plan.lifecycle import MAIN_LINE, TRANSITIONS, Actor, State, allowed, as_markdown, reached

ROOT = Path(__file__).parents[3]


def test_only_the_gate_admits():
    into = [t for t in TRANSITIONS if t.target is State.IN_SERVICE]
    assert into
    assert all(t.source is State.PROVING and t.actor is Actor.GATE for t in into)


def test_every_state_is_left_by_someone_but_retired():
    sources = {t.source for t in TRANSITIONS}
    assert sources == set(State) - {State.RETIRED}


def test_no_step_is_skipped_on_the_main_line():
    for i, source in enumerate(MAIN_LINE):
        for target in MAIN_LINE[i + 2 :]:
            assert not any(allowed(source, target, actor) for actor in Actor)


def test_reached_is_an_order():
    assert reached(State.PROVISIONED, State.DISCOVERED)
    assert not reached(State.DISCOVERED, State.PROVISIONED)
    assert not reached(State.QUARANTINED, State.PLANNED)


def test_the_documentation_holds_the_table():
    assert as_markdown() in (ROOT / "docs" / "lifecycle.md").read_text()
