"""What each command says and leaves behind, on a ledger with a little history."""

from __future__ import annotations

import inspect
import json
from datetime import timedelta
from pathlib import Path

import pytest

from metalyard.gate.finding import Finding, Outcome, Verdict
from metalyard.ledger import Ledger
from metalyard.ledger.view import moment, stamp
from metalyard.plan import load_plan
from metalyard.plan.lifecycle import MAIN_LINE, Actor, Stage, State
from metalyard.runs.holder import Holder
from metalyard.virtual import rack as real_rack

ROOT = Path(__file__).parents[3]
RUN = "20261109T083000Z-bringup-7c1e"


@pytest.fixture
def plan(site):
    return load_plan(site)


@pytest.fixture
def ledger(plan):
    with Ledger(plan.ledger_url) as ledger:
        with ledger.write() as book:
            book.begin_run(RUN, verb="bringup", site="virtual", holder=Holder.of().as_dict(), version="0.1.0")
        yield ledger


def bring(ledger, node, target):
    """Take a node along the main line."""
    with ledger.write() as book:
        for state in MAIN_LINE[1 : MAIN_LINE.index(target) + 1]:
            actor = Actor.GATE if state is State.IN_SERVICE else Actor.STAGE
            book.move(node, state, actor, run=RUN, reason="passed")


def quarantine(ledger, node):
    bring(ledger, node, State.PROVING)
    finding = Finding("gpu.count", node, Outcome.FAIL, f"{node}: 7 GPUs, expected 8", part="gpu 5", remedy="Reseat it.")
    with ledger.write() as book:
        book.judge(RUN, Verdict(node, Outcome.FAIL, (finding,)))
        book.move(node, State.QUARANTINED, Actor.GATE, run=RUN, reason=finding.summary, next_step="Reseat it.")


# -- init -------------------------------------------------------------------------------------------------------------


def test_init_writes_a_site_that_its_own_check_accepts(metalyard, tmp_path):
    done = metalyard("init", str(tmp_path / "Hall B2"), on=None)
    assert done.exit_code == 0, done.output
    folder = tmp_path / "Hall B2"
    plan = load_plan(folder)
    assert plan.site == "hall-b2"
    assert plan.state_dir == folder / "state"
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert names == {"site.yml", "README.md", ".gitignore", "profiles/README.md", "baselines/README.md"}
    assert "example-site" not in (folder / "site.yml").read_text() + (folder / "README.md").read_text()
    assert metalyard("check", "--offline", on=folder).exit_code == 0


def test_init_explains_every_field_of_the_schema(metalyard, tmp_path):
    metalyard("init", str(tmp_path / "b"), on=None)
    text = (tmp_path / "b" / "site.yml").read_text() + (ROOT / "inventory" / "example" / "site.yml").read_text()
    plan = load_plan(tmp_path / "b")
    for part in (
        plan,
        plan.bmc,
        plan.maas,
        plan.ssh,
        plan.fabric,
        plan.images,
        plan.gate,
        plan.nodes[0],
        plan.racks[0],
    ):
        for name, info in type(part).model_fields.items():
            if not info.exclude:
                assert f"{info.alias or name}:" in text, name


def test_init_overwrites_nothing(metalyard, tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "README.md").write_text("mine")
    done = metalyard("init", str(tmp_path / "b"), on=None)
    assert done.exit_code == 2
    assert "README.md is there already" in done.stderr
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["README.md"]
    assert (tmp_path / "b" / "README.md").read_text() == "mine"


def test_init_refuses_a_name_that_maas_would_refuse(metalyard, tmp_path):
    assert metalyard("init", str(tmp_path / "b"), "--name", "Hall_1", on=None).exit_code == 2
    assert not (tmp_path / "b").exists()


# -- check ------------------------------------------------------------------------------------------------------------


def test_the_documented_example_is_accepted_offline(metalyard):
    done = metalyard("check", "--offline", on=ROOT / "inventory" / "example")
    assert done.exit_code == 0, done.output
    assert "8 nodes, 3 racks, 12 switches, 128 cables" in done.stdout


def test_check_offline_tells_a_profile_that_the_baseline_was_not_tested_with(metalyard, site):
    (site / "baselines").mkdir()
    (site / "baselines" / "odd.yml").write_text("name: odd\nprofiles: [other]\n")
    text = (site / "site.yml").read_text().replace("baseline: 2026.11-h100", "baseline: odd\nbaselines: baselines")
    (site / "site.yml").write_text(text)
    done = metalyard("check", "--offline")
    assert done.exit_code == 1
    assert "tested with other, not with dgx-h100" in done.stdout


