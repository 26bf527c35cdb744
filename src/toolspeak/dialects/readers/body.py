"""The contract of a reader of a block's body, its fast path, readers with states, and the reader of fabricated
results."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from toolspeak.data.deltas import ArgumentsDelta, CallCompleted, CallMalformed, Delta, TextAside
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.text.scan import BEYOND_CAPS, Buffer, Caps, JsonScanner, Problem, string_special

MAX_UNRECORDED, PIECE = 1 << 15, 12
"""Two limits of a `PassThrough`: the characters that it takes before it records them, and the characters that each
stored piece counts in addition, as chunks are small and many."""

CUT_OFF_REASON = (
    "the turn was cut off before the end of this block, so nothing in it ran; "
    "write it again, in smaller pieces if it is long"
)

ReaderState = Callable[[str, int, list[Delta]], int]
_SPACE = re.compile(r"[ \t\r\n]*")  # the white space of XML and JSON; other white space is text, and may begin a value


class PassThrough:
    """The fast path of a body inside a string value: a chunk with only content goes straight out.

    `Body.pass_through` makes one. The caller ends it before it feeds the body, and feeds `rest` first: a backslash at
    the end of a chunk waits for the character that it escapes.

    `content`: whether a chunk is only content.
    `index`: the call's index.
    `room`: how many characters the value may still take.
    `special`: returns None for a chunk that certainly is only content; `content` is not called then.
    `visible`: the value is an argument, and its deltas go out.
    `write`: turns a chunk into a fragment of JSON; None if the chunk is one.
    """

    __slots__ = ("_body", "_chunks", "_content", "_index", "_room", "_special", "_visible", "_write", "rest")

    def __init__(
        self,
        body: Body,
        content: Callable[[str], object],
        index: int,
        room: int,
        *,
        special: Callable[[str], object] | None = None,
        visible: bool = True,
        write: Callable[[str], str] | None = None,
    ) -> None:
        self._body = body
        self._content = content
        self._index = index
        self._room = min(room, MAX_UNRECORDED)
        self._special = special
        self._visible = visible
        self._write = write
        self._chunks: list[str] = []
        self.rest = ""

    def take(self, chunk: str) -> list[Delta] | None:
        """The deltas of a chunk; None if the body must read the chunk."""
        special = self._special
        if self.rest or not chunk or ((special is None or special(chunk) is not None) and not self._content(chunk)):
            chunk, rest = self.rest + chunk, ""
            if not self._content(chunk):
                if not chunk.endswith("\\"):
                    return None
                chunk, rest = chunk[:-1], "\\"
                if chunk and not self._content(chunk):
                    return None
            if len(chunk) + PIECE > self._room:
                return None
            self.rest = rest
            if not chunk:
                return []
        room = self._room - len(chunk) - PIECE
        if room < 0:
            return None
        self._room = room
        self._chunks.append(chunk)
        if self._write is not None and string_special(chunk) is not None:
            chunk = self._write(chunk)
        return [ArgumentsDelta(self._index, chunk)] if self._visible else []

    def end(self) -> int:
        """Records the text in the body, and returns its length in characters."""
        text = "".join(self._chunks)
        self._body.record(text)
        return len(text)


class Body(ABC):
    """Reads one block's body. `feed` appends deltas and returns the position up to which the chunk belongs to the body.

    After `feed` one of these holds:

    - `is_complete`: the body has ended.
    - `problem` is set.
    - The body took the chunk, except for a short rest. The caller feeds the rest again with more text.
    """

    # Few blocks set these, so they are class attributes. Reading one takes five times as long, so those that each chunk
    # needs are instance attributes.
    start: int = 0
    """The offset of the body in the turn. Its maker sets it."""
    problem_offset: int = 0
    """The offset of `problem` in the body."""
    notes: tuple[str, ...] = ()
    """Which deviations were accepted."""
    doubtful_calls: frozenset[int] = frozenset()
    """The indexes of calls that may be cut short: the rest of a value seems to follow the block."""

    def __init__(self, caps: Caps) -> None:
        self.caps = caps
        self.raw = Buffer(caps.characters)
        self.calls: list[CallCompleted | CallMalformed] = []
        self.is_complete: bool = False
        self.problem: Problem | None = None
        self.undecided: bool = False  # `choose` must find the reader first

    @abstractmethod
    def feed(self, text: str, start: int, out: list[Delta]) -> int: ...

    def choose(self, text: str, start: int) -> Body | None:
        """The reader of an `undecided` body that begins at text[start]; None if more text is needed."""
        return self

    def resume(self) -> bool:
        """Withdraws a problem at the first character that the body did not take, and drops that character.

        Returns whether the body can continue.
        """
        return False

    def recover(self) -> bool:
        """Withdraws a problem of a single call. Returns whether the body can continue."""
        return False

    def pass_through(self) -> PassThrough | None:
        """The fast path for the next chunks if the body is inside a string. The caller ends it by `PassThrough.end`."""
        return None

    def record(self, text: str) -> None:
        """Records the text that a `PassThrough` took."""
        self.raw.add(text)

    def end(self, out: list[Delta]) -> None:  # noqa: B027 - a body that knows its own end has nothing to add
        """Ends the text at a normal end of the turn. Sets `is_complete` if only the block's end marker is missing."""

    def may_end(self, rest: str) -> bool:
        """Whether `rest`, which the body did not take, may be part of its end tag. If so, the caller calls `end`."""
        return False

    def hint(self) -> str:
        """A message to the model about an unclosed body; may be empty."""
        return ""

    def release(self) -> None:
        """Breaks the reference cycle between the reader and its bound state method. Call it when the body has ended.

        The block's text is then freed at once: the garbage collector counts objects, not their sizes.
        """
        vars(self).clear()


