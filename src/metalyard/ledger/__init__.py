"""The ledger: append-only history of stages, verdicts, transitions and parts. The only code at the database."""

from metalyard.ledger.book import Book, PartSeen
from metalyard.ledger.errors import HistoryError, LedgerError
from metalyard.ledger.ledger import Ledger
from metalyard.ledger.view import RunView, StageView, Standing, View

__all__ = [
    "Book",
    "HistoryError",
    "Ledger",
    "LedgerError",
    "PartSeen",
    "RunView",
    "StageView",
    "Standing",
    "View",
]
