"""The dialect `auto`: reads whichever dialect a turn turns out to be in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from toolspeak.data.deltas import (
    DIALECT_NOTE,
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallIgnored,
    CallMalformed,
    CallStarted,
    Delta,
    TextDelta,
)
from toolspeak.data.messages import NORMAL_END, FinishReason
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import harmony_parser, muse
from toolspeak.dialects.base import BatchRule, Dialect, DialectInfo, Parser, Section
from toolspeak.dialects.blocks import BlockFormat, BlockParser
from toolspeak.dialects.body import Body
from toolspeak.dialects.catalogue import DETECTION
from toolspeak.dialects.declared import DeclaredDialect
from toolspeak.dialects.harmony import HARMONY
from toolspeak.dialects.hermes import HERMES
from toolspeak.dialects.markers import FENCE, FENCE_START, Found, Marker, MarkerTable, Verdict, candidate_pattern
from toolspeak.dialects.muse import MUSE
from toolspeak.dialects.opened import OpenedParser
from toolspeak.dialects.pythonic import BareDialect
from toolspeak.dialects.scan import MAX_CANDIDATE, Caps
from toolspeak.dialects.wrapped import WrappedDialect

_HARMONY_HEAD = re.compile(r"<\|start\|>assistant(?:\s+to=[^\s<]+)?\s*<\|channel\|>|<\|channel\|>\s*[a-z]")
_HARMONY_CALL = re.compile(r"<\|start\|>assistant\s+to=[^\s<]+\s*<\|channel\|>|<\|channel\|>\s*[a-z]+\s+to=")
_MUSE_HEAD = re.compile(r"\s*(?:<\|start\|>assistant)?\s+to=[^\s<]+<\|message\|>")
_MUSE_CALL = re.compile(r"<\|start\|>assistant\s+to=(?!(?:user|self)<)[^\s<]+<\|message\|>")
_MUSE_OPENED = re.compile(r"\s+(?:t(?:o(?:=(?:[^\s<]+(?:<[|a-z]*)?)?)?)?)?")
"""As much of the addressee, with which a turn of Muse begins behind its prompt, as there may be."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """One dialect as `auto` reads it. `own`: the model's, or the one it was told to write. `turn`: from its marker on
    it reads all the rest of the turn."""

    dialect: Dialect
    format: BlockFormat
    own: bool = False
    turn: bool = False


@dataclass(frozen=True, slots=True)
class _Owned(Found):
    """A marker and who reads what it opens."""

    reader: _Reader | None = None


def _turn_marker(text: str, head: re.Pattern[str]) -> Marker:
    def follows(held: str, position: int) -> Literal["yes", "no", "undecided"]:
        if head.match(held, position - len(text)):
            return "yes"
        # Both heads are at most a few words of a known shape; what cannot be told yet is decided by the next token.
        rest = held[position:]
        return "undecided" if rest.count("<") < 2 and "\n" not in rest and len(held) < MAX_CANDIDATE else "no"

    return Marker("calls", text, None, follows=follows)


@dataclass(frozen=True, slots=True)
class _Turns:
    """A dialect whose turns are messages with headers: where one begins, and the tokens that are its own anywhere."""

    dialect: Dialect
    begins: Callable[[str], bool | None]
    tokens: tuple[str, ...]

    def reader(self) -> _Reader:
        table = MarkerTable([Marker("calls", token, None) for token in self.tokens])
        return _Reader(self.dialect, BlockFormat(table, self.dialect.batch, _no_body), own=True, turn=True)


def _no_body(_marker: Marker, _first_index: int, _caps: Caps) -> Body:
    raise AssertionError("the rest of a turn has a parser, not a body")


_TURNS = (_Turns(HARMONY, harmony_parser.begins_turn, harmony_parser.TOKENS), _Turns(MUSE, muse.begins_turn, muse.ENDS))
_HARMONY_TABLE, _HARMONY_CALLS = (
    MarkerTable([_turn_marker(text, head) for text in ("<|start|>assistant", "<|channel|>")])
    for head in (_HARMONY_HEAD, _HARMONY_CALL)
)
_MUSE_TABLE, _MUSE_CALLS = (
    MarkerTable([_turn_marker("<|start|>assistant", head)]) for head in (_MUSE_HEAD, _MUSE_CALL)
)


def _begins_muse(text: str) -> bool | None:
    return True if _MUSE_HEAD.match(text) else None if _MUSE_OPENED.fullmatch(text) else False


def _readers(dialect: Dialect, tools: Sequence[ToolSpec], own: bool, told: bool) -> list[_Reader]:
    """`told`: the model was told to write another dialect than its own, so that any message may hold a block of that,
    and only one that is a call is read as its own."""
    if own and not told and (turns := next((turns for turns in _TURNS if turns.dialect is dialect), None)):
        return [turns.reader()]
    if dialect is HARMONY:
        table = _HARMONY_CALLS if told else _HARMONY_TABLE
        return [_Reader(dialect, replace(HARMONY.format(tools), table=table), own, turn=True)]
    if isinstance(dialect, BareDialect) and not tools and not own:
        return []  # only a tool's name tells its calls from a list in prose
    if isinstance(dialect, DeclaredDialect):
        blocks = _Reader(dialect, dialect.format(tools), own)
        if dialect is MUSE:
            table = _MUSE_CALLS if told else _MUSE_TABLE
            return [_Reader(dialect, replace(blocks.format, table=table), own, turn=True), blocks]
        return [blocks]
    parser = dialect.parser(tools)
    return [_Reader(dialect, parser.format, own)] if isinstance(parser, BlockParser) else []


class Union:
    """Implements `Table` over the tables of many dialects, asking only those one of whose markers may stand there.

    The model's own dialects come first, then `current`, which is that of the last block, then the order of `DETECTION`:
    where several know a marker, the first whose body follows is taken, once nobody before it is undecided. Calls are
    known in every dialect; reasoning, results and noise only as the own and the current dialect write them, and while
    there is neither, where the marker itself can be no prose.
    """

    def __init__(self, readers: Sequence[_Reader]) -> None:
        self._owned = any(reader.own for reader in readers)
        self.current: _Reader | None = None
        self.closing = False
        self._readers = readers
        self.markers = [marker for reader in readers for marker in reader.format.table.markers]
        self._starts: dict[str, list[int]] = {}
        texts: set[str] = set()
        for i, reader in enumerate(readers):
            table = reader.format.table
            assert isinstance(table, MarkerTable), "the tables of single dialects are put together"
            texts |= table.starts
            for start in {text[:2].lower() for text in table.starts if text != "`"}:
                self._starts.setdefault(start, []).append(i)
        self._longer = {start[0] for start in self._starts if len(start) == 2}
        self.candidate = candidate_pattern(texts)

    def decide(self, held: str, in_code: bool, final: bool = False) -> Verdict:
        verdict = self._decide(held, in_code, final or self.closing)
        return "text" if verdict in ("undecided", "opened") and len(held) >= MAX_CANDIDATE else verdict

    def _decide(self, held: str, in_code: bool, final: bool) -> Verdict:
        start = 0
        if held[0] == "`":
            fence = FENCE.match(held)
            if fence is None or fence.end() == len(held):
                return "undecided" if FENCE_START.fullmatch(held) else "text"
            start = fence.end()
        elif in_code:
            return "text"
        two = held[start : start + 2].lower()
        if len(two) == 1 and two in self._longer and not final:
            return "undecided"
        waiting: Literal["text", "undecided", "opened"] = "text"
        found: _Owned | None = None
        exact = False
        for reader in self._ordered(two):
            verdict = reader.format.table.decide(held, in_code, final)
            if not isinstance(verdict, Found):
                if verdict != "text" and waiting != "opened" and (not final or self._is_known(reader)):
                    waiting = verdict
            elif self._admits(reader, verdict.marker):
                exact = _is_exact(verdict, held)
                if exact or found is None:
                    found = _Owned(verdict.marker, verdict.length, verdict.fenced, verdict.notes, reader)
                if exact:
                    break
        decided = waiting == "text" or (final and (exact or waiting == "undecided"))
        return found if found is not None and decided else waiting

    def _ordered(self, two: str) -> list[_Reader]:
        found = [self._readers[i] for i in sorted({*self._starts.get(two, ()), *self._starts.get(two[:1], ())})]
        found.sort(key=lambda reader: 0 if reader.own else 1 if reader is self.current else 2)
        return found

    def _admits(self, reader: _Reader, marker: Marker) -> bool:
        if marker.kind == "calls":
            return True
        alone = not self._owned and self.current is None
        return self._is_known(reader) and (not alone or _is_no_prose(marker))

    def _is_known(self, reader: _Reader) -> bool:
        """Whether it is of the own or the current dialect, if there is any."""
        return reader.own or reader is self.current or (not self._owned and self.current is None)


def _is_exact(found: Found, held: str) -> bool:
    """Whether the body begins as it should: a marker that expects JSON is also one before a tag, to report the mistake,
    and the other way round."""
    starts = found.marker.starts
    return not starts or found.length >= len(held) or (held[found.length] == "<") == (starts[0] == "<")


def _is_no_prose(marker: Marker) -> bool:
    """Whether a marker that opens no calls is known while the dialect is not: a word or an HTML tag may be prose."""
    return marker.text[0] in "<[" if marker.kind != "noise" else marker.text.startswith(("<|", "<｜"))


class AutoParser(BlockParser):
    """Implements `Parser`: every dialect's blocks in one turn.

    The first block fixes the batch rule. A dialect that is no sequence of blocks (Harmony, Muse) reads the rest of
    the turn from its first marker on.
    """

    def __init__(
        self, own: Sequence[Dialect], tools: Sequence[ToolSpec], starts_in: Section, told: bool = False
    ) -> None:
        readers = [
            reader
            for dialect in DETECTION
            for reader in _readers(dialect, tools, any(dialect is each for each in own), told)
        ]
        self._union = Union(readers)
        self._readers = readers
        turns = next((turns for turns in _TURNS if own and turns.dialect is own[0]), None)
        self._begins = turns.begins if turns else _begins_muse
        self._beginner = next(
            reader for reader in readers if reader.turn and reader.dialect is (turns.dialect if turns else MUSE)
        )
        self._tools = tools
        self._own = own
        self._rest: Parser | None = None
        self._first = self._offset = 0  # the index of the rest's first call, the rest's place in the turn
        batch = own[0].batch if own else BatchRule("all_calls")
        known = [reader.format.table.markers for reader in readers if not own or reader.own]
        thoughts = [each for markers in known for each in markers if each.kind == "reasoning"]
        thoughts = [marker for marker in thoughts if own or _is_no_prose(marker)]
        super().__init__(BlockFormat(self._union, batch, self._new_body), starts_in if thoughts else "text")
        if thoughts:
            self._thought = thoughts[0]
            self._thought_ends = tuple(dict.fromkeys(self._ends[marker] for marker in thoughts))
        if (not own or turns) and self._state == self._text:
            self._state = self._begin

    @property
    def dialect(self) -> str | None:
        """The dialect of the last block so far; before any, the model's own."""
        current = self._union.current
        return current.dialect.name if current else self._own[0].name if self._own else None

    def close(self, reason: FinishReason) -> list[Delta]:
        return self._settle(reason) + super().close(reason)

    def _settle(self, reason: FinishReason) -> list[Delta]:
        """Nothing follows: what waited for more is decided now."""
        out: list[Delta] = []
        if self._rest is not None:
            self._add(self._rest.close(reason), out)
        elif self._held and self._block is None and reason in NORMAL_END:
            self._union.closing = True
            out += self.feed("")
        return out

    def _new_body(self, marker: Marker, first_index: int, caps: Caps) -> Body:
        reader = self._union.current
        reader = reader or self._readers[0]  # the turn was cut off before it was clear whose block begins
        return reader.format.new_body(marker, first_index, caps)

    # States, besides those of any blocks.

    def _begin(self, text: str, position: int, out: list[Delta]) -> int:
        """At the start of a turn: prompts end where a header begins."""
        rest = text[position : position + MAX_CANDIDATE]
        begins = self._begins(rest)
        coming = begins is None and len(rest) < MAX_CANDIDATE
        if coming and not self._union.closing:
            self._held = text[position:]
            return len(text)
        if begins or (coming and self._beginner.own):
            return self._hand_over(self._beginner, position)
        self._state = self._text
        return position

    def _foreign(self, text: str, position: int, out: list[Delta]) -> int:
        assert self._rest is not None, "the rest of the turn without a reader is our bug"
        self._add(self._rest.feed(text[position:]), out)
        return len(text)

    def _open(self, found: Found, at: int) -> int:
        if isinstance(found, _Owned) and found.marker.kind == "calls" and found.reader is not None:
            reader = found.reader
            if reader.turn:
                return self._hand_over(reader, at)
            self._commit(reader)
            if not reader.own:
                found = replace(found, notes=(*found.notes, DIALECT_NOTE + reader.dialect.name))
        return super()._open(found, at)

    def _commit(self, reader: _Reader) -> None:
        if not self._batch.begun:
            self._batch.rule = reader.dialect.batch
        self._union.current = reader

    def _hand_over(self, reader: _Reader, at: int) -> int:
        self._commit(reader)
        self._rest = reader.dialect.parser(self._tools)
        if self._reasoning_kind is TextDelta:
            self._rest.keep_reasoning()
        self._first, self._offset = self._calls, self._position + at
        self._state = self._foreign
        return at

    def _add(self, deltas: Iterable[Delta], out: list[Delta]) -> None:
        """The deltas of the rest of the turn, in their place in the whole."""
        for delta in deltas:
            match delta:
                case BatchEnded():
                    self._end_rest(delta, out)
                case CallMalformed():
                    out.append(replace(delta, index=self._first + delta.index, offset=self._offset + delta.offset))
                case CallStarted() | ArgumentsDelta() | CallCompleted() | CallIgnored() if self._first:
                    out.append(replace(delta, index=self._first + delta.index))
                case _:
                    out.append(delta)

    def _end_rest(self, batch: BatchEnded, out: list[Delta]) -> None:
        selected = [self._first + index for index in batch.selected]
        reader = self._union.current
        notes = batch.notes if reader is None or reader.own else (*batch.notes, DIALECT_NOTE + reader.dialect.name)
        self._batch.take_over(replace(batch, notes=notes), selected, out)


