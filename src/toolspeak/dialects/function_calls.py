"""What the readers of calls in function notation share: the call being read, its arguments as JSON, the levels open."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Callable
from typing import cast

from toolspeak.data.deltas import ArgumentsDelta, CallCompleted, CallMalformed, CallStarted, Delta
from toolspeak.data.messages import JSON
from toolspeak.dialects.body import Body
from toolspeak.dialects.scan import Buffer, Caps, Problem, decode_json

MAX_NAME = 256
"""Characters a tool's name, or an argument's that stands outside of quotes, may take."""

_SPACE = re.compile(r"\s*")
_TO_ESCAPE = re.compile(r'["\\\x00-\x1f]')


class FunctionCalls(Body):
    """A body of calls such as `f(a=1)` or `call:f{a:1}`: values become JSON fragments as they come.

    A state takes what it can from text[position:] and returns where the next begins; `_wait` asks for the same text
    again with more behind it. A call's arguments are decoded once, from the fragments, when it is complete: so the
    fragments and the arguments cannot differ.
    """

    def __init__(self, first_index: int, caps: Caps) -> None:
        super().__init__(caps)
        self._index = first_index
        self._wait = False
        self._base = 0  # the body's offset of the current chunk's character 0
        self._from = 0  # where the open call's raw text starts in the current chunk
        self._name = ""
        self._open = False
        self._offset = 0
        self._call_raw = Buffer(caps.characters)
        self._json = Buffer(caps.characters)
        self._word = ""
        self._state = self._start

    _state: Callable[[str, int, list[Delta]], int]

    @abstractmethod
    def _start(self, text: str, position: int, out: list[Delta]) -> int: ...

    def feed(self, text: str, start: int, out: list[Delta]) -> int:
        position, end = start, len(text)
        self._base, self._from, self._wait = self.raw.length - start, start, False
        while position < end and not (self.done or self._wait or self.problem):
            position = self._state(text, position, out)
        self.raw.add(text[start:position])
        if self._open:
            self._call_raw.add(text[self._from : position])
        return position

    def _begin_raw(self, position: int) -> None:
        """A call's text begins here."""
        self._open, self._from, self._offset = True, position, self._base + position
        self._call_raw, self._json, self._word = Buffer(self.caps.characters), Buffer(self.caps.characters), ""

    def _begin_call(self, out: list[Delta]) -> None:
        self._name, self._word = self._word, ""
        out.append(CallStarted(self._index, self._name))

    def _end_call(self, text: str, stop: int, out: list[Delta]) -> None:
        self._open = False
        self._call_raw.add(text[self._from : stop])
        value = decode_json(self._json.value())
        if isinstance(value, dict):
            arguments = cast("dict[str, JSON]", value)
            delta: CallCompleted | CallMalformed = CallCompleted(self._index, self._name, arguments)
        else:
            problem = value if isinstance(value, Problem) else Problem("invalid_json", "the arguments are no object")
            raw = self._call_raw.value()
            delta = CallMalformed(self._index, raw, problem.code, problem.reason, self._offset, self._name)
        out.append(delta)
        self.calls.append(delta)
        self._index += 1

    def _say(self, fragment: str, out: list[Delta]) -> None:
        if not fragment or self.problem is not None:
            return
        room = self.caps.characters - self._json.length
        if len(fragment) > room:
            fragment = fragment[:room]
            reason = f"the arguments are over {self.caps.characters} characters"
            self.problem, self.problem_offset = Problem("too_large", reason), self._offset
        self._json.add(fragment)
        if fragment:
            out.append(ArgumentsDelta(self._index, fragment))

    def _take_word(self, piece: str, position: int, what: str) -> None:
        room = MAX_NAME - len(self._word)
        self._word += piece
        if len(piece) > room:
            self._fail("too_large", f"{what} is over {MAX_NAME} characters", position + room)

    def _fail(self, code: str, reason: str, position: int) -> int:
        self.problem, self.problem_offset = Problem(code, reason), max(0, self._base + position)
        return position

    def _unexpected(self, expected: str, text: str, position: int, code: str = "invalid_call") -> int:
        return self._fail(code, f"expected {expected}, found {text[position]!r}", position)

    def _too_deep(self, position: int) -> int:
        return self._fail("too_deep", f"the arguments are nested deeper than {self.caps.depth} levels", position)


def skip_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position


def json_content(text: str) -> str:
    """A piece of a string as it stands inside JSON quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1] if _TO_ESCAPE.search(text) else text
