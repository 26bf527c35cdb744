"""Strict detection: a marker stays text unless a complete, valid call of a known tool follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from toolspeak.data.deltas import CallCompleted, CallMalformed, CallStarted, Delta, TextDelta
from toolspeak.data.messages import NORMAL_END, FinishReason
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import Dialect, Parser
from toolspeak.dialects.detection.auto_dialect import AutoDialect, AutoParser
from toolspeak.dialects.detection.wrapped_dialect import WrappedDialect
from toolspeak.dialects.parser.block_format import BlockFormat, OpenBlock
from toolspeak.dialects.parser.blocks import BlockParser
from toolspeak.dialects.parser.calls_in_reasoning import Draft
from toolspeak.dialects.parser.quotes import Quote
from toolspeak.dialects.parser.reasoning import ThinkingParser
from toolspeak.dialects.text.markdown import Markdown
from toolspeak.dialects.text.markers import MarkerDecision, MarkerMatch
from toolspeak.dialects.turn_rules import Section
from toolspeak.errors import ConfigurationError

_ALLOWANCE = 4096
_AGAIN = 4
"""A block that turns out to be text is read again from after its marker, because it may hold calls.

The text that is read again is at most this many times the turn so far: otherwise nested markers take quadratic time.
"""


@dataclass(slots=True)
class _Trial:
    """A block that may yet turn out to be text."""

    start: int
    """The marker's place in the turn."""
    at: int
    """The marker's place in the text that is fed; 0 if it came in an earlier feed."""
    before: dict[str, Any]
    """The parser's state before the block."""
    deltas_before: int = -1
    """How many deltas of this feed came before the block; 0 if it came in an earlier feed."""
    pieces: list[str] = field(default_factory=list[str])
    """The block's text of earlier feeds."""
    deltas: list[Delta] = field(default_factory=list[Delta])
    """The block's deltas of earlier feeds."""
    scanned_count: int = 0
    """The number of deltas that `has_call` covers."""
    has_call: bool = False
    """Whether a call of a known tool has begun."""
    first: bool = False
    """Whether the turn has no text before the block."""


