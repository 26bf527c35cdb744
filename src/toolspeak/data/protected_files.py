"""The files that govern this process, which no tool may change: journals, stored rules, configurations."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple


class ProtectedFile(NamedTuple):
    """A protected file. `what`: its kind, as part of a sentence ("a journal of runs"). `secret`: tools may not read it
    either."""

    what: str
    secret: bool


_FILES: dict[str, ProtectedFile] = {}


def protect(path: str | os.PathLike[str], what: str, *, endings: Iterable[str] = ("",), secret: bool = False) -> None:
    """Makes tools of this process refuse to change the files whose names are this path with one of the endings."""
    real = os.path.realpath(path)
    for ending in endings:
        _FILES[os.path.normcase(real + ending)] = ProtectedFile(what, secret)


def protected_as(status: os.stat_result) -> ProtectedFile | None:
    """As `protected`, for a file that may have several names (hard links)."""
    if status.st_nlink > 1:
        for path, protection in _FILES.items():
            with suppress(OSError):
                if os.path.samestat(os.stat(path), status):
                    return protection
    return None


def protected_at(real: str) -> ProtectedFile | None:
    """The entry of the file at a real path; None if tools may change it."""
    return _FILES.get(os.path.normcase(real))


def protected_below(root: str) -> frozenset[str]:
    """The protected files below the folder at a real path, relative to it and written with `/`."""
    top = os.path.normcase(root).rstrip(os.sep) + os.sep
    return frozenset(path[len(top) :].replace(os.sep, "/") for path in _FILES if path.startswith(top))


def protected_files() -> Mapping[str, ProtectedFile]:
    """All entries, by the file's real path. The file need not exist."""
    return _FILES
