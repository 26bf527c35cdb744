"""The body of a block whose calls are JSON objects, alone or in an array."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import cast

from toolspeak.data.deltas import ArgumentsDelta, CallCompleted, CallMalformed, CallStarted, Delta
from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.dialects.body import Run
from toolspeak.dialects.scan import (
    Buffer,
    Caps,
    JsonScanner,
    Problem,
    decode_json,
    shorten,
    string_content,
    whole_object,
)
from toolspeak.dialects.steps import State, Steps, skip_space

LENIENT_ARGUMENTS = ("args", "arguments", "parameters")
# What most calls begin with, whole in one chunk: a key, and a name, without escapes.
_PLAIN_KEY = re.compile(r'"([^"\\\x00-\x1f]*+)"[ \t\n\r]*+:[ \t\n\r]*+')
_PLAIN_STRING = re.compile(r'"([^"\\\x00-\x1f]*+)"')


@cache
def _head(name_key: str, arguments_key: str) -> re.Pattern[str]:
    """What most calls begin with, whole: the name and the key of the arguments, which follow."""
    parts = (r"\{", f'"{name_key}"', ":", r'"([^"\\\x00-\x1f]++)"', ",", f'"{arguments_key}"', ":", r"(?=\{)")
    return re.compile(r"[ \t\n\r]*+".join(parts))


@quick()
class CallShape:
    """How a dialect writes a call in JSON.

    `array`: calls stand in an array (else one object). `arguments_required`: a call without the
    arguments key is no call (else it has none). `arguments_text`: an object that was written as a JSON string is
    accepted. `keyed`: a call is an object of one key, the name, whose value are the arguments.
    """

    arguments_key: str
    array: bool
    arguments_required: bool
    name_key: str = "name"
    id_key: str = "id"
    arguments_text: bool = False
    keyed: bool = False

    @property
    def example(self) -> str:
        call = '{"…": {…}}' if self.keyed else f'{{"{self.name_key}": "…", "{self.arguments_key}": {{…}}}}'
        return f"[{call}]" if self.array else call


@quick(frozen=False)
class _Call:
    """The call being read. `arguments` is set once their key was seen."""

    offset: int = 0
    name: str | None = None
    id: str | None = None
    arguments_key: str | None = None
    arguments: Mapping[str, JSON] | None = None
    held: list[str] = field(default_factory=list[str])
    started: bool = False
    problem: Problem | None = None
    quoted: bool = False  # the arguments are a JSON string that holds the object
    keys: set[str] = field(default_factory=set[str])
    notes: list[str] = field(default_factory=list[str])
    unknown: str = ""  # the first key that means nothing to us


class JsonCalls(Steps):
    """Implements `Body` for JSON calls; argument text leaves as it comes once the name is known."""

    _call: _Call
    _scanner: JsonScanner
    _value: Buffer  # of the value or key being scanned

    def __init__(self, shape: CallShape, first_index: int, caps: Caps) -> None:
        super().__init__(first_index, caps)
        self._shape = shape
        self._state = self._start
        self._scanning = False
        self._in_array = False
        self._key = ""

    def feed(self, text: str, start: int, out: list[Delta]) -> int:
        position, end = start, len(text)
        self._base = self.raw.length - start
        while not self.done and self.problem is None:
            if not self._scanning:
                position = skip_space(text, position)
            if position >= end:
                break
            position = self._state(text, position, out)
        self.raw.add(text[start:position])
        return position

    def resume(self) -> bool:
        if self._scanning:
            return False
        self.problem = None
        return True

    def run(self) -> Run | None:
        if not self._scanning or self._state != self._scan_value or not self._scanner.in_string:
            return None
        call = self._call
        arguments = self._key == call.arguments_key and call.problem is None and not call.quoted
        if arguments and not call.started:
            return None
        room = self.caps.characters - self._value.length
        return Run(self, string_content, self._index, room, shown=arguments)

    def book(self, taken: str) -> None:
        self.raw.add(taken)
        self._value.add(taken)

    # Each state below takes one step: it is called at a character that is no white space (outside of
    # values), and returns where the next step starts.

    def _start(self, text: str, position: int, out: list[Delta]) -> int:
        if text[position] not in "[{":
            return self._fail("invalid_json", f"expected {self._shape.example}, found {text[position]!r}", position)
        self._in_array = text[position] == "["
        if self._in_array != self._shape.array:
            self.notes = ("array" if self._in_array else "single_object",)
        if not self._in_array:
            return self._element(text, position, out)
        self._state = self._first_element
        return position + 1

    def _first_element(self, text: str, position: int, out: list[Delta]) -> int:
        if text[position] == "]":
            return self._fail("empty_batch", f"the array holds no call; write {self._shape.example}", position)
        return self._element(text, position, out)

    def _element(self, text: str, position: int, out: list[Delta]) -> int:
        self._call = call = _Call(self._base + position)
        shape = self._shape
        if not shape.keyed and (head := _head(shape.name_key, shape.arguments_key).match(text, position)):
            call.keys |= {shape.name_key, shape.arguments_key}
            call.name, self._key, call.arguments_key = head[1], shape.arguments_key, shape.arguments_key
            self._announce(out)
            return self._value_start(text, head.end(), out)
        if text[position] == "{":
            self._state = self._first_key
            return position + 1
        self._call.problem = Problem("not_a_call", f"a call is an object: {self._shape.example}")
        self._scanner, self._state, self._scanning = JsonScanner(self.caps, depth=1), self._scan_element, True
        return position

    def _scan_element(self, text: str, position: int, out: list[Delta]) -> int:
        stop = self._scan(text, position)
        if self._scanner.done:
            self._scanning = False
            self._end_call(text, stop, out)
        return stop

    def _first_key(self, text: str, position: int, out: list[Delta]) -> int:
        if text[position] == "}":
            return self._close_object(text, position, out)
        return self._key_start(text, position, out)

    def _key_start(self, text: str, position: int, out: list[Delta]) -> int:
        if text[position] != '"':
            return self._fail("invalid_json", f"expected a key in double quotes, found {text[position]!r}", position)
        plain = _PLAIN_KEY.match(text, position)
        if plain:
            self._take_key(plain[1], out)
            self._state = self._value_start
            return plain.end()
        self._new_value(self._scan_key)
        return position

    def _scan_key(self, text: str, position: int, out: list[Delta]) -> int:
        stop = self._scan(text, position)
        self._value.add(text[position:stop])
        if self._scanner.done:
            key = decode_json(self._value.value())
            self._take_key(key if isinstance(key, str) else "", out)
            self._state, self._scanning = self._colon, False
        return stop

    def _take_key(self, key: str, out: list[Delta]) -> None:
        self._key = key
        if self._shape.keyed:
            self._name_by_key(key, out)
        else:
            self._check_key(key)

    def _colon(self, text: str, position: int, out: list[Delta]) -> int:
        if text[position] != ":":
            return self._fail("invalid_json", f"expected ':' after the key, found {text[position]!r}", position)
        self._state = self._value_start
        return position + 1

    def _value_start(self, text: str, position: int, out: list[Delta]) -> int:
        call = self._call
        if self._key in (self._shape.name_key, self._shape.id_key) and not self._shape.keyed:
            plain = _PLAIN_STRING.match(text, position)
            if plain:
                self._take_word(plain[1], out)
                self._state = self._after_value
                return plain.end()
        if self._key == call.arguments_key and call.problem is None and text[position] == "{":
            whole = whole_object(text, position, self.caps)
            if whole is not None:
                call.arguments, stop = whole
                self._argument_text(text[position:stop], out)
                self._state = self._after_value
                return stop
        self._new_value(self._scan_value)
        if self._key != call.arguments_key or call.problem is not None:
            return position
        if text[position] == '"' and self._shape.arguments_text:
            call.quoted = True
        elif text[position] != "{":
            key = self._key
            call.problem = Problem("arguments_not_object", f'"{key}" must be a JSON object, as in "{key}": {{…}}')
        return position

    def _scan_value(self, text: str, position: int, out: list[Delta]) -> int:
        stop = self._scan(text, position)
        room = self.caps.characters - self._value.length
        if stop - position > room:
            stop = position + room
            self._fail("too_large", f"an argument is over {self.caps.characters} characters", stop)
        piece = text[position:stop]
        call = self._call
        self._value.add(piece)
        if self._key == call.arguments_key and call.problem is None and piece and not call.quoted:
            self._argument_text(piece, out)
        if self._scanner.done and self.problem is None:
            self._take_value(out)
            self._state, self._scanning = self._after_value, False
        return stop

    def _argument_text(self, piece: str, out: list[Delta]) -> None:
        if self._call.started:
            out.append(ArgumentsDelta(self._index, piece))
        else:
            self._call.held.append(piece)

    def _take_value(self, out: list[Delta]) -> None:
        call, key, shape = self._call, self._key, self._shape
        if call.problem is not None or key not in (shape.name_key, shape.id_key, call.arguments_key):
            return
        value = decode_json(self._value.value())
        if isinstance(value, Problem):
            call.problem = value
        elif key == call.arguments_key:
            if call.quoted:
                self._take_quoted(str(value), out)
            else:
                call.arguments = value
        else:
            self._take_word(value, out)

    def _take_word(self, value: JSON, out: list[Delta]) -> None:
        """The value of the name's key, or of the id's."""
        if self._key == self._shape.name_key:
            self._take_name(value, out)
        elif self._call.problem is None:
            self._call.id = value if isinstance(value, str) or value is None else str(value)

    def _take_name(self, value: JSON, out: list[Delta]) -> None:
        call = self._call
        if call.problem is not None:
            return
        if not isinstance(value, str) or not value:
            key, found = self._shape.name_key, shorten(repr(value))
            call.problem = Problem("no_name", f'"{key}" must be the name of a tool, not {found}')
        else:
            call.name = value
            self._announce(out)

    def _take_quoted(self, text: str, out: list[Delta]) -> None:
        """Arguments that were written as a JSON string: they are what it says, if that is an object."""
        call, value = self._call, decode_json(text, self.caps)
        if isinstance(value, Problem) or not isinstance(value, dict):
            key = call.arguments_key
            call.problem = Problem("arguments_not_object", f'"{key}" must be a JSON object, as in "{key}": {{…}}')
            return
        call.arguments = cast("Mapping[str, JSON]", value)
        call.notes.append("arguments_text")
        self._argument_text(text, out)

    def _name_by_key(self, key: str, out: list[Delta]) -> None:
        call = self._call
        if call.keys and call.problem is None:
            reason = f"a call is an object with one key, the tool's name: {self._shape.example}"
            call.problem = Problem("not_a_call", reason)
        elif not key:
            call.problem = Problem("no_name", f"the key must be the name of a tool: {self._shape.example}")
        call.keys.add(key)
        if call.problem is None:
            call.name = call.arguments_key = key
            self._announce(out)

    def _announce(self, out: list[Delta]) -> None:
        call = self._call
        if call.name is not None:
            call.started = True
            out.append(CallStarted(self._index, call.name, call.id))
            if call.held:
                out.append(ArgumentsDelta(self._index, "".join(call.held)))
                call.held.clear()

    def _after_value(self, text: str, position: int, out: list[Delta]) -> int:
        char = text[position]
        if char == "}":
            return self._close_object(text, position, out)
        if char != ",":
            return self._fail(
                "invalid_json",
                f"expected ',' or '}}' after the value of \"{shorten(self._key)}\", found {char!r}",
                position,
            )
        self._state = self._key_start
        return position + 1

    def _close_object(self, text: str, position: int, out: list[Delta]) -> int:
        self._end_call(text, position + 1, out)
        return position + 1

    def _end_call(self, text: str, stop: int, out: list[Delta]) -> None:
        call, shape = self._call, self._shape
        if call.problem is None and call.name is None:
            key = "of the tool's name" if shape.keyed else f'"{shape.name_key}"'
            call.problem = Problem("no_name", f"the key {key} is missing; write {shape.example}")
        if call.problem is None and call.arguments is None and call.unknown:
            # Never an executable {} in place of arguments that stand elsewhere.
            reason = f'"{call.unknown}" is not known; put the arguments into "{shape.arguments_key}": {shape.example}'
            call.problem = Problem("no_arguments", reason)
        if call.problem is None and call.arguments is None and shape.arguments_required:
            call.problem = Problem("no_arguments", f'the key "{shape.arguments_key}" is missing; write {shape.example}')
        if call.problem is not None or call.name is None:
            problem = call.problem or Problem("no_name", "")
            raw, at = self._since(call.offset, text, stop), self.start + call.offset
            delta: CallCompleted | CallMalformed = CallMalformed(
                self._index, raw, problem.code, problem.reason, at, call.name
            )
        else:
            if call.arguments is None:
                out.append(ArgumentsDelta(self._index, "{}"))
            delta = CallCompleted(self._index, call.name, call.arguments or {}, call.id, tuple(call.notes))
        self._add_call(delta, out)
        if self._in_array:
            self._state = self._after_element
        else:
            self.done = True

    def _after_element(self, text: str, position: int, out: list[Delta]) -> int:
        char = text[position]
        if char == "]":
            self.done = True
        elif char == ",":
            self._state = self._element
        else:
            return self._fail("invalid_json", f"expected ',' or ']' after a call, found {char!r}", position)
        return position + 1

    def _check_key(self, key: str) -> None:
        call = self._call
        if key in call.keys and call.problem is None:
            call.problem = Problem("duplicate_key", f"the key {shorten(key)!r} appears twice in one call")
        call.keys.add(key)
        if key in LENIENT_ARGUMENTS or key == self._shape.arguments_key:
            if call.arguments_key not in (None, key) and call.problem is None:
                both = f'both "{call.arguments_key}" and "{key}"'
                call.problem = Problem("duplicate_key", f"{both} are there; write one of them")
            call.arguments_key = key
            if key != self._shape.arguments_key:
                call.notes.append(f"arguments_key:{key}")
        elif key not in (self._shape.name_key, self._shape.id_key):
            call.notes.append(f"extra_key:{shorten(key)}")
            if key != "type":  # "type": "function" stands in many models' calls
                call.unknown = call.unknown or shorten(key)

    def _new_value(self, state: State) -> None:
        self._scanner, self._value = JsonScanner(self.caps, depth=2), Buffer(self.caps.characters)
        self._state, self._scanning = state, True

    def _scan(self, text: str, position: int) -> int:
        stop = self._scanner.feed(text, position)
        if self._scanner.problem is not None:
            self.problem, self.problem_offset = self._scanner.problem, self._base + stop - self._scanner.back
        return stop
