"""Opening the ledger: migrations, two at once, and every way in which it can be refused."""

import multiprocessing
import os
import shutil
import sqlite3
import stat
import subprocess
import sys

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from private_postgresql import PASSWORD
from sqlalchemy import inspect, text

from metalyard.ledger import Ledger, LedgerError, store
from metalyard.ledger.schema import HEAD, MUTABLE, Base


def test_an_empty_database_gets_the_whole_schema(ledger):
    with ledger.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == HEAD


def test_head_is_the_newest_migration():
    config = Config()
    config.set_main_option("script_location", str(store.MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


def test_opening_again_imports_no_alembic(url):
    Ledger(url).close()
    program = (
        "import sys; from metalyard.ledger import Ledger; Ledger(sys.argv[1]).close();"
        "sys.exit(any(name.split('.')[0] == 'alembic' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program, url], timeout=60).returncode == 0


def _open(url, barrier, answers):
    barrier.wait(30)
    try:
        with Ledger(url) as ledger, ledger.read() as view:
            answers.put(len(view.runs()))
    except BaseException as error:
        answers.put(repr(error))


def test_processes_that_open_a_fresh_ledger_at_once_all_succeed(url):
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(4), context.Queue()
    processes = [context.Process(target=_open, args=(url, barrier, answers)) for _ in range(4)]
    for process in processes:
        process.start()
    results = [answers.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(30)
    assert results == [0, 0, 0, 0]


def test_sqlite_is_in_wal_mode_with_foreign_keys_and_for_its_owner(tmp_path):
    path = tmp_path / "ledger.sqlite"
    with Ledger(f"sqlite:///{path}") as ledger, ledger.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 30000
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_newer_schema_is_refused(url):
    with Ledger(url) as ledger, ledger.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(LedgerError, match=r"has schema 9999; this version of Metalyard knows 0001 and older.*Update"):
        Ledger(url)


def test_reading_makes_nothing_and_sees_an_empty_ledger(url, tmp_path):
    with Ledger(url, read_only=True) as ledger:
        with ledger.read() as view:
            assert view.states() == {}
            assert view.state("gpu-1").state == "planned"
        with pytest.raises(LedgerError, match="opened for reading"), ledger.write():
            pass
    assert list(tmp_path.iterdir()) == []
    if url.startswith("postgresql"):
        engine = store.engine_for(store.parse(url), timeout=5, read_only=True)
        assert inspect(engine).get_table_names() == []


def test_what_reads_cannot_write(ledger, url, run):
    with Ledger(url, read_only=True) as reader, reader.read() as view:
        assert view.run(run).verb == "bringup"
        with pytest.raises(Exception, match=r"read-?only"):
            view.session.execute(text("DELETE FROM lease"))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://ada:hunter2@db/ledger", "holds a password"),
        ("postgresql://ada@db/ledger?password=hunter2", "holds a password"),
        ("postgresql://ada@db/ledger?sslpassword=hunter2", "holds a password"),
        ("mysql://ada@db/ledger", "can't be kept in 'mysql'"),
        ("ledger.sqlite hunter2", "no database URL"),
    ],
)
def test_a_bad_url_is_refused_without_showing_a_secret(url, said):
    with pytest.raises(LedgerError, match=said) as caught:
        Ledger(url)
    assert "hunter2" not in str(caught.value)


def test_an_unreachable_server_is_said_in_seconds():
    with pytest.raises(LedgerError, match=r"can't be reached.*Check that the server runs"):
        Ledger("postgresql://ada@127.0.0.1:1/ledger", timeout=5)


def test_a_wrong_password_names_pgpassfile_and_not_the_password(postgresql, monkeypatch, tmp_path):
    url = postgresql.create()
    wrong = tmp_path / "pgpass"
    wrong.write_text(f"127.0.0.1:{postgresql.port}:*:metalyard:not-{PASSWORD}\n")
    wrong.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(wrong))
    with pytest.raises(LedgerError, match=r"refused the connection.*PGPASSFILE") as caught:
        Ledger(url)
    assert PASSWORD not in str(caught.value)


def test_a_missing_database_is_said(postgresql, monkeypatch):
    monkeypatch.setenv("PGPASSFILE", str(postgresql.passfile))
    with pytest.raises(LedgerError, match=r"\"nowhere\" does not exist.*createdb"):
        Ledger(postgresql.url("nowhere"))


def test_a_file_that_is_no_database_is_said(tmp_path):
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"my shopping list, longer than a header of SQLite" * 40)
    with pytest.raises(LedgerError, match="damaged or no ledger"):
        Ledger(f"sqlite:///{path}")


def test_a_read_only_file_is_said(tmp_path):
    path = tmp_path / "ledger.sqlite"
    Ledger(f"sqlite:///{path}").close()
    program = (
        "import sys; from metalyard.ledger import Ledger\n"
        "with Ledger(sys.argv[1]) as ledger, ledger.write() as book:\n"
        "    book.decide('gpu-1', 'ada', 'release', 'because')\n"
    )
    command = [sys.executable, "-c", program, f"sqlite:///{path}"]
    if os.geteuid() == 0:  # root may write anything: try as somebody who may not
        tmp_path.chmod(0o755)
        for above in list(tmp_path.parents)[:3]:
            above.chmod(above.stat().st_mode | 0o055)
        path.chmod(0o644)
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
    else:
        path.chmod(0o444)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "LedgerError: The ledger" in done.stderr
    assert "read-only for this user" in done.stderr or "can't be opened" in done.stderr


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "state").write_text("a file where a folder should be")
    with pytest.raises(LedgerError, match="can't be made"):
        Ledger(f"sqlite:///{tmp_path / 'state' / 'ledger.sqlite'}")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount the small disk that this test fills")
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_is_said_and_nothing_is_half_written(small_disk):
    with Ledger(f"sqlite:///{small_disk / 'ledger.sqlite'}") as ledger:
        kept = 0

        def fill():
            nonlocal kept
            for _ in range(200):
                with ledger.write() as book:
                    for _ in range(20):
                        book.decide("gpu-1", "ada", "note", "x" * 500)
                kept += 20

        with pytest.raises(LedgerError, match=r"disk that holds the ledger .* is full.*Free space"):
            fill()
        with ledger.read() as view:
            assert len(view.decisions()) == kept


def test_a_lock_held_too_long_is_said(tmp_path):
    path = tmp_path / "ledger.sqlite"
    with Ledger(f"sqlite:///{path}", timeout=0.2) as ledger:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="in use by another process"), ledger.write():
            pass
        other.execute("ROLLBACK")
        other.close()


def test_postgresql_writers_wait_for_each_other_and_not_for_ever(postgresql, monkeypatch):
    monkeypatch.setenv("PGPASSFILE", str(postgresql.passfile))
    url = postgresql.create()
    with Ledger(url) as first, Ledger(url, timeout=1) as second, first.write() as book:
        book.decide("gpu-1", "ada", "note", "first")
        with pytest.raises(LedgerError, match="busy for longer"), second.write():
            pass


def test_every_table_but_the_lease_is_history(ledger):
    with ledger.engine.connect() as connection:
        tables = set(inspect(connection).get_table_names()) - {"alembic_version"}
    assert tables == set(Base.metadata.tables)
    assert {"lease"} == MUTABLE
