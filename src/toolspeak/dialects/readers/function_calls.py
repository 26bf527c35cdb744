"""What the readers of calls in function notation share: the call being read, its arguments as JSON, the levels open."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable
from typing import TypeAlias, cast

from toolspeak.data.deltas import ArgumentsDelta, CallCompleted, CallMalformed, CallStarted, Delta
from toolspeak.data.messages import JSON
from toolspeak.dialects.readers.body import Run
from toolspeak.dialects.readers.reader_states import Steps, json_string, string_text
from toolspeak.dialects.readers.whole_call import WholeCall
from toolspeak.dialects.text.scan import Buffer, Caps, Problem, decode_json

MAX_NAME = 256
"""Characters a tool's name, or an argument's that stands outside of quotes, may take."""

Flow: TypeAlias = tuple[Callable[[str], object], Callable[[str], str]]
"""A string that leaves as it comes: what says that a chunk holds nothing else, and what makes it a piece of JSON. The
pieces of two chunks, joined, are the piece of both."""


class FunctionCalls(Steps):
    """A body of calls such as `f(a=1)` or `call:f{a:1}`: values become JSON fragments as they come.

    A call's arguments are decoded once, from the fragments, when it is complete: so the
    fragments and the arguments cannot differ.
    """

    def __init__(self, first_index: int, caps: Caps) -> None:
        super().__init__(first_index, caps)
        self._name = ""
        self._offset = 0  # the body's offset of the open call
        self._json = Buffer(caps.characters)  # what was told of the arguments
        self._size = 0  # of the JSON, with what is yet to be told
        self._word = ""
        self._write = string_text  # what of a string the run took, see `flow`
        self._fault: Problem | None = None  # of the open call alone: its end is known all the same
        self._state = self._start

    @abstractmethod
    def _start(self, text: str, position: int, out: list[Delta]) -> int: ...

    def flow(self) -> Flow | None:
        """Where the body stands in a string that leaves as it comes."""
        return None

    def run(self) -> Run | None:
        flow = self.flow() if self.problem is None and self._fault is None else None
        # The fragment that a chunk becomes may be six times as long (\u0000), and is what the cap counts.
        room = (self.caps.characters - self._size) // 6
        if flow is None or room <= 0:
            return None
        content, self._write = flow
        return Run(self, content, self._index, room, write=self._write)

    def book(self, taken: str) -> None:
        self.raw.add(taken)
        written = self._write(taken)
        self._json.add(written)
        self._size += len(written)

    def _take_whole(self, whole: WholeCall, text: str, position: int, out: list[Delta]) -> int:
        """Reads a call that is there to its end in one step; returns `position` where the states have to read it."""
        match = whole.call.match(text, position)
        if match is None or match.end() - position > self.caps.characters // 6:  # \u0000 is six characters in JSON
            return position
        items: list[str] = []
        for key, content in whole.argument.findall(match[2]):
            if (shown := self._whole_value(content)) is None:
                return position
            items.append(f'"{key}": {shown}')
        written = f"{{{', '.join(items)}}}"
        value = decode_json(written)
        if isinstance(value, Problem):
            return position
        name = self._tool_name(match[1])
        out.append(CallStarted(self._index, name))
        out.append(ArgumentsDelta(self._index, written))
        self._add_call(CallCompleted(self._index, name, value), out)
        return match.end()

    def _tool_name(self, written: str) -> str:
        """The tool that is meant by a name as it was written."""
        return written

    @abstractmethod
    def _whole_value(self, text: str) -> str | None:
        """The JSON of a value in such a call; None where the states have to say what it is."""

    def _begin_raw(self, position: int) -> None:
        """A call's text begins here."""
        self._offset, self._json, self._size, self._word = self._base + position, Buffer(self.caps.characters), 0, ""
        self._fault = None

    def _begin_call(self, out: list[Delta]) -> None:
        self._name, self._word = self._tool_name(self._word), ""
        out.append(CallStarted(self._index, self._name))

    def _end_call(self, text: str, stop: int, out: list[Delta]) -> None:
        self._tell(out)
        value = self._fault or decode_json(self._json.value())
        if isinstance(value, dict):
            arguments = cast("dict[str, JSON]", value)
            delta: CallCompleted | CallMalformed = CallCompleted(self._index, self._name, arguments)
        else:
            problem = value if isinstance(value, Problem) else Problem("invalid_json", "the arguments are no object")
            raw = self._since(self._offset, text, stop)
            at = self.start + self._offset
            delta = CallMalformed(self._index, raw, problem.code, problem.reason, at, self._name)
        self._add_call(delta, out)

    def _say(self, fragment: str) -> None:
        if not fragment or self.problem is not None or self._fault is not None:
            return
        room = self.caps.characters - self._size
        if len(fragment) > room:
            fragment = fragment[:room]
            reason = f"the arguments are over {self.caps.characters} characters"
            self.problem, self.problem_offset = Problem("too_large", reason), self._offset
        self._size += len(fragment)
        self._said.append(fragment)

    def _tell(self, out: list[Delta]) -> str:
        told = super()._tell(out)
        self._json.add(told)
        return told

    def _take_word(self, run: re.Pattern[str], text: str, position: int, what: str) -> int:
        """Takes what `run` matches of a name; returns where it stops, which is its end unless the text ends there."""
        match = run.match(text, position)
        stop = match.end() if match else position
        room = MAX_NAME - len(self._word)
        self._word += text[position:stop]
        if stop - position > room:
            self._fail("too_large", f"{what} is over {MAX_NAME} characters", position + room)
        return stop

    def _unexpected(self, expected: str, text: str, position: int, code: str = "invalid_call") -> int:
        return self._fail(code, f"expected {expected}, found {text[position]!r}", position)

    def _too_deep(self, position: int) -> int:
        return self._fail("too_deep", f"the arguments are nested deeper than {self.caps.depth} levels", position)


def json_content(text: str) -> str:
    """A piece of a string as it stands inside JSON quotes."""
    return json_string(text)[1:-1]