class StateBody(Body):
    """Implements `feed` for states. Each state takes text from text[position:] and returns where the next state begins.

    A state that needs more characters sets `_wait`. The caller then feeds the rest again with more text.
    """

    _state: ReaderState
    _between: ReaderState  # the state between calls, in a body that may hold text there
    _wait: bool = False
    _base: int = 0  # the body's offset of the current chunk's character 0

    def __init__(self, first_index: int, caps: Caps) -> None:
        super().__init__(caps)
        self._index: int = first_index
        self._fragments: list[str] = []  # of the open call's arguments, not sent yet

    def feed(self, text: str, start: int, out: list[Delta]) -> int:
        position, end = start, len(text)
        self._base = self.raw.length - start
        self._wait = False
        while position < end and not (self.is_complete or self._wait or self.problem):
            position = self._state(text, position, out)
        if self._fragments:
            self._flush_fragments(out)
        self.raw.add(text[start:position])
        return position

    def resume(self) -> bool:
        if self.problem is not None and self.problem.code in BEYOND_CAPS:
            return False
        self.problem = None
        return True

    def _prose(self, text: str, position: int, out: list[Delta]) -> int:
        """Text between calls, up to a possible marker. It is not part of the answer."""
        at = text.find("<", position)
        stop = at if at >= 0 else len(text)
        if stop > position:
            out.append(TextAside(text[position:stop]))
        if stop < len(text):
            self._state = self._between
        return stop

    def _since(self, offset: int, text: str, stop: int) -> str:
        """The body's text from `offset` up to text[stop] of the current chunk."""
        return self.raw.since(offset) + text[max(offset, self.raw.length) - self._base : stop]

    def _fail(self, code: str, reason: str, position: int) -> int:
        self.problem, self.problem_offset = Problem(code, reason), max(0, self._base + position)
        return position

    def _flush_fragments(self, out: list[Delta]) -> str:
        """Sends the collected fragments of the arguments as one, and returns it."""
        fragment = "".join(self._fragments)
        if fragment:
            out.append(ArgumentsDelta(self._index, fragment))
        self._fragments.clear()
        return fragment

    def _tool_name(self, name: str) -> str:
        """The tool's name for a name that the model wrote."""
        return name

    def _add_call(self, delta: CallCompleted | CallMalformed, out: list[Delta]) -> None:
        out.append(delta)
        self.calls.append(delta)
        self._index += 1


class ChosenBody(Body):
    """A placeholder until the body's beginning shows which of several readers reads it (`choose`)."""

    def __init__(self, caps: Caps) -> None:
        super().__init__(caps)
        self.undecided = True

    def feed(self, text: str, start: int, out: list[Delta]) -> int:
        return start


class ResultsBody(Body):
    """Finds the end of a `<results>` body that the model wrote: one JSON value."""

    def __init__(self, caps: Caps) -> None:
        super().__init__(caps)
        self._scanner = JsonScanner(caps)

    def feed(self, text: str, start: int, out: list[Delta]) -> int:
        stop = self._scanner.feed(text, start)
        self.raw.add(text[start:stop])
        self.is_complete, self.problem = self._scanner.is_complete, self._scanner.problem
        return stop

    def end(self, out: list[Delta]) -> None:
        self._scanner.end()


def known_name(name: str, tools: Mapping[str, ToolSpec]) -> str:
    """The tool's name for a name that a model wrote: with OpenAI's namespace `functions.` in any format."""
    if name in tools:
        return name
    bare = name.removeprefix("functions.")
    return bare if bare in tools else name


def skip_space(text: str, position: int) -> int:
    """The position after the white space at text[position]."""
    if text[position : position + 1] > " ":
        return position
    match = _SPACE.match(text, position)
    return match.end() if match else position