def test_check_names_all_that_is_missing_and_changes_nothing(metalyard, site):
    before = sorted(site.rglob("*"))
    done = metalyard("check", "--json", "--limit", "gpu-r01-1")
    assert done.exit_code == 1
    answer = json.loads(done.stdout)
    failed = {(look["kind"], look["about"]): look for look in answer["looks"] if look["outcome"] == "failed"}
    assert not answer["ready"]
    assert ("credentials", "BMC factory password") in failed
    assert ("credentials", "MAAS API key") in failed
    assert ("certificates", "bmc.tls.ca") in failed
    assert ("ssh", "key") in failed
    assert ("BMC", "gpu-r01-1") in failed
    assert all(look["next_step"] for look in failed.values())
    assert sorted(site.rglob("*")) == before


# -- plan -------------------------------------------------------------------------------------------------------------


def test_plan_says_per_node_what_would_be_done(metalyard, ledger):
    bring(ledger, "gpu-r01-1", State.IN_SERVICE)
    bring(ledger, "gpu-r01-2", State.BMC_READY)
    quarantine(ledger, "gpu-r02-1")
    done = metalyard("plan", "--json")
    assert done.exit_code == 0
    kinds = {node["name"]: [stage["kind"] for stage in node["stages"]] for node in json.loads(done.stdout)["nodes"]}
    assert kinds["gpu-r01-1"] == ["look"] * 9
    assert kinds["gpu-r01-2"] == ["look"] * 2 + ["do"] * 7
    assert kinds["gpu-r02-1"] == ["pass_over"] * 9
    assert kinds["gpu-r02-2"] == ["do"] * 9
    shown = metalyard("plan").stdout
    assert "6 nodes to bring up, 1 to look at again, changed only where something is off, 1 set aside" in shown
    assert "metalyard release gpu-r02-1 --reason" in shown


def test_plan_of_one_node_and_stage_is_in_words(metalyard):
    done = metalyard("plan", "--limit", "gpu-r01-1", "--stage", "provision", "--stage", "discover")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines if line[0] in ("discover", "provision", "bmc")] == ["discover", "provision"]
    assert "enlist 0c:42:a1:00:01:01, commission, deploy bookworm" in done.stdout


def test_plan_agrees_with_what_the_stages_decide(metalyard, plan, ledger):
    """The forecast passes over exactly the nodes that a stage would pass over."""
    from metalyard.runs.stages import open_stage

    bring(ledger, "gpu-r01-1", State.IN_SERVICE)
    quarantine(ledger, "gpu-r01-2")
    with ledger.write() as book:
        book.move("gpu-r01-3", State.QUARANTINED, Actor.STAGE, run=RUN, reason="wrong serial")
        book.move("gpu-r01-4", State.IN_REPAIR, Actor.OPERATOR, run=None, reason="fan")
        book.move("gpu-r02-1", State.RETIRED, Actor.OPERATOR, run=None, reason="gone")
    bring(ledger, "gpu-r02-2", State.IN_SERVICE)
    with ledger.write() as book:
        book.move("gpu-r02-2", State.SPARE, Actor.OPERATOR, run=None, reason="reserve")
    names = [node.name for node in plan.nodes]
    decided = open_stage(plan, Stage.DISCOVER, names, check=True).decisions
    answer = json.loads(metalyard("plan", "--stage", "discover", "--json").stdout)
    foreseen = {node["name"]: node["stages"][0]["kind"] == "pass_over" for node in answer["nodes"]}
    assert foreseen == {name: decision.kind == "skip" for name, decision in decided.items()}
    assert sorted(name for name, passed in foreseen.items() if passed) == [
        "gpu-r01-2",
        "gpu-r01-4",
        "gpu-r02-1",
        "gpu-r02-2",
    ]


# -- status and report ------------------------------------------------------------------------------------------------


def test_status_says_where_why_and_what_next_in_one_line(metalyard, ledger):
    bring(ledger, "gpu-r01-1", State.IN_SERVICE)
    quarantine(ledger, "gpu-r02-1")
    done = metalyard("status")
    assert done.exit_code == 0
    row = next(line for line in done.stdout.splitlines() if line.startswith("gpu-r02-1"))
    assert "quarantined" in row
    assert "7 GPUs, expected 8" in row
    assert "virtual: 1 of 8 nodes in service" in done.stdout


