"""Bodies that are read by states: the loop, the call being read, and the text of its arguments on its way out.

Every reader of elements is one: its own states say where a call, an argument and a value begin and end; what it means
to open, to fill and to close them stands here, once.
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

from toolspeak.data.deltas import ArgumentsDelta, CallCompleted, CallMalformed, CallStarted, Delta, TextAside
from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.readers.body import Body, Run
from toolspeak.dialects.readers.whole_call import WholeCall
from toolspeak.dialects.text.scan import (
    BEYOND_CAPS,
    Buffer,
    Caps,
    JsonScanner,
    Problem,
    decode_json,
    shorten,
    string_content,
    string_special,
)
from toolspeak.dialects.text.typed_text import as_mapping

_ENCODE = msgspec.json.Encoder().encode

State = Callable[[str, int, list[Delta]], int]
_SPACE = re.compile(r"[ \t\r\n]*")  # XML's and JSON's: any other is text, and may begin a value


class Steps(Body):
    """Implements `feed` for states: each takes what it can from text[position:] and returns where the next begins.

    A state that sets `_wait` asks for what it left to come again with more behind it.
    """

    _state: State
    _wait: bool = False
    _base: int = 0  # the body's offset of the current chunk's character 0

    def __init__(self, first_index: int, caps: Caps) -> None:
        super().__init__(caps)
        self._index: int = first_index
        self._said: list[str] = []  # of the open call's arguments, not yet told

    def feed(self, text: str, start: int, out: list[Delta]) -> int:
        position, end = start, len(text)
        self._base = self.raw.length - start
        self._wait = False
        while position < end and not (self.done or self._wait or self.problem):
            position = self._state(text, position, out)
        if self._said:
            self._tell(out)
        self.raw.add(text[start:position])
        return position

    def resume(self) -> bool:
        if self.problem is not None and self.problem.code in BEYOND_CAPS:
            return False
        self.problem = None
        return True

    def _set_aside(self, text: str, position: int, out: list[Delta]) -> int:
        """Takes text that is none of the answer, up to what may be a marker; returns where that stands."""
        at = text.find("<", position)
        stop = at if at >= 0 else len(text)
        if stop > position:
            out.append(TextAside(text[position:stop]))
        return stop

    def _since(self, offset: int, text: str, stop: int) -> str:
        """The body's text from an offset up to text[stop] of the current chunk."""
        return self.raw.since(offset) + text[max(offset, self.raw.length) - self._base : stop]

    def _fail(self, code: str, reason: str, position: int) -> int:
        self.problem, self.problem_offset = Problem(code, reason), max(0, self._base + position)
        return position

    def _tell(self, out: list[Delta]) -> str:
        """What was said of the arguments leaves in one fragment."""
        told = "".join(self._said)
        if told:
            out.append(ArgumentsDelta(self._index, told))
        self._said.clear()
        return told

    def _add_call(self, delta: CallCompleted | CallMalformed, out: list[Delta]) -> None:
        out.append(delta)
        self.calls.append(delta)
        self._index += 1


@quick(frozen=False)
class OpenCall:
    """The call being read; without a name it has not started, and is malformed. `written`: its arguments came as one
    JSON text, which is out already."""

    name: str
    spec: ToolSpec | None
    offset: int
    arguments: dict[str, JSON] = field(default_factory=dict[str, JSON])
    notes: list[str] = field(default_factory=list[str])
    problem: Problem | None = None
    written: bool = False

    @property
    def root(self) -> Mapping[str, JSON]:
        """The schema in which the references of an argument's schema are looked up."""
        return self.spec.parameters if self.spec else {}


