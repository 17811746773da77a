"""What can go wrong with the ledger, said so that an operator knows the next step. No password is ever in it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc


class LedgerError(Exception):
    """The ledger can't be read or written; ``message`` says what was seen, ``next_step`` what to do."""

    def __init__(self, message: str, next_step: str) -> None:
        super().__init__(f"{message} {next_step}")
        self.message = message
        self.next_step = next_step


class HistoryError(LedgerError):
    """What was asked for would contradict the history: a state that can't follow, a lease that is another's."""


_DISK_FULL = "Free space there, then run the same command again; it goes on where this one stopped."
_READ_ONLY = "Give this user the right to write the file and its folder, or run as the user that owns them."


def _sqlite(name: str, detail: str, where: str) -> LedgerError:
    """What SQLite's error code means to an operator."""
    if name.startswith("SQLITE_FULL"):
        return LedgerError(f"The disk that holds the ledger {where} is full.", _DISK_FULL)
    if name.startswith("SQLITE_READONLY"):
        return LedgerError(f"The ledger {where} can't be written: it is read-only for this user.", _READ_ONLY)
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        return LedgerError(f"The ledger {where} can't be opened.", f"Check that its folder exists. {_READ_ONLY}")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return LedgerError(
            f"The ledger {where} was in use by another process for longer than this one waits.",
            "Find what holds it (`fuser` on the file), then run the same command again.",
        )
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return LedgerError(
            f"The file {where} is damaged or no ledger.",
            "Restore it from a backup, or move it away to begin a new history.",
        )
    if name.startswith("SQLITE_IOERR"):
        return LedgerError(f"The disk that holds the ledger {where} gave an error ({name}).", "Check the disk.")
    return LedgerError(f"The ledger {where} refused a statement: {detail}.", "This is a defect: report it.")


def _postgresql(state: str | None, detail: str, where: str) -> LedgerError:
    """What PostgreSQL's SQLSTATE means to an operator; None where no server answered."""
    if state is None and ("FATAL" in detail or "password" in detail):  # refused: libpq gives no code then
        return LedgerError(
            f"The ledger's database at {where} refused the connection: {detail}.",
            "Check user and database in the plan's `ledger` (`createdb` makes one); the password belongs into the file "
            "that PGPASSFILE names (mode 0600), or into PGPASSWORD.",
        )
    if state is None or state.startswith("08") or state in ("57P01", "57P02", "57P03"):
        return LedgerError(
            f"The ledger's database at {where} can't be reached: {detail}.",
            "Check that the server runs, and the address, port and database in the plan's `ledger`.",
        )
    if state.startswith("53"):
        return LedgerError(f"The ledger's database at {where} has no room left: {detail}.", _DISK_FULL)
    if state in ("25006", "42501"):
        return LedgerError(
            f"The ledger's database at {where} can't be written: {detail}.",
            "Connect to the primary server as a user that may create and fill tables there.",
        )
    if state in ("55P03", "57014", "40P01"):
        return LedgerError(
            f"The ledger's database at {where} was busy for longer than this process waits: {detail}.",
            "Look at pg_stat_activity for what holds it, then run the same command again.",
        )
    return LedgerError(f"The ledger at {where} refused a statement: {detail}.", "This is a defect: report it.")


def explain(error: exc.SQLAlchemyError, where: str) -> LedgerError:
    """The same error in words for an operator; ``where`` is the URL without a password."""
    original = getattr(error, "orig", None)
    if isinstance(original, sqlite3.Error):
        return _sqlite(getattr(original, "sqlite_errorname", "") or "", str(original), where)
    if original is not None:
        detail = " ".join(str(original).split()).rstrip(".")
        return _postgresql(getattr(original, "sqlstate", None), detail, where)
    return LedgerError(f"The ledger {where} can't be used: {type(error).__name__}.", "This is a defect: report it.")


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turn any database error of the block into a :class:`LedgerError`."""
    try:
        yield
    except exc.SQLAlchemyError as error:
        raise explain(error, where) from error
    except sqlite3.Error as error:
        raise _sqlite(getattr(error, "sqlite_errorname", "") or "", str(error), where) from error
