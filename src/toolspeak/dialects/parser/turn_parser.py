"""The base of all parsers: the loop over the states, the pending text, the fast path of a body, and the batch; and the
state that the parts of the block parser share.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import field
from typing import Literal

from toolspeak.data.deltas import BatchEnded, CallIgnored, Delta, ReasoningDelta, TextAside, TextDelta
from toolspeak.data.messages import NORMAL_END, FinishReason
from toolspeak.data.values import evolve, quick
from toolspeak.dialects.parser.attempts import end_of
from toolspeak.dialects.parser.block_format import BlockFormat, Echo
from toolspeak.dialects.readers.body import Body, PassThrough
from toolspeak.dialects.text.markdown import Markdown
from toolspeak.dialects.text.markers import NO_REASONING
from toolspeak.dialects.turn_rules import BatchRule, Section

ParserState = Callable[[str, int, list[Delta]], int]

LATE = "the turn's batch had ended already"
NOT_LAST = "only the last call of a turn counts"

MOST_UNREAD, LONGEST_UNREAD = 128, 64
"""How many pieces of text wait for `_read_up`, and how many characters a waiting piece has at most."""

MOST_UNCUT = 1 << 13
"""How many characters are stored besides those of `end_of`."""


@quick(frozen=False)
class TurnBatch:
    """The batch of one turn."""

    rule: BatchRule
    has_block: bool = False
    """A block began, so the batch has an end."""
    open: bool = True
    """The batch has not ended."""
    _candidates: list[int] = field(default_factory=list[int])  # the indexes of the calls that count so far
    _ok: bool = True
    _notes: tuple[str, ...] = ()

    def add(
        self,
        indexes: Sequence[int],
        malformed_indexes: Collection[int],
        notes: Sequence[str],
        out: list[Delta],
        *,
        broken: bool,
    ) -> None:
        """Adds the calls of a block that ended.

        `indexes`: all calls of the block; those in `malformed_indexes` do not count.
        `notes`: which deviations were accepted.
        `broken`: the block's end could not be read, so none of its calls counts.
        """
        if not self.open:
            out.extend(CallIgnored(index, LATE) for index in indexes)
        elif self.rule.counts == "last_call":
            out.extend(CallIgnored(index, NOT_LAST) for index in (*self._candidates, *indexes[:-1]))
            self._candidates, self._notes = [*indexes[-1:]], tuple(notes)
            self._ok = not broken and indexes[-1] not in malformed_indexes
        else:
            if not broken:
                self._candidates += (
                    [index for index in indexes if index not in malformed_indexes] if malformed_indexes else indexes
                )
            self._ok = self._ok and not broken and not malformed_indexes
            if notes:
                self._notes = (*self._notes, *(note for note in notes if note not in self._notes))
            if self.rule.counts == "first_block":
                self.close(out)

    def take_over(
        self, later: BatchEnded, selected_indexes: Sequence[int], malformed_indexes: Sequence[int], out: list[Delta]
    ) -> None:
        """Adds the batch of another parser, which read the rest of the turn.

        `selected_indexes` and `malformed_indexes` are those of its calls in this turn.
        """
        if not self.open:
            out.extend(CallIgnored(index, LATE) for index in sorted((*selected_indexes, *malformed_indexes)))
            return
        if self.rule.counts == "last_call":
            out.extend(CallIgnored(index, NOT_LAST) for index in self._candidates)
            self._candidates = []
        self._candidates += selected_indexes
        self._ok = self._ok and later.ok
        self._notes = (*self._notes, *later.notes)
        self.has_block = True

    def close(self, out: list[Delta]) -> None:
        """Ends the batch: the turn is over, or the model writes results itself. Later calls do not count."""
        if self.has_block and self.open:
            self.open = False
            selected_indexes = tuple(self._candidates) if self._ok or self.rule.counts != "last_call" else ()
            out.append(BatchEnded(selected_indexes, self._ok, self._notes))

    def copy(self) -> TurnBatch:
        """A copy that later additions do not change."""
        return evolve(self, _candidates=[*self._candidates])


def _over(text: str, _position: int, _out: list[Delta]) -> int:
    """The state after the turn."""
    return len(text)


class TurnParser(ABC):
    """Implements `Parser` for states. Each state takes text from text[position:] and returns where the next one begins.

    A state that needs more characters puts the rest into `_pending`.
    """

    _state: ParserState
    _text_state: ParserState  # the state that `_plain` replaces
    # Few turns set these, so they are attributes of the class: each turn makes a parser.
    _reasoning_kind: type[TextDelta | ReasoningDelta] = ReasoningDelta
    _quoting: bool = False  # whether the text so far ends inside inline code

    def __init__(self, rule: BatchRule) -> None:
        self._batch: TurnBatch = TurnBatch(rule)
        # Instance attributes: they are read often, and reading a class attribute takes five times as long.
        self._calls: int = 0
        self._pass_through: PassThrough | None = None
        self._pending: str = ""  # an undecided candidate of at most MAX_CANDIDATE characters
        self._position: int = 0  # the offset in the turn of the pending text, or else of the next chunk

    def feed(self, chunk: str) -> list[Delta]:
        if self._pass_through is not None:
            deltas = self._pass_through.take(chunk)
            if deltas is not None:
                return deltas
            self._end_pass_through(self._pass_through)
        plain = self._plain(chunk)
        if plain is not None:
            return plain
        out: list[Delta] = []
        text = self._pending + chunk if self._pending else chunk
        position, end = 0, len(text)
        self._pending = ""
        while position < end and not self._pending:
            position = self._state(text, position, out)
        self._position += end - len(self._pending)
        return out

    def close(self, reason: FinishReason) -> list[Delta]:
        out: list[Delta] = []
        if self._pass_through is not None:
            self._end_pass_through(self._pass_through)
            out += self.feed("")
        self._end(out, reason in NORMAL_END)
        self._pending = ""
        self._batch.close(out)
        # A bound method is a reference cycle, which would keep the turn's text until the garbage collector runs.
        self._state = self._text_state = _over
        return out

    def keep_reasoning(self) -> None:
        self._reasoning_kind = TextDelta

    def _plain(self, chunk: str) -> list[Delta] | None:
        """The deltas of a chunk of plain text; None if the states must read the chunk."""
        return None

    @abstractmethod
    def _end(self, out: list[Delta], normal: bool) -> None:
        """Ends the turn after the pending text. The caller closes the batch afterwards."""

    def _end_pass_through(self, pass_through: PassThrough) -> None:
        self._position += pass_through.end()
        self._pending, self._pass_through = pass_through.rest, None

    def _hold(self, text: str, position: int) -> int:
        self._pending = text[position:]
        return len(text)

    def _await_more(self, body: Body, text: str, stop: int) -> int:
        """Waits for more text after text[stop:], or lets the body's fast path take the next chunks."""
        if stop < len(text):
            return self._hold(text, stop)
        self._pass_through = body.pass_through()
        return stop


