"""Which journal a place names."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

from toolspeak.errors import ConfigurationError
from toolspeak.journal.base import Journal

_STORES: Mapping[str, tuple[str, str]] = {
    "": ("sqlite", "SqliteJournal"),
    "postgresql": ("postgres", "PostgresJournal"),
    "postgres": ("postgres", "PostgresJournal"),
}
"""The module and the class of the journal for each scheme of a URL, "" for a path. A module that needs an extra is
named as the extra is."""


def open_journal(where: str | Path) -> Journal:
    """Returns the journal that a path (SQLite) or a URL (`postgresql://…`) names. It opens no file and no connection.

    Raises ConfigurationError for a URL of an unknown scheme, and when the extra that the scheme needs is not installed.
    """
    scheme, separator, _ = str(where).partition("://")
    if not separator:
        scheme = ""
    if scheme not in _STORES:
        schemes = " or ".join(f"{each}://" for each in _STORES if each)
        raise ConfigurationError(
            f"no journal is known for {scheme}://; write the path of a file, or a URL with {schemes}"
        )
    module, name = _STORES[scheme]
    try:
        # A database's driver is heavy: only those who use it load it.
        store = importlib.import_module(f"toolspeak.journal.{module}")
    except ImportError as error:
        raise ConfigurationError(f"a journal at {scheme}:// needs: pip install 'toolspeak[{module}]'") from error
    return getattr(store, name)(str(where))
