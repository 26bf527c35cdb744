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
from toolspeak.dialects.parser.block_state import BlockFormat, OpenBlock
from toolspeak.dialects.parser.blocks import BlockParser
from toolspeak.dialects.parser.calls_in_reasoning import Draft
from toolspeak.dialects.parser.quotes import Quote
from toolspeak.dialects.parser.reasoning import ThinkingParser
from toolspeak.dialects.text.markdown import Markdown
from toolspeak.dialects.text.markers import Found, Verdict
from toolspeak.dialects.turn_rules import Section
from toolspeak.errors import ConfigurationError

_ALLOWANCE = 4096
_AGAIN = 4
"""Blocks that turn out to be text are read again from behind their marker, as calls may stand in them: as long as
all that was read again is at most so many times the turn so far. Nested markers would take quadratic time."""


@dataclass(slots=True)
class _Trial:
    """A block that may yet be text: its marker's place in the turn, its text, and the parser as it was before it.

    `at` is the marker's place in the text being fed, and `shown` deltas of this feed came before it; for a block of an
    earlier feed both are 0, and `pieces` and `deltas` are what came of it until then. `begun`: a call of a known tool
    has begun among the first `scanned` deltas. `first`: no text of the turn stands before it.
    """

    start: int
    at: int
    before: dict[str, Any]
    shown: int = -1
    pieces: list[str] = field(default_factory=list[str])
    deltas: list[Delta] = field(default_factory=list[Delta])
    scanned: int = 0
    begun: bool = False
    first: bool = False


class StrictParser(BlockParser):
    """Reads as `BlockParser`, and takes back what was no call.

    Holds the deltas of a block back until its end, so promise 3 does not hold for it; all the others do. Without
    `tools` every tool is known.
    """

    _known: frozenset[str] = frozenset()
    _broken = False
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
        self._known = frozenset(spec.name for spec in tools)
        self._broken = broken

    def feed(self, chunk: str) -> list[Delta]:
        trial = self._trial
        if trial is None and (plain := self._plain(chunk)) is not None:
            return plain
        out: list[Delta] = []
        if trial is not None:
            trial.at, out, trial.deltas, trial.shown = 0, trial.deltas, [], 0
        text = self._held + chunk
        self._held = ""
        position = 0
        while position < len(text) and not self._held:
            position = self._state(text, position, out)
            self._run = None  # what a block's body takes is kept here too
            if self._trial is None:
                continue
            if self._trial.shown < 0:
                self._trial.shown = len(out)
            block = self._block
            if block is None and self._counts(self._trial, out[self._trial.shown :]):
                self._trial = None
                continue
            begun = self._begun(self._trial, out)
            if block is None:
                failed = self._position + position
            else:
                failed = block.offset if block.problem is not None and not begun else -1
            if failed >= 0:
                del out[self._trial.shown :]
                text, position = self._take_back(text, failed, out, again=not begun)
        self._position += len(text) - len(self._held)
        if self._trial is not None:
            kept = self._trial
            kept.pieces.append(text[kept.at : len(text) - len(self._held)])
            if kept.shown == 0:  # the list itself: a block may come in many pieces
                kept.deltas = out
                return []
            kept.deltas = out[kept.shown :]
            kept.scanned -= kept.shown
            del out[kept.shown :]
        return out

    def close(self, reason: FinishReason) -> list[Delta]:
        out = self._settle(reason)
        while (trial := self._trial) is not None:
            held, deltas = self._held, [*trial.deltas, *BlockParser.close(self, reason)]
            if self._counts(trial, deltas):
                return out + deltas
            again = reason in NORMAL_END and not self._begins_call(deltas)
            trial.at, trial.shown, trial.deltas = 0, 0, []
            text, position = self._take_back(held, self._position + len(held), out, again=again)
            self._position += position
            out += self.feed(text[position:])
            out += self._settle(reason)
        return out + BlockParser.close(self, reason)

    def _settle(self, reason: FinishReason) -> list[Delta]:
        return []

    def _open(self, found: Found, at: int) -> int:
        before = self._keep()
        body_at = super()._open(found, at)
        if found.marker.kind == "calls" and self._block is not None and self._quote is None:
            self._trial = _Trial(self._position + at, at, before, first=not self._has_text)
        return body_at

    def _follows(self, block: OpenBlock, text: str, position: int) -> Literal["yes", "no", "undecided"]:
        """A call behind one that does not end stays an argument of that."""
        malformed = any(isinstance(call, CallMalformed) for call in block.body.calls)
        return "no" if malformed or block.problem is not None else super()._follows(block, text, position)

    def _close_candidate(self, out: list[Delta], normal: bool) -> None:
        super()._close_candidate(out, True)  # no call stands behind a marker that was cut off

    def _look_again(self, text: str, at: int, here: Markdown, verdict: Verdict) -> Verdict:
        return super()._look_again(text, at, here, verdict) if here.in_inline_code else verdict

    def _lone_end(self, text: str, start: int, at: int, here: Markdown) -> int:
        return -1

    def _runs_quoted(self, quote: Quote) -> bool:
        return self._is_call(quote.deltas)

    def _doubt(self, quote: Quote) -> None:
        """A call that cannot be read was meant as one only where the turn begins with it."""
        if not quote.broken or quote.lead == "none":
            super()._doubt(quote)

    def _report_end(self, out: list[Delta]) -> None:
        """Only of calls of known tools it is said that they did not run, and only if that is asked for."""
        if self._broken and self._shown is not None and self._begins_call(self._shown.deltas):
            super()._report_end(out)

    def _report_spoken(self, out: list[Delta]) -> None:
        """What stands in a sentence is text."""

    def _report_unmarked(self, at: int, out: list[Delta]) -> None:
        """What has no marker is text."""

    def _may_run(self, draft: Draft[ThinkingParser]) -> bool:
        return self._is_call(draft.deltas)

    def _tell(self, draft: Draft[ThinkingParser], out: list[Delta], *, cut: bool = False) -> None:
        if self._broken and self._begins_call(draft.deltas):
            super()._tell(draft, out, cut=cut)

    def _counts(self, trial: _Trial, deltas: Sequence[Delta]) -> bool:
        """Whether a block that is over was one of calls."""
        return self._is_call(deltas) or (self._broken and trial.first and self._begins_call(deltas))

    def _is_call(self, deltas: Sequence[Delta]) -> bool:
        calls = [delta for delta in deltas if isinstance(delta, CallCompleted | CallMalformed)]
        known = all(isinstance(call, CallCompleted) and call.name in (self._known or (call.name,)) for call in calls)
        return bool(calls) and known

    def _begun(self, trial: _Trial, out: Sequence[Delta]) -> bool:
        """`_begins_call` of the deltas of a trial, each looked at once."""
        at = max(trial.scanned, trial.shown)
        trial.scanned = len(out)
        trial.begun = trial.begun or self._begins_call(out[at:])
        return trial.begun

    def _begins_call(self, deltas: Sequence[Delta]) -> bool:
        """Whether a call of a known tool has begun: then what looks like a call behind it may be an argument of it."""
        return any(isinstance(delta, CallStarted) and delta.name in (self._known or (delta.name,)) for delta in deltas)

    def _take_back(self, text: str, failed: int, out: list[Delta], *, again: bool) -> tuple[str, int]:
        """Makes the block text as far as need be; the text to go on with, and where in it.

        `failed` is the place in the turn up to which the block was read; `again`: there may be calls in it.
        """
        trial = self._trial
        assert trial is not None, "taking back without a block is our bug"
        text, at = ("".join(trial.pieces) + text, 0) if trial.pieces else (text, trial.at)
        self._restore(trial.before)
        self._trial, self._held = None, ""
        self._position = trial.start - at
        read = failed - trial.start
        again = again and self._reread + read <= _AGAIN * failed + _ALLOWANCE
        self._reread += read if again else 0
        stop = at + (1 if again else max(read, 1))
        kind = self._reasoning_kind if self._state == self._reasoning else TextDelta
        return text, self._emit(kind, text, at, stop, out)

    def _keep(self) -> dict[str, Any]:
        read: dict[str, Any] = {"_markdown": self._read_up().copy(), "_unread": [], "_seen": self._cut_seen().copy()}
        return {**self.__dict__, **read, "_batch": self._batch.copy()}

    def _restore(self, before: dict[str, Any]) -> None:
        reread = self._reread
        vars(self).clear()  # what was set since then may be of the class again
        vars(self).update(before)
        self._reread = reread