class BlockState(TurnParser):
    """The state of the block parser, and the text so far."""

    # Few turns set these, so they are attributes of the class: an object with over thirty attributes is slow.
    shown_chars: int = 0  # characters of text that waited and was not a call: examples, drafts
    _thought_chars: int = 0
    _uncut: int = 0  # how many characters came since `_read_pieces` was cut
    _depth: int = 0  # how many reasoning markers are open
    _may_repeat_start: bool = False  # the model may yet write the marker that the prompt ended with
    _had_text: bool = False  # whether the turn has any text, up to the last reasoning

    def __init__(self, format: BlockFormat, starts_in: Section = "text") -> None:  # noqa: A002
        super().__init__(format.batch)
        # In a draft's reader: the bodies of the blocks that ended, with None for a broken one.
        self._raws: list[str | None] | None = None
        self._ending: Literal["", "cut", "normal"] = ""  # how the turn ends after the pending text; empty: it continues
        self._markdown: Markdown | None = None  # made on first use
        self._echo: Echo | None = None  # of the block that ended, while only white space follows it
        self._silent: bool = True  # whether there is no text since the last block or reasoning
        self._text_kind: type[TextDelta | TextAside] = TextDelta
        self._format = format
        self._table, self._candidate = format.table, format.table.candidate
        self._marks = markup = format.table.markup
        self._thought = markup.thought
        self._thought_ends = markup.thought_ends  # the prompt may have opened any of them
        if self._thought is NO_REASONING:
            starts_in = "text"  # a dialect without reasoning always starts in text
        self._text_state = self._state = self._text  # one bound method, to compare each chunk's state with
        if starts_in == "reasoning":
            self._state = self._label if self._thought.label else self._reasoning
            self._depth, self._may_repeat_start = 1, True
        # The text or reasoning since the last block, which gives the place of a marker.
        self._read_pieces: list[str] = []  # the part that `_markdown` has read
        self._unread: list[str] = []  # the rest: most of it needs no place
        # What an unmatched end marker of reasoning ends: all of the turn so far, or, after reasoning, only itself.
        # Empty: such a marker is text.
        self._may_end: Literal["turn", "nothing", ""] = "turn" if starts_in == "text" and self._thought_ends else ""

    @abstractmethod
    def _text(self, text: str, position: int, out: list[Delta]) -> int: ...

    @abstractmethod
    def _reasoning(self, text: str, position: int, out: list[Delta]) -> int: ...

    @abstractmethod
    def _label(self, text: str, position: int, out: list[Delta]) -> int: ...

    def keep_reasoning(self) -> None:
        super().keep_reasoning()
        self._may_end = ""

    @property
    def _has_text(self) -> bool:
        return self._had_text or not self._silent

    def _read_up(self) -> Markdown:
        """The place where the text so far ends."""
        here = self._markdown
        if here is None:
            here = self._markdown = Markdown()
        if self._unread:
            text = "".join(self._unread)
            here.add(text)
            self._unread.clear()
            self._read_pieces.append(text)
            self._uncut += len(text)
            if len(self._read_pieces) > MOST_UNREAD or self._uncut > MOST_UNCUT:
                self._compact_pieces()
        return here

    @property
    def _tail(self) -> str:
        """The end of the text so far. Does not read it."""
        return (self._markdown.tail if self._markdown else "") + "".join(self._unread)

    def _read_on(self, here: Markdown | None, text: str, start: int, stop: int) -> Markdown:
        """The place of text[stop]. `here` is the place of text[start]; None: the end of the text so far."""
        here = here or self._read_up()
        if here is self._markdown and (stop > start or not here.is_new):  # a new one only changes with more text
            here = here.copy()
        if stop > start:
            here.add(text[start:stop])
        return here

    def _begin_section(self) -> None:
        """Begins a new section: the following text does not continue the text so far."""
        self._markdown = None
        if self._unread or self._read_pieces:
            self._unread.clear()
            self._read_pieces.clear()

    def _emit(
        self,
        kind: type[TextDelta | ReasoningDelta],
        text: str,
        start: int,
        stop: int,
        out: list[Delta],
        read_as: str | None = None,
    ) -> int:
        """Sends text[start:stop]. If `read_as` is given, `_markdown` reads that instead."""
        if stop > start:
            piece = text[start:stop]
            self._unread.append(piece if read_as is None else read_as)
            if len(self._unread) > MOST_UNREAD or len(piece) > LONGEST_UNREAD:
                self._read_up()
            if kind is TextDelta:
                if self._silent and not piece.isspace():
                    self._start_text()
                out.append(self._text_kind(piece))
            else:
                self._thought_chars += len(piece)
                out.append(kind(piece))
        return stop

    def _start_text(self) -> re.Pattern[str]:
        """Records that the turn has text since reasoning ended. Returns the pattern of candidates in text."""
        self._silent = False
        self._table = self._format.table.for_turn(has_text=True)
        self._candidate = self._table.candidate
        return self._candidate

    def _markup(self, text: str, start: int, stop: int, out: list[Delta]) -> None:
        """Sends the markers of reasoning as text if reasoning stays in the text."""
        if self._reasoning_kind is TextDelta:
            self._emit(TextDelta, text, start, stop, out)

    def _compact_pieces(self) -> list[str]:
        """Joins what was read into one piece, so that a copy takes constant time."""
        self._uncut = 0
        self._read_pieces = [end_of(self._read_pieces)] if self._read_pieces else []
        return self._read_pieces

    def _forget_pieces(self) -> None:
        """Drops the text so far: no call can begin in it."""
        self._read_up()
        self._read_pieces.clear()
