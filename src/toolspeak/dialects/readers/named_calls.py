"""Reads calls with the name outside the JSON: a header, then the arguments as one object.

A call is: `begin`, header, `separator`, `{…}`, `end`. A block holds several calls. If the shape has no `begin`, a block
is one call: its marker began the call, and the block's parser reads the end marker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from toolspeak.data.deltas import ArgumentsDelta, CallCompleted, CallMalformed, CallStarted, Delta
from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.readers.body import PassThrough, StateBody, known_name, skip_space
from toolspeak.dialects.text.block_delimiters import begins
from toolspeak.dialects.text.markdown import FENCE, FENCE_START, run_end
from toolspeak.dialects.text.scan import (
    MAX_CANDIDATE,
    Buffer,
    Caps,
    JsonScanner,
    Problem,
    decode_json,
    shorten,
    string_content,
    string_special,
    whole_object,
)
from toolspeak.dialects.text.typed_text import schema_problem

_NOT_AN_OBJECT = Problem("arguments_not_object", "the arguments must be one JSON object: {…}")


def plain_name(text: str) -> str:
    """A name or id as one word without markers, for a format without escapes."""
    return re.sub(r"[^\w.:/-]", "_", text)[:128]


@quick()
class Header:
    """The content of a call's header."""

    name: str
    id: str | None = None
    notes: tuple[str, ...] = ()
    """Which deviations were accepted."""


@dataclass(frozen=True, slots=True)
class NamedShape:
    """How a dialect writes a call with the name outside the JSON."""

    read_header: Callable[[str], Header | None]
    """Reads the text between `begin` and the arguments; None for no header."""
    example: str
    """A call for messages to the model."""
    begin: str = ""
    """Opens each call of a block. Empty: the block is one call, which its marker opens."""
    separator: str = ""
    """Ends the header. Empty: a code fence or the '{' of the arguments ends it."""
    end: str = ""
    block_ends: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    """Markers that may follow a header by mistake."""
    fenced: bool = False
    """Whether the arguments are always in a code fence."""
    bare: bool = False
    """A turn may end with a name alone, which is a call without arguments."""
    unended: bool = False
    """Blocks have no end marker, so that an extra bracket may follow."""
    follows: tuple[str, ...] = field(init=False)
    """The markers that may follow a call."""
    header_ends: tuple[str, ...] = field(init=False)
    """The texts that end a header, the longest first."""
    header_end: re.Pattern[str] = field(init=False)
    call_end: re.Pattern[str] = field(init=False)
    longest_end: int = field(init=False)

    def __post_init__(self) -> None:
        follows = tuple(each for each in (self.end, self.begin, *self.block_ends, *self.others) if each)
        ends = sorted((*((self.separator,) if self.separator else ("{", "```")), *follows), key=len, reverse=True)
        object.__setattr__(self, "follows", follows)
        object.__setattr__(self, "header_ends", tuple(ends))
        object.__setattr__(self, "header_end", re.compile("|".join(map(re.escape, ends))))
        object.__setattr__(self, "call_end", re.compile("|".join(map(re.escape, sorted(follows, reverse=True)))))
        object.__setattr__(self, "longest_end", max(map(len, follows), default=0))


@quick(frozen=False)
class _Call:
    """The open call. `value` is the text of the arguments."""

    value: Buffer
    offset: int
    header: str = ""
    name: str | None = None
    id: str | None = None
    arguments: Mapping[str, JSON] | None = None
    problem: Problem | None = None
    notes: tuple[str, ...] = ()
    null: bool = False


