"""The blocks that `auto` searches for: those of every dialect, and their allowed places."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import is_
from typing import Literal, cast

from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import evolve, quick
from toolspeak.dialects.base import Dialect
from toolspeak.dialects.declarations.declared_dialect import DeclaredDialect
from toolspeak.dialects.models import muse
from toolspeak.dialects.models.harmony import HARMONY
from toolspeak.dialects.models.muse import MUSE
from toolspeak.dialects.models.pythonic import BareDialect
from toolspeak.dialects.parser import harmony_parser
from toolspeak.dialects.parser.block_format import BlockFormat
from toolspeak.dialects.parser.blocks import BlockParser
from toolspeak.dialects.readers.body import Body
from toolspeak.dialects.registry import DETECTION, load_dialect
from toolspeak.dialects.text.block_delimiters import Follows, Starts, beginnings
from toolspeak.dialects.text.candidates import candidate_pattern
from toolspeak.dialects.text.markdown import FENCE, FENCE_START
from toolspeak.dialects.text.markers import (
    Marker,
    MarkerDecision,
    MarkerMatch,
    MarkerTable,
    markup_of,
)
from toolspeak.dialects.text.scan import MAX_CANDIDATE, Caps

_HARMONY_HEAD = re.compile(r"<\|start\|>assistant(?:\s+to=[^\s<]+)?\s*<\|channel\|>|<\|channel\|>\s*[a-z]")
_HARMONY_CALL = re.compile(r"<\|start\|>assistant\s+to=[^\s<]+\s*<\|channel\|>|<\|channel\|>\s*[a-z]+\s+to=")
_MUSE_HEAD = re.compile(r"\s*(?:<\|start\|>assistant)?\s+to=[^\s<]+<\|message\|>")
_MUSE_CALL = re.compile(r"<\|start\|>assistant\s+to=(?!(?:user|self)<)[^\s<]+<\|message\|>")
_MUSE_OPENED = re.compile(r"\s+(?:t(?:o(?:=(?:[^\s<]+(?:<[|a-z]*)?)?)?)?)?")
"""The beginning of an addressee, with which a turn of Muse begins after its prompt."""


@quick()
class Reader:
    """One dialect as `auto` reads it."""

    dialect: Dialect
    format: BlockFormat
    own: bool = False
    """Whether it is the model's own, or the one that the prompt teaches."""
    turn: bool = False
    """Whether it reads the whole rest of the turn from its marker on."""


def _turn_marker(text: str, head: re.Pattern[str]) -> Marker:
    def follows(rest: str) -> bool | None:
        if head.match(text + rest):
            return True
        # Both heads are a few words of a certain shape, so the next token decides.
        return None if rest.count("<") < 2 and "\n" not in rest else False

    return Marker("calls", text, None, Follows(follows))


@quick()
class _Turns:
    """A dialect whose turns are messages with headers."""

    dialect: Dialect
    begins: Callable[[str], bool | None]
    """Whether a text begins with a header; None asks for more text."""
    tokens: tuple[str, ...]
    """The tokens that belong to the dialect anywhere in a turn."""

    def reader(self) -> Reader:
        table = MarkerTable([Marker("calls", token, None) for token in self.tokens])
        return Reader(self.dialect, BlockFormat(table, self.dialect.batch, _no_body), own=True, turn=True)


def _no_body(_marker: Marker, _first_index: int, _caps: Caps, _tools: Mapping[str, ToolSpec]) -> Body:
    raise AssertionError("the rest of a turn has a parser, not a body")


TURNS = (_Turns(HARMONY, harmony_parser.begins_turn, harmony_parser.TOKENS), _Turns(MUSE, muse.begins_turn, muse.ENDS))
_HARMONY_TABLE, _HARMONY_CALLS = (
    MarkerTable([_turn_marker(text, head) for text in ("<|start|>assistant", "<|channel|>")])
    for head in (_HARMONY_HEAD, _HARMONY_CALL)
)
_MUSE_TABLE, _MUSE_CALLS = (
    MarkerTable([_turn_marker("<|start|>assistant", head)]) for head in (_MUSE_HEAD, _MUSE_CALL)
)


def _begins_muse(text: str) -> bool | None:
    return True if _MUSE_HEAD.match(text) else None if _MUSE_OPENED.fullmatch(text) else False


