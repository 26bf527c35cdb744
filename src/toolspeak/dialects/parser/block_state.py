"""What the parts of a parser of marked blocks share: the format, the open block, and the text so far."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Literal

from toolspeak.data.deltas import CallIgnored, CallMalformed, Delta, ReasoningDelta, TextAside, TextDelta
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
"""Pieces of text that wait for `_read_up`, and characters of one."""

MOST_UNCUT = 1 << 13
"""Characters of text that are stored besides those of `end_of`."""

NewBody = Callable[[Marker, int, Caps, Mapping[str, ToolSpec]], Body]
"""Makes the reader of one block, given its marker, the index of its first call, and the known tools by name."""

CUT_VALUE = "an end tag that nothing opened follows it, so its last value may have been cut at a tag in it"


def no_example(_tools: Sequence[ToolSpec]) -> str:
    return ""


@quick()
class BlockFormat:
    """What makes a dialect of marked blocks.

    `table` recognises the markers; its first reasoning marker is the one that a prompt may have opened.
    `tools` are the known tools by name. Without any, every name may be a tool.
    `text_aside`: the text behind a block of calls is not part of the answer (`DialectInfo.text_aside`).
    `thoughts_hide`: no call in reasoning runs, whether reasoning has an end or not.
    `writes` writes a call of one of the tools: the example for a model whose call nobody can read.
    """

    table: Table
    batch: BatchRule
    new_body: NewBody
    tools: Mapping[str, ToolSpec] = field(default_factory=dict[str, ToolSpec])
    caps: Caps = Caps()
    text_aside: bool = False
    thoughts_hide: bool = False
    writes: Callable[[Sequence[ToolSpec]], str] = no_example

    @property
    def example(self) -> str:
        """A call of one of the tools, as the model should write it."""
        return self.writes(tuple(self.tools.values()))


@quick(frozen=False)
class OpenBlock:
    """A block and the reader of its body. With a `problem`, at the turn's `offset`, none of its calls counts."""

    marker: Marker
    end: EndMarker | None
    body: Body
    notes: tuple[str, ...]
    fence: str
    problem: Problem | None = None
    offset: int = 0

    def settle(self, first_index: int, out: list[Delta]) -> set[int]:
        """Reports what cannot be read in a block that ended, and returns the indexes of its malformed calls."""
        calls, problem = self.body.calls, self.problem
        if problem is not None:
            out.extend(CallIgnored(call.index, "its block could not be read to the end") for call in calls)
            index, raw = first_index + len(calls), self.body.raw.value()
            out.append(CallMalformed(index, raw, problem.code, problem.reason, self.offset, None, True))
        malformed = {call.index for call in calls if type(call) is CallMalformed}
        doubted = self.body.doubted
        if not doubted:
            return malformed
        if problem is None:
            out.extend(CallIgnored(index, CUT_VALUE) for index in sorted(doubted))
        return malformed | doubted


@quick(frozen=False, eq=False)
class Echo:
    """Recognises a block that the model writes again right behind its end marker, without the start marker (LFM2).

    The repetition is the block's body and its `end` marker, byte for byte, but for white space in front of it. The
    first `MAX_CANDIDATE` characters of a longer one decide. `opens` says whether these are a call by themselves.
    """

    body: Buffer
    end: str
    opens: Callable[[str], bool]
    _whole: str = ""
    _progress: int = 0

    def read(self, text: str, position: int) -> tuple[Literal["none", "undecided", "more", "over"], int]:
        """What part of the repetition text[position:] is, and where that part ends."""
        if self._progress:
            return self._go_on(text, position, position)
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
        return self._go_on(text, position, position + len(window) - len(rest))

    def _go_on(self, text: str, position: int, start: int) -> tuple[Literal["more", "over"], int]:
        remaining = len(self._whole) - self._progress
        piece = text[start : start + remaining]
        if not self._whole.startswith(piece, self._progress):
            return "over", position
        self._progress += len(piece)
        return "over" if len(piece) == remaining else "more", start + len(piece)


