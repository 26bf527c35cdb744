"""The parser of every dialect whose calls stand in marked blocks between text and reasoning.

One state machine, fed as the text comes; the whole text is one big feed. A dialect gives it the marker
names, the reader of a block's body and the batch rule.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from toolspeak.data.deltas import Delta, ForgedResults, ReasoningDelta, TextAside, TextDelta
from toolspeak.dialects.base import Section
from toolspeak.dialects.body import CUT, ResultsBody
from toolspeak.dialects.echo import Echo
from toolspeak.dialects.markers import NO_REASONING, Found, in_code, without_frames
from toolspeak.dialects.open_block import BlockFormat, OpenBlock
from toolspeak.dialects.scan import MAX_CANDIDATE, EndMarker, Problem
from toolspeak.dialects.steps import begins, stands
from toolspeak.dialects.turn_parser import TurnParser

_SPACE = re.compile(r"\s*")


class BlockParser(TurnParser):
    """Implements `Parser`; see `BlockFormat`."""

    def __init__(self, format: BlockFormat, starts_in: Section = "text") -> None:  # noqa: A002
        super().__init__(format.batch)
        self._format = format
        self._table, self._candidate = format.table, format.table.candidate
        markup = format.table.markup
        self._ends, self._inside, self._thought = markup.ends, markup.inside, markup.thought
        self._thought_ends = markup.thought_ends  # the prompt may have opened any of them
        if self._thought is NO_REASONING:
            starts_in = "text"  # a dialect without reasoning has nowhere else to start
        inside = self._label if self._thought.label else self._reasoning
        self._state = self._text if starts_in == "text" else inside
        self._depth = 0 if starts_in == "text" else 1
        self._restated = starts_in == "reasoning"  # the model may yet write the marker that the prompt ended with
        self._fencing = False  # whether it ends inside a code block
        self._block: OpenBlock | None = None
        self._echo: Echo | None = None  # of the block that ended, if nothing but white space stands behind it yet
        self._tails: tuple[str, ...] = ()  # what is dropped right behind the block that ended
        self._text_kind: type[TextDelta | TextAside] = TextDelta

    @property
    def format(self) -> BlockFormat:
        return self._format

    @property
    def _block_format(self) -> BlockFormat:
        """Of the open block, or of the last one."""
        return self._format

    @property
    def in_text(self) -> bool:
        """Whether what was read so far ends in text outside inline code, with nothing begun."""
        return self._state == self._text and not self._held and not self._quoting

    @property
    def thought_ends(self) -> Sequence[EndMarker]:
        """How reasoning that the prompt opened would end."""
        return self._thought_ends

    def _plain(self, chunk: str) -> list[Delta] | None:
        """A chunk of text in which nothing can begin, or None: the same as by way of `_text`, which takes thrice as
        long."""
        if (
            self._held
            or self._echo
            or not chunk
            or self._state != self._text
            or self._candidate.search(chunk) is not None
        ):
            return None
        if self._quoting:
            self._quoting = "\n" not in chunk  # a backtick would have been a candidate
        self._position += len(chunk)
        return [self._text_kind(chunk)]

    def _opens_calls(self, held: str) -> bool:
        verdict = self._table.decide(held, False)
        return isinstance(verdict, Found) and verdict.marker.kind == "calls"

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
            verdict = self._table.decide(text[at : at + MAX_CANDIDATE], quoting)
            if isinstance(verdict, Found) and verdict.fenced and self._fencing:
                # The fence ends a code block of the text; what follows stands in none.
                position = start = seen = self._emit(TextDelta, text, start, at + 3, out)
                self._fencing = self._quoting = quoting = False
                continue
            if isinstance(verdict, Found):
                if at > start:
                    self._emit(TextDelta, text, start, at, out)
                if verdict.marker.kind == "reasoning":
                    self._markup(text, at, at + verdict.length, out)
                elif verdict.marker.kind == "results":
                    self._batch.close(out)  # what follows is built on results that the model made up
                return self._open(verdict, at)
            if verdict != "text":
                self._emit(TextDelta, text, start, at, out)
                return self._hold(text, at)
            if not text.startswith("```", at):
                position = at + 1
                continue
            position = at + 3
            if self._fencing:
                position = start = seen = self._emit(TextDelta, text, start, position, out)
                self._quoting = quoting = False
            self._fencing = not self._fencing

    def _open(self, found: Found, at: int) -> int:
        body_at, marker = at + found.length, found.marker
        if marker.kind == "noise":
            self._state = self._text if marker.ends_reasoning else self._state
            return body_at
        self._quoting = False
        if marker.kind == "reasoning":
            self._depth, self._thought, self._restated = 1, marker, self._restated or not marker.nested
            self._state = self._label if marker.label else self._reasoning
            self._thought_ends = (self._ends[marker],)
            return body_at
        if marker.kind == "calls":
            body = self._format.new_body(marker, self._calls, self._format.caps)
            self._batch.begun = True
        else:
            body = ResultsBody(self._format.caps)
        body.start = self._position + body_at
        self._block = OpenBlock(marker, self._ends.get(marker), body, found.notes, found.fenced)
        self._state = self._skip if marker.plain else self._body
        return body_at

    def _reasoning(self, text: str, position: int, out: list[Delta]) -> int:
        start = seen = position
        quoting, ends, candidate = self._quoting, self._thought_ends, self._inside
        while True:
            found = candidate.search(text, position)
            at = found.start() if found else len(text)
            self._restated = self._restated and not text[seen:at].strip()
            if found is None:
                return self._emit(self._reasoning_kind, text, start, len(text), out)
            quoting, seen = in_code(quoting, text, seen, at), at
            closed = max(end.match(text, at) for end in ends)
            verdict = "text" if closed > 0 else self._table.decide(text[at : at + MAX_CANDIDATE], quoting)
            opened = verdict.marker if isinstance(verdict, Found) else None
            if closed > 0:
                self._depth -= 1
                if self._depth == 0:
                    self._emit(self._reasoning_kind, text, start, at, out)
                    self._markup(text, at, closed, out)
                    self._state, self._quoting = self._text, False
                    return closed
                position = closed
            elif isinstance(verdict, Found) and opened is self._thought:
                if self._restated:
                    self._restated = False
                    self._emit(self._reasoning_kind, text, start, at, out)
                    self._markup(text, at, at + verdict.length, out)
                    self._state = self._label if self._thought.label else self._reasoning
                    return at + verdict.length
                self._depth += self._thought.nested
                position = at + verdict.length
            elif isinstance(verdict, Found) and (verdict.marker.ends_reasoning or verdict.marker.kind == "noise"):
                self._emit(self._reasoning_kind, text, start, at, out)
                return self._open(verdict, at)
            elif any(end.viable(text, at) for end in ends) or verdict in ("undecided", "opened"):
                self._emit(self._reasoning_kind, text, start, at, out)
                return self._hold(text, at)
            else:
                position = at + 1

    def _label(self, text: str, position: int, out: list[Delta]) -> int:
        """Drops the label with which reasoning may begin."""
        label = self._thought.label
        rest = text[position : position + len(label)]
        if rest != label and label.startswith(rest):
            return self._hold(text, position)
        self._state = self._reasoning
        stop = position + len(label) if rest == label else position
        self._markup(text, position, stop, out)
        return stop

    def _body(self, text: str, position: int, out: list[Delta]) -> int:
        block = self._expect_block()
        body = block.body
        stop = body.feed(text, position, out)
        if body.problem is not None and (behind := self._skip_frame(block, text, stop)) > stop:
            return behind
        if body.problem is not None and body.recover():
            return stop
        if body.problem is not None:
            self._fail(block, body.problem, body.start + body.problem_offset)
        elif body.done and block.end is None:
            self._finish(block, out)
        elif body.done:
            self._state = self._closing
        else:
            return self._go_on(body, text, stop)
        return stop

    def _skip_frame(self, block: OpenBlock, text: str, position: int) -> int:
        """Drops a special token at which the body failed: outside of values it is no part of it."""
        frame = stands(text, position, self._block_format.table.markup.frames)
        if frame == "" or (frame and frame == block.marker.end) or not block.body.resume():
            return position
        block.body.raw.add(frame or "")
        return position + len(frame or "")

    def _closing(self, text: str, position: int, out: list[Delta]) -> int:
        """After a complete body: white space, a code fence, then the end marker and nothing else."""
        block = self._expect_block()
        end = self._expect_end(block)
        if text[position].isspace():
            space = _SPACE.match(text, position)
            stop = space.end() if space else position
            block.body.raw.add(text[position:stop])
            position = stop
            if position == len(text):
                return position
        closed = end.match(text, position)
        if closed > 0:
            raw = block.body.raw
            self._finish(block, out)
            if self._state == self._text and block.marker.kind == "calls":
                self._echo = Echo(raw, end.text, self._opens_calls)
            return closed
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
        """Whether another block of the kind begins here, though the complete one before it has no end marker."""
        start = block.marker.text
        if not text.startswith(start, position):
            return "undecided" if begins(text, position, start) else "no"
        verdict = self._table.decide(text[position : position + MAX_CANDIDATE], False)
        if isinstance(verdict, Found):
            return "yes" if verdict.marker.kind == "calls" else "no"
        return "no" if verdict == "text" else "undecided"

    def _holds_another(self, block: OpenBlock) -> bool:
        """Whether what is held behind a complete body may only be another block's start."""
        ending = self._expect_end(block).viable(self._held, 0)
        return not ending and self._follows(block, self._held, 0) == "undecided"

    def _finish_unclosed(self, block: OpenBlock, out: list[Delta]) -> None:
        block.notes = (*block.notes, "missing_closer")
        self._finish(block, out)

    def _skip(self, text: str, position: int, out: list[Delta]) -> int:
        """After a problem: to the block's end marker, wherever it stands."""
        block = self._expect_block()
        end, at = block.end, position
        while end is not None and (at := end.find_candidate(text, at)) >= 0:
            closed = end.match(text, at)
            if closed > 0:
                block.body.raw.add(text[position:at])
                self._finish(block, out)
                return closed
            if end.viable(text, at):
                block.body.raw.add(text[position:at])
                return self._hold(text, at)
            at += 1
        block.body.raw.add(text[position:])
        return len(text)

    def _after_block(self, text: str, position: int, out: list[Delta]) -> int:
        """Drops the closing fence of a block that stood in a code fence, or what else its marker names."""
        self._state = self._text
        limit = 13 + max(map(len, self._tails))  # 13: white space before it
        rest = text[position : position + limit]
        stripped = rest.lstrip()
        for tail in self._tails:
            if stripped.startswith(tail):
                return position + len(rest) - len(stripped) + len(tail)
        if any(tail.startswith(stripped) for tail in self._tails) and len(rest) < limit:
            self._state = self._after_block
            return self._hold(text, position)
        return position

    def _emit(self, kind: type[TextDelta | ReasoningDelta], text: str, start: int, stop: int, out: list[Delta]) -> int:
        if stop > start:
            out.append((self._text_kind if kind is TextDelta else kind)(text[start:stop]))
            self._quoting = in_code(self._quoting, text, start, stop)
        return stop

    def _markup(self, text: str, start: int, stop: int, out: list[Delta]) -> None:
        """Reasoning's own markup, which is text where reasoning stays in the text."""
        if self._reasoning_kind is TextDelta:
            self._emit(TextDelta, text, start, stop, out)

    def _end(self, out: list[Delta], normal: bool) -> None:
        if self._echo is not None:
            self._echo = None
            out += self.feed("") if self._held else []
        if self._block is not None:
            self._close_block(out, normal)
        elif self._held:
            self._close_candidate(out, normal)

    def _expect_block(self) -> OpenBlock:
        assert self._block is not None, "a block state without a block is our bug"
        return self._block

    def _expect_end(self, block: OpenBlock) -> EndMarker:
        assert block.end is not None, "waiting for an end marker that does not exist is our bug"
        return block.end

    def _fail(self, block: OpenBlock, problem: Problem, offset: int) -> None:
        block.problem, block.offset = problem, offset
        self._state = self._skip

    def _finish(self, block: OpenBlock, out: list[Delta]) -> None:
        """The block is over, with its end marker or with the turn."""
        self._block = None
        self._tails = ("```",) if block.fenced else block.marker.tails
        self._state = self._after_block if self._tails else self._text
        if block.marker.kind == "results":
            out.append(ForgedResults(block.body.raw.value()))
            return
        first = self._calls
        malformed = block.settle(first, out)
        if self._block_format.text_aside and block.problem is None and block.count > len(malformed):
            self._text_kind = TextAside
        self._calls += block.count
        indexes = [self._calls - 1] if block.problem is not None else range(first, self._calls)
        self._batch.add(indexes, malformed, block.all_notes, out, broken=block.problem is not None)
        block.body.release()

    def _close_block(self, out: list[Delta], normal: bool) -> None:
        block = self._expect_block()
        if normal and block.problem is None and not block.body.done:
            ending = block.end is not None and block.end.viable(self._held, 0)
            if not self._held or ending or block.body.may_end(self._held):
                block.body.end(out)
        if normal and self._state == self._closing and self._held and self._holds_another(block):
            self._finish_unclosed(block, out)
            self._close_candidate(out, normal)
            return
        if block.problem is None and normal and block.body.done:
            block.notes = (*block.notes, "missing_closer") if block.end is not None else block.notes
        elif block.problem is None:
            closing = f", then {block.marker.end}" if block.marker.end else ""
            unclosed = f"the turn ended inside {block.marker.text}, so nothing in it ran; close what is open{closing}"
            reason = CUT if not normal else block.body.hint() or unclosed
            block.problem = Problem("unclosed" if normal else "truncated", reason)
            block.offset = self._position + len(self._held)
        block.body.raw.add(self._held)
        self._finish(block, out)

    def _close_candidate(self, out: list[Delta], normal: bool) -> None:
        if self._state == self._after_block:
            if not self._held.strip().startswith("`"):
                out.append(self._text_kind(self._held))
            return
        if self._state == self._label and self._held == self._thought.label.strip():
            self._markup(self._held, 0, len(self._held), out)
            return
        thinking = self._state in (self._reasoning, self._label)
        verdict = "undecided" if thinking else self._table.decide(self._held, False)
        if verdict == "opened" and not normal:
            self._batch.begun = True
            marker = next(marker for marker in self._table.markers if marker.kind == "calls")
            body = self._format.new_body(marker, self._calls, self._format.caps)
            cut = Problem("truncated", CUT)
            block = OpenBlock(marker, None, body, (), False, cut, self._position)
            body.raw.add(self._held)
            self._finish(block, out)
        elif verdict == "undecided" and self._block_format.table.markup.is_cut(self._held):
            out.append(TextAside(self._held))
        elif thinking:
            out.append(self._reasoning_kind(self._held))
        else:
            last = self._table.decide(self._held, False, final=True)
            framed = isinstance(last, Found) and last.marker.kind == "noise"
            rest = self._held[last.length :] if isinstance(last, Found) and framed else self._held
            rest = without_frames(rest, self._block_format.table.markup.frames)
            if rest:
                out.append(self._text_kind(rest))
