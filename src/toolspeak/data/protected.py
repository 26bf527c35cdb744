"""The files this process goes by, which no tool may change: journals, kept rules, configurations."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple


class Protected(NamedTuple):
    """`what` the file is, as part of a sentence ("a journal of runs"). `secret`: it may not be read either."""

    what: str
    secret: bool


_FILES: dict[str, Protected] = {}


def protect(path: str | os.PathLike[str], what: str, *, endings: Iterable[str] = ("",), secret: bool = False) -> None:
    """As long as the process lives, tools refuse to change the files whose names are this path with one of the
    endings."""
    real = os.path.realpath(path)
    for ending in endings:
        _FILES[os.path.normcase(real + ending)] = Protected(what, secret)


def protected_as(status: os.stat_result) -> Protected | None:
    """As `protected`, of a file that may have more names than one (hard links)."""
    if status.st_nlink > 1:
        for path, protection in _FILES.items():
            with suppress(OSError):
                if os.path.samestat(os.stat(path), status):
                    return protection
    return None


def protected(real: str) -> Protected | None:
    """What is known of the file at a real path, None if tools may have it."""
    return _FILES.get(os.path.normcase(real))