class BlockState(TurnParser):
    """Where a parser of marked blocks stands, and the text so far."""

    # Of the class until they are set, as in few turns: an object of over thirty attributes is slow.
    shown_chars: int = 0  # of text that waited until it proved to be no call: examples, drafts
    _thought_chars: int = 0
    _uncut: int = 0  # characters that were read since `_read_pieces` was cut
    _depth: int = 0  # of the reasoning that is open
    _restated: bool = False  # the model may yet write the marker that the prompt ended with
    _had_text: bool = False  # whether the turn has any text, up to the last reasoning

    def __init__(self, format: BlockFormat, starts_in: Section = "text") -> None:  # noqa: A002
        super().__init__(format.batch)
        # Of the blocks that ended, in a draft's reader; None for a broken one.
        self._raws: list[str | None] | None = None
        self._ending: Literal["", "cut", "normal"] = ""  # nothing follows what is held
        self._markdown: Markdown | None = None  # made when it is asked
        self._echo: Echo | None = None  # of the block that ended, if nothing but white space stands behind it yet
        self._silent: bool = True  # whether there is no text since the block or the reasoning before it
        self._text_kind: type[TextDelta | TextAside] = TextDelta
        self._format = format
        self._table, self._candidate = format.table, format.table.candidate
        self._marks = markup = format.table.markup
        self._thought = markup.thought
        self._thought_ends = markup.thought_ends  # the prompt may have opened any of them
        if self._thought is NO_REASONING:
            starts_in = "text"  # a dialect without reasoning has nowhere else to start
        self._text_state = self._state = self._text  # made once, as each chunk is compared with it
        if starts_in == "reasoning":
            self._state = self._label if self._thought.label else self._reasoning
            self._depth, self._restated = 1, True
        # The text or the reasoning so far, behind whatever was neither: what tells where a marker stands.
        self._read_pieces: list[str] = []  # of it, what `_markdown` has read
        self._unread: list[str] = []  # and what it has not read yet: most of it nobody asks about
        # What the end of reasoning would end that was not seen to begin: all of the turn, or nothing behind reasoning.
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
        """Where the text so far has got to."""
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
        """The end of the text so far, without reading it."""
        return (self._markdown.tail if self._markdown else "") + "".join(self._unread)

    def _read_on(self, here: Markdown | None, text: str, start: int, stop: int) -> Markdown:
        """Where text[stop] stands; `here` says so of text[start], or what was read before, if it is None."""
        here = here or self._read_up()
        if here is self._markdown and (stop > start or not here.is_new):  # a new one nothing but more text changes
            here = here.copy()
        if stop > start:
            here.add(text[start:stop])
        return here

    def _begin_section(self) -> None:
        """What follows does not go on from the text so far."""
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
        """Lets text[start:stop] leave; `_markdown` reads `read_as` in its place."""
        if stop > start:
            piece = text[start:stop]
            self._unread.append(piece if read_as is None else read_as)
            if len(self._unread) > MOST_UNREAD or len(piece) > LONGEST_UNREAD:
                self._read_up()
            if kind is TextDelta:
                if self._silent and not piece.isspace():
                    self._speak()
                out.append(self._text_kind(piece))
            else:
                self._thought_chars += len(piece)
                out.append(kind(piece))
        return stop

    def _speak(self) -> re.Pattern[str]:
        """The turn has text from here on, since reasoning ended; what finds candidates in it."""
        self._silent = False
        self._table = self._format.table.behind(text=True)
        self._candidate = self._table.candidate
        return self._candidate

    def _markup(self, text: str, start: int, stop: int, out: list[Delta]) -> None:
        """Reasoning's own markup, which is text where reasoning stays in the text."""
        if self._reasoning_kind is TextDelta:
            self._emit(TextDelta, text, start, stop, out)

    def _compact_pieces(self) -> list[str]:
        """Makes one piece of what was read, so that a copy takes no longer however many pieces came."""
        self._uncut = 0
        self._read_pieces = [end_of(self._read_pieces)] if self._read_pieces else []
        return self._read_pieces

    def _forget_pieces(self) -> None:
        """No call of the text stands in what was read so far."""
        self._read_up()
        self._read_pieces.clear()
