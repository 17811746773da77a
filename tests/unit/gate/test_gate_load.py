"""How checks are found: in the package, in installed packages, in a folder; and the digest of the rules."""

import importlib.metadata
import sys

import gate_samples as s
import pytest

from metalyard.gate import CheckError, load_checks, rules_digest

CHECK = '''"""A check of the site."""

from metalyard.gate.check import check


@check("{id}", needs=("cpu",), source="our own", remedy="Ask {who}.")
def look(subject):
    """Looks."""
    yield subject.passed("looked")
'''


def write(folder, name="own.py", id="site.own", who="us"):
    (folder / name).write_text(CHECK.format(id=id, who=who))


def test_the_order_is_that_of_the_ids():
    ids = [one.id for one in load_checks()]
    assert ids == sorted(ids)
    assert len(ids) == len(set(ids))


def test_subsystems_of_the_package_are_all_there():
    assert {one.subsystem for one in load_checks()} >= {
        "gpu", "xid", "memory_errors", "nvlink", "fabric_manager", "infiniband", "cabling", "host", "clock",
        "services", "software", "bmc",
    }  # fmt: skip


def test_a_folder_of_the_site_adds_its_checks_and_they_judge(tmp_path):
    write(tmp_path)
    (tmp_path / "_helper.py").write_text("")
    checks = load_checks(tmp_path)
    assert len(checks) == len(s.CHECKS) + 1
    result = s.verdict(checks=checks)
    assert [f.summary for f in result.findings if f.check == "site.own"] == [f"{s.NODE.name}: looked"]
    assert s.against(result) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import no_such_module_anywhere", "ModuleNotFoundError"),
        ("def broken(:", "SyntaxError"),
        ("raise SystemError('x')", "SystemError"),
        ("x = 1", "holds no check"),
        ("from metalyard.gate.checks.gpu import count", "holds no check"),
        (CHECK.format(id="gpu.count", who="us"), "two checks have the id 'gpu.count'"),
        ("from metalyard.gate.check import check\ncheck('nodot', needs=('cpu',), source='x', remedy='y')", "subsystem"),
    ],
)
def test_a_file_that_can_not_be_used_stops_with_its_name(tmp_path, text, words):
    (tmp_path / "own.py").write_text(text)
    with pytest.raises(CheckError, match=words) as error:
        load_checks(tmp_path)
    assert "own.py" in str(error.value)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CheckError, match="is not a folder"):
        load_checks(tmp_path / "none")


def test_an_installed_package_adds_its_checks(tmp_path, monkeypatch):
    write(tmp_path, "house_checks.py", "house.own")
    monkeypatch.syspath_prepend(tmp_path)
    point = importlib.metadata.EntryPoint("house", "house_checks", "metalyard.checks")
    monkeypatch.setattr(
        "metalyard.gate.load.entry_points", lambda group: [point] if group == "metalyard.checks" else []
    )
    assert "house.own" in [one.id for one in load_checks()]
    sys.modules.pop("house_checks")


def test_an_installed_package_that_breaks_is_named(monkeypatch):
    point = importlib.metadata.EntryPoint("house", "no_such_module_anywhere", "metalyard.checks")
    monkeypatch.setattr("metalyard.gate.load.entry_points", lambda group: [point])
    with pytest.raises(CheckError, match="house"):
        load_checks()


def test_the_digest_names_the_rules(tmp_path):
    write(tmp_path)
    own = rules_digest(load_checks(tmp_path))
    assert rules_digest(load_checks()) == rules_digest(tuple(reversed(load_checks())))
    assert own != rules_digest(load_checks())
    write(tmp_path, who="them")
    assert rules_digest(load_checks(tmp_path)) != own
    assert rules_digest(load_checks()[1:]) != rules_digest(load_checks())


def test_code_of_a_check_that_changes_changes_the_digest(tmp_path):
    write(tmp_path)
    before = rules_digest(load_checks(tmp_path))
    path = tmp_path / "own.py"
    path.write_text(path.read_text().replace('"looked"', '"did not look"'))
    assert rules_digest(load_checks(tmp_path)) != before
