"""What stands between a block's markers: the contract of a body reader, and the one that believes nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from toolspeak.data.deltas import ArgumentsDelta, CallCompleted, CallMalformed, Delta
from toolspeak.dialects.text.scan import Buffer, Caps, JsonScanner, Problem, string_special

MAX_RUN, PIECE = 1 << 15, 12
"""Characters that a `Run` takes before they are booked, and how many of them a piece counts for: it keeps chunks, which
are small and many."""

CUT = (
    "the turn was cut off before the end of this block, so nothing in it ran; "
    "write it again, in smaller pieces if it is long"
)


class Run:
    """The fast path of a body inside a string value: a chunk without anything but content goes straight out.

    `content` says whether a chunk is nothing else; it is not asked where `special` gives None. `write` makes a fragment
    of JSON of a chunk that is none as it is. Without `shown` the value is no argument, and nothing is said of it. A
    body offers one in `run`, with the `room` there is for it in characters; whoever feeds the body ends it before
    anything else, and goes on with `rest`: a backslash at the end of a chunk waits for what it escapes.
    """

    __slots__ = ("_body", "_chunks", "_content", "_index", "_room", "_shown", "_special", "_write", "rest")

    def __init__(
        self,
        body: Body,
        content: Callable[[str], object],
        index: int,
        room: int,
        *,
        special: Callable[[str], object] | None = None,
        shown: bool = True,
        write: Callable[[str], str] | None = None,
    ) -> None:
        self._body = body
        self._content = content
        self._index = index
        self._room = min(room, MAX_RUN)
        self._special = special
        self._shown = shown
        self._write = write
        self._chunks: list[str] = []
        self.rest = ""

    def take(self, chunk: str) -> list[Delta] | None:
        """The deltas of a chunk; None if it must go through the body's `feed`."""
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
        return [ArgumentsDelta(self._index, chunk)] if self._shown else []

    def end(self) -> int:
        """Books in the body what was taken; the number of characters."""
        taken = "".join(self._chunks)
        self._body.book(taken)
        return len(taken)


class Body(ABC):
    """Reads one block's body. `feed` appends deltas and returns how far the chunk belongs to the body.

    Afterwards either `done`, or `problem` is set (`problem_offset` counts from the body's first character), or
    the chunk was taken, all but a short rest that is to come again with more behind it. `calls` are the calls
    read, well-formed or malformed in their position; those whose index is in `doubted` may be cut, as the rest of a
    value seems to stand behind them. `start` is where the body begins in the turn: whoever makes it
    sets that. One that is `undecided` has to `choose` its reader first.
    """

    # Of the class until they are set, as they are in few blocks; what each chunk asks for is not, for that takes five
    # times as long.
    start: int = 0
    problem_offset: int = 0
    notes: tuple[str, ...] = ()
    doubted: frozenset[int] = frozenset()

    def __init__(self, caps: Caps) -> None:
        self.caps = caps
        self.raw = Buffer(caps.characters)
        self.calls: list[CallCompleted | CallMalformed] = []
        self.done: bool = False
        self.problem: Problem | None = None
        self.undecided: bool = False

    @abstractmethod
    def feed(self, text: str, start: int, out: list[Delta]) -> int: ...

    def choose(self, text: str, start: int) -> Body | None:
        """The reader of a body that begins at text[start], where it is `undecided`. None: more text is needed."""
        return self

    def resume(self) -> bool:
        """Withdraws a problem at the first character that was not taken, and drops that character. Returns whether the
        body can continue."""
        return False

    def recover(self) -> bool:
        """Withdraws a problem that concerns one call alone. Returns whether the body can continue."""
        return False

    def run(self) -> Run | None:
        """The fast path for the next chunks, if the body stands inside a string. `book` follows it."""
        return None

    def book(self, taken: str) -> None:
        """Records the text that a `Run` took."""
        self.raw.add(taken)

    def end(self, out: list[Delta]) -> None:  # noqa: B027 - a body that knows its own end has nothing to add
        """No more text at a normal end of the turn: `done` if nothing but the block's end marker is missing."""

    def may_end(self, rest: str) -> bool:
        """Whether `rest`, which the body did not take, may be part of its own end tag. Then `end` is called."""
        return False

    def hint(self) -> str:
        """A message to the model about an unclosed body; may be empty."""
        return ""

    def release(self) -> None:
        """Call when the body is done. Breaks the reference cycle between a reader and its bound state method, so that
        the block's text is freed at once: the garbage collector counts objects and not their sizes."""
        vars(self).clear()


class ChosenBody(Body):
    """In place of a body that one of several readers reads, until its beginning says which."""

    def __init__(self, caps: Caps) -> None:
        super().__init__(caps)
        self.undecided = True

    def feed(self, text: str, start: int, out: list[Delta]) -> int:
        return start


class ResultsBody(Body):
    """A `<results>` body that the model wrote: one JSON value, read over only to find its end."""

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
