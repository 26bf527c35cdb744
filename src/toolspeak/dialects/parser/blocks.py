"""The parser of every dialect with calls in marked blocks between text and reasoning.

It is one state machine, fed as text arrives. A `BlockFormat` gives it the markers, the readers of bodies and the
batch rule.
"""

from __future__ import annotations

import re
from typing import Literal

from toolspeak.data.deltas import CallIgnored, CallMalformed, Delta, ForgedResults, TextAside, TextDelta
from toolspeak.dialects.parser.block_format import BlockFormat, Echo, OpenBlock
from toolspeak.dialects.parser.running_text import TextParser
from toolspeak.dialects.readers.body import CUT_OFF_REASON, ResultsBody
from toolspeak.dialects.text.block_delimiters import begins, stands
from toolspeak.dialects.text.markers import MarkerMatch
from toolspeak.dialects.text.scan import MAX_CANDIDATE, Problem

_SPACE = re.compile(r"\s*")
_CUT_VALUE = "an end tag that nothing opened follows it, so its last value may have been cut at a tag in it"


class BlockParser(TextParser):
    """Implements `Parser`; see `BlockFormat`."""

    _tails: tuple[str, ...] = ()  # texts to drop right after the block that ended
    _asides: tuple[TextAside, ...] = ()  # in a draft's reader: the trailing text of the open block

    @property
    def format(self) -> BlockFormat:
        return self._format

    @property
    def _block_format(self) -> BlockFormat:
        """The format of the open block, or of the last one."""
        return self._format

    @property
    def broken_at(self) -> int | None:
        if self._quote is not None:
            return self._quote.offset
        return self._block.offset if self._block is not None and self._block.problem is not None else None

    def _draft_parser(self) -> BlockParser:
        return BlockParser(self._format)

    def _open(self, match: MarkerMatch, at: int) -> int:
        body_at, marker = at + match.length, match.marker
        if marker.kind == "noise":
            if marker.ends_reasoning:
                self._may_end = ""  # no reasoning follows
            if marker.ends_message:
                self._read_up().end_message()
            self._state = self._over if marker.ends_turn else self._text_state if marker.ends_reasoning else self._state
            return body_at
        self._may_end = ""
        if marker.kind == "reasoning":
            self._begin_section()
            self._depth, self._thought, self._may_repeat_start = 1, marker, self._may_repeat_start or not marker.nested
            self._state = self._label if marker.label else self._reasoning
            self._thought_ends = (self._marks.ends[marker],)
            return body_at
        if marker.kind == "calls":
            self._has_marked_block = self._has_marked_block or marker.place == "anywhere"
            body = self._format.new_body(marker, self._calls, self._format.caps, self._format.tools)
            self._batch.has_block = True
        else:
            body = ResultsBody(self._format.caps)
        body.start = self._position + body_at
        self._block = OpenBlock(marker, self._marks.ends.get(marker), body, match.notes, match.fence)
        if match.problem is not None:
            self._fail(self._block, match.problem, self._position + at)
        else:
            self._state = self._skip if marker.plain else self._body
        return body_at

    def _over(self, text: str, position: int, out: list[Delta]) -> int:
        """After the model's end of the turn."""
        out.append(TextAside(text[position:]))
        return len(text)

    def _body(self, text: str, position: int, out: list[Delta]) -> int:
        block = self._block
        assert block is not None, "a block state without a block is our bug"
        body = block.body
        if body.undecided:
            reader = body.choose(text, position)
            if reader is None:
                return self._hold(text, position)
            reader.start = body.start
            block.body = body = reader
        first_new = len(out)
        stop = body.feed(text, position, out)
        if self._raws is not None:
            self._asides += tuple(delta for delta in out[first_new:] if type(delta) is TextAside)
            out[first_new:] = [delta for delta in out[first_new:] if type(delta) is not TextAside]
        if body.problem is not None and (after := self._skip_frame(block, text, stop)) > stop:
            return after
        if body.problem is not None:  # otherwise the body waits for the rest of a special token
            if not body.recover():
                self._fail(block, body.problem, body.start + body.problem_offset)
        elif body.is_complete and block.end is None:
            self._finish(block, out)
        elif body.is_complete:
            self._state = self._closing
        else:
            return self._await_more(body, text, stop)
        return stop

    def _skip_frame(self, block: OpenBlock, text: str, position: int) -> int:
        """Drops a special token at which the body failed. Outside of values it is not part of the body."""
        frame = stands(text, position, self._block_format.table.markup.frames) if position < len(text) else ""
        if frame == "" or (frame and frame == block.marker.end) or not block.body.resume():
            return position
        block.body.raw.add(frame or "")
        return position + len(frame or "")

    def _closing(self, text: str, position: int, out: list[Delta]) -> int:
        """After a complete body: white space, a code fence, then the end marker. Other text is a problem."""
        block = self._block
        assert block is not None, "a block state without a block is our bug"
        end = block.end
        assert end is not None, "waiting for an end marker that does not exist is our bug"
        if text[position].isspace():
            space = _SPACE.match(text, position)
            stop = space.end() if space else position
            block.body.raw.add(text[position:stop])
            position = stop
            if position == len(text):
                return position
        end_stop = end.match(text, position)
        if end_stop > 0:
            raw = block.body.raw
            self._finish(block, out)
            if block.marker.kind == "calls" and not (block.fence or block.marker.tails):
                self._echo = Echo(raw, end.text, self._opens_calls)
            return end_stop
        frame = stands(text, position, self._block_format.table.markup.frames)
        if frame:
            block.body.raw.add(frame)
            return position + len(frame)
        following = self._follows(block, text, position)
        if following == "yes":
            self._finish_unclosed(block, out)
            return position
        if text.startswith("```", position):
            if "code_fence" not in block.notes:
                block.notes = (*block.notes, "code_fence")
            return position + 3
        if (
            frame is None
            or following == "undecided"
            or end.viable(text, position)
            or "```".startswith(text[position : position + 3])
        ):
            return self._hold(text, position)
        at = self._position + position
        self._fail(block, Problem("trailing_text", f"text after the calls; close the block with {end.text}"), at)
        return position

    def _follows(self, block: OpenBlock, text: str, position: int) -> Literal["yes", "no", "undecided"]:
        """Whether another block with this marker begins at text[position], although this block has no end marker."""
        start = block.marker.text
        if not text.startswith(start, position):
            return "undecided" if begins(text, position, start) else "no"
        verdict = self._table.decide(text[position : position + MAX_CANDIDATE])
        if isinstance(verdict, MarkerMatch):
            return "yes" if verdict.marker.kind == "calls" else "no"
        return "no" if verdict == "text" else "undecided"

    def _holds_another(self, block: OpenBlock) -> bool:
        """Whether the pending text after a complete body can only be another block's start."""
        ending = block.end is not None and block.end.viable(self._pending, 0)
        return not ending and self._follows(block, self._pending, 0) == "undecided"

    def _finish_unclosed(self, block: OpenBlock, out: list[Delta]) -> None:
        block.notes = (*block.notes, "missing_closer")
        self._finish(block, out)

    def _skip(self, text: str, position: int, out: list[Delta]) -> int:
        """After a problem: skips to the block's end marker."""
        block = self._block
        assert block is not None, "a block state without a block is our bug"
        end, at = block.end, position
        if end is None:
            return self._skip_call(block, text, position, out)
        while (at := end.find_candidate(text, at)) >= 0:
            end_stop = end.match(text, at)
            if end_stop > 0:
                block.body.raw.add(text[position:at])
                self._finish(block, out)
                return end_stop
            if end.viable(text, at):
                block.body.raw.add(text[position:at])
                return self._hold(text, at)
            at += 1
        block.body.raw.add(text[position:])
        return len(text)

    def _skip_call(self, block: OpenBlock, text: str, position: int, out: list[Delta]) -> int:
        """After a problem in a block without an end marker: skips to the next block with the same marker."""
        at = position
        while (at := text.find(block.marker.text[0], at)) >= 0:
            following = self._follows(block, text, at)
            if following != "no":
                block.body.raw.add(text[position:at])
                if following == "undecided":
                    return self._hold(text, at)
                self._finish(block, out)
                return at
            at += 1
        block.body.raw.add(text[position:])
        return len(text)

    def _after_block(self, text: str, position: int, out: list[Delta]) -> int:
        """After a block: drops the closing code fence, the marker's `tails`, and a repeated end marker."""
        self._state = self._text_state
        limit = 13 + max(map(len, self._tails))  # 13: white space before it
        rest = text[position : position + limit]
        content = rest.lstrip()
        for i, tail in enumerate(self._tails):
            if content.startswith(tail):
                if self._quote is not None and tail[0] in "`~":
                    self._quote.is_fence_closed = True
                self._tails = self._tails[i + 1 :]
                self._state = self._after_block if self._tails else self._text_state
                return position + len(rest) - len(content) + len(tail)
        if any(tail.startswith(content) for tail in self._tails) and len(rest) < limit:
            self._state = self._after_block
            return self._hold(text, position)
        return position

    def _end(self, out: list[Delta], normal: bool) -> None:
        if self._echo is not None:
            self._echo = None
            out += self.feed("") if self._pending else []
        if self._pending and self._state == self._text and self._waits_to_end():
            self._ending = "normal" if normal else "cut"
            out += self.feed("")
        if self._draft is not None:
            self._end_thoughts(out, normal)
        if self._quote is not None:
            self._end_quote(self._quote, out, normal)
        elif self._block is not None:
            self._close_block(out, normal)
        elif self._pending:
            self._close_candidate(out, normal)
        if self._hidden_draft is not None:
            self._report_hidden_draft(out)
        if self._mentioned_calls and self._batch.has_block:
            self._report_mentioned(out)
        if self._state is self._text_state:
            if self._batch.has_block:
                self._report_unmarked(self._position, out)
            else:
                self._report_end(out)

    def _waits_to_end(self) -> bool:
        """Whether the pending text, which ends the turn, may be more than text."""
        if self._table.marker_at(self._pending, 0) or self._marks.call_end_starts.match(self._pending):
            return True
        verdict = self._table.decide(self._pending)
        return isinstance(verdict, MarkerMatch) and verdict.marker.kind in ("reasoning", "results")

    def _fail(self, block: OpenBlock, problem: Problem, offset: int) -> None:
        block.problem, block.offset = problem, offset
        self._state = self._skip

    def _finish(self, block: OpenBlock, out: list[Delta]) -> None:
        """Ends the block, at its end marker or at the end of the turn."""
        self._block = None
        self._begin_section()
        marker, body, problem = block.marker, block.body, block.problem
        again = (marker.end,) if marker.end and marker.kind == "calls" else ()
        self._tails = (block.fence,) if block.fence else marker.tails + again
        self._state = self._after_block if self._tails else self._text_state
        if marker.kind == "results":
            out.append(ForgedResults(body.raw.value()))
            self._hidden_draft = None  # the report of fabricated results takes precedence
            return
        first, stop = self._calls, self._calls + len(body.calls)
        uncounted_indexes = {call.index for call in body.calls if type(call) is CallMalformed} | body.doubtful_calls
        if problem is None:
            out.extend(CallIgnored(index, _CUT_VALUE) for index in sorted(body.doubtful_calls))
        else:  # the whole block is one unreadable call, with an index of its own
            out.extend(CallIgnored(call.index, "its block could not be read to the end") for call in body.calls)
            raw = body.raw.value()
            out.append(CallMalformed(stop, raw, problem.code, problem.reason, block.offset, None, True))
            first, stop = stop, stop + 1
        if self._block_format.text_aside and problem is None and stop - first > len(uncounted_indexes):
            self._text_kind = TextAside
        self._calls = stop
        notes = tuple(dict.fromkeys((*block.notes, *body.notes))) if body.notes else block.notes
        self._batch.add(range(first, stop), uncounted_indexes, notes, out, broken=problem is not None)
        if self._raws is not None:
            self._raws.append(None if problem is not None else body.raw.value())
            out += self._asides
            self._asides = ()
        body.release()

    def _close_block(self, out: list[Delta], normal: bool) -> None:
        block = self._block
        assert block is not None, "a block state without a block is our bug"
        if normal and block.problem is None and not block.body.is_complete:
            ending = block.end is not None and block.end.viable(self._pending, 0)
            if not self._pending or ending or block.body.may_end(self._pending):
                block.body.end(out)
        if normal and self._state == self._closing and self._pending and self._holds_another(block):
            self._finish_unclosed(block, out)
            self._close_candidate(out, normal)
            return
        if block.problem is None and normal and block.body.is_complete:
            block.notes = (*block.notes, "missing_closer") if block.end is not None else block.notes
        elif block.problem is None:
            closing = f", then {block.marker.end}" if block.marker.end else ""
            problem_text = (
                f"the turn ended inside {block.marker.text}, so nothing in it ran; close what is open{closing}"
            )
            reason = CUT_OFF_REASON if not normal else block.body.hint() or problem_text
            block.problem = Problem("unclosed" if normal else "truncated", reason)
            block.offset = self._position + len(self._pending)
        block.body.raw.add(self._pending)
        self._finish(block, out)

    def _close_candidate(self, out: list[Delta], normal: bool) -> None:
        if self._state == self._after_block:
            if self._pending.strip()[:1] not in ("`", "~"):
                out.append(self._text_kind(self._pending))
            return
        if self._state == self._label and self._pending == self._thought.label.strip():
            self._markup(self._pending, 0, len(self._pending), out)
            return
        thinking = self._state in (self._reasoning, self._label)
        verdict = "undecided" if thinking else self._table.decide(self._pending)
        if verdict == "opened" and not normal:
            self._batch.has_block = True
            marker = next(marker for marker in self._table.markers if marker.kind == "calls")
            body = self._format.new_body(marker, self._calls, self._format.caps, self._format.tools)
            problem = Problem("truncated", CUT_OFF_REASON)
            block = OpenBlock(marker, None, body, (), "", problem, self._position)
            body.raw.add(self._pending)
            self._finish(block, out)
        elif verdict == "undecided" and self._block_format.table.markup.is_cut(self._pending):
            out.append(TextAside(self._pending))
        elif thinking:
            out.append(self._reasoning_kind(self._pending))
        else:
            last = self._table.decide(self._pending, final=True)
            is_noise = isinstance(last, MarkerMatch) and last.marker.kind == "noise"
            rest = self._pending[last.length :] if isinstance(last, MarkerMatch) and is_noise else self._pending
            rest = self._block_format.without_frames(rest)
            if rest:
                self._emit(TextDelta, rest, 0, len(rest), out)
