"""Reads the body of a block whose calls are JSON objects, alone or in an array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from toolspeak.data.deltas import ArgumentsDelta, CallCompleted, CallMalformed, CallStarted, Delta
from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.readers.body import PassThrough, ReaderState, StateBody, known_name, skip_space
from toolspeak.dialects.readers.json_call import PLAIN_KEY, PLAIN_STRING, CallShape, JsonCall, head_of
from toolspeak.dialects.text.scan import (
    Buffer,
    Caps,
    JsonScanner,
    Problem,
    decode_json,
    shorten,
    string_content,
    string_special,
    whole_object,
)


class JsonCalls(StateBody):
    """Implements `Body` for JSON calls. Once it knows the name, it sends arguments as they arrive."""

    _call: JsonCall
    _scanner: JsonScanner
    _value: Buffer  # the text of the open value or key
    _key = ""
    _left_out = 0  # how many characters the scanner skipped
    _scanning: bool = False
    _in_array: bool = False
    _fault: Problem | None = None  # the problem of the characters that the scanner skipped

    def __init__(
        self,
        shape: CallShape,
        first_index: int,
        caps: Caps,
        tools: Mapping[str, ToolSpec] | None = None,
        *,
        several: bool = False,
    ) -> None:
        """`several`: objects may follow each other without an array up to the block's end marker."""
        super().__init__(first_index, caps)
        self._shape = shape
        self._tools = tools or {}
        self._several = several and shape.alone
        self._state = self._start

    def feed(self, text: str, start: int, out: list[Delta]) -> int:
        position, end = start, len(text)
        self._base = self.raw.length - start
        while position < end and not self.is_complete and self.problem is None:
            if text[position] <= " " and not self._scanning:
                position = skip_space(text, position)
                if position == end:
                    break
            position = self._state(text, position, out)
        self.raw.add(text[start:position])
        return position

    def resume(self) -> bool:
        if self._scanning:
            return False
        self.problem = None
        return True

    def pass_through(self) -> PassThrough | None:
        if not self._scanning or self._state != self._scan_value or not self._scanner.in_string:
            return None
        call = self._call
        arguments = self._key == call.arguments_key and call.problem is None and not call.is_buffered
        if arguments and not call.has_started:
            return None
        room = self.caps.characters - self._value.length
        return PassThrough(self, string_content, self._index, room, special=string_special, visible=arguments)

    def record(self, text: str) -> None:
        self.raw.add(text)
        self._value.add(text)

    # Each state below takes one step and returns where the next one starts. Outside of values, the first character of a
    # step is not white space.

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
        self._call = call = JsonCall(self._base + position)
        shape = self._shape
        head = None if shape.keyed else head_of(shape.name_key, shape.arguments_key).match(text, position)
        if head is None and not shape.keyed:
            head = head_of(shape.name_key, shape.arguments_key, shape.id_key).match(text, position)
        if head is not None:
            name, call.id = head[head.lastindex or 0], head[1] if head.lastindex == 2 else None
            call.keys = {shape.name_key, shape.arguments_key, shape.id_key if call.id else shape.name_key}
            self._key = call.arguments_key = shape.arguments_key
            call.name = name if name in self._tools or not self._tools else known_name(name, self._tools)
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
        if self._fault is not None:
            stop += self._passed_over()
        if self._scanner.is_complete:
            self._scanning = False
            self._end_call(text, stop, out)
        return stop

    def _first_key(self, text: str, position: int, out: list[Delta]) -> int:
        if text[position] == "}":
            return self._close_object(text, position, out)
        return self._key_start(text, position, out)

    def _key_start(self, text: str, position: int, out: list[Delta]) -> int:
        char = text[position]
        if char != '"':
            problem = Problem("invalid_json", f"expected a key in double quotes, found {char!r}")
            if char == "}" and self._shape.alone:
                self._call.problem = self._call.problem or problem
                return self._close_object(text, position, out)
            return self._cut_short(problem, text, position, out)
        plain = PLAIN_KEY.match(text, position)
        if plain:
            self._take_key(plain[1], out)
            self._state = self._value_start
            return plain.end()
        self._new_value(self._scan_key)
        return position

    def _scan_key(self, text: str, position: int, out: list[Delta]) -> int:
        stop = self._scan(text, position)
        self._value.add(text[position:stop])
        if self._fault is not None:
            stop += self._passed_over()
        if self._scanner.is_complete:
            key = decode_json(self._value.value())
            self._take_key(key if isinstance(key, str) else "", out)
            self._state, self._scanning = self._colon, False
        return stop

    def _take_key(self, key: str, out: list[Delta]) -> None:
        self._key = key
        if self._shape.keyed:
            self._name_by_key(key, out)
        else:
            self._call.take_key(key, self._shape)

    def _colon(self, text: str, position: int, out: list[Delta]) -> int:
        if text[position] != ":":
            return self._fail("invalid_json", f"expected ':' after the key, found {text[position]!r}", position)
        self._state = self._value_start
        return position + 1

    def _value_start(self, text: str, position: int, out: list[Delta]) -> int:
        call = self._call
        if self._key == call.arguments_key and call.problem is None and text[position] == "{":
            whole = whole_object(text, position, self.caps)
            if whole is not None:
                call.arguments, stop = whole
                self._argument_text(text[position:stop], out)
                self._state = self._after_value
                return stop
        if text[position] == '"' and self._key == "function" and self._shape.wraps and call.name is None:
            self._key = self._shape.name_key  # Llama 3 sometimes writes "function" for "name"
        if self._key in (self._shape.name_key, self._shape.id_key) and not self._shape.keyed:
            plain = PLAIN_STRING.match(text, position)
            if plain:
                self._take_word(plain[1], out)
                self._state = self._after_value
                return plain.end()
        if text[position] == "{" and self._key == "function" and self._shape.wraps and not call.in_function:
            call.in_function, self._state = True, self._first_key
            return position + 1
        self._new_value(self._scan_value)
        if self._key != call.arguments_key or call.problem is not None:
            return position
        if text[position] == '"' and self._shape.arguments_text:
            call.is_buffered = True
        elif text[position] == "n" and self._shape.alone and not self._shape.arguments_required:
            call.is_buffered = call.null = True
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
        if self._key == call.arguments_key and call.problem is None and piece and not call.is_buffered:
            self._argument_text(piece, out)
        if self._fault is not None:
            stop += self._passed_over()
        if self._scanner.is_complete and self.problem is None:
            self._take_value(out)
            self._state, self._scanning = self._after_value, False
        return stop

    def _argument_text(self, piece: str, out: list[Delta]) -> None:
        if self._call.has_started:
            out.append(ArgumentsDelta(self._index, piece))
        else:
            self._call.pending.append(piece)

    def _take_value(self, out: list[Delta]) -> None:
        call, key, shape = self._call, self._key, self._shape
        if call.problem is not None or key not in (shape.name_key, shape.id_key, call.arguments_key):
            return
        value = decode_json(self._value.value())
        if isinstance(value, Problem):
            call.problem = value
        elif key == call.arguments_key:
            if call.null:
                call.notes.append("arguments_null")
            elif call.is_buffered:
                self._take_quoted(str(value), out)
            else:
                call.arguments = value
        else:
            self._take_word(value, out)

    def _take_word(self, value: JSON, out: list[Delta]) -> None:
        """Takes the value of the name or of the id."""
        if self._key == self._shape.name_key:
            self._take_name(value, out)
        elif self._call.problem is None:
            self._call.id = value if isinstance(value, str) or value is None else str(value)

    def _take_name(self, value: JSON, out: list[Delta]) -> None:
        call = self._call
        if call.problem is not None:
            return
        if not isinstance(value, str) or not value:
            key, value_text = self._shape.name_key, shorten(repr(value))
            call.problem = Problem("no_name", f'"{key}" must be the name of a tool, not {value_text}')
        else:
            call.name = known_name(value, self._tools)
            self._announce(out)

    def _take_quoted(self, text: str, out: list[Delta]) -> None:
        """Takes arguments that are a JSON string with an object in it."""
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
            call.arguments_key, call.name = key, known_name(key, self._tools)
            self._announce(out)

    def _announce(self, out: list[Delta]) -> None:
        call = self._call
        if call.name is not None and not (self._shape.no_calls and self._says_no_call(call.name)):
            call.has_started = True
            out.append(CallStarted(self._index, call.name, call.id))
            if call.pending:
                out.append(ArgumentsDelta(self._index, "".join(call.pending)))
                call.pending.clear()

    def _after_value(self, text: str, position: int, out: list[Delta]) -> int:
        char = text[position]
        if char == "}":
            return self._close_object(text, position, out)
        if char != ",":
            reason = f"expected ',' or '}}' after the value of \"{shorten(self._key)}\", found {char!r}"
            return self._cut_short(Problem("invalid_json", reason), text, position, out)
        self._state = self._key_start
        return position + 1

    def _cut_short(self, problem: Problem, text: str, position: int, out: list[Delta]) -> int:
        """Ends a call that lacks its last brackets where the next call begins or the array ends: no string is open
        there. Anywhere else its end is unknown, and the body fails."""
        char = text[position]
        may_end = (char == "]" and self._in_array) or (char == "{" and (self._in_array or self._several))
        if not may_end or not self._shape.alone:
            return self._fail(problem.code, problem.reason, position)
        self._call.problem = self._call.problem or problem
        self._end_call(text, position, out)
        self._state = self._after_element
        return position

    def _close_object(self, text: str, position: int, out: list[Delta]) -> int:
        call = self._call
        if call.in_function:
            call.in_function, self._key, self._state = False, "function", self._after_value
        elif self._shape.alone and (self._in_array or self._several):
            self._state = self._after_call
        else:
            self._end_call(text, position + 1, out)
        return position + 1

    def _after_call(self, text: str, position: int, out: list[Delta]) -> int:
        """After a call: an extra bracket makes the call malformed, as what it closes may have had more parts."""
        char = text[position]
        if char == "}" or (char == "]" and not self._in_array):
            extra = Problem("invalid_json", f"there is one {char!r} too many after the call")
            self._call.problem = self._call.problem or extra
            return position + 1
        self._end_call(text, position, out)
        return self._after_element(text, position, out)

    def end(self, out: list[Delta]) -> None:
        if self._several and not self._in_array:
            if self._state == self._after_call:
                self._end_call("", 0, out)
            self.is_complete = bool(self.calls) and self._state in (self._after_element, self._next_element)

    def _end_call(self, text: str, stop: int, out: list[Delta]) -> None:
        call = self._call
        call.problem = call.problem or call.check(self._shape, self._tools)
        self._state = self._after_element
        if not self._in_array and not self._several:
            self.is_complete = True
        if self._shape.no_calls and call.problem is None and self._says_no_call(call.name or ""):
            return
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

    def _says_no_call(self, name: str) -> bool:
        return name in self._shape.no_calls and name not in self._tools

    def _after_element(self, text: str, position: int, out: list[Delta]) -> int:
        char = text[position]
        if char == "]" and self._in_array:
            self.is_complete = True
        elif char in ",;" if self._several and not self._in_array else char == ",":
            self._state = self._next_element
        elif char == "{" and self._shape.alone:
            return self._element(text, position, out)
        elif not self._in_array:
            self.is_complete = True
            return position
        else:
            return self._fail("invalid_json", f"expected ',' or ']' after a call, found {char!r}", position)
        return position + 1

    def _next_element(self, text: str, position: int, out: list[Delta]) -> int:
        """After a comma. A final comma is accepted except in strict JSON."""
        if text[position] == "{" or not self._shape.alone:
            return self._element(text, position, out)
        if self._in_array and text[position] != "]":
            return self._element(text, position, out)
        self.is_complete = True
        return position + self._in_array

    def _new_value(self, state: ReaderState) -> None:
        self._scanner, self._value = JsonScanner(self.caps, depth=2), Buffer(self.caps.characters)
        self._state, self._scanning = state, True

    def _scan(self, text: str, position: int) -> int:
        scanner = self._scanner
        stop = scanner.feed(text, position)
        if scanner.problem is not None:
            problem, back = scanner.problem, scanner.back
            left_out = scanner.pass_over(text[stop : stop + 1]) if self._shape.alone else None
            if left_out is None:
                self.problem, self.problem_offset = problem, self._base + stop - back
            else:
                self._fault, self._left_out = problem, left_out
        return stop

    def _passed_over(self) -> int:
        """The number of characters that the scanner skipped. Their call is malformed."""
        fault, self._fault = self._fault, None
        if fault is None:
            return 0
        self._call.problem = self._call.problem or fault
        return self._left_out
