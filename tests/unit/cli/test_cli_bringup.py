"""``metalyard bringup``: what it asks of the run, what it shows on the way and at the end, and its exit codes."""

from __future__ import annotations

import io
import json

import pytest
from click.testing import CliRunner
from rich.console import Console

from metalyard.cli import bringup as command
from metalyard.cli.app import cli
from metalyard.cli.progress import JsonLines, LiveTable, PlainLines, follower
from metalyard.ledger import Ledger
from metalyard.plan import load_plan
from metalyard.plan.lifecycle import Actor, Stage, State
from metalyard.runs.events import NodeStageEvent, RunEnded, RunStarted
from metalyard.runs.execute import NodeOutcome, RunOutcome
from metalyard.runs.holder import Holder

RUN = "20261109T083000Z-bringup-7c1e"
EVENTS = (
    NodeStageEvent("gpu-r01-1", "discover", "running"),
    NodeStageEvent("gpu-r01-1", "discover", "running", "reading firmware"),
    NodeStageEvent("gpu-r01-1", "discover", "passed"),
    NodeStageEvent("gpu-r01-3", "discover", "failed", "gpu-r01-3: serial 9, expected 3", "Swap it."),
    NodeStageEvent("gpu-r02-1", "discover", "skipped", "gpu-r02-1 is quarantined", "Reseat it."),
    NodeStageEvent("gpu-r02-1", "bmc", "skipped", "gpu-r02-1 is quarantined", "Reseat it."),
)


@pytest.fixture
def runs(monkeypatch, site):
    """A stand-in for the run: it notes what it was asked, tells some events, leaves a little in the ledger."""
    asked = []
    plan = load_plan(site)

    def set_up(exit_code=3, changed=2, check=False, message="1 of 2 nodes in service.", next_step=""):
        def bringup(given, path, **how):
            asked.append({**how, "site": given.site, "path": path})
            tell = how["on_event"]
            folder = plan.state_dir / "runs" / RUN
            tell(RunStarted(RUN, folder))
            for event in EVENTS:
                tell(event)
            if not check and len(asked) == 1:
                with Ledger(plan.ledger_url) as ledger, ledger.write() as book:
                    book.begin_run(RUN, verb="bringup", site="virtual", holder=Holder.of().as_dict(), version="1")
                    book.end_stage(book.begin_stages(RUN, Stage.DISCOVER, ["gpu-r01-3"])["gpu-r01-3"], "failed",
                                   message=EVENTS[3].text, next_step="Swap it.")  # fmt: skip
                    book.move("gpu-r01-3", State.QUARANTINED, Actor.STAGE, run=RUN, reason=EVENTS[3].text)
            nodes = {
                "gpu-r01-1": NodeOutcome("gpu-r01-1", State.DISCOVERED, "passed", "discover", changed=changed),
                "gpu-r01-3": NodeOutcome(
                    "gpu-r01-3", State.QUARANTINED, "failed", "discover", EVENTS[3].text, "Swap it."
                ),
            }
            tell(RunEnded(RUN, "not_all", message))
            return RunOutcome(RUN, check, exit_code, message, next_step, {}, nodes, folder)

        monkeypatch.setattr("metalyard.runs.execute.bringup", bringup)
        return asked

    return set_up


def test_what_is_asked_for_reaches_the_run(metalyard, site, runs):
    asked = runs(exit_code=0)
    done = metalyard("bringup", "--limit", "rack_r01", "--stage", "prove", "--stage", "bmc", "--check", "--resume")
    assert done.exit_code == 0, done.output
    how = asked[0]
    assert (how["limit"], how["stages"], how["check"], how["resume"]) == ("rack_r01", ("prove", "bmc"), True, "latest")
    assert how["path"] == site / "site.yml"
    metalyard("bringup", "--resume", RUN)
    assert asked[1]["resume"] == RUN
    metalyard("bringup")
    assert (asked[2]["limit"], asked[2]["stages"], asked[2]["resume"]) == (None, None, None)


@pytest.mark.parametrize("code", [0, 1, 3, 4, 130])
def test_the_runs_exit_code_is_the_commands(metalyard, runs, code):
    runs(exit_code=code, message="as it is", next_step="do that")
    done = metalyard("bringup")
    assert done.exit_code == code
    assert "as it is" in done.stdout
    assert "Next step: do that" in done.stdout
    assert ("Run the same command" in done.stderr) == (code == 130)


def test_the_end_has_a_node_and_its_reason_on_one_line(metalyard, runs):
    runs()
    done = metalyard("bringup")
    rows = [line for line in done.stdout.splitlines() if line.startswith("gpu-r01-3")]
    assert len(rows) == 1
    assert "quarantined" in rows[0]
    assert "serial 9, expected 3" in rows[0]
    assert "2 tasks changed something." in done.stdout


def test_a_run_that_changed_nothing_says_so(metalyard, runs):
    runs(changed=0)
    assert "Nothing changed." in metalyard("bringup").stdout


def test_a_check_says_what_would_change_and_reads_no_ledger(metalyard, runs, site):
    runs(check=True)
    done = metalyard("bringup", "--check")
    assert "Check mode: 2 tasks would change something. Nothing was changed." in done.stdout
    assert any("gpu-r01-3" in line and "serial 9" in line for line in done.stdout.splitlines())
    assert not load_plan(site).state_dir.exists()


