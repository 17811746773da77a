"""Holds each role to the house's form: described variables, prefixes, and a README that says what is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import role_tables as tables
import yaml

NAMES = sorted(path.parents[1].name for path in tables.ROLES.glob("*/meta/main.yml"))
IN_BAND = [name for name in NAMES if (tables.ROLES / name / "README.md").exists()]
NOTHING = object()


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text()) if path.exists() else None


def defaults(role: str) -> dict[str, Any]:
    return read(tables.ROLES / role / "defaults" / "main.yml") or {}


def options(role: str) -> dict[str, Any]:
    return tables.specs_of(tables.ROLES / role)["main"]["options"] or {}


def task_files(role: str) -> list[Path]:
    return sorted((tables.ROLES / role / "tasks").glob("*.yml"))


def tasks(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All tasks of a file, those inside blocks too."""
    found = []
    for entry in entries:
        found.append(entry)
        for part in ("block", "rescue", "always"):
            found += tasks(entry.get(part, []))
    return found


def test_there_are_roles() -> None:
    assert {"time_sync", "gpu_driver", "container_images", "bmc"} <= set(NAMES)


@pytest.mark.parametrize("role", NAMES)
def test_defaults_and_specs_are_the_same(role: str) -> None:
    described = {name: option.get("default", NOTHING) for name, option in options(role).items()}
    assert {name: value for name, value in described.items() if value is not NOTHING} == defaults(role)


@pytest.mark.parametrize("role", NAMES)
def test_an_option_is_required_or_has_a_default(role: str) -> None:
    for name, option in options(role).items():
        assert option.get("required", False) != ("default" in option), name
        assert option["description"], name


@pytest.mark.parametrize("role", NAMES)
def test_other_entry_points_take_the_same_options(role: str) -> None:
    main = options(role)
    for entry, spec in tables.specs_of(tables.ROLES / role).items():
        assert (tables.ROLES / role / "tasks" / f"{entry}.yml").exists(), entry
        for name, option in (spec.get("options") or {}).items():
            assert name in main, f"{entry}: {name}"
            assert option.get("default") == main[name].get("default"), f"{entry}: {name}"
            assert option["type"] == main[name]["type"], f"{entry}: {name}"


@pytest.mark.parametrize("role", NAMES)
def test_variables_carry_the_roles_name(role: str) -> None:
    for name in [*defaults(role), *options(role)]:
        assert name.startswith(f"{role}_"), name
    for name in read(tables.ROLES / role / "vars" / "main.yml") or {}:
        assert name.startswith(f"__{role}_"), name


@pytest.mark.parametrize("role", IN_BAND)
def test_what_a_role_uses_is_described(role: str) -> None:
    """A variable that a task or template names is an option, or an internal one that is set somewhere."""
    folder = tables.ROLES / role
    files = [path for part in ("tasks", "handlers", "templates", "vars") for path in (folder / part).glob("*")]
    text = "\n".join(path.read_text() for path in files)
    # Comments name the role itself, and loops have their own names.
    used = set(re.findall(rf"\b{role}_\w+", re.sub(r"(?m)^\s*#.*$", "", text)))
    assert used <= set(options(role)), sorted(used - set(options(role)))
    internal = set(re.findall(rf"\b__{role}_\w+", text))
    unset = {name for name in internal if not re.search(rf"(register: {name}\b|(?m:^ *{name}:)|set {name}\b)", text)}
    assert not unset, sorted(unset)


@pytest.mark.parametrize("role", IN_BAND)
def test_the_readme_shows_the_variables(role: str) -> None:
    text = (tables.ROLES / role / "README.md").read_text()
    assert tables.filled(text, tables.specs_of(tables.ROLES / role)) == text, "run tests/unit/roles/role_tables.py"


@pytest.mark.parametrize("role", IN_BAND)
def test_a_scenario_sees_the_role_refuse_something(role: str) -> None:
    scenario = tables.ROLES / role / "molecule" / "default"
    found = tasks([task for play in read(scenario / "verify.yml") for task in play["tasks"]])
    refusals = [task for task in found if "rescue" in task]
    assert refusals
    for task in refusals:
        assert any("ansible.builtin.fail" in step for step in task["block"]), task["name"]
        assert any("ansible.builtin.assert" in step for step in tasks(task["rescue"])), task["name"]
    for task in found:
        claims = task.get("ansible.builtin.assert", {}).get("that", [])
        assert claims not in (True, "true"), task["name"]


@pytest.mark.parametrize("role", IN_BAND)
def test_files_of_tasks_are_short_and_say_what_they_are_for(role: str) -> None:
    for path in [*task_files(role), *(tables.ROLES / role / "handlers").glob("*.yml")]:
        lines = path.read_text().splitlines()
        assert lines[0].startswith("# "), path
        assert len(lines) <= 130, path


@pytest.mark.parametrize("role", IN_BAND)
def test_only_modules_that_come_with_ansible_or_with_us(role: str) -> None:
    for path in [*task_files(role), *(tables.ROLES / role / "handlers").glob("*.yml")]:
        for task in tasks(read(path)):
            modules = [key for key in task if "." in key]
            assert all(key.startswith(("ansible.builtin.", "metalyard.fleet.")) for key in modules), task["name"]
            assert "ansible.builtin.shell" not in modules, task["name"]


def test_a_table_is_held_against_the_specs() -> None:
    specs = {"main": {"options": {"x_y": {"type": "int", "default": 3, "description": "Seconds; see O(x_z)."}}}}
    text = tables.filled(f"# x\n\n{tables.BEGIN}\nold\n{tables.END}\n", specs)
    assert "| `x_y` | int | `3` | Seconds; see `x_z`. |" in text
    assert "old" not in text
    with pytest.raises(ValueError, match="expected a line"):
        tables.filled("# x\n", specs)