def _readers(dialect: Dialect, tools: Sequence[ToolSpec], own: bool, other_prompt: bool) -> list[Reader]:
    """The readers of one dialect.

    `other_prompt`: the prompt teaches another dialect than the model's own. So any message may hold a block of the
    prompt's dialect, and only messages that are calls are read as the model's own.
    """
    if own and not other_prompt and (turns := next((turns for turns in TURNS if turns.dialect is dialect), None)):
        return [turns.reader()]
    if dialect is HARMONY:
        table = _HARMONY_CALLS if other_prompt else _HARMONY_TABLE
        return [Reader(dialect, replace(HARMONY.format(tools), table=table), own, turn=True)]
    if isinstance(dialect, BareDialect) and not tools and not own:
        return []  # only a tool's name distinguishes its calls from a list in prose
    if isinstance(dialect, DeclaredDialect):
        blocks = Reader(dialect, dialect.format(tools), own)
        if dialect is MUSE:
            table = _MUSE_CALLS if other_prompt else _MUSE_TABLE
            return [Reader(dialect, replace(blocks.format, table=table), own, turn=True), blocks]
        return [blocks]
    parser = dialect.parser(tools)
    return [Reader(dialect, parser.format, own)] if isinstance(parser, BlockParser) else []


class _TableIndex:
    """The tables of many dialects by the beginning of a candidate. `has_text`: for turns that have text already."""

    def __init__(self, readers: Sequence[Reader], end: str, has_text: bool) -> None:
        self._readers: list[tuple[Reader, MarkerTable]] = []
        self._starts: dict[str, list[int]] = {}
        for i, reader in enumerate(readers):
            table = reader.format.table.for_turn(has_text)
            assert isinstance(table, MarkerTable), "the tables of single dialects are put together"
            self._readers.append((reader, table))
            for start in {text[:2].lower() for text in table.starts if text not in "`~"}:
                self._starts.setdefault(start, []).append(i)
        self.orders = {start: self._in_order(start) for start in self._starts}
        self.longer = {start[0] for start in self._starts if len(start) == 2}
        self.candidate = candidate_pattern([table.beginnings for _, table in self._readers], end)

    def _in_order(self, start: str) -> list[tuple[Reader, MarkerTable]]:
        """The tables with a marker that begins so, or with its first character; the model's own first."""
        tables = [self._readers[i] for i in sorted({*self._starts[start], *self._starts.get(start[:1], ())})]
        return sorted(tables, key=lambda each: not each[0].own)


class CombinedTable:
    """Implements `Table` over the tables of many dialects. Asks only those with a marker that may begin there.

    The model's own dialects come first, then `current`, which is that of the last block, then the others in the order
    of `DETECTION`. If several know a marker, the first one whose body follows wins, once no earlier one is undecided.
    Markers of calls count in every dialect. Markers of reasoning, results and noise count in the own and the current
    dialect; without either, in all dialects if the marker cannot be prose.
    """

    def __init__(self, readers: Sequence[Reader]) -> None:
        self._has_own = any(reader.own for reader in readers)
        self.current: Reader | None = None
        self.closing = False
        self.markers = [marker for reader in readers for marker in reader.format.table.markers]
        self.markup = evolve(markup_of(self.markers), fenced=False)  # most dialects do not use fences
        end = self.markup.lone_beginning
        self._indexes = _TableIndex(readers, end, False), _TableIndex(readers, end, True)
        self._index = self._indexes[False]
        self._readers_with_forms = {
            id(reader) for reader in readers if any(marker.forms for marker in reader.format.table.markers)
        }

    def of_a_turn(self) -> CombinedTable:
        """A copy for one turn, with its own current dialect."""
        new = object.__new__(CombinedTable)
        vars(new).update(vars(self))
        return new

    @property
    def candidate(self) -> re.Pattern[str]:
        return self._index.candidate

    def for_turn(self, has_text: bool) -> CombinedTable:
        self._index = self._indexes[has_text]
        return self

    def decide(self, text: str, final: bool = False, forms: bool = True) -> MarkerDecision:
        verdict = self._decide(text, final or self.closing)
        return "text" if verdict in ("undecided", "opened") and len(text) >= MAX_CANDIDATE else verdict

    def marker_at(self, text: str, at: int) -> MarkerMatch | None:
        best: MarkerMatch | None = None
        rank = -1
        window = text[at : at + MAX_CANDIDATE]
        for reader, table in self._tables_in_order(text[at : at + 2].lower()):
            match = None if reader.turn else table.marker_at(text, at)
            if match is None:
                continue
            end = match.marker.end  # two dialects may begin in the same way and end differently
            fits = 0 if end is None else 1 + (end in window)
            if fits > rank:
                best, rank = evolve(match, reader=reader), fits
        return best

    def _decide(self, candidate: str, final: bool) -> MarkerDecision:
        start = 0
        if candidate[0] in "`~":
            fence = FENCE.match(candidate)
            if fence is None or fence.end() == len(candidate):
                return "undecided" if FENCE_START.fullmatch(candidate) else "text"
            start = fence.end()
        two = candidate[start : start + 2].lower()
        if len(two) == 1 and two in self._index.longer and not final:
            return "undecided"
        waiting: Literal["text", "undecided", "opened"] = "text"
        match: MarkerMatch | None = None
        exact = False
        tables = self._tables_in_order(two)
        for reader, table in tables:
            verdict = table.decide(candidate, final, forms=False)
            if not isinstance(verdict, MarkerMatch):
                if verdict != "text" and waiting != "opened" and (not final or self._is_known(reader)):
                    waiting = verdict
            elif self._admits(reader, verdict.marker):
                exact = _is_exact(verdict, candidate) and verdict.marker.place == "anywhere"
                if exact or match is None:
                    match = evolve(verdict, reader=reader)
                if exact:
                    break
        if not exact and waiting == "text":
            other = self._other_form(candidate, final, tables)
            return match if other == "text" and match is not None else other
        is_decided = waiting == "text" or (final and (exact or waiting == "undecided"))
        return match if match is not None and is_decided else waiting

    def _other_form(self, candidate: str, final: bool, tables: Sequence[tuple[Reader, MarkerTable]]) -> MarkerDecision:
        """The decision about a block in a form that its own dialect does not write."""
        for reader, table in tables:
            verdict = table.decide(candidate, final) if id(reader) in self._readers_with_forms else "text"
            if verdict != "text":
                return evolve(verdict, reader=reader) if isinstance(verdict, MarkerMatch) else verdict
        return "text"

    def _tables_in_order(self, two: str) -> list[tuple[Reader, MarkerTable]]:
        orders, current = self._index.orders, self.current
        order = orders.get(two) or orders.get(two[:1], [])
        if current is None or current.own or not any(reader is current for reader, _ in order):
            return order
        return sorted(order, key=lambda each: 0 if each[0].own else 1 if each[0] is current else 2)

    def _admits(self, reader: Reader, marker: Marker) -> bool:
        if marker.kind == "calls":
            return True
        alone = not self._has_own and self.current is None
        return self._is_known(reader) and (not alone or _cannot_be_prose(marker))

    def _is_known(self, reader: Reader) -> bool:
        """Whether the reader's dialect is an own or the current one, if there is such a dialect."""
        return reader.own or reader is self.current or (not self._has_own and self.current is None)


