"""Opens the journal that a path or a URL names."""

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
"""The module and the class of the journal for each URL scheme; "" stands for a path. A module that needs an extra has
the extra's name."""


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
            f"there is no journal for {scheme}://; write the path of a file, or a URL with {schemes}"
        )
    module, name = _STORES[scheme]
    try:
        # A database's driver is heavy, so it is loaded only when it is used.
        store = importlib.import_module(f"toolspeak.journal.{module}")
    except ImportError as error:
        raise ConfigurationError(f"a journal at {scheme}:// needs: pip install 'toolspeak[{module}]'") from error
    return getattr(store, name)(str(where))
