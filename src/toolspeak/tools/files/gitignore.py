"""What the .gitignore files of a project name: build results, dependencies, caches.

The patterns mean what git says of them (https://git-scm.com/docs/gitignore). git itself is not asked: it would run
commands that a repository configures, outside of every sandbox. Two things differ: a file that git keeps although a
pattern names it counts as named, and the user's own list (`core.excludesFile`) is not read.
"""

from __future__ import annotations

import os
import stat

from toolspeak.data.values import quick
from toolspeak.tools.files.glob import Segments, segments, segments_match

_MOST_BYTES = 256 * 1024
"""How much of a .gitignore is read."""

_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@quick()
class IgnorePattern:
    """A line of a .gitignore.

    - `segments`: match the path below the file's folder; without a `/` in the pattern, a name alone.
    - `by_name`: whether the pattern is for names in any folder below.
    - `folders_only`: it ends with `/`.
    - `negated`: it begins with `!`: what it matches is not ignored.
    """

    segments: Segments
    by_name: bool
    folders_only: bool
    negated: bool

    def matches(self, parts: list[str], is_folder: bool) -> bool:
        """Whether it matches a path below its file's folder."""
        if self.folders_only and not is_folder:
            return False
        return segments_match(self.segments, parts[-1:] if self.by_name else parts)


class IgnoredPaths:
    """Which paths below a folder are named by .gitignore files: those in it and below, and those above it up to the
    root of its git repository, without one up to `root`.

    - `folder`, `root`: absolute real paths.
    """

    def __init__(self, folder: str, root: str) -> None:
        chain = [folder]
        while not os.path.exists(os.path.join(chain[-1], ".git")) and os.path.dirname(chain[-1]) != chain[-1]:
            chain.append(os.path.dirname(chain[-1]))
        in_repository = os.path.exists(os.path.join(chain[-1], ".git"))
        self._top = chain[-1] if in_repository else root if root in chain else folder
        self._patterns: dict[str, tuple[IgnorePattern, ...]] = {}
        self._excludes = _patterns_of(os.path.join(self._top, ".git", "info", "exclude")) if in_repository else ()
        self.count = 0
        """How many paths were ignored so far."""

    def names(self, path: str, is_folder: bool) -> bool:
        """Whether a pattern names this path. A folder above it may be named although the path is not."""
        parts = os.path.relpath(path, self._top).split(os.sep)
        folder = os.path.dirname(path)
        for depth in range(len(parts) - 1, -1, -1):  # the nearest file counts
            for pattern in reversed(self._patterns_in(folder)):
                if pattern.matches(parts[depth:], is_folder):
                    self.count += not pattern.negated
                    return not pattern.negated
            folder = os.path.dirname(folder)
        for pattern in reversed(self._excludes):
            if pattern.matches(parts, is_folder):
                self.count += not pattern.negated
                return not pattern.negated
        return False

    @classmethod
    def to_leave_out(cls, folder: str, root: str) -> IgnoredPaths | None:
        """What a search of a folder leaves out. None if the folder itself is ignored: who names it wants what is in
        it."""
        paths = cls(folder, root)
        return None if paths.covers(folder) else paths

    def covers(self, path: str) -> bool:
        """Whether a pattern names this folder, or one above it."""
        while len(path) > len(self._top):
            if self.names(path, True):
                return True
            path = os.path.dirname(path)
        return False

    def _patterns_in(self, folder: str) -> tuple[IgnorePattern, ...]:
        if folder not in self._patterns:
            self._patterns[folder] = _patterns_of(os.path.join(folder, ".gitignore"))
        return self._patterns[folder]


def _patterns_of(file: str) -> tuple[IgnorePattern, ...]:
    """The patterns of a .gitignore; none of a file that is not there, and of what is no file."""
    try:
        descriptor = os.open(file, _FLAGS)
    except OSError:
        return ()
    with open(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ()
        lines = stream.read(_MOST_BYTES).removeprefix(b"\xef\xbb\xbf").decode(errors="surrogateescape").split("\n")
    return tuple(filter(None, map(_pattern_of, lines)))


def _pattern_of(line: str) -> IgnorePattern | None:
    line = line.removesuffix("\r")
    text = line.rstrip(" ")
    if text.endswith("\\") and text != line and (len(text) - len(text.rstrip("\\"))) % 2:
        text += " "  # a space after a backslash belongs to the name
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text.removeprefix("!")
    folders_only = text.endswith("/")
    text = text.removesuffix("/")
    by_name = "/" not in text
    parts = [_name_pattern(part) for part in text.split("/") if part]
    if not parts:
        return None
    if parts[-1] == "**" and not by_name:
        parts.append("*")  # all that is in the folder, and not the folder
    return IgnorePattern(segments(parts), by_name, folders_only, negated)


def _name_pattern(text: str) -> str:
    """A component of a pattern as `fnmatch` writes it, which has no backslashes and `[!…]` for `[^…]`."""
    name_pattern, at = "", 0
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text):
            at += 1
            name_pattern += f"[{text[at]}]" if text[at] in "*?[" else text[at]
        elif text.startswith("[^", at):
            name_pattern, at = f"{name_pattern}[!", at + 1
        else:
            name_pattern += text[at]
        at += 1
    return name_pattern
