"""Bad input and bad luck at the command line: a short text, one next step, the right exit code, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from metalyard.cli import failures
from metalyard.cli.app import cli
from metalyard.ledger import Ledger
from metalyard.plan import load_plan


def edit(site, old, new):
    file = site / "site.yml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


EVERY = [
    ("check", "--offline"),
    ("plan",),
    ("bringup",),
    ("status",),
    ("report",),
    ("release", "gpu-r01-1", "--reason", "x"),
]


@pytest.mark.parametrize("words", EVERY, ids=lambda words: words[0])
def test_a_typo_in_the_plan_names_file_line_and_field(metalyard, site, words):
    edit(site, "serial:", "serail:")
    line = (site / "site.yml").read_text().splitlines().index('    serail: "1660623000001"') + 1
    done = metalyard(*words)
    assert done.exit_code == 1
    assert (
        f"site.yml:{line}: nodes[gpu-r01-1].serail: is not a field of the plan; did you mean 'serial'?" in done.stderr
    )
    assert "Next step:" in done.stderr
    assert "Traceback" not in done.output


@pytest.mark.parametrize("words", EVERY, ids=lambda words: words[0])
def test_a_missing_plan_is_said(metalyard, site, words):
    done = metalyard(*words, on=site / "nowhere.yml")
    assert done.exit_code == 1
    assert "nowhere.yml: no such file" in done.stderr


@pytest.mark.parametrize(
    "words", [("check", "--offline"), ("plan",), ("bringup",), ("status",)], ids=lambda words: words[0]
)
def test_a_limit_that_names_nothing_is_no_silent_success(metalyard, words):
    done = metalyard(*words, "--limit", "gpu-r01-9")
    assert done.exit_code == 1
    assert "no node or group 'gpu-r01-9'" in done.stderr
    assert "Did you mean gpu-r01-" in done.stderr


@pytest.mark.parametrize(
    "words", [("status", "gpu-r1-1"), ("release", "gpu-r1-1", "--reason", "x")], ids=lambda words: words[0]
)
def test_an_unknown_node_gets_the_closest_names(metalyard, words):
    done = metalyard(*words)
    assert done.exit_code == 2
    assert "has no node 'gpu-r1-1'" in done.stderr
    assert "gpu-r01-1" in done.stderr


def test_an_unknown_stage_is_a_usage_error(metalyard):
    done = metalyard("bringup", "--stage", "polish")
    assert done.exit_code == 2
    assert "discover" in done.stderr


def test_many_problems_are_told_at_once_but_not_all(metalyard, site):
    text = (site / "site.yml").read_text().replace("    serial:", "    serail:")
    (site / "site.yml").write_text(text.replace("    unit:", "    unti:").replace("    boot_mac:", "    bootmac:"))
    done = metalyard("check")
    lines = [line for line in done.stderr.splitlines() if "site.yml:" in line]
    assert len(lines) == failures.MANY
    assert "more" in done.stderr


def test_a_ledger_that_is_no_database_is_said(metalyard, site):
    state = load_plan(site).state_dir
    state.mkdir(parents=True)
    (state / "ledger.sqlite").write_text("not a database, but long enough to look like one " * 40)
    done = metalyard("status")
    assert done.exit_code == 1
    assert "damaged or no ledger" in done.stderr
    assert "Next step: Restore it" in done.stderr


def test_several_plans_want_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("METALYARD_SITE", raising=False)
    for name in ("one", "two"):
        (tmp_path / "inventory" / name).mkdir(parents=True)
        (tmp_path / "inventory" / name / "site.yml").write_text("site: x\n")
    done = CliRunner().invoke(cli, ["status"])
    assert done.exit_code == 2
    assert "inventory/one, inventory/two" in done.stderr


def test_no_plan_at_all_says_how_to_make_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("METALYARD_SITE", raising=False)
    done = CliRunner().invoke(cli, ["status"])
    assert done.exit_code == 2
    assert "metalyard init" in done.stderr


def test_the_plan_is_found_by_option_variable_and_folder(site, monkeypatch, tmp_path):
    (tmp_path / "site.yml").write_text((site / "site.yml").read_text().replace("site: virtual", "site: here"))
    (tmp_path / "inventory").mkdir()
    assert "here:" in CliRunner().invoke(cli, ["status"]).stdout
    (tmp_path / "inventory" / "site.yml").write_text(
        (site / "site.yml").read_text().replace("site: virtual", "site: lone")
    )
    assert "lone:" in CliRunner().invoke(cli, ["status"]).stdout
    monkeypatch.setenv("METALYARD_SITE", str(site))
    assert "virtual:" in CliRunner().invoke(cli, ["status"]).stdout
    assert "here:" in CliRunner().invoke(cli, ["status", "-i", "site.yml"]).stdout
    assert "here:" in CliRunner().invoke(cli, ["-i", "site.yml", "status"]).stdout
    assert "here:" in CliRunner().invoke(cli, ["-i", str(site), "status", "-i", "site.yml"]).stdout


def test_a_defect_is_one_line_and_the_way_to_its_traceback(metalyard, monkeypatch):
    def broken(*_args, **_more):
        raise RuntimeError("the dishes are done")

    monkeypatch.setattr("metalyard.report.data.build", broken)
    done = metalyard("status")
    assert done.exit_code == 1
    assert "unexpected RuntimeError: the dishes are done" in done.stderr
    assert "METALYARD_DEBUG=1" in done.stderr
    monkeypatch.setenv("METALYARD_DEBUG", "1")
    assert isinstance(metalyard("status").exception, RuntimeError)


def test_a_file_that_can_not_be_written_is_said(metalyard, site):
    done = metalyard("report", "--output", str(site / "site.yml" / "report.html"))
    assert done.exit_code == 1
    assert "Not a directory" in done.stderr or "File exists" in done.stderr


def test_ctrl_c_says_how_to_go_on(metalyard, monkeypatch):
    def interrupted(*_args, **_more):
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.argv", ["metalyard", "bringup", "--limit", "rack_r01,rack r02"])
    monkeypatch.setattr("metalyard.runs.execute.bringup", interrupted)
    done = metalyard("bringup")
    assert done.exit_code == 130
    assert "metalyard bringup --limit 'rack_r01,rack r02'" in done.stderr


def test_help_and_version_need_no_site(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(cli, ["--help"])
    assert shown.exit_code == 0
    for word in ("init", "check", "plan", "bringup", "status", "report", "release", "virtual", "Exit codes"):
        assert word in shown.stdout
    version = CliRunner().invoke(cli, ["--version"], prog_name="metalyard")
    assert version.exit_code == 0
    assert version.stdout.startswith("metalyard, version ")
    for command in cli.commands:
        assert CliRunner().invoke(cli, [command, "--help"]).exit_code == 0


def test_reading_commands_leave_no_ledger_behind(metalyard, site):
    for words in (("status",), ("plan",)):
        assert metalyard(*words).exit_code == 0
    assert not load_plan(site).state_dir.exists()
    with Ledger(load_plan(site).ledger_url) as ledger, ledger.read() as view:
        assert view.states() == {}


def test_the_command_itself_works_in_an_old_locale(site):
    words = [sys.executable, "-c", "from metalyard.cli import main; main()", "-i", str(site), "status"]
    environment = {**os.environ, "LC_ALL": "en_US.ISO-8859-1", "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(words, env=environment, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert b"gpu-r01-1" in done.stdout


def test_a_reader_that_goes_away_is_no_traceback(site):
    words = f"{sys.executable} -c 'from metalyard.cli import main; main()' -i {site} status | true"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
