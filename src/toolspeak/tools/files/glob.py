"""File name patterns: `*.py`, `src/**/*.py`, `*.{md,txt}`."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence

from toolspeak.errors import ToolError

MAX_ALTERNATIVES = 64
"""The most patterns that the braces of one pattern may stand for."""

_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")

Segments = tuple[Callable[[str], object] | None, ...]
"""They match the components of a path, one each; None is `**`, any number of components."""


class Glob:
    """Matches paths. A pattern without `/` matches file names; a pattern with `/` matches whole paths.

    `*` and `?` do not match `/`; `**` does. `[a-z]` is one character, and `{a,b}` is `a` or `b`. Case matters. The time
    of a match is proportional to the lengths of the pattern and the path. Raises ToolError for too many alternatives.
    """

    def __init__(self, pattern: str) -> None:
        plain = pattern.removeprefix("./")
        if not plain or plain.startswith("/"):
            raise ToolError(f"'pattern' is {pattern!r}: give a name like '*.py' or a relative path like 'src/**/*.py'.")
        self._whole_path = "/" in plain
        self._alternatives = [
            segments([*filter(None, each.split("/")), *(["**"] if each.endswith("/") else [])])
            for each in _expand_braces(plain)
        ]

    def matches(self, path: str) -> bool:
        parts = path.split("/") if self._whole_path else [path.rpartition("/")[2]]
        return any(segments_match(each, parts) for each in self._alternatives)


def _expand_braces(pattern: str) -> list[str]:
    patterns: list[str] = []
    todo = [pattern]
    while todo:
        here = todo.pop()
        match = _BRACES.search(here)
        if match is None:
            patterns.append(here)
        else:
            todo.extend(here[: match.start()] + choice + here[match.end() :] for choice in match[1].split(","))
        if len(patterns) + len(todo) > MAX_ALTERNATIVES:
            raise ToolError(
                f"'pattern' has more than {MAX_ALTERNATIVES} alternatives in its braces: use several calls."
            )
    return patterns


def segments(parts: Sequence[str]) -> Segments:
    """The matchers of the components of a pattern."""
    # fnmatch never backtracks over an earlier star, so it is fast for every name.
    return tuple(None if part == "**" else re.compile(fnmatch.translate(part)).match for part in parts)


def segments_match(pattern: Segments, parts: Sequence[str]) -> bool:
    """Whether a pattern matches all components of a path."""
    positions = {0}  # how many parts the pattern so far can match
    for segment in pattern:
        if segment is None:
            positions = set(range(min(positions), len(parts) + 1))
        else:
            positions = {at + 1 for at in positions if at < len(parts) and segment(parts[at])}
        if not positions:
            return False
    return len(parts) in positions
