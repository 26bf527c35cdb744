"""Restores protected files that a command changed, where the boundary cannot keep it from that."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

_MOST_FILES = 2000
_MOST_BYTES = 8 * 1024 * 1024

_Entry: TypeAlias = tuple[int, bytes]
"""A file's mode and content, a link's mode and target, a folder's mode and nothing."""

_Copies: TypeAlias = dict[str, _Entry]


class ProtectedCopies:
    """What stood at protected paths before a command. Raises OSError for paths that hold too much to copy."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._copies = {path: _copies_of(path) for path in paths}

    def put_back(self) -> list[str]:
        """Restores every path that changed. Returns a sentence for each."""
        notes: list[str] = []
        for path, before in self._copies.items():
            try:
                now = _copies_of(path)
            except OSError:
                now = None
            if now == before:
                continue
            try:
                _restore(path, before)
                what = "changed" if before else "made"
                notes.append(f"The command {what} {path}, which commands may not change: it is as it was before.")
            except OSError as error:
                notes.append(f"The command changed {path}, which commands may not change, and it stays so: {error}.")
        return notes


def _copies_of(path: str) -> _Copies:
    """The file, link or folder at a path, with all that is in it; empty if nothing is there."""
    copies: _Copies = {}
    size, rest = 0, [path]
    while rest:
        place = rest.pop()
        try:
            mode = os.lstat(place).st_mode
            if stat.S_ISDIR(mode):
                copies[place] = (mode, b"")
                rest += [os.path.join(place, name) for name in os.listdir(place)]
                continue
            content = b""
            if stat.S_ISLNK(mode):
                content = os.fsencode(os.readlink(place))
            elif stat.S_ISREG(mode):
                content = Path(place).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        copies[place] = (mode, content)
        size += len(content)
        if len(copies) > _MOST_FILES or size > _MOST_BYTES:
            raise OSError(f"{path} is too large to watch over")
    return copies


def _restore(path: str, before: _Copies) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(path)
    for place in sorted(before):  # a folder comes before what is in it
        mode, content = before[place]
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if stat.S_ISDIR(mode):
            os.mkdir(place)
        elif stat.S_ISLNK(mode):
            os.symlink(os.fsdecode(content), place)
            continue
        elif stat.S_ISREG(mode):
            descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        else:
            continue  # a device or a socket has no content to put back
        os.chmod(place, stat.S_IMODE(mode))
