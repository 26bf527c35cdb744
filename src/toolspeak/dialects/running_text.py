"""The part of a parser of marked blocks that reads text: where a block begins, and whether it is a call, an attempt at
one (`attempts.py`), or an example (`quotes.py`)."""

from __future__ import annotations

import re
from abc import abstractmethod
from itertools import pairwise
from typing import Any

from toolspeak.data.deltas import CallMalformed, Delta, TextDelta
from toolspeak.dialects.attempts import (
    as_attempt,
    attempted,
    end_of,
    lone_end,
    lone_end_problem,
    may_attempt,
    unmarked,
    unmarked_problem,
)
from toolspeak.dialects.candidates import WITHIN
from toolspeak.dialects.markdown import Markdown, run_end
from toolspeak.dialects.markers import Found, Verdict, without_frames
from toolspeak.dialects.open_block import BlockFormat, OpenBlock
from toolspeak.dialects.quotes import Kind, Quote, goes_on, is_mention, lead_of, not_run
from toolspeak.dialects.scan import MAX_CANDIDATE
from toolspeak.dialects.strays import StrayParser
from toolspeak.dialects.thoughts import MOST_UNREAD

_SPACE = re.compile(r"\s*")


class TextParser(StrayParser):
    """The states inside text, and behind a block that may be an example."""

    # As in `ThinkingParser`: of the class until they are set.
    _block: OpenBlock | None = None
    _quote: Quote | None = None
    _shown: Quote | None = None  # an example that may have been meant as a call
    _marked: bool = False  # whether the turn has a block of calls behind its marker

    @property
    @abstractmethod
    def _block_format(self) -> BlockFormat:
        """Of the open block, or of the last one."""

    @abstractmethod
    def _close_block(self, out: list[Delta], normal: bool) -> None: ...

    @abstractmethod
    def _close_candidate(self, out: list[Delta], normal: bool) -> None: ...

    def _plain(self, chunk: str) -> list[Delta] | None:
        """A chunk of text in which nothing can begin, or None: the same as by way of `_text`, which takes thrice as
        long."""
        if (
            self._held
            or self._echo
            or not chunk
            or self._state != self._text_state
            or self._candidate.search(chunk) is not None
        ):
            return None
        if self._silent and not chunk.isspace():
            self._speak()
        size, unread = len(chunk), self._unread
        self._position += size
        unread.append(chunk)
        if size > MOST_UNREAD or len(unread) > MOST_UNREAD:
            self._read_up()
        return [self._text_kind(chunk)]

    def _text(self, text: str, position: int, out: list[Delta]) -> int:
        if self._echo is not None:
            return self._skip_echo(self._echo, text, position, out)
        start = seen = position
        here: Markdown | None = None
        candidate = self._candidate
        while True:
            found = candidate.search(text, position)
            if found is None:
                return self._emit(TextDelta, text, start, len(text), out)
            at = found.start()
            if self._may_end and self._marks.thought_end_starts.match(text, at):
                here, seen = self._read_on(here, text, seen, at), at
                if self._silent and text[start:at].strip():
                    self._speak()
                closed = self._stray_end(text, at, here)
                if closed >= 0:
                    self._emit(TextDelta, text, start, at, out)
                    if closed == 0:
                        return self._hold(text, at)
                    self._report_unmarked(self._position + at, out)
                    self._end_unseen(out)
                    return closed
            runs = text[at] in "`~"
            if runs and at == start and self._ends_in_run(text[at]):
                position = run_end(text, at)  # of which the beginning was text
                continue
            verdict = self._table.decide(text[at : at + MAX_CANDIDATE], False)
            if isinstance(verdict, Found) or (not runs and (verdict != "text" or self._may_be_attempt(text, at))):
                here, seen = self._read_on(here, text, seen, at), at
                verdict = self._weigh(verdict, here, text, start, at)
            if type(verdict) is Found:
                assert here is not None, "leaving text from nowhere is our bug"
                return self._leave_text(verdict, here, text, start, at, out)
            if verdict != "text":
                self._emit(TextDelta, text, start, at, out)
                return self._hold(text, at)
            if verdict == "text" and self._marks.call_end_starts.match(text, at):
                here, seen = self._read_on(here, text, seen, at), at
                stop = self._lone_end(text, start, at, here)
                if stop >= 0:
                    self._emit(TextDelta, text, start, at, out)
                    return self._drop_end(text, at, stop, out)
            position = run_end(text, at) if runs else at + 1
            candidate = self._speak() if self._silent else candidate

    def _ends_in_run(self, char: str) -> bool:
        """Whether the text so far ends in backticks or tildes, of which this is one more."""
        return self._unread[-1][-1] == char if self._unread else self._read_up().continues(char)

    def _weigh(self, verdict: Verdict, here: Markdown, text: str, start: int, at: int) -> Verdict:
        """What a candidate at text[at] is, in view of where it stands; what stands before text[start] has left."""
        opens = isinstance(verdict, Found) and verdict.marker.kind in ("reasoning", "results")
        if text[at] in "`~" and (here.in_block or (opens and not self._batch.begun)):
            return "text"  # what opens in a code block is an example, but for what the model says its calls gave
        if isinstance(verdict, Found) and verdict.fence:
            stands = verdict.marker.place == "anywhere" or self._may_stand(verdict, here, text, start, at)
            return verdict if stands else "text"
        quoting = here.in_inline_code
        if quoting:
            verdict = "text"
        elif isinstance(verdict, Found) and opens:
            mentioned = self._is_mentioned(verdict, here, text, start, at)
            return "undecided" if mentioned is None else "text" if mentioned else verdict
        elif isinstance(verdict, Found) and verdict.marker.place != "anywhere":
            verdict = verdict if self._may_stand(verdict, here, text, start, at) else "text"
        if verdict == "text" if not self._ending else not isinstance(verdict, Found):
            return self._look_again(text, at, here, verdict)
        if isinstance(verdict, Found) and verdict.marker.spare and verdict.marker.kind == "noise":
            meant = self._look_again(text, at, here, "text")  # dropped only where it is no attempt
            return verdict if meant == "text" else meant
        if isinstance(verdict, Found) and text.startswith(verdict.marker.text[:1], at + verdict.length):
            again = self._begun_again(verdict, text, at)
            return verdict if again == "text" else again
        return verdict

    def _is_mentioned(self, found: Found, here: Markdown, text: str, start: int, at: int) -> bool | None:
        """Whether the marker of reasoning or results at text[at] is only mentioned; None asks for more."""
        if here.in_block:
            return True
        said = self._has_text or text[start:at].strip() != ""
        window = text[at + found.length : at + found.length + MAX_CANDIDATE]
        results = "" if found.marker.kind == "reasoning" else "made" if self._batch.begun else "none"
        return is_mention(here, window, said, results, self._ending != "")

    def _may_stand(self, found: Found, here: Markdown, text: str, start: int, at: int) -> bool:
        """Whether the marker at text[at], which may not stand anywhere, has its place there; what stands before
        text[start] has left."""
        if self._marked or found.fence:
            return False  # a model that writes the markers writes them: what has none is an example, or said again
        if found.marker.place == "start":
            return not (self._has_text or text[start:at].strip())
        before = here.tail[-1:]
        return not (before.isalnum() or before in WITHIN)

    def _leave_text(self, found: Found, here: Markdown, text: str, start: int, at: int, out: list[Delta]) -> int:
        """A block or reasoning begins at text[at]."""
        marker = found.marker
        calls = marker.kind == "calls"
        kind = self._suspicion(found, here) if calls else None
        if at > start:
            self._emit(TextDelta, text, start, at, out)
        if calls and kind in (None, "sentence"):
            self._report_unmarked(self._position + at, out)
        if kind is not None:
            return self._begin_quote(kind, found, here, text, at)
        if marker.kind == "reasoning":
            self._markup(text, at, at + found.length, out)
        elif marker.kind == "results":
            self._batch.close(out)  # what follows is built on results that the model made up
        elif marker.kind == "noise" and marker.text in self._marks.call_ends:
            self._unread.append(marker.text)
        return self._open(found, at)

    # Attempts at a call.

    def _may_be_attempt(self, text: str, at: int) -> bool:
        """Whether a candidate that opens nothing is worth another look."""
        return self._table.tried(text, at) is not None

    def _look_again(self, text: str, at: int, here: Markdown, verdict: Verdict) -> Verdict:
        """What a candidate at text[at] is that opens nothing, as it seems: an attempt at a call, calls in inline code
        of several lines, or text."""
        if verdict != "text" and self._ending == "cut":
            return verdict
        if here.in_inline_code:
            return self._span(text, at) if verdict == "text" else verdict
        tried = None if here.in_block else self._table.tried(text, at)
        if tried is None or not may_attempt(here):
            return verdict
        if (again := self._begun_again(tried, text, at)) != "text":
            return again
        format, end = self._format_of(tried), self._marks.ends.get(tried.marker)  # noqa: A001
        window = text[at : at + MAX_CANDIDATE]
        if self._ending:
            window = without_frames(window, format.table.markup.frames)
        meant = attempted(tried, end, window, format.names, self._ending != "")
        if meant is None:
            return "undecided"
        return as_attempt(tried, format.example(format.tools), self._ending == "cut") if meant else verdict

    def _report_end(self, out: list[Delta]) -> None:
        """The turn is over, and nothing in it was a call: what may have been meant as one is told to the model."""
        format, index = self._block_format, self._calls  # noqa: A001
        end = lone_end(self._read_up(), self._marks.call_ends)
        if self._shown is not None:
            self._report(not_run(self._shown, format.example(format.tools), index), out)
        elif end:
            problem = lone_end_problem(end, format.example(format.tools))
            self._report(CallMalformed(index, "", problem.code, problem.reason, self._position, None, True), out)
        else:
            self._report_unmarked(self._position, out)

    def _report_unmarked(self, at: int, out: list[Delta]) -> None:
        """The text ends here, with the turn or in front of a call: the model is told of a call in it whose marker lost
        a part of itself. Not in the published protocols, which say what runs beside what cannot be read."""
        format = self._block_format  # noqa: A001
        if self._raws is not None or self._batch.rule.counts != "all_calls" or not (self._seen or self._unread):
            return
        here = self._read_up()
        if unmarked(end_of(self._seen), format.names, self._marks.call_ends):
            if here.in_block or here.in_inline_code or here.place == "cited":
                return
            problem = unmarked_problem(format.example(format.tools))
            self._report(CallMalformed(self._calls, "", problem.code, problem.reason, at, None, True), out)
            self._seen.clear()

    def _report(self, malformed: CallMalformed, out: list[Delta]) -> None:
        """A call that stays text."""
        out.append(malformed)
        self._calls += 1
        self._batch.begun = True
        self._batch.add([malformed.index], {malformed.index}, (), out, broken=True)

    # Examples.

    def _span(self, text: str, at: int) -> Verdict:
        """Calls that begin in inline code which does not end on its line."""
        window = text[at : at + MAX_CANDIDATE]
        line = window.partition("\n")[0]
        if "`" in line or (verdict := self._table.decide(window, False)) == "text":
            return "text"
        if len(line) == len(window) or not isinstance(verdict, Found):
            return "undecided" if len(window) < MAX_CANDIDATE and not self._ending else "text"
        return verdict if verdict.marker.kind == "calls" else "text"

    def _suspicion(self, found: Found, here: Markdown) -> Kind | None:
        """Why calls that begin here may be an example."""
        if found.problem is not None or (here.is_new and not found.fence):
            return None
        if found.fence:
            return "fence"
        if here.in_inline_code:
            return "span"
        place = here.place
        if here.in_block and place != "cited":
            return "code"
        if place == "line":
            return "sentence" if here.joined else None
        return place if place in ("indented", "cited") else "sentence"

    def _begin_quote(self, kind: Kind, found: Found, here: Markdown, text: str, at: int) -> int:
        lead = lead_of(here, self._position + at - self._thought_chars)
        fence = found.fence or (here.fence if kind == "code" else "")
        quote = Quote(kind, self._position + at, self._keep_place(), self._text, lead, fence, not fence)
        quote.next_message = here.goes_on
        self._quote = quote
        return self._read_quoted(quote, found, text, at)

    def _read_quoted(self, quote: Quote, found: Found, text: str, at: int) -> int:
        """A block of calls begins at text[at]."""
        stop = self._open(found, at)
        quote.raw.append(text[at:stop])
        quote.state, quote.over, self._state = self._state, False, self._quoted
        return stop

    def _keep_place(self) -> Any:
        """The parser's state that a block changes."""
        return self._calls, self._batch.copy(), self._text_kind, self._read_up().copy(), self._cut_seen().copy()

    def _take_back_to(self, place: Any) -> None:
        self._calls, self._batch, self._text_kind, self._markdown, self._seen = place
        self._unread.clear()

    def _quoted(self, text: str, position: int, out: list[Delta]) -> int:
        """Calls that may be an example, and what stands behind them."""
        quote = self._quote
        assert quote is not None, "an example without a beginning is our bug"
        if quote.over:
            return self._behind(quote, text, position, out)
        self._state = quote.state
        failed = self._block is not None and self._block.problem is not None
        stop = self._state(text, position, quote.deltas)
        self._run = None  # what a block's body takes is kept here too
        quote.raw.append(text[position : stop - len(self._held)])
        quote.state, self._state = self._state, self._quoted
        quote.over = self._block is None and quote.state == self._text
        if self._block is not None and self._block.problem is not None:
            goes = quote.kind == "sentence" and not failed and self._comma_behind(quote, self._block, text, stop)
            if quote.kind in ("span", "cited") or goes:
                self._block = None
                self._show(quote, out)
        return stop

    def _comma_behind(self, quote: Quote, block: OpenBlock, text: str, stop: int) -> bool:
        """Whether what a block without an end marker failed at, behind its calls, is the sentence that goes on."""
        if block.end is not None or block.problem is None or block.problem.code != "trailing_text":
            return False
        return bool(goes_on(quote.gap + text[stop : stop + MAX_CANDIDATE], False))

    def _behind(self, quote: Quote, text: str, position: int, out: list[Delta]) -> int:
        """What stands behind the calls decides."""
        if quote.kind == "span":
            return self._resolve(quote, False, position, out)
        if quote.kind == "sentence":
            goes = goes_on(quote.gap + text[position : position + MAX_CANDIDATE], False)
            return self._hold(text, position) if goes is None else self._resolve(quote, not goes, position, out)
        space = _SPACE.match(text, position)
        stop = space.end() if space else position
        if stop > position:
            quote.raw.append(text[position:stop])
            quote.deltas.append(TextDelta(text[position:stop]))
            return stop
        verdict = self._table.decide(text[position : position + MAX_CANDIDATE], False)
        if verdict in ("undecided", "opened"):
            return self._hold(text, position)
        if not quote.closed and text.startswith(quote.fence, position):
            stop = run_end(text, position)
            quote.raw.append(text[position:stop])
            quote.closed = True
            return stop
        if not isinstance(verdict, Found):
            return self._resolve(quote, False, position, out)
        if verdict.marker.kind == "noise":
            quote.drops.append(len(quote.raw))
            return position + verdict.length
        if verdict.marker.kind == "calls" and (verdict.fence or not quote.closed):
            quote.closed, quote.fence = False, verdict.fence or quote.fence
            return self._read_quoted(quote, verdict, text, position)
        # Real calls follow, or results that the model made up: it took these for made.
        runs = verdict.marker.kind in ("calls", "results") and not verdict.fence and quote.kind not in ("code", "cited")
        return self._resolve(quote, runs, position, out)

    def _resolve(self, quote: Quote, runs: bool, position: int, out: list[Delta]) -> int:
        """It is known whether these are calls or an example; in front of `position` nothing else was read."""
        if not runs:
            if quote.kind in ("fence", "indented") and quote.lead == "none":
                self._doubt(quote)
            self._show(quote, out)
        elif self._runs_quoted(quote):
            self._quote, self._state = None, self._text
            out += quote.deltas
        else:
            self._show(quote, out)
        return position

    def _runs_quoted(self, _quote: Quote) -> bool:
        """Whether calls that are no example may run."""
        return True

    def _doubt(self, quote: Quote) -> None:
        """An example that may have been meant: the model is told unless something else in the turn is a call."""
        if quote.known(self._block_format.names) or quote.broken:
            self._shown = quote

    def _show(self, quote: Quote, out: list[Delta]) -> None:
        """It is an example, which is text."""
        self._take_back_to(quote.before)
        self._quote, self._state = None, self._text
        for start, stop in pairwise([0, *quote.drops, len(quote.raw)]):
            text = "".join(quote.raw[start:stop])
            self.shown_chars += len(text)
            # A fence in a call begins no code block of the text.
            read_as = text if quote.kind in ("fence", "code") else text.replace("`", "'")
            self._emit(TextDelta, text, 0, len(text), out, read_as)

    def _end_quote(self, quote: Quote, out: list[Delta], normal: bool) -> None:
        """The turn is over."""
        if not quote.over:
            self._state = quote.state
            if self._block is not None:
                self._close_block(quote.deltas, normal)
            elif self._held:
                self._close_candidate(quote.deltas, normal)
            quote.raw.append(self._held)
        elif self._held:
            quote.raw.append(self._held)
            ticks = not quote.closed and self._held.startswith(quote.fence)
            quote.closed = quote.closed or ticks
            if not ticks:
                quote.deltas.append(self._text_kind(self._held))
        self._held = ""
        if normal and quote.runs_at_end and self._runs_quoted(quote):
            self._quote, self._state = None, self._text
            out += quote.deltas
            return
        cut = not normal and quote.kind == "sentence"
        if (
            cut
            or quote.kind in ("fence", "indented", "cited")
            or (quote.kind == "code" and not quote.closed)
            or quote.broken
        ):
            self._doubt(quote)
        self._show(quote, out)