class StrictAutoParser(StrictParser, AutoParser):
    """Reads as `AutoParser`, and takes back what was no call; but a turn of Harmony or Muse is taken at its word."""

    def __init__(
        self,
        own: Sequence[Dialect],
        tools: Sequence[ToolSpec],
        starts_in: Section,
        told: bool = False,
        *,
        broken: bool = False,
    ) -> None:
        AutoParser.__init__(self, own, tools, starts_in, told)
        self._known = frozenset(spec.name for spec in tools)
        self._broken = broken

    def _settle(self, reason: FinishReason) -> list[Delta]:
        return AutoParser._settle(self, reason)

    def _keep(self) -> dict[str, Any]:
        return {**super()._keep(), "current": self._union.current}

    def _restore(self, before: dict[str, Any]) -> None:
        super()._restore({name: value for name, value in before.items() if name != "current"})
        self._union.current = before["current"]
        self._union.behind(text=self._has_text)


@dataclass(frozen=True, slots=True)
class StrictDialect(WrappedDialect):
    """Implements `Dialect`: as another, but a marker stays text unless a complete, valid call of a known tool follows.

    A whole block is held back until its end. With `broken` a turn that begins with a call of a known tool is taken to
    mean it, also where it is not complete or cannot be read: it is malformed then, which the model is told.

    Raises ConfigurationError for a dialect whose turns are no sequence of blocks.
    """

    dialect: Dialect
    broken: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.dialect, AutoDialect) and type(self.dialect.parser()) is not BlockParser:
            raise ConfigurationError(
                f"{self.dialect.name} marks every message of a turn, so its calls cannot be told from mentions more "
                f"strictly; use it without strict_detection."
            )

    @property
    def written(self) -> Dialect:
        return self.dialect

    def parser(self, tools: Sequence[ToolSpec] = (), starts_in: Section = "text") -> Parser:
        if isinstance(self.dialect, AutoDialect):
            return self.dialect.parser_of(partial(StrictAutoParser, broken=self.broken), tools, starts_in)
        parser = self.dialect.parser(tools, starts_in)
        assert isinstance(parser, BlockParser), "checked when the dialect was made"
        return StrictParser(parser.format, starts_in, tools, broken=self.broken)
