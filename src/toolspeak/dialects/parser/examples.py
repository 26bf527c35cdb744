"""The part of the block parser that delays calls which may be an example, until the text after them decides
(`quotes.py`)."""

from __future__ import annotations

import re
from abc import abstractmethod
from itertools import pairwise
from typing import Any

from toolspeak.data.deltas import Delta, TextDelta
from toolspeak.dialects.parser.block_format import BlockFormat, OpenBlock
from toolspeak.dialects.parser.quotes import MAX_REPORTS, QUOTATION, Quote, QuoteKind, lead_of, sentence_continues
from toolspeak.dialects.parser.unmatched_markers import UnmatchedMarkerParser
from toolspeak.dialects.text.markdown import Markdown, run_end
from toolspeak.dialects.text.markers import MarkerMatch
from toolspeak.dialects.text.scan import MAX_CANDIDATE

_SPACE = re.compile(r"\s*")


class ExampleParser(UnmatchedMarkerParser):
    """Parser states after a block that may be an example, until its status is known."""

    # Attributes of the class until they are set, as in `BlockState`.
    _block: OpenBlock | None = None
    _quote: Quote | None = None
    _doubtful_example: Quote | None = None  # an example that may have been meant as a call
    _mentioned_calls: tuple[tuple[str, int], ...] = ()  # tool name and offset of each call in a sentence
    _has_marked_block: bool = False  # whether the turn has a block of calls after its marker

    @property
    @abstractmethod
    def _block_format(self) -> BlockFormat:
        """The format of the open block, or of the last one."""

    @abstractmethod
    def _close_block(self, out: list[Delta], normal: bool) -> None: ...

    @abstractmethod
    def _close_candidate(self, out: list[Delta], normal: bool) -> None: ...

    def _begin_quote(self, kind: QuoteKind, match: MarkerMatch, here: Markdown, text: str, at: int) -> int:
        lead = lead_of(here, self._position + at - self._thought_chars)
        fence = match.fence or (here.fence if kind == "code" else "")
        quote = Quote(kind, self._position + at, self._save_state(), self._text_state, lead, fence, not fence)
        quote.next_message, quote.follows_quotation = here.fence_continues, here.place == "quoted"
        self._quote = quote
        return self._read_quoted(quote, match, text, at)

    def _read_quoted(self, quote: Quote, match: MarkerMatch, text: str, at: int) -> int:
        """Begins a block of calls at text[at], inside the quote."""
        stop = self._open(match, at)
        quote.raw.add(text[at:stop])
        quote.state, quote.over, self._state = self._state, False, self._read_example
        return stop

    def _save_state(self) -> Any:
        """A copy of the state that a block changes, for `_restore_state`."""
        return self._calls, self._batch.copy(), self._text_kind, self._read_up().copy(), self._compact_pieces().copy()

    def _restore_state(self, place: Any) -> None:
        self._calls, self._batch, self._text_kind, self._markdown, self._read_pieces = place
        self._unread.clear()

    def _read_example(self, text: str, position: int, out: list[Delta]) -> int:
        """Reads calls that may be an example, and the text after them."""
        quote = self._quote
        assert quote is not None, "an example without a beginning is our bug"
        if quote.over:
            return self._read_following(quote, text, position, out)
        self._state = quote.state
        had_problem = self._block is not None and self._block.problem is not None
        stop = self._state(text, position, quote.deltas)
        self._pass_through = None  # the quote needs the text of the block's body
        quote.join()
        quote.raw.add(text[position : stop - len(self._pending)])
        quote.state, self._state = self._state, self._read_example
        quote.over = self._block is None and quote.state == self._text
        if self._block is not None and self._block.problem is not None:
            goes = (
                quote.kind == "sentence"
                and not had_problem
                and self._sentence_breaks_body(quote, self._block, text, stop)
            )
            if quote.kind in ("span", "cited") or goes:
                self._block = None
                self._record_mention(quote, text[stop:])
                self._send_as_text(quote, out)
        return stop

    def _sentence_breaks_body(self, quote: Quote, block: OpenBlock, text: str, stop: int) -> bool:
        """Whether a block without an end marker failed at the rest of the sentence around its calls."""
        if block.end is not None or block.problem is None or block.problem.code != "trailing_text":
            return False
        return bool(sentence_continues(quote.gap + text[stop : stop + MAX_CANDIDATE], False))

    def _read_following(self, quote: Quote, text: str, position: int, out: list[Delta]) -> int:
        """Reads the text after the calls, which decides whether they are an example."""
        if quote.kind == "span":
            return self._resolve(quote, False, position, out)
        if quote.kind == "sentence":
            goes = sentence_continues(quote.gap + text[position : position + MAX_CANDIDATE], False)
            if goes is None:
                return self._hold(text, position)
            if goes:
                self._record_mention(quote, text[position:])
            return self._resolve(quote, not goes, position, out)
        space = _SPACE.match(text, position)
        stop = space.end() if space else position
        if stop > position:
            quote.raw.add(text[position:stop])
            quote.deltas.append(TextDelta(text[position:stop]))
            return stop
        verdict = self._table.decide(text[position : position + MAX_CANDIDATE])
        if verdict in ("undecided", "opened"):
            return self._hold(text, position)
        if not quote.is_fence_closed and text.startswith(quote.fence, position):
            stop = run_end(text, position)
            quote.raw.add(text[position:stop])
            quote.is_fence_closed = True
            return stop
        if not isinstance(verdict, MarkerMatch):
            return self._resolve(quote, False, position, out)
        if verdict.marker.kind == "noise":
            quote.drops.append(quote.raw.length)
            return position + verdict.length
        if verdict.marker.kind == "calls" and (verdict.fence or not quote.is_fence_closed):
            quote.is_fence_closed, quote.fence = False, verdict.fence or quote.fence
            return self._read_quoted(quote, verdict, text, position)
        # If calls or fabricated results follow, the model meant these calls.
        runs = verdict.marker.kind in ("calls", "results") and not verdict.fence and quote.kind not in ("code", "cited")
        return self._resolve(quote, runs, position, out)

    def _resolve(self, quote: Quote, runs: bool, position: int, out: list[Delta]) -> int:
        """Ends the quote, as calls (`runs`) or as an example. The following text starts at `position`."""
        if not runs:
            if quote.kind in ("fence", "indented") and quote.lead == "none":
                self._record_doubt(quote)
            self._send_as_text(quote, out)
        elif self._runs_quoted(quote):
            self._quote, self._state = None, self._text_state
            out += quote.deltas
        else:
            self._send_as_text(quote, out)
        return position

    def _runs_quoted(self, _quote: Quote) -> bool:
        """Whether quoted calls that are not an example may run."""
        return True

    def _record_mention(self, quote: Quote, rest: str) -> None:
        """Records a call whose sentence continues with `rest`. The model may have meant it if the turn has calls."""
        alone = quote.kind == "sentence" and not quote.follows_quotation and (quote.gap + rest)[:1] not in QUOTATION
        if (
            alone
            and not quote.broken
            and quote.has_call_of(self._block_format.tools)
            and len(self._mentioned_calls) < MAX_REPORTS
        ):
            self._mentioned_calls = (*self._mentioned_calls, (quote.name, quote.offset))

    def _record_doubt(self, quote: Quote) -> None:
        """Records an example that the model may have meant. It is reported if the turn has no calls."""
        if quote.has_call_of(self._block_format.tools) or quote.broken:
            self._doubtful_example = quote

    def _send_as_text(self, quote: Quote, out: list[Delta]) -> None:
        """Sends the quote as text: it is an example."""
        self._restore_state(quote.before)
        self._quote, self._state = None, self._text_state
        whole = quote.text
        for start, stop in pairwise([0, *quote.drops, len(whole)]):
            text = whole[start:stop]
            self.shown_chars += len(text)
            # A code fence in a call does not open a code block in the text.
            read_as = text if quote.kind in ("fence", "code") else text.replace("`", "'")
            self._emit(TextDelta, text, 0, len(text), out, read_as)

    def _end_quote(self, quote: Quote, out: list[Delta], normal: bool) -> None:
        """Ends the quote at the end of the turn."""
        if not quote.over:
            self._state = quote.state
            if self._block is not None:
                self._close_block(quote.deltas, normal)
            elif self._pending:
                self._close_candidate(quote.deltas, normal)
            quote.raw.add(self._pending)
        elif self._pending:
            quote.raw.add(self._pending)
            ticks = not quote.is_fence_closed and self._pending.startswith(quote.fence)
            quote.is_fence_closed = quote.is_fence_closed or ticks
            if not ticks:
                quote.deltas.append(self._text_kind(self._pending))
        self._pending = ""
        if normal and quote.runs_at_end and self._runs_quoted(quote):
            self._quote, self._state = None, self._text_state
            out += quote.deltas
            return
        is_cut_sentence = not normal and quote.kind == "sentence"
        if (
            is_cut_sentence
            or quote.kind in ("fence", "indented", "cited")
            or (quote.kind == "code" and not quote.is_fence_closed)
            or quote.broken
        ):
            self._record_doubt(quote)
        self._send_as_text(quote, out)
