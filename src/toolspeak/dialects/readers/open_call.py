"""The base of body readers whose arguments are text: the open call, and the fragments of its arguments.

A reader of elements adds the states that find where calls, arguments and values begin and end. The steps that open,
fill and close them are here.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cache
from json.encoder import encode_basestring, encode_basestring_ascii

import msgspec

from toolspeak.data.deltas import ArgumentsDelta, CallCompleted, CallMalformed, CallStarted, Delta
from toolspeak.data.messages import JSON, as_mapping
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.readers.body import PassThrough, StateBody
from toolspeak.dialects.readers.whole_call import WholeCall
from toolspeak.dialects.text.scan import (
    Buffer,
    Caps,
    JsonScanner,
    Problem,
    decode_json,
    shorten,
    string_content,
    string_special,
)

_ENCODE = msgspec.json.Encoder().encode


@quick(frozen=False)
class OpenCall:
    """The open call."""

    name: str
    """Empty for a call without a name, which is malformed and has no `CallStarted`."""
    spec: ToolSpec | None
    offset: int
    """Where the call begins in the body."""
    arguments: dict[str, JSON] = field(default_factory=dict[str, JSON])
    notes: list[str] = field(default_factory=list[str])
    problem: Problem | None = None
    is_json: bool = False
    """The arguments are one JSON object, whose text is already sent."""

    @property
    def root(self) -> Mapping[str, JSON]:
        """The schema in which references of an argument's schema are resolved."""
        return self.spec.parameters if self.spec else {}


