"""What a run has read: `memory["files_read"]` maps real paths to the SHA-256 of the content last seen or written.

A file is in it when all of it was seen. Until then `memory["lines_read"]` holds which of its lines were.
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
class Part:
    """Lines of one content that were seen: spans with both ends included, in order and apart from each other."""

    sha256: str
    spans: tuple[Span, ...]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def record(ctx: RunContext[Any], real: str, sha256: str) -> None:
    """The run knows the content of this file."""
    _files(ctx)[real] = sha256
    _forget_lines(ctx, real)


def record_lines(ctx: RunContext[Any], real: str, sha256: str, first: int, last: int, total: int) -> None:
    """The run has seen lines first..last of the file's `total` lines; with the last missing ones it knows it."""
    if known(ctx, real) == sha256:
        return
    with _lock:  # the pages of a file may be read at the same time
        part = _lines(ctx, real)
        spans = part.spans if part is not None and part.sha256 == sha256 else ()
        spans = _joined([*spans, (first, last)] if first <= last else spans)
        if not total or spans == ((1, total),):
            record(ctx, real, sha256)
        elif spans:
            entry = {"sha256": sha256, "spans": [list(span) for span in spans]}
            cast("dict[str, Any]", ctx.memory.setdefault(LINES_KEY, {}))[real] = entry


def known(ctx: RunContext[Any], real: str) -> str | None:
    """The digest of the content the run knows, None when it never saw all of the file."""
    return _files(ctx).get(real)


def first_unread(ctx: RunContext[Any], real: str, sha256: str) -> int | None:
    """The first line not seen of a content that was seen in part; None when none of it was, or all."""
    part = _lines(ctx, real)
    if part is None or part.sha256 != sha256:
        return None
    first, last = part.spans[0]
    return 1 if first > 1 else last + 1


def update(ctx: RunContext[Any], real: str, before: bytes, after: bytes) -> None:
    """After an edit: a run that knew the content knows the new one; one that did not, still does not."""
    if known(ctx, real) == digest(before):
        record(ctx, real, digest(after))
    else:
        _forget_lines(ctx, real)


def _joined(spans: list[Span] | tuple[Span, ...]) -> tuple[Span, ...]:
    joined: list[Span] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def _files(ctx: RunContext[Any]) -> dict[str, str]:
    return cast("dict[str, str]", ctx.memory.setdefault(KEY, {}))


def _lines(ctx: RunContext[Any], real: str) -> Part | None:
    entry = cast("dict[str, Any]", ctx.memory.get(LINES_KEY, {})).get(real)  # JSON: it survives with the run
    return None if entry is None else Part(entry["sha256"], tuple((first, last) for first, last in entry["spans"]))


def _forget_lines(ctx: RunContext[Any], real: str) -> None:
    cast("dict[str, Any]", ctx.memory.get(LINES_KEY, {})).pop(real, None)
