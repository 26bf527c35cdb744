"""The part of a parser of marked blocks that tells what no text is: end markers that nothing opened, and echoes."""

from __future__ import annotations

from abc import abstractmethod

from toolspeak.data.deltas import Delta, TextAside, TextWasReasoning
from toolspeak.data.values import changed
from toolspeak.dialects.parser.attempts import ends_line, is_open
from toolspeak.dialects.parser.block_state import Echo
from toolspeak.dialects.parser.quotes import sentence_continues
from toolspeak.dialects.parser.reasoning import ThinkingParser
from toolspeak.dialects.text.markdown import Markdown
from toolspeak.dialects.text.markers import MarkerMatch, Verdict
from toolspeak.dialects.text.scan import MAX_CANDIDATE


class StrayParser(ThinkingParser):
    """What the state of text asks about them."""

    @abstractmethod
    def _report_unmarked(self, at: int, out: list[Delta]) -> None: ...

    def _opens_calls(self, text: str) -> bool:
        verdict = self._table.decide(text)
        return (
            isinstance(verdict, MarkerMatch) and verdict.marker.kind == "calls" and verdict.marker.place == "anywhere"
        )

    def _skip_echo(self, echo: Echo, text: str, position: int, out: list[Delta]) -> int:
        part, stop = echo.read(text, position)
        if part == "undecided":
            return self._hold(text, position)
        if stop > position:
            out.append(TextAside(text[position:stop]))
        self._echo = echo if part == "more" else None
        return stop

    def _thought_end(self, text: str, at: int) -> int:
        """Where the end marker of reasoning ends that begins at text[at], if one may end something: -1 if there is
        none, 0 if more characters are needed."""
        if not self._silent and self._may_end == "nothing":
            self._may_end = ""
            return -1
        if at + 1 == len(text):
            return 0  # it begins one, as the caller knows
        closed = max(end.match(text, at) for end in self._thought_ends)
        return 0 if closed < 0 and any(end.viable(text, at) for end in self._thought_ends) else closed

    def _stray_end(self, text: str, closed: int, here: Markdown) -> int:
        """Where the end marker of reasoning ends, up to text[closed], if it did not begin in the turn: the prompt has
        opened it, or it stands twice. It stands `here`. -1 if it is text, 0 if more characters are needed."""
        if here.in_inline_code or here.in_block:
            return -1
        if here.place in ("item", "cited", "quoted"):
            return -1
        line = here.line
        if any(marker.kind == "reasoning" and marker.text in line for marker in self._marks.ends):
            return -1  # both were spoken of
        if here.place == "sentence" or here.joined:
            mentioned = sentence_continues(text[closed : closed + MAX_CANDIDATE], self._ending != "")
            return 0 if mentioned is None else -1 if mentioned else closed
        return closed

    def _repeated_marker(self, match: MarkerMatch, text: str, at: int) -> Verdict:
        """The calls that begin at text[at] with a start marker, `found`, that stands there several times; text: they do
        not."""
        marker, stop, last = match.marker.text, at + match.length, at
        while marker and match.marker.kind == "calls":
            stop += len(text[stop : at + MAX_CANDIDATE]) - len(text[stop : at + MAX_CANDIDATE].lstrip())
            if not text.startswith(marker, stop, at + MAX_CANDIDATE):
                break
            last, stop = stop, stop + len(marker)
        rest, full = text[stop : at + MAX_CANDIDATE], len(text) - at >= MAX_CANDIDATE
        if marker.startswith(rest) and not (self._ending or full):
            return "undecided"
        again = self._table.decide(text[last : at + MAX_CANDIDATE]) if last > at else "text"
        if isinstance(again, MarkerMatch) and again.marker.kind == "calls":
            return changed(again, length=last - at + again.length, notes=(*again.notes, "marker_twice"))
        return "text" if isinstance(again, MarkerMatch) or self._ending or full else again

    def _lone_end(self, text: str, start: int, at: int, here: Markdown) -> int:
        """Where the end marker of calls at text[at] ends, if nothing opened it: behind a line or a sentence, nothing
        behind it on its line. -1 if there is none, 0 if more characters are needed. text[at] stands `here`, and what
        stands before text[start] has left."""
        if here.in_inline_code or here.in_block or here.place != "line" or here.joined:
            return -1
        ends, ending = self._marks.call_ends.values(), self._ending != ""
        closed, name = max((end.match(text, at), end.text) for end in ends)
        if closed < 0:
            return 0 if not ending and any(end.viable(text, at) for end in ends) else -1
        alone = ends_line(text[closed : closed + MAX_CANDIDATE], ending)
        if alone is None:
            return 0
        return -1 if not alone or is_open(name, "".join(self._compact_pieces()) + text[start:at]) else closed

    def _drop_end(self, text: str, at: int, stop: int, out: list[Delta]) -> int:
        """The end marker up to text[stop], which `_lone_end` found, is no text; what stands before it may be a call."""
        if stop == 0:
            return self._hold(text, at)
        self._unread.append(text[at:stop])
        self._report_unmarked(self._position + stop, out)
        self._forget_pieces()
        return stop

    def _end_unseen(self, out: list[Delta]) -> None:
        """What the turn says so far was reasoning, if it may have been."""
        if self._may_end == "turn" and self._has_text:
            out.append(TextWasReasoning())
            self._had_text = False
        self._silent, self._may_end = True, "nothing"
        self._table = self._format.table.behind(text=False)
        self._candidate = self._table.candidate
        self._begin_section()