class CallSteps(StateBody):
    """A body of calls whose arguments are text, each with its own type. The state between calls is `_between`."""

    _text = Buffer(0)  # the text of the open value, or of the JSON object with all arguments
    _scanner = JsonScanner(Caps())  # of that object

    def __init__(self, tools: Mapping[str, ToolSpec], first_index: int, caps: Caps) -> None:
        super().__init__(first_index, caps)
        self._tools = tools
        self._call: OpenCall | None = None
        self._state = self._between

    @abstractmethod
    def _between(self, text: str, position: int, out: list[Delta]) -> int: ...

    def end(self, out: list[Delta]) -> None:
        self.is_complete = self._state in (self._between, self._prose) and bool(self.calls)

    def resume(self) -> bool:
        return self._scanner.problem is None and super().resume()

    def flow(self) -> Callable[[str], object] | None:
        """Tests whether a chunk is only content of the open value; None if the value is not sent as it arrives."""
        return None

    def pass_through(self) -> PassThrough | None:
        room = self.caps.characters - self._text.length
        if self._call is not None and self._call.is_json and not self._scanner.is_complete and self._scanner.in_string:
            return PassThrough(self, string_content, self._index, room, special=string_special)
        content = self.flow()
        if content is None or self._call is None:
            return None
        return PassThrough(self, content, self._index, room, visible=self._call.name != "", write=string_text)

    def record(self, text: str) -> None:
        self.raw.add(text)
        self._text.add(text)

    def _take_whole(self, whole: WholeCall, text: str, position: int, out: list[Delta]) -> int:
        """Reads a whole call in one step, and returns its end; `position` if the states must read the call."""
        match = whole.call.match(text, position)
        if match is None or match.end() - position > self.caps.characters:
            return position
        name = self._tool_name(match[1])
        spec = self._tools.get(name)
        arguments: dict[str, JSON] = {}
        items: list[str] = []
        for key, type_text, content in whole.argument.findall(match[2]):
            value = self._whole_value(spec, key, type_text, content)
            if isinstance(value, Problem) or key in arguments:
                return position
            arguments[key] = value
            json_text = json_string(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            items.append(f"{encode_basestring_ascii(key)}: {json_text}")
        out.append(CallStarted(self._index, name))
        out.append(ArgumentsDelta(self._index, f"{{{', '.join(items)}}}"))
        self._add_call(CallCompleted(self._index, name, arguments), out)
        return match.end()

    def _whole_value(self, spec: ToolSpec | None, name: str, type_text: str, text: str) -> JSON | Problem:
        """The value of an argument in a whole call; a problem if the states must read the call."""
        raise NotImplementedError

    def _start_call(self, name: str, position: int, out: list[Delta]) -> OpenCall:
        self._call = OpenCall(name, self._tools.get(name), self._base + position)
        if name:
            out.append(CallStarted(self._index, name))
        else:
            self._call.problem = Problem("no_name", "the call has no tool name")
        return self._call

    def _start_argument(self, name: str, *, visible: bool = True) -> None:
        """Begins an argument. Its value follows. `visible`: sends the key."""
        call = self._open_call()
        if name in call.arguments and call.problem is None:
            call.problem = Problem("duplicate_argument", f"the argument {shorten(name)!r} appears twice")
        self._text = Buffer(self.caps.characters)
        if visible:
            self._add_fragment(f"{', ' if call.arguments else '{'}{encode_basestring_ascii(name)}: ")

    def _content(self, text: str, start: int, stop: int, *, visible: bool) -> int:
        """Takes text[start:stop] as a piece of the value, and returns the end of the part that it took.

        The end lies before `stop` if the value is too large; then the body has failed. `visible`: sends the piece.
        """
        room = self.caps.characters - self._text.length
        if stop - start > room:
            stop = start + room
            self._fail("too_large", f"an argument is over {self.caps.characters} characters", stop)
        if stop > start:
            piece = text[start:stop]
            self._text.add(piece)
            if visible:
                self._add_fragment(json_string(piece)[1:-1])
        return stop

    def _keep(self, name: str, text: str, value: JSON | Problem, *, streamed: bool) -> None:
        """Stores a complete value, read from `text`. An unreadable value makes its call malformed.

        `streamed`: the value's text is already sent.
        """
        call = self._open_call()
        if isinstance(value, Problem):
            reason = f"the value of {shorten(name)!r} cannot be read: {value.reason}"
            call.problem = call.problem or Problem(value.code, reason)
            value = text
        self._add_fragment('"' if streamed else json.dumps(value, ensure_ascii=False))
        call.arguments[name] = value

    def _start_json(self) -> None:
        """Begins one JSON object with all arguments."""
        self._open_call().is_json = True
        self._scanner, self._text = JsonScanner(self.caps, depth=2), Buffer(self.caps.characters)

    def _take_json(self, text: str, position: int, out: list[Delta]) -> int:
        """Continues that object, which is complete once the scanner is."""
        stop = self._scanner.feed(text, position)
        room = self.caps.characters - self._text.length
        if stop - position > room:
            stop = position + room
            self._fail("too_large", f"the arguments are over {self.caps.characters} characters", stop)
        elif self._scanner.problem is not None:
            self._fail(self._scanner.problem.code, self._scanner.problem.reason, stop - self._scanner.back)
        self._text.add(text[position:stop])
        if stop > position:
            self._add_fragment(text[position:stop])
        if self.problem is None and self._scanner.is_complete:
            call, value = self._open_call(), decode_json(self._text.value())
            if not isinstance(value, Problem | Mapping):
                value = Problem("arguments_not_object", "the arguments must be a JSON object")
            if isinstance(value, Problem):
                call.problem = call.problem or value
            else:
                call.arguments = dict(as_mapping(value))
        return stop

    def _end_call(self, text: str, stop: int, out: list[Delta]) -> None:
        """Ends the call at text[stop]."""
        call = self._open_call()
        if call.problem is None and not call.is_json:
            self._add_fragment("}" if call.arguments else "{}")
        self._flush_fragments(out)
        if call.problem is None:
            notes = tuple(dict.fromkeys(call.notes))
            delta: CallCompleted | CallMalformed = CallCompleted(self._index, call.name, call.arguments, None, notes)
        else:
            problem, raw, at = call.problem, self._since(call.offset, text, stop), self.start + call.offset
            delta = CallMalformed(self._index, raw, problem.code, problem.reason, at, call.name or None)
        self._add_call(delta, out)
        self._call, self._state = None, self._between

    def _add_fragment(self, text: str) -> None:
        """Adds a fragment of the arguments. A call without a name sends none, as it has no `CallStarted`."""
        if self._call is not None and self._call.name:
            self._fragments.append(text)

    def _open_call(self) -> OpenCall:
        assert self._call is not None, "an argument outside of a call is our bug"
        return self._call


def json_string(text: str) -> str:
    """A string as JSON, with characters beyond ASCII unescaped. Fast for long strings."""
    try:
        return _ENCODE(text).decode()  # takes a quarter of the standard library's time, with the same result
    except UnicodeEncodeError:  # a lone surrogate
        return encode_basestring(text)


def string_text(text: str) -> str:
    """A piece of a string as it is between JSON quotes. Fast for short pieces."""
    return encode_basestring(text)[1:-1]


@cache
def without(first: str, second: str = "", tail: str = "") -> Callable[[str], object]:
    """A test whether a chunk is not empty and certainly holds no marker.

    `first`: the first character of the markers.
    `second`: their second characters; if empty, `first` alone may be a marker.
    `tail`: the pattern of an end that the chunk must not have.
    """
    first, second = re.escape(first), re.escape(second)
    run = f"[^{first}]*+"
    pattern = f"{run}(?:{first}[^{first}{second}]{run})*+" if second else run
    return re.compile("(?s:(?=.))" + pattern + (f"(?<!{tail})" if tail else "")).fullmatch
