"""The state that the parts of the block parser share: the format, the open block, and the text so far."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Literal

from toolspeak.data.deltas import Delta, ReasoningDelta, TextAside, TextDelta
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.parser.attempts import end_of
from toolspeak.dialects.parser.turn_parser import TurnParser
from toolspeak.dialects.readers.body import Body
from toolspeak.dialects.text.end_marker import EndMarker
from toolspeak.dialects.text.markdown import Markdown
from toolspeak.dialects.text.markers import NO_REASONING, Marker, Table
from toolspeak.dialects.text.scan import MAX_CANDIDATE, Buffer, Caps, Problem
from toolspeak.dialects.turn_rules import BatchRule, Section

MOST_UNREAD, LONGEST_UNREAD = 128, 64
"""How many pieces of text wait for `_read_up`, and how many characters a waiting piece has at most."""

MOST_UNCUT = 1 << 13
"""How many characters are stored besides those of `end_of`."""

NewBody = Callable[[Marker, int, Caps, Mapping[str, ToolSpec]], Body]
"""Makes the reader of a block from its marker, the index of its first call, the limits, and the known tools by name."""


def no_example(_tools: Sequence[ToolSpec]) -> str:
    return ""


@quick()
class BlockFormat:
    """A dialect of marked blocks."""

    table: Table
    """Recognises the markers. A prompt may have opened the first reasoning marker."""
    batch: BatchRule
    new_body: NewBody
    tools: Mapping[str, ToolSpec] = field(default_factory=dict[str, ToolSpec])
    """The known tools by name. Without any, every name may be a tool."""
    caps: Caps = Caps()
    text_aside: bool = False
    """The text after a block of calls is not part of the answer (`DialectInfo.text_aside`)."""
    thoughts_hide: bool = False
    """No call in reasoning runs, with or without an end of reasoning."""
    writes: Callable[[Sequence[ToolSpec]], str] = no_example
    """Writes a call of one of the tools: the example for a model whose call is unreadable."""

    @property
    def example(self) -> str:
        """A call of one of the tools, as the model should write it."""
        return self.writes(tuple(self.tools.values()))


@quick(frozen=False)
class OpenBlock:
    """A block and the reader of its body."""

    marker: Marker
    end: EndMarker | None
    body: Body
    notes: tuple[str, ...]
    """Which deviations were accepted."""
    fence: str
    """The code fence around the block; empty without one."""
    problem: Problem | None = None
    """Why the block is unreadable. None of its calls counts then."""
    offset: int = 0
    """The offset of the problem in the turn."""


@quick(frozen=False, eq=False)
class Echo:
    """Recognises a block that the model repeats right after its end marker, without the start marker (LFM2).

    The repetition is the block's body and its end marker, byte for byte, after optional white space. Its first
    `MAX_CANDIDATE` characters decide.
    """

    body: Buffer
    end: str
    opens: Callable[[str], bool]
    """Whether a text begins a call by itself, so that it is no repetition."""
    _whole: str = ""
    _progress: int = 0  # how many characters of `_whole` were read

    def read(self, text: str, position: int) -> tuple[Literal["none", "undecided", "more", "over"], int]:
        """Which part of a repetition text[position:] is, and where that part ends."""
        if self._progress:
            return self._continue(text, position, position)
        window = text[position : position + MAX_CANDIDATE]
        rest = window.lstrip()
        if not rest:
            return "undecided" if len(window) < MAX_CANDIDATE else "none", position
        self._whole = self._whole or self.body.value().lstrip() + self.end
        length = min(len(rest), len(self._whole))
        if rest[:length] != self._whole[:length] or self.opens(self._whole[:MAX_CANDIDATE]):
            return "none", position
        if length < len(self._whole) and len(window) < MAX_CANDIDATE:
            return "undecided", position
        return self._continue(text, position, position + len(window) - len(rest))

    def _continue(self, text: str, position: int, start: int) -> tuple[Literal["more", "over"], int]:
        remaining = len(self._whole) - self._progress
        piece = text[start : start + remaining]
        if not self._whole.startswith(piece, self._progress):
            return "over", position
        self._progress += len(piece)
        return "over" if len(piece) == remaining else "more", start + len(piece)


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
