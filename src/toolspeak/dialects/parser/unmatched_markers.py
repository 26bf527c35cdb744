"""The part of the block parser that recognises unmatched end markers, repeated markers and repeated blocks in text."""

from __future__ import annotations

from abc import abstractmethod

from toolspeak.data.deltas import Delta, TextAside, TextWasReasoning
from toolspeak.data.values import evolve
from toolspeak.dialects.parser.attempts import ends_line, is_open
from toolspeak.dialects.parser.block_format import Echo
from toolspeak.dialects.parser.quotes import sentence_continues
from toolspeak.dialects.parser.reasoning import ThinkingParser
from toolspeak.dialects.text.markdown import Markdown
from toolspeak.dialects.text.markers import MarkerDecision, MarkerMatch
from toolspeak.dialects.text.scan import MAX_CANDIDATE


class UnmatchedMarkerParser(ThinkingParser):
    """Tests for the text state."""

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
        """Where the end marker of reasoning at text[at] ends, if one may end something here.

        -1 without one, 0 if more characters are needed.
        """
        if not self._silent and self._may_end == "nothing":
            self._may_end = ""
            return -1
        if at + 1 == len(text):
            return 0  # the caller has tested that this character begins an end marker
        end_stop = max(end.match(text, at) for end in self._thought_ends)
        return 0 if end_stop < 0 and any(end.viable(text, at) for end in self._thought_ends) else end_stop

    def _stray_end(self, text: str, end_stop: int, here: Markdown) -> int:
        """`end_stop` if the end marker of reasoning up to text[end_stop] is unmatched, else -1 for text.

        The prompt opened the reasoning, or the marker is repeated. `here` is the place of the marker. 0 if more
        characters are needed.
        """
        if here.in_inline_code or here.in_block:
            return -1
        if here.place in ("item", "cited", "quoted"):
            return -1
        line = here.line
        if any(marker.kind == "reasoning" and marker.text in line for marker in self._marks.ends):
            return -1  # the text mentions both markers
        if here.place == "sentence" or here.joined:
            is_mentioned = sentence_continues(text[end_stop : end_stop + MAX_CANDIDATE], self._ending != "")
            return 0 if is_mentioned is None else -1 if is_mentioned else end_stop
        return end_stop

    def _repeated_marker(self, match: MarkerMatch, text: str, at: int) -> MarkerDecision:
        """The match at text[at] if its start marker is repeated there; "text" if it is not."""
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
            return evolve(again, length=last - at + again.length, notes=(*again.notes, "marker_twice"))
        return "text" if isinstance(again, MarkerMatch) or self._ending or full else again

    def _lone_end(self, text: str, start: int, at: int, here: Markdown) -> int:
        """Where an unmatched end marker of calls at text[at] ends.

        It must follow a line or a sentence, and end its line. -1 without one, 0 if more characters are needed. `here`
        is the place of text[at]; the text before text[start] is already sent.
        """
        if here.in_inline_code or here.in_block or here.place != "line" or here.joined:
            return -1
        ends, ending = self._marks.call_ends.values(), self._ending != ""
        end_stop, name = max((end.match(text, at), end.text) for end in ends)
        if end_stop < 0:
            return 0 if not ending and any(end.viable(text, at) for end in ends) else -1
        alone = ends_line(text[end_stop : end_stop + MAX_CANDIDATE], ending)
        if alone is None:
            return 0
        return -1 if not alone or is_open(name, "".join(self._compact_pieces()) + text[start:at]) else end_stop

    def _drop_end(self, text: str, at: int, stop: int, out: list[Delta]) -> int:
        """Drops the unmatched end marker up to text[stop], and reports a call without a marker before it."""
        if stop == 0:
            return self._hold(text, at)
        self._unread.append(text[at:stop])
        self._report_unmarked(self._position + stop, out)
        self._forget_pieces()
        return stop

    def _end_unseen(self, out: list[Delta]) -> None:
        """Turns the text so far into reasoning, if the turn may have started in reasoning."""
        if self._may_end == "turn" and self._has_text:
            out.append(TextWasReasoning())
            self._had_text = False
        self._silent, self._may_end = True, "nothing"
        self._table = self._format.table.for_turn(has_text=False)
        self._candidate = self._table.candidate
        self._begin_section()
