"""Opens an engine over a journal, in workers of other processes too."""

from toolspeak.engines import open_engine
from toolspeak.journal import open_journal


def open_place(engine_url, journal_url):
    journal = open_journal(journal_url)
    return open_engine(engine_url, journal), journal