class CallSteps(Steps):
    """A body of calls whose arguments are text, each typed on its own. It begins, and goes on behind a call, in the
    state `_between`."""

    _text = Buffer(0)  # of the value, or of the JSON that all arguments are; each begins one of its own
    _scanner = JsonScanner(Caps())  # of that JSON

    def __init__(self, tools: Mapping[str, ToolSpec], first_index: int, caps: Caps) -> None:
        super().__init__(first_index, caps)
        self._tools = tools
        self._call: OpenCall | None = None
        self._state = self._between

    @abstractmethod
    def _between(self, text: str, position: int, out: list[Delta]) -> int: ...

    def _prose(self, text: str, position: int, out: list[Delta]) -> int:
        """Text between calls is none of the answer."""
        stop = self._set_aside(text, position, out)
        if stop < len(text):
            self._state = self._between
        return stop

    def end(self, out: list[Delta]) -> None:
        self.done = self._state in (self._between, self._prose) and bool(self.calls)

    def resume(self) -> bool:
        return self._scanner.problem is None and super().resume()

    def flow(self) -> Callable[[str], object] | None:
        """Where the body stands in text that leaves as it comes: what says that a chunk holds nothing else."""
        return None

    def run(self) -> Run | None:
        room = self.caps.characters - self._text.length
        if self._call is not None and self._call.written and not self._scanner.done and self._scanner.in_string:
            return Run(self, string_content, self._index, room, special=string_special)
        content = self.flow()
        if content is None or self._call is None:
            return None
        return Run(self, content, self._index, room, shown=self._call.name != "", write=string_text)

    def book(self, taken: str) -> None:
        self.raw.add(taken)
        self._text.add(taken)

    def _take_whole(self, whole: WholeCall, text: str, position: int, out: list[Delta]) -> int:
        """Reads a call that is there to its end in one step; returns `position` where the states have to read it."""
        match = whole.call.match(text, position)
        if match is None or match.end() - position > self.caps.characters:
            return position
        name = self._tool_name(match[1])
        spec = self._tools.get(name)
        arguments: dict[str, JSON] = {}
        written: list[str] = []
        for key, said, content in whole.argument.findall(match[2]):
            value = self._whole_value(spec, key, said, content)
            if isinstance(value, Problem) or key in arguments:
                return position
            arguments[key] = value
            shown = json_string(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            written.append(f"{encode_basestring_ascii(key)}: {shown}")
        out.append(CallStarted(self._index, name))
        out.append(ArgumentsDelta(self._index, f"{{{', '.join(written)}}}"))
        self._add_call(CallCompleted(self._index, name, arguments), out)
        return match.end()

    def _tool_name(self, written: str) -> str:
        """The tool that is meant by a name as it was written."""
        return written

    def _whole_value(self, spec: ToolSpec | None, name: str, said: str, text: str) -> JSON | Problem:
        """The value of an argument in such a call; a problem where the states have to say what it is."""
        raise NotImplementedError

    def _start_call(self, name: str, position: int, out: list[Delta]) -> OpenCall:
        self._call = OpenCall(name, self._tools.get(name), self._base + position)
        if name:
            out.append(CallStarted(self._index, name))
        else:
            self._call.problem = Problem("no_name", "the call has no tool name")
        return self._call

    def _start_argument(self, name: str, *, said: bool = True) -> None:
        """The key is out; the value follows."""
        call = self._open_call()
        if name in call.arguments and call.problem is None:
            call.problem = Problem("duplicate_argument", f"the argument {shorten(name)!r} is there twice")
        self._text = Buffer(self.caps.characters)
        if said:
            self._say(f"{', ' if call.arguments else '{'}{encode_basestring_ascii(name)}: ")

    def _content(self, text: str, start: int, stop: int, *, said: bool) -> int:
        """Takes a piece of the value, which is `said` as it comes; returns where it stopped taking: before `stop` the
        value has grown too large, and the body has failed."""
        room = self.caps.characters - self._text.length
        if stop - start > room:
            stop = start + room
            self._fail("too_large", f"an argument is over {self.caps.characters} characters", stop)
        if stop > start:
            piece = text[start:stop]
            self._text.add(piece)
            if said:
                self._say(json_string(piece)[1:-1])
        return stop

    def _keep(self, name: str, text: str, value: JSON | Problem, *, streamed: bool) -> None:
        """The value is complete; `text` is how it stood there. One that cannot be read makes its call malformed."""
        call = self._open_call()
        if isinstance(value, Problem):
            reason = f"the value of {shorten(name)!r} cannot be read: {value.reason}"
            call.problem = call.problem or Problem(value.code, reason)
            value = text
        self._say('"' if streamed else json.dumps(value, ensure_ascii=False))
        call.arguments[name] = value

    def _start_json(self) -> None:
        """One JSON object stands in place of all arguments."""
        self._open_call().written = True
        self._scanner, self._text = JsonScanner(self.caps, depth=2), Buffer(self.caps.characters)

    def _take_json(self, text: str, position: int, out: list[Delta]) -> int:
        """Reads on in that object; afterwards it is complete if the scanner is done."""
        stop = self._scanner.feed(text, position)
        room = self.caps.characters - self._text.length
        if stop - position > room:
            stop = position + room
            self._fail("too_large", f"the arguments are over {self.caps.characters} characters", stop)
        elif self._scanner.problem is not None:
            self._fail(self._scanner.problem.code, self._scanner.problem.reason, stop - self._scanner.back)
        self._text.add(text[position:stop])
        if stop > position:
            self._say(text[position:stop])
        if self.problem is None and self._scanner.done:
            call, value = self._open_call(), decode_json(self._text.value())
            if not isinstance(value, Problem | Mapping):
                value = Problem("arguments_not_object", "the arguments must be a JSON object")
            if isinstance(value, Problem):
                call.problem = call.problem or value
            else:
                call.arguments = dict(as_mapping(value))
        return stop

    def _end_call(self, text: str, stop: int, out: list[Delta]) -> None:
        """The call ends at text[stop]."""
        call = self._open_call()
        if call.problem is None and not call.written:
            self._say("}" if call.arguments else "{}")
        self._tell(out)
        if call.problem is None:
            notes = tuple(dict.fromkeys(call.notes))
            delta: CallCompleted | CallMalformed = CallCompleted(self._index, call.name, call.arguments, None, notes)
        else:
            problem, raw, at = call.problem, self._since(call.offset, text, stop), self.start + call.offset
            delta = CallMalformed(self._index, raw, problem.code, problem.reason, at, call.name or None)
        self._add_call(delta, out)
        self._call, self._state = None, self._between

    def _say(self, text: str) -> None:
        """A fragment of the arguments; a call without a name has none that anybody could follow."""
        if self._call is not None and self._call.name:
            self._said.append(text)

    def _open_call(self) -> OpenCall:
        assert self._call is not None, "an argument outside of a call is our bug"
        return self._call


def known_name(written: str, tools: Mapping[str, ToolSpec]) -> str:
    """The tool that a written name means: models write OpenAI's namespace `functions.` before it in any format."""
    if written in tools:
        return written
    bare = written.removeprefix("functions.")
    return bare if bare in tools else written


def json_string(text: str) -> str:
    """A string as JSON, other characters than ASCII as they are; made for long ones."""
    try:
        return _ENCODE(text).decode()  # in a quarter of the standard library's time, and letter by letter the same
    except UnicodeEncodeError:  # a lone surrogate
        return encode_basestring(text)


def string_text(text: str) -> str:
    """A piece of a string, mostly a short one, as it stands between JSON quotes."""
    return encode_basestring(text)[1:-1]


def skip_space(text: str, position: int) -> int:
    if text[position : position + 1] > " ":
        return position
    match = _SPACE.match(text, position)
    return match.end() if match else position


def ends_line(text: str, position: int) -> bool:
    """Whether the rest of the line is empty or starts with a tag."""
    stop = skip_space(text, position)
    return "\n" in text[position:stop] or text.startswith("<", stop)


@cache
def without(first: str, second: str = "", tail: str = "") -> Callable[[str], object]:
    """Says whether a chunk is not empty, holds nothing that may begin with `first` and one of the characters `second`
    (none: with `first` alone), and does not end with `tail`."""
    first, second = re.escape(first), re.escape(second)
    run = f"[^{first}]*+"
    pattern = f"{run}(?:{first}[^{first}{second}]{run})*+" if second else run
    return re.compile("(?s:(?=.))" + pattern + (f"(?<!{tail})" if tail else "")).fullmatch
