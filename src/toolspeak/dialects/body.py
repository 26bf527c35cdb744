"""What stands between a block's markers: the contract of a body reader, and the one that believes nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod

from toolspeak.data.deltas import CallCompleted, CallMalformed, Delta
from toolspeak.dialects.scan import Buffer, Caps, JsonScanner, Problem


class Body(ABC):
    """Reads one block's body. `feed` appends deltas and returns how far the chunk belongs to the body.

    Afterwards either `done`, or `problem` is set (`problem_offset` counts from the body's first character), or
    the chunk was taken, all but a short rest that is to come again with more behind it. `calls` are the calls
    read, well-formed or malformed in their position.
    """

    def __init__(self, caps: Caps) -> None:
        self.caps = caps
        self.done = False
        self.problem: Problem | None = None
        self.problem_offset = 0
        self.raw = Buffer(caps.characters)
        self.calls: list[CallCompleted | CallMalformed] = []
        self.notes: tuple[str, ...] = ()

    @abstractmethod
    def feed(self, text: str, start: int, out: list[Delta]) -> int: ...

    def end(self, out: list[Delta]) -> None:  # noqa: B027 - a body that knows its own end has nothing to add
        """No more text at a normal end of the turn: `done` if nothing but the block's end marker is missing."""

    def may_end(self, rest: str) -> bool:
        """Whether `rest`, which the body did not take, may be part of an end tag of its own: then `end` is asked."""
        return False

    def hint(self) -> str:
        """What the model should know about an unclosed body; may be empty."""
        return ""


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
