"""Ledgers to test with: SQLite, and PostgreSQL where it is installed."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from private_postgresql import serve

from metalyard.ledger import Ledger


@pytest.fixture(scope="session")
def postgresql():
    yield from serve()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path, monkeypatch):
    """An empty database's URL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'state' / 'ledger.sqlite'}"
    server = request.getfixturevalue("postgresql")
    monkeypatch.setenv("PGPASSFILE", str(server.passfile))
    return server.create()


@pytest.fixture
def ledger(url):
    with Ledger(url) as opened:
        yield opened


HOLDER = {"user": "ada", "host": "controller", "pid": 4711, "started": 1}


@pytest.fixture
def run(ledger):
    """A run that has begun."""
    with ledger.write() as book:
        book.begin_run("R1", verb="bringup", site="test", holder=HOLDER, version="0")
    return "R1"
