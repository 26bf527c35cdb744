"""The part of a parser of marked blocks that reads reasoning: where it ends, and the calls in it.

A model that forgets the end marker of its thoughts writes its calls inside them. Whether one of them was meant is known
only when the turn is over, so its text is held back until something else stands behind it.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import Literal

from toolspeak.data.deltas import (
    Delta,
    ReasoningDelta,
    TextAside,
    TextDelta,
)
from toolspeak.dialects.parser.attempts import end_of
from toolspeak.dialects.parser.calls_in_reasoning import Draft
from toolspeak.dialects.parser.echoed_calls import Echo
from toolspeak.dialects.parser.open_block import BlockFormat
from toolspeak.dialects.parser.quotes import goes_on, is_mention
from toolspeak.dialects.parser.turn_parser import TurnParser
from toolspeak.dialects.text.markdown import Markdown
from toolspeak.dialects.text.markers import NO_REASONING, Found
from toolspeak.dialects.text.scan import MAX_CANDIDATE
from toolspeak.dialects.turn_rules import Section

MOST_UNREAD, LONGEST_UNREAD = 128, 64
"""Pieces of text that are kept to be read when somebody asks, and characters of one."""

MOST_UNCUT = 1 << 13
"""Characters of text that are kept besides those of `end_of`."""


class ThinkingParser(TurnParser):
    """The states inside reasoning. A call in there runs only if reasoning has no end and the call ends the turn
    (`BlockFormat.thoughts_hide`: not even then); if it is all that the turn holds, it is malformed, so that the model
    is told."""

    # Of the class until they are set, as in few turns: an object of over thirty attributes is slow.
    shown_chars: int = 0  # of the text that was held back until it was no call: examples, drafts
    _thought_chars: int = 0
    _uncut: int = 0  # characters that were read since `_seen` was cut
    _depth: int = 0  # of the reasoning that is open
    _restated: bool = False  # the model may yet write the marker that the prompt ended with
    _said: bool = False  # whether the turn has any text, up to the last reasoning
    _hidden: Draft[ThinkingParser] | None = None  # the last draft that stayed one
    _spoken: int = 0  # of the start markers that reasoning spoke of, those whose end it has not named

    def __init__(self, format: BlockFormat, starts_in: Section = "text") -> None:  # noqa: A002
        super().__init__(format.batch)
        self._draft: Draft[ThinkingParser] | None = None
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
        self._seen: list[str] = []  # of it, what `_markdown` has read
        self._unread: list[str] = []  # and what it has not read yet: most of it nobody asks about
        # What the end of reasoning would end that was not seen to begin: all of the turn, or nothing behind reasoning.
        self._may_end: Literal["turn", "nothing", ""] = "turn" if starts_in == "text" and self._thought_ends else ""

    @abstractmethod
    def _text(self, text: str, position: int, out: list[Delta]) -> int: ...

    @abstractmethod
    def _open(self, found: Found, at: int) -> int: ...

    @abstractmethod
    def _draft_parser(self) -> ThinkingParser:
        """A parser that reads what stands in reasoning as if it stood in text."""

    @property
    def first_raw(self) -> str | None:
        """The body of the first block if it was read to its end, of a draft's reader."""
        return self._raws[0] if self._raws else None

    @property
    @abstractmethod
    def broken_at(self) -> int | None:
        """Where in the turn the open block cannot be read any more, or may be an example; None if neither."""

    def keep_reasoning(self) -> None:
        super().keep_reasoning()
        self._may_end = ""

    @property
    def _has_text(self) -> bool:
        return self._said or not self._silent

    def _read_up(self) -> Markdown:
        """Where the text so far has got to."""
        here = self._markdown
        if here is None:
            here = self._markdown = Markdown()
        if self._unread:
            text = "".join(self._unread)
            here.add(text)
            self._unread.clear()
            self._seen.append(text)
            self._uncut += len(text)
            if len(self._seen) > MOST_UNREAD or self._uncut > MOST_UNCUT:
                self._cut_seen()
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
        if self._unread or self._seen:
            self._unread.clear()
            self._seen.clear()

    def _reasoning(self, text: str, position: int, out: list[Delta]) -> int:
        start = seen = looked = position
        ends, candidate = self._thought_ends, self._marks.inside
        here: Markdown | None = None
        while True:
            found = candidate.search(text, position)
            at = found.start() if found else len(text)
            self._restated = self._restated and not text[looked:at].strip()
            if found is None:
                return self._think(text, start, len(text), out)
            looked, closed = at, max(end.match(text, at) for end in ends)
            verdict = "text" if closed > 0 else self._table.decide(text[at : at + MAX_CANDIDATE], False)
            spoken: bool | None = False
            if closed > 0 or verdict != "text":
                here, seen = self._read_on(here, text, seen, at), at
                if closed > 0:
                    spoken = self._is_end_mentioned(text, closed, here)
                elif here.in_inline_code:
                    verdict = "text"
                elif isinstance(verdict, Found) and verdict.marker is self._thought and not self._restated:
                    spoken = self._is_start_mentioned(text, at + verdict.length, here)
            opened = verdict.marker if isinstance(verdict, Found) else None
            if spoken is None:
                self._think(text, start, at, out)
                return self._hold(text, at)
            if spoken:
                position = at + 1
            elif closed > 0:
                self._depth -= 1
                if self._depth == 0:
                    self._think(text, start, at, out)
                    self._leave(out)
                    self._markup(text, at, closed, out)
                    self._begin_section()
                    self._state, self._spoken = self._text_state, 0
                    self._said, self._silent = self._has_text, True
                    if self._reasoning_kind is ReasoningDelta:
                        self._may_end = "nothing"
                    return closed
                position = closed
            elif isinstance(verdict, Found) and opened is self._thought:
                if self._restated:
                    self._restated = False
                    self._think(text, start, at, out)
                    self._markup(text, at, at + verdict.length, out)
                    self._state = self._label if self._thought.label else self._reasoning
                    return at + verdict.length
                self._depth += self._thought.nested
                position = at + verdict.length
            elif isinstance(verdict, Found) and (verdict.marker.ends_reasoning or verdict.marker.kind == "noise"):
                start = self._think(text, start, at, out)
                if verdict.marker.ends_reasoning:
                    self._leave(out)
                if self._draft is None:
                    return self._open(verdict, at)
                position = at + 1  # it may stand in an argument
            elif isinstance(verdict, Found) and verdict.marker.kind == "calls":
                start = self._think(text, start, at, out)
                self._begin_draft(verdict, self._position + at)
                position = at + 1
            elif any(end.viable(text, at) for end in ends) or verdict in ("undecided", "opened"):
                self._think(text, start, at, out)
                return self._hold(text, at)
            else:
                position = at + 1

    def _is_start_mentioned(self, text: str, stop: int, here: Markdown) -> bool | None:
        """Whether reasoning speaks of the start marker that ends at text[stop]; None asks for more."""
        mentioned: bool | None = here.in_block
        if not mentioned:
            mentioned = is_mention(here, text[stop : stop + MAX_CANDIDATE], True, "", False)
        if mentioned and self._thought.nested:
            self._spoken = 1 + (self._spoken if here.in_block else 0)
        return mentioned

    def _is_end_mentioned(self, text: str, stop: int, here: Markdown) -> bool | None:
        """Whether reasoning speaks of the end marker that ends at text[stop]: alone in inline code, or behind a start
        marker of which it spoke in the same code block, or in a sentence of the same line; None asks for more."""
        if here.in_inline_code:
            if here.tail[-1:] != "`":
                return False
            return None if stop == len(text) else text[stop] == "`"
        if not self._spoken:
            return False
        mentioned: bool | None = here.in_block
        if not mentioned and self._thought.text in here.line and (here.place != "line" or here.joined):
            mentioned = goes_on(text[stop : stop + MAX_CANDIDATE], False)
        if mentioned is not None:
            self._spoken = max(self._spoken - 1, 0) if mentioned else 0
        return mentioned

    def _label(self, text: str, position: int, out: list[Delta]) -> int:
        """Drops the label with which reasoning may begin."""
        label = self._thought.label
        rest = text[position : position + len(label)]
        if rest != label and label.startswith(rest):
            return self._hold(text, position)
        bare = position + len(label.rstrip())
        if text.startswith(label.rstrip(), position) and bare < position + len(label):  # of a thought that is empty
            if any(end.match(text, bare) > 0 for end in self._thought_ends):
                self._state = self._reasoning
                self._markup(text, position, bare, out)
                return bare
            if any(end.viable(text, bare) for end in self._thought_ends):
                return self._hold(text, position)
        self._state = self._reasoning
        stop = position + len(label) if rest == label else position
        self._markup(text, position, stop, out)
        return stop

    def _think(self, text: str, start: int, stop: int, out: list[Delta]) -> int:
        """A piece of reasoning, which may belong to a draft."""
        if self._draft is None:
            return self._emit(self._reasoning_kind, text, start, stop, out)
        if stop > start:
            self._unread.append(text[start:stop])
            if len(self._unread) > MOST_UNREAD:
                self._read_up()
            self._go_on_drafting(self._draft, text[start:stop], out)
        return stop

    def _format_of(self, found: Found) -> BlockFormat:
        """Of who reads what a marker opens."""
        return self._format

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

    def _begin_draft(self, found: Found, at: int) -> None:
        """Calls may begin here, at this place in the turn."""
        if self._draft is not None:
            self._draft.mark(found)
            return
        reader = self._draft_parser()
        reader._batch, reader._calls, reader._position, reader._raws = self._batch.copy(), self._calls, at, []
        self._draft = Draft(reader, self._format_of(found), at, found)

    def _go_on_drafting(self, draft: Draft[ThinkingParser], text: str, out: list[Delta]) -> None:
        if draft.feed(text):
            return
        if draft.marked is None:
            self._hide(draft, draft.text, out)
            return
        # What began as another block inside of it may be one of its own.
        stop, found = draft.marked
        whole = draft.text
        self._hide(draft, whole[:stop], out)
        self._begin_draft(found, draft.start + stop)
        again = self._draft
        if again is not None and not again.feed(whole[stop:]):
            self._hide(again, again.text, out)

    def _hide(self, draft: Draft[ThinkingParser], text: str, out: list[Delta]) -> None:
        """A draft stays one: its text is reasoning."""
        self._draft, self._hidden = None, draft
        self._forget_seen()
        if self._reasoning_kind is TextDelta:
            self._said, self.shown_chars = True, self.shown_chars + len(text)
            out.append(self._text_kind(text))
        else:
            out.append(ReasoningDelta(text))

    def _leave(self, out: list[Delta]) -> None:
        """Reasoning ends, and what stood in it was not meant."""
        if self._draft is not None:
            self._hide(self._draft, self._draft.text, out)
        if self._reasoning_kind is ReasoningDelta:
            self._forget_seen()

    def _cut_seen(self) -> list[str]:
        """Makes one piece of what was read, so that a copy takes no longer however many pieces came."""
        self._uncut = 0
        self._seen = [end_of(self._seen)] if self._seen else []
        return self._seen

    def _forget_seen(self) -> None:
        """No call of the text stands in what was read so far."""
        self._read_up()
        self._seen.clear()

    def _end_thoughts(self, out: list[Delta], normal: bool) -> None:
        """The turn is over, wherever it was."""
        if self._draft is not None and self._held:
            held, self._held = self._held, ""
            self._go_on_drafting(self._draft, held, out)
        draft = self._draft
        if draft is not None:
            self._draft = None
            whole = draft.close("stop" if normal else "length")
            if whole and normal and not draft.format.thoughts_hide and self._may_run(draft):
                out += [delta for delta in draft.deltas if not isinstance(delta, TextDelta | TextAside)]
                self._forget_seen()
                self._adopt(draft.reader)
            else:
                self._hide(draft, draft.text, out)
                if draft.begun:
                    self._tell(draft, out, cut=not normal)

    def _may_run(self, draft: Draft[ThinkingParser]) -> bool:
        """Whether what a turn ends with, inside reasoning, is a call of a known tool."""
        return draft.calls_known(draft.format.tools)

    def _adopt(self, reader: ThinkingParser) -> None:
        """Takes over what a draft's reader knows of the turn's calls."""
        self._batch, self._calls = reader._batch, reader._calls

    def _tell_hidden(self, out: list[Delta]) -> None:
        """The turn is over: if the calls in its thoughts are all that it holds, the model takes them for made."""
        if self._hidden is None or self._batch.begun or self._has_text:
            return
        if not any(isinstance(delta, TextDelta) and not delta.text.isspace() for delta in out):
            self._tell(self._hidden, out)

    def _tell(self, draft: Draft[ThinkingParser], out: list[Delta], *, cut: bool = False) -> None:
        self._hidden = None
        malformed = draft.malformed(self._calls, cut=cut)
        self._calls += 1
        out.append(malformed)
        self._batch.begun = True
        self._batch.add([malformed.index], {malformed.index}, (), out, broken=True)
