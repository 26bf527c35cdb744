"""The part of a parser of marked blocks that reads text: where a block begins, and whether it is a call, an attempt at
one (`attempts.py`), or an example (`quotes.py`)."""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import Any, Literal

from toolspeak.data.deltas import CallMalformed, Delta, TextAside, TextDelta
from toolspeak.dialects.attempts import (
    SEEN,
    as_attempt,
    attempted,
    lone_end,
    lone_end_problem,
    place_of,
    unmarked,
    unmarked_problem,
)
from toolspeak.dialects.echo import Echo
from toolspeak.dialects.markers import FENCE, Found, Verdict, in_code, without_frames
from toolspeak.dialects.open_block import BlockFormat, OpenBlock
from toolspeak.dialects.quotes import Kind, Quote, goes_on, lead_of, not_run
from toolspeak.dialects.scan import MAX_CANDIDATE
from toolspeak.dialects.thoughts import ThinkingParser

_SPACE = re.compile(r"\s*")
_WITHIN = ("_", "-", ".", "/", ":", '"', "'", "`")  # before what is part of a longer name, or a quotation
_TICKS = re.compile(r"`+")


class TextParser(ThinkingParser):
    """The states inside text, and behind a block that may be an example."""

    # As in `ThinkingParser`: of the class until they are set.
    _block: OpenBlock | None = None
    _fence: int = 0  # backticks of the open code block's fence
    _quote: Quote | None = None
    _shown: Quote | None = None  # an example that may have been meant as a call
    _marked: bool = False  # whether the turn has a block of calls behind its marker
    _ending: Literal["", "cut", "normal"] = ""  # nothing follows what is held

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
        if self._quoting:
            self._quoting = "\n" not in chunk  # a backtick would have been a candidate
        if self._silent:
            self._silent = chunk.isspace()
        self._position += len(chunk)
        self._seen.append(chunk)
        return [self._text_kind(chunk)]

    def _opens_calls(self, held: str) -> bool:
        verdict = self._table.decide(held, False)
        return isinstance(verdict, Found) and verdict.marker.kind == "calls" and verdict.marker.place == "anywhere"

    def _skip_echo(self, echo: Echo, text: str, position: int, out: list[Delta]) -> int:
        found, stop = echo.read(text, position)
        if found == "undecided":
            return self._hold(text, position)
        if stop > position:
            out.append(TextAside(text[position:stop]))
        self._echo = echo if found == "more" else None
        return stop

    def _text(self, text: str, position: int, out: list[Delta]) -> int:
        if self._echo is not None:
            return self._skip_echo(self._echo, text, position, out)
        start = seen = position
        quoting, candidate = self._quoting, self._candidate
        while True:
            found = candidate.search(text, position)
            if found is None:
                return self._emit(TextDelta, text, start, len(text), out)
            at = found.start()
            quoting, seen = in_code(quoting, text, seen, at), at
            if self._may_end and not quoting and self._may_begin_end.match(text, at) and not self._fence:
                self._silent = self._silent and not text[start:at].strip()
                closed = self._stray_end(text, at)
                if closed > 0 and place_of(self._before(text, start, at)) == "sentence":
                    mentioned = goes_on(text[closed : closed + MAX_CANDIDATE], self._ending != "")
                    closed = 0 if mentioned is None else -1 if mentioned else closed
                if closed >= 0:
                    self._emit(TextDelta, text, start, at, out)
                    if closed == 0:
                        return self._hold(text, at)
                    self._report_unmarked(self._position + at, out)
                    self._end_unseen(out)
                    self._seen.clear()
                    return closed
            verdict = self._table.decide(text[at : at + MAX_CANDIDATE], quoting)
            if isinstance(verdict, Found) and verdict.marker.place != "anywhere":
                verdict = verdict if self._may_stand(verdict, text, start, at) else "text"
            if isinstance(verdict, Found) and verdict.fenced and self._fence:
                # The fence ends a code block of the text; what follows stands in none.
                position = start = seen = self._emit(TextDelta, text, start, self._ticks(text, at), out)
                self._fence, self._quoting = 0, False
                quoting = False
                continue
            if verdict == "text" if not self._ending else not isinstance(verdict, Found):
                verdict = self._look_again(text, at, start, verdict, quoting)
            if isinstance(verdict, Found):
                return self._leave_text(verdict, text, start, at, quoting, out)
            if verdict != "text":
                self._emit(TextDelta, text, start, at, out)
                return self._hold(text, at)
            position = at + 1
            if text.startswith("```", at):
                position = self._ticks(text, at)
                if not self._fence:
                    self._fence = self._opened_fence(text, start, at, position)
                elif position - at >= self._fence:
                    start = seen = self._emit(TextDelta, text, start, position, out)
                    self._fence, self._quoting = 0, False
                    quoting = False

    def _may_stand(self, found: Found, text: str, start: int, at: int) -> bool:
        """Whether the marker at text[at], which may not stand anywhere, has its place there; what stands before
        text[start] has left."""
        if self._marked or found.fenced:
            return False  # a model that writes the markers writes them: what has none is an example, or said again
        if found.marker.place == "start":
            return not (self._has_text or text[start:at].strip())
        before = self._before(text, start, at)[-1:]
        return not (before.isalnum() or before in _WITHIN)

    def _ticks(self, text: str, at: int) -> int:
        """Where the backticks at text[at] end."""
        ticks = _TICKS.match(text, at)
        return ticks.end() if ticks else at

    def _opened_fence(self, text: str, start: int, at: int, stop: int) -> int:
        """The length of a fence that opens a code block: it begins its line, or ends it."""
        line = self._before(text, start, at).rpartition("\n")[2]
        fence = FENCE.match(text, at)
        return stop - at if not line.strip() or (fence and "\n" in fence[0]) else 0

    def _before(self, text: str, start: int, at: int) -> str:
        """The end of what stands before text[at]; what stands before text[start] has left."""
        return self._seen.last(SEEN) + text[start:at] if at - start < SEEN else text[at - SEEN : at]

    def _leave_text(self, found: Found, text: str, start: int, at: int, quoting: bool, out: list[Delta]) -> int:
        """A block or reasoning begins at text[at]."""
        calls = found.marker.kind == "calls"
        kind = self._suspicion(found, text, start, at, quoting) if calls else None
        before = self._before(text, start, at) if kind else ""
        if at > start:
            self._emit(TextDelta, text, start, at, out)
        if calls and kind in (None, "sentence"):
            self._report_unmarked(self._position + at, out)
        if kind is not None:
            return self._begin_quote(kind, found, text, at, before)
        if found.marker.kind == "reasoning":
            self._seen.clear()
            self._markup(text, at, at + found.length, out)
        elif found.marker.kind == "results":
            self._batch.close(out)  # what follows is built on results that the model made up
        elif found.marker.kind == "noise" and found.marker.text in self._table.markup.call_ends:
            self._seen.append(found.marker.text)
        return self._open(found, at)

    # Attempts at a call.

    def _look_again(self, text: str, at: int, start: int, verdict: Verdict, quoting: bool) -> Verdict:
        """What a candidate at text[at] is that opens nothing, as it seems: an attempt at a call, calls in inline code
        of several lines, or text."""
        if text[at] == "`" or (verdict != "text" and self._ending == "cut"):
            return verdict
        if quoting:
            return self._span(text, at) if verdict == "text" else verdict
        tried = None if self._fence else self._table.tried(text, at)
        if tried is None or place_of(self._before(text, start, at)) != "line":
            return verdict
        format, end = self._format_of(tried), self._ends.get(tried.marker)  # noqa: A001
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
        end = "" if self._fence or self._quoting else lone_end(self._seen.last(SEEN), self._table.markup.call_ends)
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
        if self._fence or self._quoting or self._raws is not None or self._batch.rule.counts != "all_calls":
            return
        if unmarked(self._seen.last(), format.names, self._table.markup.call_ends):
            problem = unmarked_problem(format.example(format.tools))
            self._report(CallMalformed(self._calls, "", problem.code, problem.reason, at, None, True), out)
            end = self._seen.last(2)
            self._seen.clear()
            self._seen.append(end)

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

    def _suspicion(self, found: Found, text: str, start: int, at: int, quoting: bool) -> Kind | None:
        """Why calls that begin at text[at] may be an example."""
        if found.problem is not None:
            return None
        if quoting:
            return "span"
        if found.fenced:
            return "fence"
        if self._fence:
            return "code"
        if text[at - 1] == "\n" if at > start else not self._seen:
            return None
        place = place_of(self._before(text, start, at))
        return None if place == "line" else place

    def _begin_quote(self, kind: Kind, found: Found, text: str, at: int, before: str) -> int:
        lead = lead_of(before, self._position + at - self._thought_chars)
        closed = kind not in ("fence", "code")
        quote = Quote(kind, self._position + at, self._keep_place(), self._text, lead, closed)
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
        return self._calls, self._batch.copy(), self._text_kind, self._quoting

    def _take_back_to(self, place: Any) -> None:
        self._calls, self._batch, self._text_kind, self._quoting = place

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
            if quote.kind == "span" or goes:
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
        if text.startswith("```", position) and not quote.closed:
            stop = self._ticks(text, position)
            quote.raw.append(text[position:stop])
            quote.closed = True
            return stop
        if not isinstance(verdict, Found):
            return self._resolve(quote, False, position, out)
        if verdict.marker.kind == "noise":
            return position + verdict.length
        if verdict.marker.kind == "calls" and (verdict.fenced or not quote.closed):
            quote.closed = False
            return self._read_quoted(quote, verdict, text, position)
        # Real calls follow, or results that the model made up: it took these for made.
        runs = verdict.marker.kind in ("calls", "results") and not verdict.fenced and quote.kind != "code"
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
        text = quote.text
        self.shown_chars += len(text)
        self._take_back_to(quote.before)
        self._quote, self._state = None, self._text
        self._emit(TextDelta, text, 0, len(text), out)
        if quote.kind in ("fence", "code"):
            self._fence = 0 if quote.closed else max(self._fence, 3)
            self._quoting = False

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
            ticks = not quote.closed and self._held.startswith("```")
            quote.closed = quote.closed or ticks
            if not ticks:
                quote.deltas.append(self._text_kind(self._held))
        self._held = ""
        if normal and quote.runs_at_end and self._runs_quoted(quote):
            self._quote, self._state = None, self._text
            out += quote.deltas
            return
        cut = not normal and quote.kind == "sentence"
        if cut or quote.kind in ("fence", "indented") or (quote.kind == "code" and not quote.closed) or quote.broken:
            self._doubt(quote)
        self._show(quote, out)
