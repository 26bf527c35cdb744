"""Drafts: calls in reasoning that may be meant, and the report to the model if they did not run."""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, Protocol, TypeVar

from toolspeak.data.deltas import (
    CallCompleted,
    CallMalformed,
    CallStarted,
    Delta,
    ForgedResults,
    ReasoningDelta,
    TextAside,
    TextDelta,
)
from toolspeak.data.messages import FinishReason
from toolspeak.dialects.parser.block_format import BlockFormat
from toolspeak.dialects.text.markers import MarkerMatch
from toolspeak.dialects.text.pending_text import join_pieces, unlimited_buffer

IN_THOUGHTS = "in_thoughts"
"""The code of a call that did not run because it was in the model's thoughts."""


class DraftReader(Protocol):
    """A parser that reads a draft."""

    def feed(self, chunk: str) -> list[Delta]: ...

    def close(self, reason: FinishReason) -> list[Delta]: ...

    @property
    def broken_at(self) -> int | None:
        """Where in the turn the open block becomes unreadable, or may be an example; None if neither."""
        ...

    @property
    def first_raw(self) -> str | None:
        """The body of the first block if it was read to its end."""
        ...


ReaderT = TypeVar("ReaderT", bound=DraftReader)


class Draft(Generic[ReaderT]):
    """A block of calls in reasoning, and the blocks right after it.

    `reader`: reads the blocks as in text.
    `start`: the offset in the turn of the first block's marker.
    `match`: that marker.
    """

    def __init__(self, reader: ReaderT, format: BlockFormat, start: int, match: MarkerMatch) -> None:  # noqa: A002
        self.reader = reader
        self.format = format
        self.start = start
        self.last_marker: tuple[int, MarkerMatch] | None = None
        """The last marker in the draft's text that may begin another block, and its position."""
        self.deltas: list[Delta] = []
        self._match = match
        self._over = False  # other text follows the blocks, or one is unreadable
        self._text = unlimited_buffer()
        self._joined_count = 0  # the number of deltas that are joined already

    @property
    def text(self) -> str:
        return self._text.value()

    def feed(self, text: str) -> bool:
        """Adds text. Returns whether all of the draft may still be calls."""
        self._text.add(text)
        deltas = self.reader.feed(text)
        stop = next((i for i, delta in enumerate(deltas) if _is_none(delta)), len(deltas))
        self.deltas += deltas[: stop + 1]  # the rest of the piece is not part of the draft
        self._joined_count = join_pieces(self.deltas, self._joined_count)
        self._over = stop < len(deltas) or self.reader.broken_at is not None
        return not self._over

    def mark(self, match: MarkerMatch) -> None:
        """Records a marker here, which begins another block or is a part of this one."""
        self.last_marker = self._text.length, match

    def close(self, reason: FinishReason) -> bool:
        """Ends the turn. Returns whether all of the draft is calls."""
        deltas = self.reader.close(reason)
        self.deltas += deltas
        return not any(map(_is_none, deltas))

    @property
    def has_call(self) -> bool:
        """Whether a call began in the draft."""
        return any(isinstance(delta, CallStarted) for delta in self.deltas)

    def calls_known(self, names: Collection[str]) -> bool:
        """Whether the last call is complete and of a known tool. Without `names` every tool is known."""
        calls = [delta for delta in self.deltas if isinstance(delta, CallCompleted | CallMalformed)]
        last = calls[-1] if calls else None
        return isinstance(last, CallCompleted) and (not names or last.name in names)

    def report(self, index: int, *, truncated: bool) -> CallMalformed:
        """The report to the model. `truncated`: the turn was cut off in reasoning."""
        name = next((delta.name for delta in self.deltas if isinstance(delta, CallStarted)), None)
        where = "it was in your thoughts, where nothing runs"
        if truncated:
            where = "the turn was cut off inside your thoughts, where nothing runs"
        reason = f"{where}; end your thoughts first, then write the call"
        if name is not None and self.format.tools and name not in self.format.tools:
            reason = f"{reason}. No tool is called {name!r}"
        return CallMalformed(index, self._raw().strip(), IN_THOUGHTS, reason, self.start, name, True)

    def _raw(self) -> str:
        """The body of the block, or of the first block if other text follows it."""
        if not self._over:
            return self.text[self._match.length :].rstrip().removesuffix(self._match.marker.end or "")
        if self.reader.first_raw is not None:
            return self.reader.first_raw
        stops = [each.offset for each in self.deltas if isinstance(each, CallMalformed) and each.whole_block]
        stop = stops[0] if stops else self.reader.broken_at
        return "" if stop is None else self.text[self._match.length : stop - self.start]


def _is_none(delta: Delta) -> bool:
    """Whether the delta is neither part of a readable block nor white space."""
    if isinstance(delta, TextDelta | TextAside):
        return not delta.text.isspace()
    return isinstance(delta, ReasoningDelta | ForgedResults) or (isinstance(delta, CallMalformed) and delta.whole_block)
