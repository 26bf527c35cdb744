"""The files that a run has read: `memory["files_read"]` maps real paths to the SHA-256 of the content last read or
written.

A file is listed there once the run has read all of it. Until then `memory["lines_read"]` holds the lines that the run
has read.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from typing import Any, cast

from toolspeak.tools.context import RunContext

KEY = "files_read"
LINES_KEY = "lines_read"

Span = tuple[int, int]

_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class LinesRead:
    """The lines of a content that a run has read: spans that include both ends, in order, with gaps in between."""

    sha256: str
    spans: tuple[Span, ...]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def record(ctx: RunContext[Any], real: str, sha256: str) -> None:
    """Records that the run knows the content of this file."""
    _files(ctx)[real] = sha256
    _forget_lines(ctx, real)


def record_lines(ctx: RunContext[Any], real: str, sha256: str, first: int, last: int, total: int) -> None:
    """Records that the run has read lines first..last of the file's `total` lines. Once it has read all of them it
    knows the file."""
    if known_digest(ctx, real) == sha256:
        return
    with _lock:  # the pages of a file may be read at the same time
        part = _lines(ctx, real)
        spans = part.spans if part is not None and part.sha256 == sha256 else ()
        spans = _join([*spans, (first, last)] if first <= last else spans)
        if not total or spans == ((1, total),):
            record(ctx, real, sha256)
        elif spans:
            entry = {"sha256": sha256, "spans": [list(span) for span in spans]}
            cast("dict[str, Any]", ctx.memory.setdefault(LINES_KEY, {}))[real] = entry


def known_digest(ctx: RunContext[Any], real: str) -> str | None:
    """The digest of the content that the run knows; None if it has never read all of the file."""
    return _files(ctx).get(real)


def first_unread(ctx: RunContext[Any], real: str, sha256: str) -> int | None:
    """The first unread line of a content that the run has read in part; else None."""
    part = _lines(ctx, real)
    if part is None or part.sha256 != sha256:
        return None
    first, last = part.spans[0]
    return 1 if first > 1 else last + 1


def update(ctx: RunContext[Any], real: str, before: bytes, after: bytes) -> None:
    """Records an edit: a run that knew the old content knows the new one."""
    if known_digest(ctx, real) == digest(before):
        record(ctx, real, digest(after))
    else:
        _forget_lines(ctx, real)


def _join(spans: list[Span] | tuple[Span, ...]) -> tuple[Span, ...]:
    spans_so_far: list[Span] = []
    for first, last in sorted(spans):
        if spans_so_far and first <= spans_so_far[-1][1] + 1:
            spans_so_far[-1] = (spans_so_far[-1][0], max(last, spans_so_far[-1][1]))
        else:
            spans_so_far.append((first, last))
    return tuple(spans_so_far)


def _files(ctx: RunContext[Any]) -> dict[str, str]:
    return cast("dict[str, str]", ctx.memory.setdefault(KEY, {}))


def _lines(ctx: RunContext[Any], real: str) -> LinesRead | None:
    entry = cast("dict[str, Any]", ctx.memory.get(LINES_KEY, {})).get(real)  # JSON: it survives with the run
    return None if entry is None else LinesRead(entry["sha256"], tuple((first, last) for first, last in entry["spans"]))


def _forget_lines(ctx: RunContext[Any], real: str) -> None:
    cast("dict[str, Any]", ctx.memory.get(LINES_KEY, {})).pop(real, None)
