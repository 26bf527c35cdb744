"""The contract of a reader of a block's body, its fast path, and the reader of fabricated results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from toolspeak.data.deltas import ArgumentsDelta, CallCompleted, CallMalformed, Delta
from toolspeak.dialects.text.scan import Buffer, Caps, JsonScanner, Problem, string_special

MAX_UNRECORDED, PIECE = 1 << 15, 12
"""Two limits of a `PassThrough`: the characters that it takes before it records them, and the characters that each
stored piece counts in addition, as chunks are small and many."""

TRUNCATED = (
    "the turn was cut off before the end of this block, so nothing in it ran; "
    "write it again, in smaller pieces if it is long"
)


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

    - `done`: the body is complete.
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
    doubted: frozenset[int] = frozenset()
    """The indexes of calls that may be cut short: the rest of a value seems to follow the block."""

    def __init__(self, caps: Caps) -> None:
        self.caps = caps
        self.raw = Buffer(caps.characters)
        self.calls: list[CallCompleted | CallMalformed] = []
        self.done: bool = False
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
        """Ends the text at a normal end of the turn. Sets `done` if only the block's end marker is missing."""

    def may_end(self, rest: str) -> bool:
        """Whether `rest`, which the body did not take, may be part of its end tag. If so, the caller calls `end`."""
        return False

    def hint(self) -> str:
        """A message to the model about an unclosed body; may be empty."""
        return ""

    def release(self) -> None:
        """Breaks the reference cycle between the reader and its bound state method. Call it when the body is done.

        The block's text is then freed at once: the garbage collector counts objects, not their sizes.
        """
        vars(self).clear()


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
        self.done, self.problem = self._scanner.done, self._scanner.problem
        return stop

    def end(self, out: list[Delta]) -> None:
        self._scanner.end()