def test_plain_lines_tell_beginnings_and_ends_once(metalyard, runs):
    runs()
    lines = [line.partition(" ")[2] for line in metalyard("bringup").stdout.splitlines()]
    told = [line for line in lines if line.startswith("gpu-") and ": " in line and line.split(" ")[1].endswith(":")]
    assert told == [
        "gpu-r01-1 discover: running",
        "gpu-r01-1 discover: passed",
        "gpu-r01-3 discover: failed: serial 9, expected 3 -> Swap it.",
        "gpu-r02-1 discover: skipped: gpu-r02-1 is quarantined -> Reseat it.",
    ]


def test_json_is_an_object_a_line_with_the_result_last(metalyard, runs):
    runs()
    lines = [json.loads(line) for line in metalyard("bringup", "--json").stdout.splitlines()]
    assert [line["event"] for line in lines] == ["run", *["stage"] * len(EVENTS), "end", "result"]
    assert lines[4] == {
        "event": "stage",
        "node": "gpu-r01-3",
        "stage": "discover",
        "status": "failed",
        "text": "gpu-r01-3: serial 9, expected 3",
        "next_step": "Swap it.",
        "at": "",
        "run": "",
    }
    assert lines[-1]["exit_code"] == 3
    assert lines[-1]["nodes"]["gpu-r01-3"]["state"] == "quarantined"


def test_diff_shows_what_each_node_changed(metalyard, runs, site, monkeypatch):
    monkeypatch.delenv("ANSIBLE_DIFF_ALWAYS", raising=False)
    runs()
    events = load_plan(site).state_dir / "runs" / RUN / "artifacts" / "ansible" / "job_events"
    events.mkdir(parents=True)
    diff = {"before": "a\nb\n", "after": "a\nc\n", "before_header": "old", "after_header": "new"}

    def event(number, result):
        data = {"event_data": {"host": "gpu-r01-1", "task": "Write limits", "res": result}}
        (events / f"{number}-abc.json").write_text(json.dumps(data))

    event(10, {"diff": [diff]})
    event(2, {"results": [{"diff": {"prepared": "+first"}}, {"diff": []}]})
    event(3, {"censored": "the output has been hidden"})
    (events / "11-abc.json").write_text("{cut")
    shown = metalyard("bringup", "--diff").stdout.splitlines()
    begin = shown.index("gpu-r01-1: Write limits")
    assert shown[begin : begin + 2] == ["gpu-r01-1: Write limits", "+first"]
    assert shown[begin + 2 : begin + 9] == [
        "gpu-r01-1: Write limits",
        "--- old",
        "+++ new",
        "@@ -1,2 +1,2 @@",
        " a",
        "-b",
        "+c",
    ]


def test_a_big_run_without_a_limit_is_asked_about_on_a_terminal(site, runs, monkeypatch):
    asked = runs(exit_code=0)
    monkeypatch.setattr(command, "MANY", 4)
    monkeypatch.setattr(command, "at_a_terminal", lambda: True)
    run = CliRunner().invoke
    refused = run(cli, ["-i", str(site), "bringup"], input="n\n")
    assert refused.exit_code == 1
    assert "all 8 nodes of virtual" in refused.stdout
    assert asked == []
    assert run(cli, ["-i", str(site), "bringup"], input="y\n").exit_code == 0
    assert run(cli, ["-i", str(site), "bringup", "--yes"]).exit_code == 0
    assert run(cli, ["-i", str(site), "bringup", "--limit", "all"]).exit_code == 0
    assert len(asked) == 3


def test_the_live_table_has_a_row_a_node_with_what_it_waits_for():
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=30, color_system=None)
    with follower(console, ["gpu-r01-1", "gpu-r01-2", "gpu-r01-3"], as_json=False) as live:
        assert isinstance(live, LiveTable)
        live(RunStarted(RUN, None))
        for event in EVENTS[:2]:
            live(event)
        live(EVENTS[3])
        console.print(live._render())
    text = console.file.getvalue()
    assert RUN in text
    assert "1 of 3 nodes at work" in text
    assert "1 in trouble" in text
    assert "reading firmware" in text
    assert "serial 9, expected 3" in text


def test_a_hall_shows_trouble_first_and_stays_on_the_screen():
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=12, color_system=None)
    live = LiveTable(console, [f"n{i}" for i in range(100)])
    live(NodeStageEvent("n90", "discover", "failed", "no answer"))
    live(NodeStageEvent("n80", "discover", "running"))
    console.print(live._render())
    lines = console.file.getvalue().splitlines()
    assert len(lines) <= 12
    assert [line.split(" ")[0] for line in lines if line.startswith(("n90", "n80"))] == ["n90", "n80"]


def test_who_follows_depends_on_where_the_output_goes():
    pipe, terminal = Console(file=io.StringIO()), Console(file=io.StringIO(), force_terminal=True)
    assert isinstance(follower(pipe, [], as_json=False), PlainLines)
    assert isinstance(follower(pipe, [], as_json=True), JsonLines)
    assert isinstance(follower(terminal, [], as_json=True), JsonLines)
