"""The base of the readers of calls in function notation: the open call, and its arguments as JSON."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable
from typing import TypeAlias, cast

from toolspeak.data.deltas import ArgumentsDelta, CallCompleted, CallMalformed, CallStarted, Delta
from toolspeak.data.messages import JSON
from toolspeak.dialects.readers.body import PassThrough, StateBody
from toolspeak.dialects.readers.open_call import json_string, string_text
from toolspeak.dialects.readers.whole_call import WholeCall
from toolspeak.dialects.text.scan import Buffer, Caps, Problem, decode_json

MAX_NAME = 256
"""The length limit, in characters, of a tool's name and of an argument's name without quotes."""

Flow: TypeAlias = tuple[Callable[[str], object], Callable[[str], str]]
"""How to send a string as it arrives: the test whether a chunk is only content, and the conversion to JSON.

Converting two chunks one by one gives the same as converting both together.
"""


class FunctionCalls(StateBody):
    """A body of calls such as `f(a=1)` or `call:f{a:1}`, whose values become fragments of JSON as they arrive.

    The arguments of a complete call are decoded from these fragments, so that the two cannot differ.
    """

    _name_run: re.Pattern[str]  # matches the characters of a tool's name

    def __init__(self, first_index: int, caps: Caps) -> None:
        super().__init__(first_index, caps)
        self._name = ""
        self._offset = 0  # where the open call begins in the body
        self._json = Buffer(caps.characters)  # the fragments of the arguments that were sent
        self._size = 0  # characters of all fragments
        self._word = ""
        self._write = string_text  # the conversion of the pass-through, see `flow`
        self._fault: Problem | None = None  # of the open call only, whose end can still be found
        self._state = self._start

    @abstractmethod
    def _start(self, text: str, position: int, out: list[Delta]) -> int: ...

    def flow(self) -> Flow | None:
        """How to send the open string as it arrives; None outside of such strings."""
        return None

    def pass_through(self) -> PassThrough | None:
        flow = self.flow() if self.problem is None and self._fault is None else None
        # The cap counts fragments, which may be six times as long as their chunk (\u0000).
        room = (self.caps.characters - self._size) // 6
        if flow is None or room <= 0:
            return None
        content, self._write = flow
        return PassThrough(self, content, self._index, room, write=self._write)

    def record(self, text: str) -> None:
        self.raw.add(text)
        fragment = self._write(text)
        self._json.add(fragment)
        self._size += len(fragment)

    def _take_whole(self, whole: WholeCall, text: str, position: int, out: list[Delta]) -> int:
        """Reads a whole call in one step, and returns its end; `position` if the states must read the call."""
        match = whole.call.match(text, position)
        if match is None or match.end() - position > self.caps.characters // 6:  # \u0000 is six characters in JSON
            return position
        items: list[str] = []
        for key, content in whole.argument.findall(match[2]):
            if (json_value := self._whole_value(content)) is None:
                return position
            items.append(f'"{key}": {json_value}')
        json_text = f"{{{', '.join(items)}}}"
        value = decode_json(json_text)
        if isinstance(value, Problem):
            return position
        name = self._tool_name(match[1])
        out.append(CallStarted(self._index, name))
        out.append(ArgumentsDelta(self._index, json_text))
        self._add_call(CallCompleted(self._index, name, value), out)
        return match.end()

    @abstractmethod
    def _whole_value(self, text: str) -> str | None:
        """The JSON of a value in a whole call; None if the states must read the call."""

    def _begin_raw(self, position: int) -> None:
        """Begins a call's text at `position`."""
        self._offset, self._json, self._size, self._word = self._base + position, Buffer(self.caps.characters), 0, ""
        self._fault = None

    def _begin_call(self, out: list[Delta]) -> None:
        self._name, self._word = self._tool_name(self._word), ""
        out.append(CallStarted(self._index, self._name))

    def _end_call(self, text: str, stop: int, out: list[Delta]) -> None:
        self._flush_fragments(out)
        value = self._fault or decode_json(self._json.value())
        if isinstance(value, dict):
            arguments = cast("dict[str, JSON]", value)
            delta: CallCompleted | CallMalformed = CallCompleted(self._index, self._name, arguments)
        else:
            problem = value if isinstance(value, Problem) else Problem("invalid_json", "arguments must be an object")
            raw = self._since(self._offset, text, stop)
            at = self.start + self._offset
            delta = CallMalformed(self._index, raw, problem.code, problem.reason, at, self._name)
        self._add_call(delta, out)

    def _add_fragment(self, fragment: str) -> None:
        if not fragment or self.problem is not None or self._fault is not None:
            return
        room = self.caps.characters - self._size
        if len(fragment) > room:
            fragment = fragment[:room]
            reason = f"the arguments are over {self.caps.characters} characters"
            self.problem, self.problem_offset = Problem("too_large", reason), self._offset
        self._size += len(fragment)
        self._fragments.append(fragment)

    def _flush_fragments(self, out: list[Delta]) -> str:
        fragment = super()._flush_fragments(out)
        self._json.add(fragment)
        return fragment

    def _take_word(self, run: re.Pattern[str], text: str, position: int, what: str) -> int:
        """Takes the match of `run` as part of a name, and returns its end. At the text's end the name may continue."""
        match = run.match(text, position)
        stop = match.end() if match else position
        room = MAX_NAME - len(self._word)
        self._word += text[position:stop]
        if stop - position > room:
            self._fail("too_large", f"{what} is over {MAX_NAME} characters", position + room)
        return stop

    def _fail_expected(self, expected: str, text: str, position: int, code: str = "invalid_call") -> int:
        return self._fail(code, f"expected {expected}, found {text[position]!r}", position)

    def _call_name(self, text: str, position: int, out: list[Delta]) -> int:
        stop = self._take_word(self._name_run, text, position, "the name of a tool")
        if stop < len(text):
            self._state = self._call_open
        return stop

    @abstractmethod
    def _call_open(self, text: str, position: int, out: list[Delta]) -> int:
        """The state after the tool's name."""

    def _too_deep(self, position: int) -> int:
        return self._fail("too_deep", f"the arguments are nested deeper than {self.caps.depth} levels", position)


def json_content(text: str) -> str:
    """A piece of a string as it is between JSON quotes."""
    return json_string(text)[1:-1]
