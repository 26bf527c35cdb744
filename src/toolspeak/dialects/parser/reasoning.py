"""The part of the block parser that reads reasoning: finds its end, and the calls in it.

A model that forgets the end marker of reasoning writes its calls inside. Only the turn's end decides whether the last
one was meant, so a draft of it is pending until other text follows.
"""

from __future__ import annotations

from abc import abstractmethod

from toolspeak.data.deltas import (
    Delta,
    ReasoningDelta,
    TextAside,
    TextDelta,
)
from toolspeak.dialects.parser.block_format import BlockFormat
from toolspeak.dialects.parser.calls_in_reasoning import Draft
from toolspeak.dialects.parser.quotes import is_mention, sentence_continues
from toolspeak.dialects.parser.turn_parser import MOST_UNREAD, BlockState
from toolspeak.dialects.text.markdown import Markdown
from toolspeak.dialects.text.markers import MarkerMatch
from toolspeak.dialects.text.scan import MAX_CANDIDATE


class ThinkingParser(BlockState):
    """Parser states inside reasoning.

    A call in reasoning only runs if it ends the turn, and reasoning has no end (`BlockFormat.thoughts_hide`: not even
    then). If the turn holds nothing else, the call is reported as malformed.
    """

    # Attributes of the class until they are set, as in `BlockState`.
    _draft: Draft[ThinkingParser] | None = None  # the open draft
    _hidden_draft: Draft[ThinkingParser] | None = None  # the last draft that did not run
    _mentioned_starts: int = 0  # how many start markers reasoning mentioned without their end marker

    @abstractmethod
    def _open(self, match: MarkerMatch, at: int) -> int: ...

    @abstractmethod
    def _draft_parser(self) -> ThinkingParser:
        """A parser that reads a draft as text."""

    @property
    def first_raw(self) -> str | None:
        """In a draft's reader: the body of the first block if it was read to its end."""
        return self._raws[0] if self._raws else None

    @property
    @abstractmethod
    def broken_at(self) -> int | None:
        """Where in the turn the open block becomes unreadable, or may be an example; None if neither."""

    def _reasoning(self, text: str, position: int, out: list[Delta]) -> int:
        start = read_end = search_end = position
        ends, candidate = self._thought_ends, self._marks.inside
        here: Markdown | None = None
        while True:
            match = candidate.search(text, position)
            at = match.start() if match else len(text)
            self._may_repeat_start = self._may_repeat_start and not text[search_end:at].strip()
            if match is None:
                return self._add_reasoning(text, start, len(text), out)
            search_end, end_stop = at, max(end.match(text, at) for end in ends)
            verdict = "text" if end_stop > 0 else self._table.decide(text[at : at + MAX_CANDIDATE])
            mentioned: bool | None = False
            if end_stop > 0 or verdict != "text":
                here, read_end = self._read_on(here, text, read_end, at), at
                if end_stop > 0:
                    mentioned = self._is_end_mentioned(text, end_stop, here)
                elif here.in_inline_code:
                    verdict = "text"
                elif (
                    isinstance(verdict, MarkerMatch) and verdict.marker is self._thought and not self._may_repeat_start
                ):
                    mentioned = self._is_start_mentioned(text, at + verdict.length, here)
            marker = verdict.marker if isinstance(verdict, MarkerMatch) else None
            if mentioned is None:
                self._add_reasoning(text, start, at, out)
                return self._hold(text, at)
            if mentioned:
                position = at + 1
            elif end_stop > 0:
                self._depth -= 1
                if self._depth == 0:
                    self._add_reasoning(text, start, at, out)
                    self._end_reasoning(out)
                    self._markup(text, at, end_stop, out)
                    self._begin_section()
                    self._state, self._mentioned_starts = self._text_state, 0
                    self._had_text, self._silent = self._has_text, True
                    if self._reasoning_kind is ReasoningDelta:
                        self._may_end = "nothing"
                    return end_stop
                position = end_stop
            elif isinstance(verdict, MarkerMatch) and marker is self._thought:
                if self._may_repeat_start:
                    self._may_repeat_start = False
                    self._add_reasoning(text, start, at, out)
                    self._markup(text, at, at + verdict.length, out)
                    self._state = self._label if self._thought.label else self._reasoning
                    return at + verdict.length
                self._depth += self._thought.nested
                position = at + verdict.length
            elif isinstance(verdict, MarkerMatch) and (verdict.marker.ends_reasoning or verdict.marker.kind == "noise"):
                start = self._add_reasoning(text, start, at, out)
                if verdict.marker.ends_reasoning:
                    self._end_reasoning(out)
                if self._draft is None:
                    return self._open(verdict, at)
                position = at + 1  # the marker may be in an argument
            elif isinstance(verdict, MarkerMatch) and verdict.marker.kind == "calls":
                start = self._add_reasoning(text, start, at, out)
                self._begin_draft(verdict, self._position + at)
                position = at + 1
            elif any(end.viable(text, at) for end in ends) or verdict in ("undecided", "opened"):
                self._add_reasoning(text, start, at, out)
                return self._hold(text, at)
            else:
                position = at + 1

    def _is_start_mentioned(self, text: str, stop: int, here: Markdown) -> bool | None:
        """Whether reasoning only mentions the start marker that ends at text[stop]; None asks for more text."""
        mentioned: bool | None = here.in_block
        if not mentioned:
            mentioned = is_mention(here, text[stop : stop + MAX_CANDIDATE], True, "", False)
        if mentioned and self._thought.nested:
            self._mentioned_starts = 1 + (self._mentioned_starts if here.in_block else 0)
        return mentioned

    def _is_end_mentioned(self, text: str, stop: int, here: Markdown) -> bool | None:
        """Whether reasoning only mentions the end marker that ends at text[stop]; None asks for more text.

        A mentioned end marker is alone in inline code, or follows a mentioned start marker: in the same code block,
        or in a sentence on the same line.
        """
        if here.in_inline_code:
            if here.tail[-1:] != "`":
                return False
            return None if stop == len(text) else text[stop] == "`"
        if not self._mentioned_starts:
            return False
        mentioned: bool | None = here.in_block
        if not mentioned and self._thought.text in here.line and (here.place != "line" or here.joined):
            mentioned = sentence_continues(text[stop : stop + MAX_CANDIDATE], False)
        if mentioned is not None:
            self._mentioned_starts = max(self._mentioned_starts - 1, 0) if mentioned else 0
        return mentioned

    def _label(self, text: str, position: int, out: list[Delta]) -> int:
        """Drops the label at the beginning of reasoning."""
        label = self._thought.label
        rest = text[position : position + len(label)]
        if rest != label and label.startswith(rest):
            return self._hold(text, position)
        bare = position + len(label.rstrip())
        if text.startswith(label.rstrip(), position) and bare < position + len(label):  # the reasoning is empty
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

    def _add_reasoning(self, text: str, start: int, stop: int, out: list[Delta]) -> int:
        """Sends text[start:stop] as reasoning, or adds it to the open draft."""
        if self._draft is None:
            return self._emit(self._reasoning_kind, text, start, stop, out)
        if stop > start:
            self._unread.append(text[start:stop])
            if len(self._unread) > MOST_UNREAD:
                self._read_up()
            self._feed_draft(self._draft, text[start:stop], out)
        return stop

    def _format_of(self, match: MarkerMatch) -> BlockFormat:
        """The format that reads the block of this marker."""
        return self._format

    def _begin_draft(self, match: MarkerMatch, at: int) -> None:
        """Begins a draft at the offset `at` in the turn."""
        if self._draft is not None:
            self._draft.mark(match)
            return
        reader = self._draft_parser()
        reader._batch, reader._calls, reader._position, reader._raws = self._batch.copy(), self._calls, at, []
        self._draft = Draft(reader, self._format_of(match), at, match)

    def _feed_draft(self, draft: Draft[ThinkingParser], text: str, out: list[Delta]) -> None:
        if draft.feed(text):
            return
        if draft.last_marker is None:
            self._discard_draft(draft, draft.text, out)
            return
        # A marker inside the draft may begin another draft.
        stop, match = draft.last_marker
        whole = draft.text
        self._discard_draft(draft, whole[:stop], out)
        self._begin_draft(match, draft.start + stop)
        again = self._draft
        if again is not None and not again.feed(whole[stop:]):
            self._discard_draft(again, again.text, out)

    def _discard_draft(self, draft: Draft[ThinkingParser], text: str, out: list[Delta]) -> None:
        """Sends a draft's text as reasoning: it does not run."""
        self._draft, self._hidden_draft = None, draft
        self._forget_pieces()
        if self._reasoning_kind is TextDelta:
            self._had_text, self.shown_chars = True, self.shown_chars + len(text)
            out.append(self._text_kind(text))
        else:
            out.append(ReasoningDelta(text))

    def _end_reasoning(self, out: list[Delta]) -> None:
        """Ends reasoning. A draft in it does not run."""
        if self._draft is not None:
            self._discard_draft(self._draft, self._draft.text, out)
        if self._reasoning_kind is ReasoningDelta:
            self._forget_pieces()

    def _end_thoughts(self, out: list[Delta], normal: bool) -> None:
        """Ends the open draft at the end of the turn."""
        if self._draft is not None and self._pending:
            rest, self._pending = self._pending, ""
            self._feed_draft(self._draft, rest, out)
        draft = self._draft
        if draft is not None:
            self._draft = None
            whole = draft.close("stop" if normal else "length")
            if whole and normal and not draft.format.thoughts_hide and self._may_run(draft):
                out += [delta for delta in draft.deltas if not isinstance(delta, TextDelta | TextAside)]
                self._forget_pieces()
                self._adopt(draft.reader)
            else:
                self._discard_draft(draft, draft.text, out)
                if draft.has_call:
                    self._report_draft(draft, out, truncated=not normal)

    def _may_run(self, draft: Draft[ThinkingParser]) -> bool:
        """Whether the draft at the end of the turn is a call of a known tool."""
        return draft.calls_known(draft.format.tools)

    def _adopt(self, reader: ThinkingParser) -> None:
        """Takes over the batch of a draft's reader."""
        self._batch, self._calls = reader._batch, reader._calls

    def _report_hidden_draft(self, out: list[Delta]) -> None:
        """At the turn's end: reports the last draft if the turn holds nothing else. The model expects its results."""
        if self._hidden_draft is None or self._batch.has_block or self._has_text:
            return
        if not any(isinstance(delta, TextDelta) and not delta.text.isspace() for delta in out):
            self._report_draft(self._hidden_draft, out)

    def _report_draft(self, draft: Draft[ThinkingParser], out: list[Delta], *, truncated: bool = False) -> None:
        self._hidden_draft = None
        malformed_call = draft.report(self._calls, truncated=truncated)
        self._calls += 1
        out.append(malformed_call)
        self._batch.has_block = True
        self._batch.add([malformed_call.index], {malformed_call.index}, (), out, broken=True)