class StrictParser(BlockParser):
    """Reads like `BlockParser`, and turns a block into text if it holds no call of a known tool.

    The deltas of a block wait until its end, so promise 3 does not hold for this parser. The other promises do. Without
    `tools` every tool is known.
    """

    _tool_names: frozenset[str] = frozenset()
    _broken: bool = False
    _trial: _Trial | None = None
    _reread = 0

    def __init__(
        self,
        format: BlockFormat,  # noqa: A002
        starts_in: Section,
        tools: Sequence[ToolSpec],
        *,
        broken: bool = False,
    ) -> None:
        super().__init__(format, starts_in)
        self._tool_names = frozenset(spec.name for spec in tools)
        self._broken = broken

    def feed(self, chunk: str) -> list[Delta]:
        trial = self._trial
        if trial is None and (plain := self._plain(chunk)) is not None:
            return plain
        out: list[Delta] = []
        if trial is not None:
            trial.at, out, trial.deltas, trial.deltas_before = 0, trial.deltas, [], 0
        text = self._pending + chunk
        self._pending = ""
        position = 0
        while position < len(text) and not self._pending:
            position = self._state(text, position, out)
            self._pass_through = None  # the text of a block's body is kept here too
            if self._trial is None:
                continue
            if self._trial.deltas_before < 0:
                self._trial.deltas_before = len(out)
            block = self._block
            if block is None and self._counts(self._trial, out[self._trial.deltas_before :]):
                self._trial = None
                continue
            has_call = self._has_call_begun(self._trial, out)
            if block is None:
                block_stop = self._position + position
            else:
                block_stop = block.offset if block.problem is not None and not has_call else -1
            if block_stop >= 0:
                del out[self._trial.deltas_before :]
                text, position = self._take_back(text, block_stop, out, again=not has_call)
        self._position += len(text) - len(self._pending)
        if self._trial is not None:
            trial = self._trial
            trial.pieces.append(text[trial.at : len(text) - len(self._pending)])
            if trial.deltas_before == 0:  # the list itself: a block may come in many pieces
                trial.deltas = out
                return []
            trial.deltas = out[trial.deltas_before :]
            trial.scanned_count -= trial.deltas_before
            del out[trial.deltas_before :]
        return out

    def close(self, reason: FinishReason) -> list[Delta]:
        out = self._settle(reason)
        while (trial := self._trial) is not None:
            waiting, deltas = self._pending, [*trial.deltas, *BlockParser.close(self, reason)]
            if self._counts(trial, deltas):
                return out + deltas
            again = reason in NORMAL_END and not self._begins_call(deltas)
            trial.at, trial.deltas_before, trial.deltas = 0, 0, []
            text, position = self._take_back(waiting, self._position + len(waiting), out, again=again)
            self._position += position
            out += self.feed(text[position:])
            out += self._settle(reason)
        return out + BlockParser.close(self, reason)

    def _settle(self, reason: FinishReason) -> list[Delta]:
        return []

    def _open(self, match: MarkerMatch, at: int) -> int:
        before = self._keep()
        body_at = super()._open(match, at)
        if match.marker.kind == "calls" and self._block is not None and self._quote is None:
            self._trial = _Trial(self._position + at, at, before, first=not self._has_text)
        return body_at

    def _follows(self, block: OpenBlock, text: str, position: int) -> Literal["yes", "no", "undecided"]:
        """A call after one that does not end stays an argument of that."""
        has_malformed = any(isinstance(call, CallMalformed) for call in block.body.calls)
        return "no" if has_malformed or block.problem is not None else super()._follows(block, text, position)

    def _close_candidate(self, out: list[Delta], normal: bool) -> None:
        super()._close_candidate(out, True)  # no call follows a marker that was cut off

    def _find_attempt(self, text: str, at: int, here: Markdown, verdict: MarkerDecision) -> MarkerDecision:
        return super()._find_attempt(text, at, here, verdict) if here.in_inline_code else verdict

    def _lone_end(self, text: str, start: int, at: int, here: Markdown) -> int:
        return -1

    def _runs_quoted(self, quote: Quote) -> bool:
        return self._is_call(quote.deltas)

    def _record_doubt(self, quote: Quote) -> None:
        """A call that cannot be read is an attempt only if the turn begins with it."""
        if not quote.broken or quote.lead == "none":
            super()._record_doubt(quote)

    def _report_end(self, out: list[Delta]) -> None:
        """Reports examples that did not run only if they call known tools, and only with `broken`."""
        if self._broken and self._doubtful_example is not None and self._begins_call(self._doubtful_example.deltas):
            super()._report_end(out)

    def _report_mentioned(self, out: list[Delta]) -> None:
        """A call in a sentence is text."""

    def _report_unmarked(self, at: int, out: list[Delta]) -> None:
        """A call without a marker is text."""

    def _may_run(self, draft: Draft[ThinkingParser]) -> bool:
        return self._is_call(draft.deltas)

    def _report_draft(self, draft: Draft[ThinkingParser], out: list[Delta], *, truncated: bool = False) -> None:
        if self._broken and self._begins_call(draft.deltas):
            super()._report_draft(draft, out, truncated=truncated)

    def _counts(self, trial: _Trial, deltas: Sequence[Delta]) -> bool:
        """Whether a finished block was one of calls."""
        return self._is_call(deltas) or (self._broken and trial.first and self._begins_call(deltas))

    def _is_call(self, deltas: Sequence[Delta]) -> bool:
        calls = [delta for delta in deltas if isinstance(delta, CallCompleted | CallMalformed)]
        all_known = all(
            isinstance(call, CallCompleted) and call.name in (self._tool_names or (call.name,)) for call in calls
        )
        return bool(calls) and all_known

    def _has_call_begun(self, trial: _Trial, out: Sequence[Delta]) -> bool:
        """`_begins_call` of the deltas of a trial, which looks at each delta once."""
        at = max(trial.scanned_count, trial.deltas_before)
        trial.scanned_count = len(out)
        trial.has_call = trial.has_call or self._begins_call(out[at:])
        return trial.has_call

    def _begins_call(self, deltas: Sequence[Delta]) -> bool:
        """Whether a call of a known tool has begun: then text after it that looks like a call may be its argument."""
        return any(
            isinstance(delta, CallStarted) and delta.name in (self._tool_names or (delta.name,)) for delta in deltas
        )

    def _take_back(self, text: str, block_stop: int, out: list[Delta], *, again: bool) -> tuple[str, int]:
        """Turns the block into text. Returns the text to continue with, and the position in it.

        `block_stop`: the place in the turn up to which the block was read. `again`: the block may hold calls, so only
        its first character becomes text.
        """
        trial = self._trial
        assert trial is not None, "taking back without a block is our bug"
        text, at = ("".join(trial.pieces) + text, 0) if trial.pieces else (text, trial.at)
        self._restore(trial.before)
        self._trial, self._pending = None, ""
        self._position = trial.start - at
        read = block_stop - trial.start
        again = again and self._reread + read <= _AGAIN * block_stop + _ALLOWANCE
        self._reread += read if again else 0
        stop = at + (1 if again else max(read, 1))
        kind = self._reasoning_kind if self._state == self._reasoning else TextDelta
        return text, self._emit(kind, text, at, stop, out)

    def _keep(self) -> dict[str, Any]:
        read: dict[str, Any] = {
            "_markdown": self._read_up().copy(),
            "_unread": [],
            "_read_pieces": self._compact_pieces().copy(),
        }
        return {**self.__dict__, **read, "_batch": self._batch.copy()}

    def _restore(self, before: dict[str, Any]) -> None:
        reread = self._reread
        vars(self).clear()  # drops attributes set since then, so that the class's values apply again
        vars(self).update(before)
        self._reread = reread