class NamedCalls(StateBody):
    """Implements `Body`. It sends arguments as they arrive.

    An unreadable call fails alone: its end marker, or a text that may follow a call, ends it.
    """

    _scanner = JsonScanner(Caps())  # of the arguments of the open call

    def __init__(
        self, shape: NamedShape, first_index: int, caps: Caps, tools: Mapping[str, ToolSpec] | None = None
    ) -> None:
        super().__init__(first_index, caps)
        self._shape = shape
        self._tools = tools or {}
        self._call = _Call(Buffer(caps.characters), 0)
        self._state = self._between if shape.begin else self._header
        self._after_fence = False  # a code fence ended right here

    def resume(self) -> bool:
        return self._scanner.problem is None and super().resume()

    def recover(self) -> bool:
        if not self._shape.begin:
            return False
        if self._state == self._between:
            if not self.calls:
                return False
            self._call = _Call(Buffer(0), self.problem_offset)
        self._call.problem = self._call.problem or self.problem
        self.problem, self._state = None, self._skip_unreadable
        return True

    def pass_through(self) -> PassThrough | None:
        if self._state != self._arguments or not self._scanner.in_string:
            return None
        room = self.caps.characters - self._call.value.length
        return PassThrough(
            self, string_content, self._index, room, special=string_special, visible=self._call.problem is None
        )

    def record(self, text: str) -> None:
        self.raw.add(text)
        self._call.value.add(text)

    def end(self, out: list[Delta]) -> None:
        call = self._call
        if self._state in (self._after_arguments, self._after_unended):
            self._end_call("", 0, out)
            self.is_complete = True
        elif self._state in (self._between, self._prose):
            self.is_complete = bool(self.calls)
        elif self._state == self._header and self._shape.bare:
            self._announce(call.header, out)
            self._no_arguments("", 0, out)
            self.is_complete = True

    # States, as in `StateBody`.

    def _between(self, text: str, position: int, out: list[Delta]) -> int:
        stop = skip_space(text, position)
        if stop == len(text):
            return stop
        shape = self._shape
        if text.startswith(shape.begin, stop):
            self._call = _Call(Buffer(self.caps.characters), self._base + stop)
            self._state = self._header
            return stop + len(shape.begin)
        if text.startswith(shape.block_ends, stop):
            self.is_complete = bool(self.calls)
            if not self.calls:
                self._fail("empty_batch", f"the block holds no call; write {shape.example}", stop)
        elif begins(text, stop, shape.begin, *shape.block_ends, shape.end):
            self._wait = True
        elif self.calls and shape.end and text.startswith(shape.end, stop):
            return stop + len(shape.end)  # the end marker of the last call, repeated
        elif self.calls and text[stop] != "<":
            self._state = self._prose
        else:  # another tag, a misspelt marker, or a special token, which the block's parser drops
            self._fail("not_a_call", f"expected {shape.example}, found {text[stop]!r}", stop)
        return stop

    def _header(self, text: str, position: int, out: list[Delta]) -> int:
        """Collects the header as it arrives, so that the turn's end may make it a call without arguments (`bare`)."""
        call = self._call
        longest = len(self._shape.header_ends[0])
        match = self._shape.header_end.search(text, position, position + MAX_CANDIDATE + longest)
        stop = match.start() if match else self._possible_end(text, position)
        room = MAX_CANDIDATE - len(call.header)
        if stop - position > room:
            read = (call.header + text[position : position + room]).strip()
            reason = f"expected {self._shape.example}, found {shorten(read)!r}"
            self._fail("no_name", reason, position - len(call.header))
            return position + room
        call.header += text[position:stop]
        if match is None:
            self._wait = stop < len(text)
            return stop
        return self._end_header(text, stop, match[0], out)

    def _possible_end(self, text: str, position: int) -> int:
        """The start of a marker that the text's end cuts short; else the text's end."""
        markers = self._shape.header_ends
        first = max(position, len(text) - len(markers[0]))
        return next((at for at in range(first, len(text)) if begins(text, at, *markers)), len(text))

    def _end_header(self, text: str, stop: int, ended_by: str, out: list[Delta]) -> int:
        call, shape = self._call, self._shape
        self._announce(call.header, out)
        if ended_by in shape.follows:
            if shape.bare:
                self._no_arguments(text, stop, out)
                self.is_complete = True
            else:
                call.problem = call.problem or Problem("no_arguments", f"the arguments are missing; {shape.example}")
                self._close_arguments(text, stop, out)
            return stop
        self._state = self._before_arguments
        return stop + len(shape.separator)

    def _announce(self, header: str, out: list[Delta]) -> None:
        call = self._call
        read = self._shape.read_header(header)
        if read is None:
            reason = f"{shorten(header.strip())!r} names no tool; write {self._shape.example}"
            call.problem = Problem("no_name", reason)
        else:
            call.name, call.id, call.notes = known_name(read.name, self._tools), read.id, read.notes
            out.append(CallStarted(self._index, call.name, read.id))

    def _no_arguments(self, text: str, stop: int, out: list[Delta]) -> None:
        if self._call.problem is None:
            out.append(ArgumentsDelta(self._index, "{}"))
            self._call.arguments = {}
        self._end_call(text, stop, out)

    def _before_arguments(self, text: str, position: int, out: list[Delta]) -> int:
        """White space and a code fence before the arguments."""
        call, shape = self._call, self._shape
        stop = skip_space(text, position)
        if stop == len(text):
            return stop
        if text.startswith("n", stop) and self._may_be_null():
            call.null = True
            return self._start_arguments(stop)
        if text[stop] == "{":
            if call.problem is None and (whole := whole_object(text, stop, self.caps)) is not None:
                call.arguments, end = whole
                out.append(ArgumentsDelta(self._index, text[stop:end]))
                self._close_arguments(text, end, out)
                return end
            return self._start_arguments(stop)
        if text[stop] == "`":
            rest = text[stop : stop + MAX_CANDIDATE]
            fence = FENCE.match(rest)
            if fence is not None and fence.end() < len(rest):
                if not shape.fenced:
                    call.notes = (*call.notes, "code_fence")
                return stop + fence.end()
            if FENCE_START.fullmatch(rest) and len(rest) < MAX_CANDIDATE:
                self._wait = True
                return stop
        follows = shape.follows
        if text.startswith(follows, stop):
            call.problem = call.problem or Problem("no_arguments", f"the arguments are missing; {shape.example}")
            self._close_arguments(text, stop, out)
            return stop
        if begins(text, stop, *follows):
            self._wait = True
            return stop
        call.problem = call.problem or _NOT_AN_OBJECT
        return self._start_arguments(stop)

    def _start_arguments(self, position: int) -> int:
        self._scanner, self._state = JsonScanner(self.caps, depth=2), self._arguments
        return position

    def _arguments(self, text: str, position: int, out: list[Delta]) -> int:
        call, scanner = self._call, self._scanner
        stop = scanner.feed(text, position)
        fault, back, left_out = scanner.problem, scanner.back, 0
        if fault is not None:
            skip_length = scanner.pass_over(text[stop : stop + 1])
            if skip_length is None:
                self.problem, self.problem_offset = fault, self._base + stop - back
            left_out = skip_length or 0
        room = self.caps.characters - call.value.length
        if stop - position > room:
            stop = position + room
            self._fail("too_large", f"the arguments are over {self.caps.characters} characters", stop)
        piece = text[position:stop]
        call.value.add(piece)
        if call.problem is None and piece and not call.null:
            out.append(ArgumentsDelta(self._index, piece))
        if fault is not None and self.problem is None:
            call.problem = call.problem or fault
            call.value.add(text[stop : stop + left_out])
            stop += left_out
        if scanner.is_complete and self.problem is None:
            value = None if call.problem else decode_json(call.value.value())
            if isinstance(value, Problem):
                call.problem = value
            elif call.null:
                self._take_null(out)
            else:
                call.arguments = value
            self._close_arguments(text, stop, out)
        return stop

    def _close_arguments(self, text: str, stop: int, out: list[Delta]) -> None:
        """The call's end follows. If the call is a whole block, the block's parser reads it."""
        self._state = self._after_unended if self._shape.unended else self._after_arguments
        if not self._shape.begin and not self._shape.unended:
            self._end_call(text, stop, out)
            self.is_complete = True

    def _after_unended(self, text: str, position: int, out: list[Delta]) -> int:
        """After the arguments of a call without an end marker. A bracket or a comma means that they are incomplete."""
        stop = skip_space(text, position)
        self._after_fence = self._after_fence and stop == position
        if stop == len(text):
            return stop
        if text[stop] == "`":
            if self._after_fence or text.startswith("```", stop):
                self._after_fence = True  # the rest of a longer fence may follow
                return run_end(text, stop)
            if begins(text, stop, "```"):
                self._wait = True
                return stop
        if text[stop] in "}],":
            return self._fail("trailing_text", f"{text[stop]!r} after the arguments, which are over", stop)
        self._end_call(text, stop, out)
        self.is_complete = True
        return stop

    def _after_arguments(self, text: str, position: int, out: list[Delta]) -> int:
        """A code fence and the call's end marker, or a text that may follow a call without one."""
        call, shape = self._call, self._shape
        stop = skip_space(text, position)
        if stop == len(text):
            return stop
        if text.startswith("```", stop):
            return stop + 3
        if text.startswith(shape.end, stop):
            self._end_call(text, stop + len(shape.end), out)
            return stop + len(shape.end)
        if text.startswith(shape.follows, stop):
            call.notes = (*call.notes, "missing_closer")
            self._end_call(text, stop, out)
        elif begins(text, stop, *shape.follows, "```"):
            self._wait = True
        else:
            self._fail("trailing_text", f"text after the arguments; close the call with {shape.end}", stop)
        return stop

    def _may_be_null(self) -> bool:
        """Whether `null` means no arguments: the tool requires none. For another tool the arguments may be lost."""
        spec = self._tools.get(self._call.name or "")
        return self._call.problem is None and spec is not None and not spec.parameters.get("required")

    def _take_null(self, out: list[Delta]) -> None:
        out.append(ArgumentsDelta(self._index, "{}"))
        self._call.arguments, self._call.notes = {}, (*self._call.notes, "arguments_null")

    def _skip_unreadable(self, text: str, position: int, out: list[Delta]) -> int:
        """Skips the rest of an unreadable call, up to its end marker or a text that may follow a call."""
        match = self._shape.call_end.search(text, position)
        if match is None:
            at = max(position, len(text) - self._shape.longest_end)
            stop = next((at for at in range(at, len(text)) if begins(text, at, *self._shape.follows)), len(text))
            self._wait = stop < len(text)
            return stop
        stop = match.end() if match[0] == self._shape.end else match.start()
        self._end_call(text, stop, out)
        return stop

    def _end_call(self, text: str, stop: int, out: list[Delta]) -> None:
        call = self._call
        if "type" in (call.arguments or ()):
            call.problem = call.problem or schema_problem(call.arguments or {}, self._tools.get(call.name or ""))
        if call.problem is None and call.name is not None and call.arguments is not None:
            delta: CallCompleted | CallMalformed = CallCompleted(
                self._index, call.name, call.arguments, call.id, call.notes
            )
        else:
            problem, raw = call.problem or _NOT_AN_OBJECT, self._since(call.offset, text, stop)
            at = self.start + call.offset
            delta = CallMalformed(self._index, raw, problem.code, problem.reason, at, call.name)
        self._add_call(delta, out)
        self._state = self._between
