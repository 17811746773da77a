"""A site of its own for each test of the command line, and the commands as a person calls them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from metalyard.cli.app import cli

ROOT = Path(__file__).parents[3]
VIRTUAL = ROOT / "inventory" / "virtual" / "site.yml"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a copy of the virtual rack's plan, with everything it refers to below it."""
    for name in ("METALYARD_SITE", "METALYARD_DEBUG", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "hall"
    folder.mkdir()
    text = VIRTUAL.read_text().replace("../../build/virtual/", "").replace("127.0.0.1:5240", "127.0.0.1:9")
    (folder / "site.yml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def metalyard(site: Path) -> Callable[..., Result]:
    """Run ``metalyard`` with these words on the site; ``on=None`` leaves out the plan."""

    def run(*words: str, on: Path | None = site) -> Result:
        plan = ["-i", str(on)] if on else []
        return CliRunner().invoke(cli, [*plan, *words], prog_name="metalyard")

    return run
