# What `__init__.py` gives, for type checkers: a test holds the two together.

from toolspeak.journal.base import Found, Journal, Lease, RunInfo, SessionInfo
from toolspeak.journal.memory import MemoryJournal
from toolspeak.journal.named import open_journal
from toolspeak.journal.sqlite import SqliteJournal

__all__ = [
    "Found",
    "Journal",
    "Lease",
    "MemoryJournal",
    "RunInfo",
    "SessionInfo",
    "SqliteJournal",
    "open_journal",
]