def test_status_names_the_last_run_and_how_it_ended(metalyard, ledger):
    assert f"Last run {RUN} by " in metalyard("status").stdout
    with ledger.write() as book:
        book.end_run(RUN, "interrupted", "stopped")
    shown = metalyard("status").stdout
    assert ": interrupted. Next step: metalyard bringup --resume" in shown
    assert json.loads(metalyard("status", "--json").stdout)["run"]["outcome"] == "interrupted"


def test_status_before_any_run_says_so(metalyard):
    shown = metalyard("status").stdout
    assert "No run yet." in shown
    assert shown.count("Next step: metalyard bringup") == 1
    assert len(shown.splitlines()) == 11


def test_status_for_programs(metalyard, ledger):
    quarantine(ledger, "gpu-r02-1")
    answer = json.loads(metalyard("status", "--json", "--limit", "rack_r02").stdout)
    node = answer["nodes"][0]
    assert [entry["name"] for entry in answer["nodes"]] == [f"gpu-r02-{i}" for i in range(1, 5)]
    assert (node["state"], node["reason"], node["next_step"]) == ("quarantined", "7 GPUs, expected 8", "Reseat it.")
    assert answer["counts"] == {"planned": 3, "quarantined": 1}


def test_status_of_a_node_has_its_findings(metalyard, ledger):
    quarantine(ledger, "gpu-r02-1")
    answer = json.loads(metalyard("status", "gpu-r02-1", "--json").stdout)
    assert [(f["check"], f["outcome"], f["part"]) for f in answer["findings"]] == [("gpu.count", "fail", "gpu 5")]
    shown = metalyard("status", "gpu-r02-1").stdout
    for text in ("gpu.count", "gpu 5", "Reseat it.", "proving → quarantined"):
        assert text in shown


def test_status_says_who_holds_a_node(metalyard, ledger):
    with ledger.write() as book:
        book.take(["gpu-r01-1"], RUN, {"user": "kim", "host": "controller-2", "pid": 12})
    assert "held by kim@controller-2, process 12 since" in metalyard("status").stdout
    assert "kim@controller-2" in json.loads(metalyard("status", "gpu-r01-1", "--json").stdout)["held_by"]


def test_report_prints_the_path_of_a_page_with_every_node(metalyard, plan, ledger):
    quarantine(ledger, "gpu-r02-1")
    done = metalyard("report")
    assert done.exit_code == 0
    assert done.stdout == f"{plan.state_dir / 'report.html'}\n"
    page = Path(done.stdout.strip()).read_text()
    assert all(node.name in page for node in plan.nodes)
    assert "7 GPUs, expected 8" in page


def test_report_of_a_run_lies_in_its_folder(metalyard, plan, ledger):
    done = metalyard("report", "--run", "last")
    assert done.stdout == f"{plan.state_dir / 'runs' / RUN / 'report.html'}\n"
    assert RUN in Path(done.stdout.strip()).read_text()


def test_report_of_a_run_that_is_not_there(metalyard, ledger):
    done = metalyard("report", "--run", "20260101T000000Z-bringup-0000")
    assert done.exit_code == 2
    assert RUN in done.stderr


# -- release ----------------------------------------------------------------------------------------------------------


def test_release_takes_a_node_back_to_planned_with_its_reason(metalyard, ledger):
    quarantine(ledger, "gpu-r02-1")
    done = metalyard("release", "gpu-r02-1", "--reason", "GPU reseated")
    assert done.exit_code == 0, done.output
    assert "metalyard bringup --limit gpu-r02-1" in done.stdout
    with ledger.read() as view:
        here = view.state("gpu-r02-1")
        (decision,) = view.decisions("gpu-r02-1")
    assert (here.state, here.actor, here.reason) == (State.PLANNED, Actor.OPERATOR, "GPU reseated")
    assert (decision.kind, decision.reason) == ("release", "GPU reseated")
    again = metalyard("release", "gpu-r02-1", "--reason", "twice")
    assert again.exit_code == 0
    assert "planned already" in again.stdout


def test_release_of_a_node_in_service_is_refused(metalyard, ledger):
    bring(ledger, "gpu-r01-1", State.IN_SERVICE)
    done = metalyard("release", "gpu-r01-1", "--reason", "x")
    assert done.exit_code == 1
    assert "gpu-r01-1 is in_service" in done.stderr
    with ledger.read() as view:
        assert view.state("gpu-r01-1").state is State.IN_SERVICE
        assert view.decisions("gpu-r01-1") == []


