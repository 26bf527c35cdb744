"""Which journal a place names."""

from __future__ import annotations

import importlib
from pathlib import Path

from toolspeak.errors import ConfigurationError
from toolspeak.journal.base import Journal
from toolspeak.journal.sqlite import SqliteJournal


def open_journal(where: str | Path) -> Journal:
    """The journal a path (SQLite) or a `postgresql://` URL names; nothing is opened before it is used.

    Raises ConfigurationError for a URL of another kind, and when the extra `postgres` is not installed.
    """
    scheme, separator, _ = str(where).partition("://")
    if not separator:
        return SqliteJournal(where)
    if scheme not in ("postgresql", "postgres"):
        raise ConfigurationError(f"a journal is a file or a postgresql:// URL, not {scheme}://")
    try:
        # asyncpg is an extra, and heavy: nobody else pays for it.
        postgres = importlib.import_module("toolspeak.journal.postgres")
    except ImportError as error:
        raise ConfigurationError("a journal in PostgreSQL needs: pip install 'toolspeak[postgres]'") from error
    return postgres.PostgresJournal(str(where))
