"""A small site whose state is in a fresh folder, with a ledger in SQLite, and in PostgreSQL where it is installed."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "ledger"))
sys.path.insert(0, str(Path(__file__).parent))

from private_postgresql import serve
from staged_rack import SITE

from metalyard.ledger import Ledger
from metalyard.plan import load_plan


@pytest.fixture(scope="session")
def postgresql():
    yield from serve()


@pytest.fixture(scope="session")
def site():
    """The virtual rack's plan, read once."""
    return load_plan(SITE)


@pytest.fixture(scope="session")
def empty_ledger(tmp_path_factory):
    """A SQLite ledger without a row, to be copied: making one takes a tenth of a second."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.sqlite"
    Ledger(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def plan(site, empty_ledger, tmp_path):
    """A site with nothing in its ledger."""
    state = tmp_path / "state"
    state.mkdir()
    shutil.copy(empty_ledger, state / "ledger.sqlite")
    return site.model_copy(update={"state": state})


@pytest.fixture(params=["sqlite", "postgresql"])
def any_plan(request, site, tmp_path, monkeypatch):
    """The same with each database."""
    if request.param == "sqlite":
        return request.getfixturevalue("plan")
    server = request.getfixturevalue("postgresql")
    monkeypatch.setenv("PGPASSFILE", str(server.passfile))
    return site.model_copy(update={"state": tmp_path / "state", "ledger": server.create()})
