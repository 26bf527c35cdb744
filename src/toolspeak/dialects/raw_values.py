"""What the readers of raw argument values share: `pair_calls` and `kimi_k3`.

A value is text, byte for byte, up to its end tag, and the end tag counts only if white space and something that may
follow a value come next. Where the types admit a string alone the text leaves as it comes; where they admit other
values too, text that is JSON of such a type is that value, and it is held back no longer than it may be JSON. A value
that begins with `<![CDATA[` is the text of its CDATA sections: so the renderer writes a string that would else be read
as something else.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from toolspeak.data.deltas import ArgumentsDelta, CallCompleted, CallMalformed, CallStarted, Delta
from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.body import Body
from toolspeak.dialects.render import dump_json
from toolspeak.dialects.scan import MAX_CANDIDATE, Buffer, Caps, JsonScanner, Problem, shorten
from toolspeak.dialects.typed_text import read_typed, schema_types

CDATA, CDATA_END = "<![CDATA[", "]]>"
_JOINT = CDATA_END + CDATA
TEXT = frozenset({"string"})
Answer = Literal["yes", "no", "undecided"]
_SPACE = re.compile(r"\s*")
_JSON_STARTS = frozenset("{[-0123456789tfn")  # of a value that is no string


def value_types(spec: ToolSpec | None, name: str) -> frozenset[str]:
    """The types that an argument's schema admits; all of them where there is none."""
    if spec is None:
        return schema_types(None, {})
    return schema_types(spec.properties.get(spec.aliases.get(name, name)), spec.parameters)


def read_value(text: str, types: frozenset[str], caps: Caps) -> JSON | Problem:
    """The value of a text. Where a string is admitted among others, JSON of another type is what it says, exactly
    as the models' templates write it; all other text is a string."""
    others = types - TEXT
    if "string" not in types:
        return read_typed(text, types, False, caps)
    if not others or text[:1] not in _JSON_STARTS or text[-1:].isspace():
        return text
    value = read_typed(text, others, False, caps)
    return text if isinstance(value, Problem) else value


def write_value(value: JSON, types: frozenset[str], end: str, caps: Caps) -> str:
    """What `read_value` reads back: text as it is, other values as JSON, CDATA where text would be misread."""
    if not isinstance(value, str):
        return dump_json(value, re.compile(f"<(?={re.escape(end[1:])})"))
    if end in value or value.startswith(CDATA) or read_value(value, types, caps) != value:
        return CDATA + value.replace(CDATA_END, f"]]{CDATA_END}{CDATA}>") + CDATA_END
    return value


@dataclass(slots=True)
class OpenCall:
    """The call being read; without a name it has not started, and is malformed."""

    name: str
    spec: ToolSpec | None
    offset: int
    raw: Buffer
    arguments: dict[str, JSON] = field(default_factory=dict[str, JSON])
    notes: list[str] = field(default_factory=list[str])
    problem: Problem | None = None
    one_text: bool = False  # its arguments came as one JSON text


@dataclass(slots=True)
class OpenValue:
    """The value being read. `scanner` is there while it may be JSON or a string; `streams`: it is a string."""

    name: str
    types: frozenset[str]
    text: Buffer
    pending: Buffer  # a possible end tag and the white space behind it
    streams: bool = False
    scanner: JsonScanner | None = None
    cdata: bool = False
    rejected: bool = False  # an end tag was passed over


