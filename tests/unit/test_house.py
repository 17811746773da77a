"""The rules of the house: arrows point one way, files are short and say what they are for."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "metalyard"
PURE = {"plan": set(), "gate": {"plan", "fabric"}, "fabric": {"plan"}}
ALLOWED = {
    **PURE,
    "files.py": set(),
    "sweep.py": {"plan"},
    "secrets": {"plan", "files.py"},
    "redfish": {"plan", "sweep.py", "secrets", "files.py"},
    "maas": {"plan", "sweep.py", "secrets", "files.py"},
    "ledger": {"plan", "gate"},
    "runs": {"plan", "sweep.py", "secrets", "files.py", "gate", "fabric", "ledger", "redfish", "maas"},
    "report": {"plan", "gate", "fabric", "ledger", "runs", "files.py"},
    "virtual": {"plan", "files.py"},
}
INPUT_OUTPUT = {"socket", "subprocess", "aiohttp", "httpx", "sqlalchemy", "asyncio", "requests", "urllib"}
FILES = sorted(path for path in SOURCE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0]


def imports(path: Path) -> set[str]:
    found = set()
    for item in ast.walk(ast.parse(path.read_text())):
        if isinstance(item, ast.Import):
            found |= {alias.name for alias in item.names}
        elif isinstance(item, ast.ImportFrom) and item.module and item.level == 0:
            found |= {f"{item.module}.{alias.name}" for alias in item.names} | {item.module}
    return found


def rooms(path: Path) -> set[str]:
    names = {name.split(".")[1] for name in imports(path) if name.startswith("metalyard.")}
    return {f"{name}.py" if (SOURCE / f"{name}.py").exists() else name for name in names} - {"__version__"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_arrows_point_one_way(path):
    here = room(path)
    if here in ("cli", "__init__.py"):
        return
    assert rooms(path) - {here} <= ALLOWED[here]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_is_short_and_says_what_it_is_for(path):
    text = path.read_text()
    assert text.count("\n") <= 520
    assert ast.get_docstring(ast.parse(text)), "the first line says the file's purpose"


@pytest.mark.parametrize("path", [p for p in FILES if room(p) in PURE], ids=lambda path: str(path.relative_to(SOURCE)))
def test_policy_does_no_input_or_output(path):
    assert not {name.split(".")[0] for name in imports(path)} & INPUT_OUTPUT
