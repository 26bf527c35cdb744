"""The part of the block parser that reads text: finds where a block begins, and whether it is a call, an attempt at one
(`attempts.py`), or an example (`examples.py`)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from toolspeak.data.deltas import CallMalformed, Delta, TextDelta
from toolspeak.dialects.parser.attempts import (
    MAX_TAG,
    end_of,
    is_attempt,
    lone_end,
    lone_end_problem,
    may_attempt,
    unmarked,
    unmarked_problem,
    unreadable_block,
)
from toolspeak.dialects.parser.damaged_calls import nearly_called
from toolspeak.dialects.parser.examples import ExampleParser
from toolspeak.dialects.parser.quotes import QuoteKind, example_not_run, is_mention, mentioned_call
from toolspeak.dialects.parser.turn_parser import LONGEST_UNREAD, MOST_UNREAD
from toolspeak.dialects.text.block_delimiters import Alone
from toolspeak.dialects.text.candidates import WITHIN
from toolspeak.dialects.text.markdown import Markdown, run_end
from toolspeak.dialects.text.markers import MarkerDecision, MarkerMatch
from toolspeak.dialects.text.scan import MAX_CANDIDATE

_CUT_TAG = re.compile(r"</[\w:]+\Z")


def may_end_in_call(tail: str, ends: Iterable[str]) -> bool:
    """Whether a text with this end may end in a call, whole or damaged, or in an end marker of calls.

    Nearly all text ends in another character, and needs no closer look.
    """
    content = tail.rstrip().rstrip(" \t\r\n,;`")
    return (
        content == ""
        or content.endswith(("}", "]", ")", ">", *ends))
        or _CUT_TAG.search(content[-MAX_TAG:]) is not None
    )


class TextParser(ExampleParser):
    """Parser states for text outside reasoning and blocks."""

    _first_candidate: re.Match[str] | None = None  # found by `_plain` in the chunk that `_text` reads next

    def _plain(self, chunk: str) -> list[Delta] | None:
        """The deltas of a chunk of plain text, or None. `_text` gives the same result in three times the time."""
        if self._pending or self._echo or not chunk or self._state is not self._text_state:
            return None
        match = self._candidate.search(chunk)
        if match is not None:
            self._first_candidate = match
            return None
        if self._silent and not chunk.isspace():
            self._start_text()
        size, unread = len(chunk), self._unread
        self._position += size
        unread.append(chunk)
        if size > LONGEST_UNREAD or len(unread) > MOST_UNREAD:
            self._read_up()
        return [self._text_kind(chunk)]

    def _text(self, text: str, position: int, out: list[Delta]) -> int:
        if self._echo is not None:
            return self._skip_echo(self._echo, text, position, out)
        start = read_end = position
        here: Markdown | None = None
        candidate = self._candidate
        match, self._first_candidate = self._first_candidate or candidate.search(text, position), None
        while match is not None:
            at = match.start()
            if at > start and self._silent and text[start:at].strip():
                candidate = self._start_text()
            verdict = self._table.decide(text[at : at + MAX_CANDIDATE])
            # No text precedes the calls, and their marker is not repeated: they certainly are calls. Most turns begin
            # like this.
            if type(verdict) is MarkerMatch and at == start and self._markdown is None and not self._unread:
                marker, stop = verdict.marker, at + verdict.length
                if (
                    marker.kind == "calls"
                    and not (verdict.fence or self._ending)
                    and (marker.place == "anywhere" or not (stop > at or self._has_marked_block or self._has_text))
                    and (stop == at or not marker.text.startswith(text[stop : stop + len(marker.text)]))
                ):
                    return self._open(verdict, at)
            if verdict == "undecided" and at + 1 == len(text) and not self._ending:  # one character is too little
                self._emit(TextDelta, text, start, at, out)
                return self._hold(text, at)
            if self._may_end and self._marks.thought_end_starts.match(text, at):
                end_stop = self._thought_end(text, at)
                if end_stop > 0:
                    here, read_end = self._read_on(here, text, read_end, at), at
                    end_stop = self._stray_end(text, end_stop, here)
                if end_stop >= 0:
                    self._emit(TextDelta, text, start, at, out)
                    if end_stop == 0:
                        return self._hold(text, at)
                    self._report_unmarked(self._position + at, out)
                    self._end_unseen(out)
                    return end_stop
            runs = text[at] in "`~"
            if runs and at == start and self._ends_in_run(text[at]):
                match = candidate.search(text, run_end(text, at))  # the beginning of the run was text
                continue
            if verdict in ("undecided", "opened") and at == start and not runs and self._at_section_start():
                return self._hold(text, at)  # no Markdown before it can make it an example
            if isinstance(verdict, MarkerMatch) or (
                not runs and (verdict != "text" or self._table.marker_at(text, at))
            ):
                here, read_end = self._read_on(here, text, read_end, at), at
                verdict = self._weigh(verdict, here, text, start, at)
            if type(verdict) is MarkerMatch:
                assert here is not None, "a marker was weighed without its Markdown context"
                return self._leave_text(verdict, here, text, start, at, out)
            if verdict != "text":
                self._emit(TextDelta, text, start, at, out)
                return self._hold(text, at)
            if verdict == "text" and self._marks.call_end_starts.match(text, at):
                here, read_end = self._read_on(here, text, read_end, at), at
                stop = self._lone_end(text, start, at, here)
                if stop >= 0:
                    self._emit(TextDelta, text, start, at, out)
                    return self._drop_end(text, at, stop, out)
            candidate = self._start_text() if self._silent else candidate
            match = candidate.search(text, run_end(text, at) if runs else at + 1)
        return self._emit(TextDelta, text, start, len(text), out)

    def _at_section_start(self) -> bool:
        """Whether there is no text since the turn began, or since the last block or reasoning."""
        return not (self._unread or self._ending) and (self._markdown is None or self._markdown.is_new)

    def _ends_in_run(self, char: str) -> bool:
        """Whether the text so far ends in a run of this backtick or tilde."""
        return self._unread[-1][-1] == char if self._unread else self._read_up().continues(char)

    def _weigh(self, verdict: MarkerDecision, here: Markdown, text: str, start: int, at: int) -> MarkerDecision:
        """The verdict on the candidate at text[at] by its place `here`. The text before text[start] is already sent."""
        opens = isinstance(verdict, MarkerMatch) and verdict.marker.kind in ("reasoning", "results")
        if text[at] in "`~" and (here.in_block or (opens and not self._batch.has_block)):
            return "text"  # an example, as in any code block, except for fabricated results of the turn's calls
        if isinstance(verdict, MarkerMatch) and verdict.fence:
            stands = verdict.marker.place == "anywhere" or self._may_stand(verdict, here, text, start, at)
            return verdict if stands else "text"
        quoting = here.in_inline_code
        if quoting:
            verdict = "text"
        elif isinstance(verdict, MarkerMatch) and opens:
            is_mentioned = self._is_mentioned(verdict, here, text, start, at)
            return "undecided" if is_mentioned is None else "text" if is_mentioned else verdict
        elif isinstance(verdict, MarkerMatch) and verdict.marker.place != "anywhere":
            verdict = verdict if self._may_stand(verdict, here, text, start, at) else "text"
        if verdict == "text" if not self._ending else not isinstance(verdict, MarkerMatch):
            return self._find_attempt(text, at, here, verdict)
        if isinstance(verdict, MarkerMatch) and verdict.marker.spare and verdict.marker.kind == "noise":
            attempt = self._find_attempt(text, at, here, "text")  # drops a token that is not an attempt
            return verdict if attempt == "text" else attempt
        if isinstance(verdict, MarkerMatch) and text.startswith(verdict.marker.text[:1], at + verdict.length):
            is_certain = isinstance(verdict.marker.opening, Alone) or verdict.length == 0  # whatever text follows
            again = "text" if is_certain else self._repeated_marker(verdict, text, at)
            return verdict if again == "text" else again
        return verdict

    def _is_mentioned(self, match: MarkerMatch, here: Markdown, text: str, start: int, at: int) -> bool | None:
        """Whether the text only mentions the marker of reasoning or results at text[at]; None asks for more text."""
        if here.in_block:
            return True
        has_text = self._has_text or text[start:at].strip() != ""
        window = text[at + match.length : at + match.length + MAX_CANDIDATE]
        results = "" if match.marker.kind == "reasoning" else "made" if self._batch.has_block else "none"
        return is_mention(here, window, has_text, results, self._ending != "")

    def _may_stand(self, match: MarkerMatch, here: Markdown, text: str, start: int, at: int) -> bool:
        """Whether the marker at text[at] may be there (`Marker.place`). The text before text[start] is already
        sent."""
        if self._has_marked_block or match.fence:
            return False  # in a turn with markers, a call without one is an example or a repetition
        if match.marker.place == "start":
            return not (self._has_text or text[start:at].strip())
        before = here.tail[-1:]
        return not (before.isalnum() or before in WITHIN)

    def _leave_text(self, match: MarkerMatch, here: Markdown, text: str, start: int, at: int, out: list[Delta]) -> int:
        """Begins a block or reasoning at text[at]."""
        marker = match.marker
        calls = marker.kind == "calls"
        kind = self._suspicion(match, here) if calls else None
        if at > start:
            self._emit(TextDelta, text, start, at, out)
        if calls and (kind in (None, "sentence") or self._marks.fenced):  # a fence may be the end of a damaged call
            self._report_unmarked(self._position + at, out)
        if kind is not None:
            return self._begin_quote(kind, match, here, text, at)
        if marker.kind == "reasoning":
            self._markup(text, at, at + match.length, out)
        elif marker.kind == "results":
            self._batch.close(out)  # the rest relies on results that the model made up
        elif marker.kind == "noise" and marker.text in self._marks.call_ends:
            self._unread.append(marker.text)
        return self._open(match, at)

    # Attempts at a call.

    def _find_attempt(self, text: str, at: int, here: Markdown, verdict: MarkerDecision) -> MarkerDecision:
        """The verdict on a candidate at text[at] that opens no block: an attempt at a call, calls in inline code of
        several lines, or text."""
        if verdict != "text" and self._ending == "cut":
            return verdict
        if here.in_inline_code:
            return self._span(text, at) if verdict == "text" else verdict
        match = None if here.in_block else self._table.marker_at(text, at)
        if match is None or not may_attempt(here):
            return verdict
        if (again := self._repeated_marker(match, text, at)) != "text":
            return again
        format, end = self._format_of(match), self._marks.ends.get(match.marker)  # noqa: A001
        window = text[at : at + MAX_CANDIDATE]
        if self._ending:
            window = format.without_frames(window)
        is_meant = is_attempt(match, end, window, format.tools, self._ending != "")
        if is_meant is None:
            return "undecided"
        if not is_meant and self._ending == "cut" and end is not None:
            # The missing rest of the turn may hold the end marker, and then no call inside would run.
            is_undecided = is_attempt(match, end, window, format.tools, False) is None
            is_meant = is_undecided and self._calls_stand_in(window, match.length)
        return unreadable_block(match, format.example, self._ending == "cut") if is_meant else verdict

    def _calls_stand_in(self, window: str, position: int) -> bool:
        """Whether calls begin somewhere in window[position:]."""
        while (match := self._candidate.search(window, position)) is not None:
            verdict = self._table.decide(window[match.start() :])
            if isinstance(verdict, MarkerMatch) and verdict.marker.kind == "calls":
                return True
            position = match.start() + 1
        return False

    def _report_end(self, out: list[Delta]) -> None:
        """At the end of a turn without calls: reports what the model may have meant as a call."""
        format, index = self._block_format, self._calls  # noqa: A001
        if self._doubtful_example is not None:
            self._report(example_not_run(self._doubtful_example, format.example, index), out)
        elif not may_end_in_call(self._tail, self._marks.call_ends):
            return
        elif end := lone_end(self._read_up(), self._marks.call_ends):
            problem = lone_end_problem(end, format.example)
            self._report(CallMalformed(index, "", problem.code, problem.reason, self._position, None, True), out)
        else:
            self._report_unmarked(self._position, out)

    def _report_unmarked(self, at: int, out: list[Delta]) -> None:
        """Reports a call with a damaged marker at the end of the text, which a call or the turn's end follows.

        The published protocols have other batch rules and define what runs beside unreadable calls.
        """
        format = self._block_format  # noqa: A001
        if self._raws is not None or self._batch.rule.counts != "all_calls" or not (self._read_pieces or self._unread):
            return
        if not may_end_in_call(self._tail, self._marks.call_ends):
            return
        here, ends_in_fence = self._read_up(), self._marks.fenced
        if not ends_in_fence and (here.in_block or here.in_inline_code):
            return
        content = end_of(self._read_pieces).rstrip()
        content = content.rstrip("`\n") if ends_in_fence else content
        ends = self._marks.call_ends
        is_unmarked = here.place != "cited" and unmarked(content, format.tools, ends)
        if is_unmarked or nearly_called(content, tuple(format.tools.values()), format.writes, ends):
            problem = unmarked_problem(format.example)
            self._report(CallMalformed(self._calls, "", problem.code, problem.reason, at, None, True), out)
            self._read_pieces.clear()

    def _report_mentioned(self, out: list[Delta]) -> None:
        """At the end of a turn with calls: reports calls in the middle of sentences."""
        format = self._block_format  # noqa: A001
        if self._raws is None and self._batch.rule.counts == "all_calls":
            for name, offset in self._mentioned_calls:
                self._report(mentioned_call(name, offset, format.example, self._calls), out)

    def _report(self, malformed_call: CallMalformed, out: list[Delta]) -> None:
        """Reports a call that stays text."""
        out.append(malformed_call)
        self._calls += 1
        self._batch.has_block = True
        self._batch.add([malformed_call.index], {malformed_call.index}, (), out, broken=True)

    # Examples.

    def _span(self, text: str, at: int) -> MarkerDecision:
        """The verdict on calls in inline code that does not end on its line."""
        window = text[at : at + MAX_CANDIDATE]
        line = window.partition("\n")[0]
        if "`" in line or (verdict := self._table.decide(window)) == "text":
            return "text"
        if len(line) == len(window) or not isinstance(verdict, MarkerMatch):
            return "undecided" if len(window) < MAX_CANDIDATE and not self._ending else "text"
        return verdict if verdict.marker.kind == "calls" else "text"

    def _suspicion(self, match: MarkerMatch, here: Markdown) -> QuoteKind | None:
        """Why calls that begin at this place may be an example; None if they are not."""
        if match.problem is not None or (here.is_new and not match.fence):
            return None
        if match.fence:
            return "fence"
        if here.in_inline_code:
            return "span"
        place = here.place
        if here.in_block and place != "cited":
            return "code"
        if place == "line":
            return "sentence" if here.joined else None
        return place if place in ("indented", "cited") else "sentence"
