"""Opens the ledger's database: SQLite by default, PostgreSQL by URL; brought to the newest schema under a lock.

A write is one transaction at a time on both: SQLite by ``BEGIN IMMEDIATE``, PostgreSQL by an advisory lock. Stage calls
are short, and what they decide (whose lease, which state) then needs no retry.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool, StaticPool

from metalyard.ledger.errors import LedgerError, explained
from metalyard.ledger.schema import HEAD

MIGRATIONS = Path(__file__).parent / "migrations"
ADVISORY_KEY = 0x4D45_5441_4C59
"""PostgreSQL's advisory lock for writing the ledger."""
WRITES = "metalyard_writes"


def parse(text_url: str) -> URL:
    """The URL, with the driver this package uses; refuses a password in it."""
    try:
        url = make_url(text_url)
    except ArgumentError:
        raise LedgerError(
            "The plan's `ledger` is no database URL.",
            "Write sqlite:////absolute/path or postgresql://user@host/database, without a password.",
        ) from None
    if url.password is not None or any("password" in key for key in url.query):
        raise LedgerError(
            f"The ledger's URL {URL.create(url.drivername, url.username, None, url.host, url.port, url.database)} "
            "holds a password.",
            "Take it out of the plan; put it into the file that PGPASSFILE names, or into PGPASSWORD.",
        )
    backend = url.get_backend_name()
    if backend == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if backend == "sqlite":
        return url.set(drivername="sqlite+pysqlite")
    raise LedgerError(f"The ledger can't be kept in '{backend}'.", "Use sqlite:// or postgresql://.")


def _sqlite_engine(url: URL, timeout: float, read_only: bool) -> Engine:
    if url.database in (None, "", ":memory:"):
        engine = create_engine("sqlite+pysqlite://", poolclass=StaticPool)
        query_only = False
    else:
        path = Path(str(url.database)).absolute()
        mode = "ro" if read_only else "rwc"
        target = f"{path.as_uri()}?mode={mode}"
        engine = create_engine(
            "sqlite+pysqlite://",
            creator=lambda: sqlite3.connect(target, uri=True, timeout=timeout, check_same_thread=False),
            poolclass=NullPool,
        )
        query_only = read_only

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # transactions are begun below, not guessed by the driver
        connection.execute(f"PRAGMA busy_timeout = {int(timeout * 1000)}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA recursive_triggers = ON")  # so that REPLACE meets the append-only triggers
        connection.execute("PRAGMA synchronous = FULL")
        if query_only:
            connection.execute("PRAGMA query_only = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgresql_engine(url: URL, timeout: float, read_only: bool) -> Engine:
    arguments = {
        "connect_timeout": max(2, min(10, int(timeout))),
        "tcp_user_timeout": int(timeout * 1000),
        "application_name": "metalyard",
        "options": f"-c lock_timeout={int(timeout * 1000)} -c statement_timeout={int(timeout * 2000)}"
        f" -c default_transaction_read_only={'on' if read_only else 'off'}",
    }
    try:
        engine = create_engine(url, poolclass=NullPool, connect_args=arguments)
    except ModuleNotFoundError:
        raise LedgerError(
            f"The ledger {url} needs PostgreSQL's driver, which is not installed.",
            "Run `pip install 'metalyard[postgresql]'`.",
        ) from None

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get(WRITES):
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_KEY})

    return engine


def engine_for(url: URL, *, timeout: float, read_only: bool) -> Engine:
    """An engine whose every wait ends after about ``timeout`` seconds."""
    maker = _sqlite_engine if url.get_backend_name() == "sqlite" else _postgresql_engine
    return maker(url, timeout, read_only)


def _schema(connection: Connection) -> str | None:
    """The schema's version; None for an empty database."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return version


def _known(version: str | None, where: str) -> None:
    """Refuse a schema that a newer version wrote. Versions are numbers of four digits."""
    if version is not None and version > HEAD:
        raise LedgerError(
            f"The ledger {where} has schema {version}; this version of Metalyard knows {HEAD} and older.",
            "Update Metalyard on this machine; a newer one has written to this ledger.",
        )


def upgrade(connection: Connection) -> None:
    """Bring the schema to the newest version, in the transaction that the connection is in."""
    from alembic import command  # 0.3 s to import; only an upgrade needs it
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    command.upgrade(config, "head")


@contextmanager
def _first_opening(path: Path, timeout: float, where: str) -> Iterator[None]:
    """One process at a time switches a fresh SQLite file to WAL: two that try at once get an error, not a wait."""
    deadline = time.monotonic() + timeout
    try:
        handle = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LedgerError(
            f"The ledger {where} can't be made: {error.strerror} in {path.parent}.",
            "Give this user the right to write there, or name another `state` folder in the plan.",
        ) from error
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LedgerError(
                        f"Another process has been making the ledger {where} for {timeout:.0f} s.",
                        "Find it (`fuser` on the lock file beside the ledger), then run the same command again.",
                    ) from None
                time.sleep(0.05)
        yield
    finally:
        os.close(handle)


def _wal(path: Path, timeout: float) -> None:
    connection = sqlite3.connect(path, timeout=timeout)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()
    path.chmod(0o600)


def open_engine(text_url: str, *, timeout: float = 30.0, read_only: bool = False) -> tuple[Engine, str]:
    """An engine on a database of the newest schema, and its URL as it may be shown.

    ``read_only`` changes nothing: a database that is not there yet, or has no tables, reads as an empty ledger.
    """
    url = parse(text_url)
    where = url.render_as_string(hide_password=True).replace("+pysqlite", "").replace("+psycopg", "")
    path = None
    if url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:"):
        path = Path(str(url.database)).absolute()
        where = str(path)
    engine = engine_for(url, timeout=timeout, read_only=read_only)
    try:
        with explained(where):
            version = None
            if path is None or path.exists():
                with engine.connect() as connection:
                    version = _schema(connection)
                _known(version, where)
            if version == HEAD:
                return engine, where
            if not read_only:
                _make(engine, path, timeout, where)
                return engine, where
    except BaseException:
        engine.dispose()
        raise
    engine.dispose()
    if version is None:
        return open_engine("sqlite://", timeout=timeout)[0], where
    raise LedgerError(
        f"The ledger {where} has schema {version}, and a command that only reads may not bring it to {HEAD}.",
        "Run a command that writes first, such as `metalyard bringup` without --check.",
    )


def _make(engine: Engine, path: Path | None, timeout: float, where: str) -> None:
    """Make the database's tables, or bring them to the newest schema."""
    if path is None:
        _upgrade(engine, where)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise LedgerError(
            f"The ledger's folder {path.parent} can't be made: {error.strerror}.",
            "Give this user the right to make it, or name another `state` folder in the plan.",
        ) from error
    with _first_opening(path, timeout, where):
        _wal(path, timeout)
        _upgrade(engine, where)


def _upgrade(engine: Engine, where: str) -> None:
    with engine.connect().execution_options(**{WRITES: True}) as connection, connection.begin():
        version = _schema(connection)
        _known(version, where)
        if version != HEAD:
            upgrade(connection)
