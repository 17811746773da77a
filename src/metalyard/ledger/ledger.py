"""One ledger, opened: transactions that read, and transactions that add."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from sqlalchemy.orm import Session

from metalyard.ledger.book import Book
from metalyard.ledger.errors import LedgerError, explained
from metalyard.ledger.store import WRITES, open_engine
from metalyard.ledger.view import View


class Ledger:
    """The ledger at a URL, of the newest schema. Use as a context manager, or call :meth:`close`.

    :class:`~metalyard.ledger.errors.LedgerError` says what is wrong: not reachable, a password in the URL, a newer
    schema, read-only, no room. No wait is longer than about ``timeout`` seconds.
    """

    def __init__(self, url: str, *, read_only: bool = False, timeout: float = 30.0) -> None:
        self.engine, self.where = open_engine(url, timeout=timeout, read_only=read_only)
        self.read_only = read_only

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _t: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database."""
        self.engine.dispose()

    @contextmanager
    def read(self) -> Iterator[View]:
        """A transaction that only reads; the rows it gave stay usable after it."""
        with (
            explained(self.where),
            self.engine.connect() as connection,
            connection.begin(),
            Session(connection, expire_on_commit=False, autoflush=False) as session,
        ):
            yield View(session)

    @contextmanager
    def write(self) -> Iterator[Book]:
        """One transaction that adds; all of it is kept, or, after any exception, nothing. One writer at a time."""
        if self.read_only:
            raise LedgerError(f"The ledger {self.where} was opened for reading.", "This is a defect: report it.")
        with (
            explained(self.where),
            self.engine.connect().execution_options(**{WRITES: True}) as connection,
            connection.begin(),
            Session(connection, expire_on_commit=False) as session,
        ):
            yield Book(session)
            session.flush()
