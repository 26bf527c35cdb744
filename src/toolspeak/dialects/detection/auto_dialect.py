"""The dialect `auto`: reads a turn in any dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from toolspeak.data.deltas import (
    DIALECT_NOTE,
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallIgnored,
    CallMalformed,
    CallStarted,
    Delta,
    ForgedResults,
    TextDelta,
)
from toolspeak.data.messages import NORMAL_END, FinishReason
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import Dialect, DialectInfo, Parser
from toolspeak.dialects.detection.detection_index import TURNS, IdentityKey, Reader, shared_readers
from toolspeak.dialects.detection.wrapped_dialect import WrappedDialect
from toolspeak.dialects.models.hermes import HERMES
from toolspeak.dialects.parser.block_format import BlockFormat
from toolspeak.dialects.parser.blocks import BlockParser
from toolspeak.dialects.parser.prefill import PrefilledParser
from toolspeak.dialects.parser.quotes import QuoteKind
from toolspeak.dialects.parser.reasoning import ThinkingParser
from toolspeak.dialects.readers.body import Body
from toolspeak.dialects.text.markdown import Markdown
from toolspeak.dialects.text.markers import Marker, MarkerMatch
from toolspeak.dialects.text.scan import MAX_CANDIDATE, Caps
from toolspeak.dialects.turn_rules import BatchRule, Section

_ALL = BatchRule("all_calls")


class AutoParser(BlockParser):
    """Implements `Parser`: reads every dialect's blocks in one turn.

    The first block fixes the batch rule. A dialect whose turns are messages (Harmony, Muse) reads the rest of the turn
    from its first marker on. `own`: the dialects that come first. With `other_prompt` the first of them is the one
    that the prompt teaches, not the model's own.
    """

    def __init__(
        self, own: Sequence[Dialect], tools: Sequence[ToolSpec], starts_in: Section, other_prompt: bool = False
    ) -> None:
        reader_set = shared_readers(IdentityKey(own), IdentityKey(tools), other_prompt)
        self._union = reader_set.union.of_a_turn()
        self._readers = reader_set.readers
        self._begins, self._beginner = reader_set.begins, reader_set.beginner
        self._tools = tools
        self._own, self._other_prompt = own, other_prompt
        self._rest: Parser | None = None
        self._first = self._offset = 0  # the index of the rest's first call, the rest's place in the turn
        self._malformed_indexes: list[int] = []  # the indexes of the rest's malformed calls
        batch = own[0].batch if own else _ALL
        # Without a model's own dialect, examples for the model are in Hermes's form, as those of `AutoDialect`.
        names = {} if own else {spec.name: spec for spec in tools}
        format = BlockFormat(self._union, batch, self._new_body, names, writes=HERMES.example)  # noqa: A001
        super().__init__(format, starts_in if reader_set.thinks else "text")
        if reader_set.may_begin and self._state == self._text:
            self._state = self._begin

    @property
    def dialect(self) -> str | None:
        """The dialect of the last block; before the first block the model's own."""
        current = self._union.current
        return current.dialect.name if current else self._own[0].name if self._own else None

    @property
    def _block_format(self) -> BlockFormat:
        reader = self._union.current or next((reader for reader in self._readers if reader.own), None)
        return reader.format if reader else self._format

    def close(self, reason: FinishReason) -> list[Delta]:
        return self._settle(reason) + super().close(reason)

    def _settle(self, reason: FinishReason) -> list[Delta]:
        """Decides about the text that waits for more, as nothing follows."""
        out: list[Delta] = []
        if self._rest is not None:
            self._add(self._rest.close(reason), out)
        elif self._pending and self._block is None and reason in NORMAL_END:
            self._union.closing = True
            out += self.feed("")
        return out

    def _new_body(self, marker: Marker, first_index: int, caps: Caps, _tools: Mapping[str, ToolSpec]) -> Body:
        reader = self._union.current
        reader = reader or self._readers[0]  # the turn was cut off before it was clear whose block begins
        return reader.format.new_body(marker, first_index, caps, reader.format.tools)

    # States, besides those of blocks.

    def _draft_parser(self) -> AutoParser:
        parser = AutoParser(self._own, self._tools, "text", self._other_prompt)
        parser._union.current, parser._state = self._union.current, parser._text
        return parser

    def _format_of(self, match: MarkerMatch) -> BlockFormat:
        return match.reader.format if isinstance(match.reader, Reader) else self._format

    def _suspicion(self, match: MarkerMatch, here: Markdown) -> QuoteKind | None:
        turn = isinstance(match.reader, Reader) and match.reader.turn
        return None if turn else super()._suspicion(match, here)

    def _save_state(self) -> Any:
        return super()._save_state(), self._union.current

    def _restore_state(self, place: Any) -> None:
        place, self._union.current = place
        super()._restore_state(place)

    def _adopt(self, reader: ThinkingParser) -> None:
        super()._adopt(reader)
        if isinstance(reader, AutoParser):
            self._union.current = reader._union.current

    def _begin(self, text: str, position: int, out: list[Delta]) -> int:
        """Before the turn's first text, which may be the rest of a header that the prompt has begun."""
        rest = text[position : position + MAX_CANDIDATE]
        begins = self._begins(rest)
        coming = begins is None and len(rest) < MAX_CANDIDATE
        if coming and not self._union.closing:
            self._pending = text[position:]
            return len(text)
        if begins or (coming and self._beginner.own):
            return self._hand_over(self._beginner, position)
        self._state = self._text_state
        return position

    def _foreign(self, text: str, position: int, out: list[Delta]) -> int:
        assert self._rest is not None, "the rest of the turn without a reader is our bug"
        self._add(self._rest.feed(text[position:]), out)
        return len(text)

    def _open(self, match: MarkerMatch, at: int) -> int:
        reader = match.reader
        if isinstance(reader, Reader) and match.marker.kind == "calls":
            if reader.turn:
                return self._hand_over(reader, at)
            self._commit(reader)
            if not reader.own:
                match = replace(match, notes=(*match.notes, DIALECT_NOTE + reader.dialect.name))
        return super()._open(match, at)

    def _commit(self, reader: Reader) -> None:
        if not self._batch.has_block:
            self._batch.rule = reader.dialect.batch
        self._union.current = reader

    def _hand_over(self, reader: Reader, at: int) -> int:
        self._commit(reader)
        self._rest = reader.dialect.parser(self._tools)
        if self._reasoning_kind is TextDelta:
            self._rest.keep_reasoning()
        self._first, self._offset = self._calls, self._position + at
        self._state = self._foreign
        return at

    def _add(self, deltas: Iterable[Delta], out: list[Delta]) -> None:
        """Adds the deltas of the rest of the turn, with their indexes and offsets in the whole turn."""
        for delta in deltas:
            match delta:
                case BatchEnded():
                    self._end_rest(delta, out)
                case ForgedResults():
                    self._batch.close(out)  # for calls before the rest
                    out.append(delta)
                case CallMalformed():
                    self._malformed_indexes.append(self._first + delta.index)
                    out.append(replace(delta, index=self._first + delta.index, offset=self._offset + delta.offset))
                case CallStarted() | ArgumentsDelta() | CallCompleted() | CallIgnored() if self._first:
                    out.append(replace(delta, index=self._first + delta.index))
                case _:
                    out.append(delta)

    def _end_rest(self, batch: BatchEnded, out: list[Delta]) -> None:
        selected_indexes = [self._first + index for index in batch.selected]
        reader = self._union.current
        notes = batch.notes if reader is None or reader.own else (*batch.notes, DIALECT_NOTE + reader.dialect.name)
        self._batch.take_over(replace(batch, notes=notes), selected_indexes, self._malformed_indexes, out)
        self._batch.close(out)


