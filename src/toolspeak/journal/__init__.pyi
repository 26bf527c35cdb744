# What `__init__.py` gives, for type checkers: a test holds the two together.

from toolspeak.journal.base import Journal, Lease, RunInfo, SearchHit, SessionInfo
from toolspeak.journal.journal_url import open_journal
from toolspeak.journal.memory_journal import MemoryJournal
from toolspeak.journal.sqlite import SqliteJournal

__all__ = [
    "Journal",
    "Lease",
    "MemoryJournal",
    "RunInfo",
    "SearchHit",
    "SessionInfo",
    "SqliteJournal",
    "open_journal",
]