@dataclass(frozen=True, slots=True)
class AutoDialect(WrappedDialect):
    """Implements `Dialect`: reads every dialect of the catalogue, and writes the model's own.

    Without a model it writes Hermes's, the one that most models have seen; `told` is the dialect whose instructions the
    model gets in place of its own. Calls in these two come first and without a note; a block in another dialect is read
    too, and its batch says so (`dialect:hermes`).
    """

    own: Dialect | None = None
    told: Dialect | None = None

    @property
    def written(self) -> Dialect:
        """The dialect of the instructions and of the history."""
        return self.told or self.own or HERMES

    @property
    def info(self) -> DialectInfo:
        return self.written.info if self.own or self.told else _INFO

    def parser(self, tools: Sequence[ToolSpec] = (), starts_in: Section = "text") -> Parser:
        return self.parser_of(AutoParser, tools, starts_in)

    def parser_of(self, kind: type[AutoParser], tools: Sequence[ToolSpec], starts_in: Section) -> Parser:
        """Where the turns of the model's own dialect are messages with headers (Harmony, Muse), blocks of other
        dialects are read up to the first header; behind it the message says to whom it goes, and what it tells the user
        is no call."""
        own = [dialect for dialect in (self.told, self.own) if dialect is not None]
        alone = self.own.parser(tools, starts_in) if self.own and not self.told else None
        if alone is not None and starts_in == "reasoning" and any(turns.dialect is self.own for turns in _TURNS):
            return alone
        parser = kind(own, tools, starts_in, self.told is not None)
        return alone.around(parser) if isinstance(alone, OpenedParser) else parser


_INFO = DialectInfo(
    "auto",
    "the dialect of the first marker that appears",
    "every dialect of the catalogue",
    "parallel",
    arguments="as the dialect found says",
    results="as hermes",
    reasoning="as the dialect found says",
)