class StrictAutoParser(StrictParser, AutoParser):
    """Reads like `AutoParser`. Outside turns of Harmony and Muse, a block without a call of a known tool is text."""

    def __init__(
        self,
        own: Sequence[Dialect],
        tools: Sequence[ToolSpec],
        starts_in: Section,
        other_prompt: bool = False,
        *,
        broken: bool = False,
    ) -> None:
        AutoParser.__init__(self, own, tools, starts_in, other_prompt)
        self._tool_names = frozenset(spec.name for spec in tools)
        self._broken = broken

    def _settle(self, reason: FinishReason) -> list[Delta]:
        return AutoParser._settle(self, reason)

    def _keep(self) -> dict[str, Any]:
        return {**super()._keep(), "current": self._union.current}

    def _restore(self, before: dict[str, Any]) -> None:
        super()._restore({name: value for name, value in before.items() if name != "current"})
        self._union.current = before["current"]
        self._union.for_turn(has_text=self._has_text)


@dataclass(frozen=True, slots=True)
class StrictDialect(WrappedDialect):
    """Implements `Dialect` like another, but a marker stays text unless a complete, valid call of a known tool follows.

    The deltas of a block wait until its end. With `broken`, a turn that begins with a call of a known tool means it: if
    the call is incomplete or cannot be read, it is reported as malformed. Raises ConfigurationError for a dialect whose
    turns are not a sequence of blocks.
    """

    dialect: Dialect
    broken: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.dialect, AutoDialect) and type(self.dialect.parser()) is not BlockParser:
            raise ConfigurationError(
                f"{self.dialect.name} marks every message of a turn, so strict_detection cannot apply to it; "
                f"use it without strict_detection."
            )

    @property
    def renderer(self) -> Dialect:
        return self.dialect

    def parser(self, tools: Sequence[ToolSpec] = (), starts_in: Section = "text") -> Parser:
        if isinstance(self.dialect, AutoDialect):
            return self.dialect.parser_of(partial(StrictAutoParser, broken=self.broken), tools, starts_in)
        parser = self.dialect.parser(tools, starts_in)
        assert isinstance(parser, BlockParser), "checked when the dialect was made"
        return StrictParser(parser.format, starts_in, tools, broken=self.broken)