def test_release_wants_a_reason(metalyard, ledger):
    quarantine(ledger, "gpu-r02-1")
    done = metalyard("release", "gpu-r02-1")
    assert done.exit_code == 2
    assert "--reason" in done.stderr


def test_release_leaves_a_node_that_another_run_holds(metalyard, ledger):
    quarantine(ledger, "gpu-r02-1")
    with ledger.write() as book:
        book.take(["gpu-r02-1"], RUN, Holder.of(1).as_dict())
    done = metalyard("release", "gpu-r02-1", "--reason", "x")
    assert done.exit_code == 4
    assert f"run {RUN}" in done.stderr
    with ledger.read() as view:
        assert view.state("gpu-r02-1").state is State.QUARANTINED


# -- virtual ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def rack(monkeypatch):
    """The virtual rack with its doors watched: what it is asked, in the real functions' own signatures."""
    asked = []

    def watch(name, answer=None):
        signature = inspect.signature(getattr(real_rack, name))

        def call(*given, **named):
            bound = signature.bind(*given, **named).arguments
            if "progress" in bound:
                bound.pop("progress")(f"{name} goes on")
            asked.append((name, {key: value for key, value in bound.items() if key not in ("plan", "home")}))
            assert bound["home"].name == "hall"
            return answer

        monkeypatch.setattr(real_rack, name, call)

    running = {"running": True, "scenario": "demo", "nodes": {"gpu-r01-1": {"power": "On", "container": "running"}}}
    running |= {
        "services": {"sm-1": "running"},
        "faults": [{"node": "gpu-r01-1", "fault": "gpu_hot"}],
        "problems": ["x"],
    }
    for name in ("up", "down", "fault", "clear"):
        watch(name)
    watch("status", running)
    return asked


def test_virtual_commands_reach_the_rack(metalyard, rack):
    up = metalyard("virtual", "up")
    assert (up.exit_code, up.stdout.splitlines()) == (0, ["up goes on", "Next step: metalyard bringup"])
    assert metalyard("virtual", "down").exit_code == 0
    assert metalyard("virtual", "fault", "gpu-r01-1", "gpu_off_bus", "index=5", "slot=a").exit_code == 0
    assert metalyard("virtual", "fault", "gpu-r01-1", "gpu_off_bus", "--clear").exit_code == 0
    assert rack == [
        ("up", {"scenario": "demo"}),
        ("down", {}),
        ("fault", {"node": "gpu-r01-1", "fault": "gpu_off_bus", "arguments": {"index": 5, "slot": "a"}}),
        ("clear", {"node": "gpu-r01-1", "fault": "gpu_off_bus"}),
    ]


def test_virtual_status_is_a_table_and_data(metalyard, rack):
    shown = metalyard("virtual", "status").stdout
    for text in ("gpu-r01-1", "On", "gpu_hot", "sm-1: running", "problem: x", "scenario demo"):
        assert text in shown
    assert json.loads(metalyard("virtual", "status", "--json").stdout)["running"]


def test_virtual_says_what_the_rack_says_is_wrong(metalyard, monkeypatch):
    def refused(*_given, **_named):
        raise real_rack.RackError("the virtual rack is not up: run 'metalyard virtual up'")

    monkeypatch.setattr(real_rack, "fault", refused)
    done = metalyard("virtual", "fault", "gpu-r01-1", "gpu_off_bus")
    assert done.exit_code == 1
    assert done.stderr == "the virtual rack is not up: run 'metalyard virtual up'\n"


def test_virtual_lists_the_faults_there_are(metalyard):
    assert "gpu_off_bus" in metalyard("virtual", "faults").stdout
    assert "wrong_serial" in json.loads(metalyard("virtual", "faults", "--json").stdout)


def test_virtual_fault_knows_the_plans_nodes_and_its_own_words(metalyard, rack):
    assert metalyard("virtual", "fault", "gpu-r09-1", "gpu_off_bus").exit_code == 2
    assert metalyard("virtual", "fault", "gpu-r01-1", "gpu_off_bus", "5").exit_code == 2
    assert rack == []


def test_a_lease_without_a_sign_of_life_is_shown_as_such(metalyard, ledger):
    with ledger.write() as book:
        book.take(["gpu-r01-1"], RUN, {"user": "kim", "host": "controller-2", "pid": 12})
        book.leases(["gpu-r01-1"])["gpu-r01-1"].heartbeat = stamp(moment(book.now) - timedelta(hours=1))
    assert "no longer alive" in metalyard("status").stdout