NewAutoParser: TypeAlias = Callable[[Sequence[Dialect], Sequence[ToolSpec], Section, bool], AutoParser]


@dataclass(frozen=True, slots=True)
class AutoDialect(WrappedDialect):
    """Implements `Dialect`: reads every dialect of the catalogue, and writes one.

    Calls in `own` and in `prompt_dialect` are read first and get no note. The batch of a block in another dialect has
    a note with its name (`dialect:hermes`).
    """

    own: Dialect | None = None
    """The model's own dialect, None if it is unknown."""
    prompt_dialect: Dialect | None = None
    """The dialect that the prompt teaches, None for `own`; without either it is Hermes, which most models know."""

    @property
    def renderer(self) -> Dialect:
        """The dialect of the prompt and of the history."""
        return self.prompt_dialect or self.own or HERMES

    @property
    def info(self) -> DialectInfo:
        return self.renderer.info if self.own or self.prompt_dialect else _INFO

    def parser(self, tools: Sequence[ToolSpec] = (), starts_in: Section = "text") -> Parser:
        return self.parser_of(AutoParser, tools, starts_in)

    def parser_of(self, kind: NewAutoParser, tools: Sequence[ToolSpec], starts_in: Section) -> Parser:
        """The parser of a turn, of class `kind`.

        If the turns of the model's own dialect are messages with headers (Harmony, Muse), blocks of other dialects are
        read up to the first header only: after it a header says which messages are calls.
        """
        own = [dialect for dialect in (self.prompt_dialect, self.own) if dialect is not None]
        alone = self.own.parser(tools, starts_in) if self.own and not self.prompt_dialect else None
        if alone is not None and starts_in == "reasoning" and any(turns.dialect is self.own for turns in TURNS):
            return alone
        parser = kind(own, tools, starts_in, self.prompt_dialect is not None)
        return alone.around(parser) if isinstance(alone, PrefilledParser) else parser


_INFO = DialectInfo(
    "auto",
    "the dialect of the first marker that appears",
    "every dialect of the catalogue",
    arguments="as the dialect found says",
    results="as hermes",
    reasoning="as the dialect found says",
)