class RawValues(Body):
    """A body whose calls hold raw values. A subclass reads what stands between them: its states call `start_call`,
    `start_value` and `end_call`, and `in_call` is where a value's end leads."""

    value_end = ""

    def __init__(self, tools: Mapping[str, ToolSpec], first_index: int, caps: Caps) -> None:
        super().__init__(caps)
        self.tools = tools
        self.index: int = first_index
        self.wait = False  # the state needs more characters behind those it did not take
        self.base = 0  # the body's offset of the current chunk's character 0
        self.call: OpenCall | None = None
        self.value: OpenValue | None = None
        self._from = 0  # where the open call's raw text starts in the current chunk

    state: Callable[[str, int, list[Delta]], int]

    def feed(self, text: str, start: int, out: list[Delta]) -> int:
        position, end = start, len(text)
        self.base, self._from = self.raw.length - start, start
        self.wait = False
        while position < end and not (self.done or self.wait or self.problem):
            position = self.state(text, position, out)
        self.raw.add(text[start:position])
        if self.call is not None:
            self.call.raw.add(text[self._from : position])
        return position

    @abstractmethod
    def in_call(self, text: str, position: int, out: list[Delta]) -> int:
        """The state between values."""

    @abstractmethod
    def may_follow(self, text: str, position: int) -> Answer:
        """Whether what stands at `position` may follow a value."""

    @abstractmethod
    def gives_up(self, text: str, position: int) -> Answer:
        """Whether the call's end tag stands here, and behind it what can only follow a call. Asked where an end tag
        of the value was passed over: the value was closed in vain, and only this call should fail."""

    def start_call(self, name: str, position: int, out: list[Delta]) -> None:
        self._from = position
        self.call = OpenCall(name, self.tools.get(name), self.base + position, Buffer(self.caps.characters))
        if name:
            out.append(CallStarted(self.index, name))
        else:
            self.call.problem = Problem("no_name", "the call has no tool name")
        self.state = self.in_call

    def start_value(self, name: str, types: frozenset[str], out: list[Delta]) -> None:
        call = self.open_call()
        if name in call.arguments and call.problem is None:
            call.problem = Problem("duplicate_argument", f"the argument {shorten(name)!r} is there twice")
        limit = self.caps.characters
        self.value = OpenValue(name, types, Buffer(limit), Buffer(limit))
        self.argument_text(f"{', ' if call.arguments else '{'}{json.dumps(name)}: ", out)
        self.state = self._value_start

    def _value_start(self, text: str, position: int, out: list[Delta]) -> int:
        value = self._open_value()
        if CDATA.startswith(text[position : position + len(CDATA)]):
            if not text.startswith(CDATA, position):
                self.wait = True
                return position
            value.cdata, position = True, position + len(CDATA)
        if value.cdata or value.types == TEXT or ("string" in value.types and text[position] not in _JSON_STARTS):
            self._stream(value, out)
        elif "string" in value.types:
            value.scanner = JsonScanner(self.caps, depth=2)
        self.state = self._in_value
        return position

    def _in_value(self, text: str, position: int, out: list[Delta]) -> int:
        value, start = self._open_value(), position
        end = CDATA_END + self.value_end if value.cdata else self.value_end
        while True:
            at = self._next(text, position, end, value)
            if at < 0:
                return self._content(text, start, len(text), out)
            if text.startswith(end, at):
                stop = self._content(text, start, at, out)
                if self.problem is None:
                    value.pending.add(end)
                    self.state, stop = self._after_value, at + len(end)
                return stop
            if value.cdata and text.startswith(_JOINT, at):
                stop = self._content(text, start, at, out)
                return stop if self.problem else at + len(_JOINT)
            given_up: Answer = self.gives_up(text, at) if value.rejected else "no"
            if given_up == "yes":
                return self._abandon(text, start, at, out)
            if given_up == "undecided" or _begins(end, text, at) or (value.cdata and _begins(_JOINT, text, at)):
                self.wait = True
                return self._content(text, start, at, out)
            position = at + 1

    def _next(self, text: str, position: int, end: str, value: OpenValue) -> int:
        """Where something may stand that `_in_value` looks at; -1 for nowhere."""
        if value.cdata:
            first = text.find("]", position)
            other = text.find("<", position) if value.rejected else -1
            return min(first, other) if first >= 0 and other >= 0 else max(first, other)
        if value.rejected:
            return text.find("<", position)
        at = text.find(end, position)
        if at >= 0:
            return at
        return text.find("<", max(position, len(text) - len(end) + 1))

    def _abandon(self, text: str, start: int, at: int, out: list[Delta]) -> int:
        call, value = self.open_call(), self._open_value()
        stop = self._content(text, start, at, out)
        reason = f"the value of {shorten(value.name)!r} did not end at its {self.value_end}, because text follows it"
        call.problem = call.problem or Problem("invalid_value", reason)
        self.value, self.state = None, self.in_call
        return stop

    def _after_value(self, text: str, position: int, out: list[Delta]) -> int:
        """Behind a possible end tag: it counts only if what follows may follow a value."""
        value = self._open_value()
        stop = self.skip_space(text, position)
        value.pending.add(text[position:stop])
        if stop == len(text):
            return stop
        answer = self.may_follow(text, stop)
        if answer == "undecided":
            self.wait = True
        elif answer == "yes":
            self._end_value(out)
        else:
            value.rejected = True
            pending, value.pending = value.pending.value(), Buffer(self.caps.characters)
            self._content(pending, 0, len(pending), out)
            self.state = self._in_value
        return stop

    def _content(self, text: str, start: int, stop: int, out: list[Delta]) -> int:
        value = self._open_value()
        room = self.caps.characters - value.text.length
        if stop - start > room:
            stop = start + room
            self.fail("too_large", f"an argument is over {self.caps.characters} characters", stop)
        piece = text[start:stop]
        value.text.add(piece)
        if value.streams and piece:
            self.argument_text(json.dumps(piece, ensure_ascii=False)[1:-1], out)
        elif value.scanner is not None and piece:
            taken = value.scanner.feed(piece, 0)
            if value.scanner.problem is not None or taken < len(piece):
                value.scanner = None
                self._stream(value, out)
        return stop

    def _stream(self, value: OpenValue, out: list[Delta]) -> None:
        value.streams = True
        self.argument_text('"' + json.dumps(value.text.value(), ensure_ascii=False)[1:-1], out)

    def _end_value(self, out: list[Delta]) -> None:
        call, value = self.open_call(), self._open_value()
        text = value.text.value()
        result: JSON | Problem = text if value.streams else read_value(text, value.types, self.caps)
        if isinstance(result, Problem):
            reason = f"the value of {shorten(value.name)!r} cannot be read: {result.reason}"
            call.problem = call.problem or Problem(result.code, reason)
            result = text
        self.argument_text('"' if value.streams else json.dumps(result, ensure_ascii=False), out)
        call.arguments[value.name] = result
        self.value, self.state = None, self.in_call

    def end_call(self, text: str, stop: int, out: list[Delta]) -> None:
        """The call ends at `stop`; the subclass sets the state."""
        call = self.open_call()
        call.raw.add(text[self._from : stop])
        if call.problem is None:
            if not call.one_text:
                self.argument_text("}" if call.arguments else "{}", out)
            delta: CallCompleted | CallMalformed = CallCompleted(
                self.index, call.name, call.arguments, None, tuple(call.notes)
            )
        else:
            problem, name = call.problem, call.name or None
            delta = CallMalformed(self.index, call.raw.value(), problem.code, problem.reason, call.offset, name)
        self.add_call(delta, out)
        self.call = None

    def add_call(self, delta: CallCompleted | CallMalformed, out: list[Delta]) -> None:
        out.append(delta)
        self.calls.append(delta)
        self.index += 1

    def skip_space(self, text: str, position: int) -> int:
        found = _SPACE.match(text, position)
        return found.end() if found else position

    def fail(self, code: str, reason: str, position: int) -> None:
        self.problem, self.problem_offset = Problem(code, reason), self.base + position

    def open_call(self) -> OpenCall:
        assert self.call is not None, "an argument outside of a call is our bug"
        return self.call

    def _open_value(self) -> OpenValue:
        assert self.value is not None, "a value outside of an argument is our bug"
        return self.value

    def argument_text(self, text: str, out: list[Delta]) -> None:
        if self.open_call().name:
            out.append(ArgumentsDelta(self.index, text))


def _begins(tag: str, text: str, at: int) -> bool:
    """Whether all that is there from `at` is the beginning of the tag."""
    return len(text) - at < len(tag) and tag.startswith(text[at:])


def stands(text: str, position: int, tags: tuple[str, ...]) -> str | None:
    """Which of the tags stands at `position`; empty for none, None if more characters are needed to tell."""
    for tag in tags:
        if text.startswith(tag, position):
            return tag
    rest = text[position : position + MAX_CANDIDATE]
    return None if any(tag.startswith(rest) for tag in tags) else ""