def _is_exact(match: MarkerMatch, text: str) -> bool:
    """Whether the body begins in the dialect's own form.

    A marker that expects JSON also counts before a tag, so that the mistake is reported, and vice versa.
    """
    opening = match.marker.opening
    if not isinstance(opening, Starts) or match.length >= len(text):
        return True
    return (text[match.length] == "<") == (opening.chars[0] == "<")


def _cannot_be_prose(marker: Marker) -> bool:
    """Whether a marker that opens no calls counts while the dialect is unknown: a word or an HTML tag may be prose."""
    return marker.text[0] in "<[" if marker.kind != "noise" else marker.text.startswith(("<|", "<｜"))


class IdentityKey:
    """A sequence as the key of a cache. It compares by the identity of its items, and keeps them alive."""

    __slots__ = ("_hash", "items")

    def __init__(self, items: Sequence[object]) -> None:
        self.items = tuple(items)
        self._hash = hash(tuple(map(id, self.items)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IdentityKey) or len(other.items) != len(self.items):
            return False
        return all(map(is_, self.items, other.items))

    def __hash__(self) -> int:
        return self._hash


@quick()
class SharedReaders:
    """What all turns with the same dialects and tools share."""

    readers: Sequence[Reader]
    union: CombinedTable
    begins: Callable[[str], bool | None]
    """Whether a turn begins with a header; None asks for more text."""
    beginner: Reader
    """Reads a turn that begins with a header."""
    may_begin: bool
    """Whether a turn may begin with a header."""
    thinks: bool
    """Whether a prompt may have opened reasoning."""


# An agent has one set of tools for all its turns. An entry takes a millisecond and 70 KB.
@lru_cache(maxsize=64)
def shared_readers(own: IdentityKey, tools: IdentityKey, other_prompt: bool) -> SharedReaders:
    dialects, specs = cast("Sequence[Dialect]", own.items), cast("Sequence[ToolSpec]", tools.items)
    readers = [
        reader
        for dialect in map(load_dialect, DETECTION)
        for reader in _readers(dialect, specs, any(dialect is each for each in dialects), other_prompt)
    ]
    union = CombinedTable(readers)
    turns = next((turns for turns in TURNS if dialects and turns.dialect is dialects[0]), None)
    first = turns.dialect if turns else MUSE
    markers = [reader.format.table.markers for reader in readers if not dialects or reader.own]
    thoughts = [each for table_markers in markers for each in table_markers if each.kind == "reasoning"]
    thoughts = [marker for marker in thoughts if dialects or _cannot_be_prose(marker)]
    if thoughts:
        ends = tuple(dict.fromkeys(union.markup.ends[marker] for marker in thoughts))
        starts = beginnings(ends)
        union.markup = evolve(union.markup, thought=thoughts[0], thought_ends=ends, thought_end_starts=starts)
    return SharedReaders(
        readers,
        union,
        turns.begins if turns else _begins_muse,
        next(reader for reader in readers if reader.turn and reader.dialect is first),
        not dialects or turns is not None,
        bool(thoughts),
    )
