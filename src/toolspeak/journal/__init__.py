"""Journals, which store the records of runs."""

# pyright: reportUnsupportedDunderAll=false

from toolspeak.lazy import lazy_names

_PLACES = {
    "SearchHit": "toolspeak.journal.base",
    "Journal": "toolspeak.journal.base",
    "Lease": "toolspeak.journal.base",
    "MemoryJournal": "toolspeak.journal.memory_journal",
    "RunInfo": "toolspeak.journal.base",
    "SessionInfo": "toolspeak.journal.base",
    "SqliteJournal": "toolspeak.journal.sqlite",
    "open_journal": "toolspeak.journal.journal_url",
}
"""The module of each public name. Each is imported on first use: a run in memory needs no database."""

__all__ = list(_PLACES)

__getattr__, __dir__ = lazy_names(__name__, _PLACES)
