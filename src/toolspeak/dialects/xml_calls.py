"""The body of a block whose calls are XML-like elements: `<tool><argument>value</argument></tool>`.

Values are text, byte for byte: nothing in them is markup but their own end tag, and that counts only if
white space and a known sibling, the tool's end tag or the block's end tag follow. A value that starts
with `<![CDATA[` is the content of its CDATA sections. What type a value has, the tool's schema says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from toolspeak.data.deltas import ArgumentsDelta, CallCompleted, CallMalformed, CallStarted, Delta
from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.body import Body
from toolspeak.dialects.scan import MAX_CANDIDATE, Buffer, Caps, Problem, shorten
from toolspeak.dialects.typed_text import read_typed, schema_types
from toolspeak.dialects.xml_tags import NAMED_ARGUMENT, NAMED_CALL, TAG_START, Tag, match_tag

CDATA, CDATA_END = "<![CDATA[", "]]>"
_SPACE = re.compile(r"\s*")
_TEXT_TYPES = frozenset({"string"})


@dataclass(slots=True)
class _Call:
    name: str
    element: str
    spec: ToolSpec | None
    offset: int
    raw: Buffer
    arguments: dict[str, JSON] = field(default_factory=dict[str, JSON])
    notes: list[str] = field(default_factory=list[str])
    problem: Problem | None = None


@dataclass(slots=True)
class _Value:
    """The value being read; `types` are what its schema admits, `end` recognises its end tag."""

    name: str
    element: str
    types: frozenset[str]
    explicit_json: bool
    end: re.Pattern[str]
    text: Buffer
    pending: Buffer  # after a possible end tag, and at the start: what may or may not be the value's
    cdata: bool = False

    @property
    def streams(self) -> bool:
        return "string" in self.types and not self.explicit_json


class XmlCalls(Body):
    """Implements `Body` for XML-like calls; string values leave as they come."""

    def __init__(self, block: str, tools: Mapping[str, ToolSpec], first_index: int, caps: Caps) -> None:
        super().__init__(caps)
        self._block = block.lower()
        self._tools = tools
        self._index = first_index
        self._state = self._between
        self._wait = False
        self._base = 0
        self._from = 0  # where the open call's raw text starts in the current chunk
        self._call: _Call | None = None
        self._value: _Value | None = None
        self._rejected = ""

    _state: Callable[[str, int, list[Delta]], int]

    def feed(self, text: str, start: int, out: list[Delta]) -> int:
        position, end = start, len(text)
        self._base, self._from = self.raw.length - start, start
        self._wait = False
        while position < end and not (self.done or self._wait or self.problem):
            position = self._state(text, position, out)
        self.raw.add(text[start:position])
        if self._call is not None:
            self._call.raw.add(text[self._from : position])
        return position

    def end(self, out: list[Delta]) -> None:
        self.done = self._state == self._between and bool(self.calls)

    def hint(self) -> str:
        """Why an unclosed value did not end where the model thought it would."""
        call, value = self._call, self._value
        if call is None or value is None or not self._rejected:
            return ""
        known = ", ".join(call.spec.properties) if call.spec else ""
        return (
            f"the value of <{value.element}> did not end at its </{value.element}>, because {self._rejected} follows, "
            f"which is no argument of {call.name} (known: {known})"
        )

    # States, as in `blocks`; `_wait` asks for the same text again with more behind it.

    def _between(self, text: str, position: int, out: list[Delta]) -> int:
        position = self._skip_space(text, position)
        tag = self._read_tag(text, position, NAMED_CALL)
        if tag is None:
            return position
        if tag.closing:
            if tag.element.lower() == self._block:
                self._end_block(position)
            else:
                self._fail("invalid_xml", f"</{shorten(tag.element)}> closes nothing here", position)
            return position
        self._start_call(tag, text, position, out)
        return position + tag.length

    def _start_call(self, tag: Tag, text: str, position: int, out: list[Delta]) -> None:
        raw = Buffer(self.caps.characters)
        self._from = position
        self._call = _Call(tag.name, tag.element, self._tools.get(tag.name), self._base + position, raw)
        if tag.attributes:
            self._call.notes.append("attributes")
        out.append(CallStarted(self._index, tag.name))
        self._state = self._in_call
        if tag.empty:
            self._end_call(text, position + tag.length, out)

    def _in_call(self, text: str, position: int, out: list[Delta]) -> int:
        call = self._expect_call()
        position = self._skip_space(text, position)
        tag = self._read_tag(text, position, NAMED_ARGUMENT)
        if tag is None:
            return position
        if not tag.closing:
            self._start_value(call, tag, out)
            return position + tag.length
        if tag.element == call.element:
            self._end_call(text, position + tag.length, out)
            return position + tag.length
        if tag.element.lower() == self._block:
            call.notes.append("missing_closer")
            self._end_call(text, position, out)
            return position
        self._fail("invalid_xml", f"</{shorten(tag.element)}> closes nothing; <{call.element}> is open", position)
        return position

    def _start_value(self, call: _Call, tag: Tag, out: list[Delta]) -> None:
        types = _TEXT_TYPES
        if call.spec is not None:
            name = call.spec.aliases.get(tag.name, tag.name)
            types = schema_types(call.spec.properties.get(name, {"type": "string"}), call.spec.parameters)
        if tag.attributes:
            call.notes.append("attributes")
        if tag.name in call.arguments and call.problem is None:
            call.problem = Problem("duplicate_argument", f"the argument {tag.name!r} is there twice")
        end = re.compile(rf"</{re.escape(tag.element)}\s*>")
        limit = self.caps.characters
        value = _Value(tag.name, tag.element, types, tag.kind == "json", end, Buffer(limit), Buffer(limit))
        self._value = value
        separator = ", " if call.arguments else "{"
        self._argument_text(f"{separator}{json.dumps(tag.name)}: " + ('"' if value.streams else ""), out)
        self._state = self._value_start
        if tag.empty:
            self._end_value(out)

    def _value_start(self, text: str, position: int, out: list[Delta]) -> int:
        """White space before a CDATA section is no part of the value; before anything else it is."""
        value = self._expect_value()
        found = _SPACE.match(text, position)
        stop = found.end() if found else position
        room = self.caps.characters - value.pending.length
        if stop - position > room:
            self._fail("too_large", f"an argument is over {self.caps.characters} characters", position + room)
            return position + room
        value.pending.add(text[position:stop])
        if stop == len(text):
            return stop
        if text.startswith(CDATA, stop):
            value.cdata = True
            value.pending = Buffer(self.caps.characters)
            self._state = self._in_cdata
            return stop + len(CDATA)
        if CDATA.startswith(text[stop : stop + len(CDATA)]):
            self._wait = True
            return stop
        self._release(value, out)
        self._state = self._in_value
        return stop

    def _in_value(self, text: str, position: int, out: list[Delta]) -> int:
        value = self._expect_value()
        start = position
        while True:
            at = text.find("<", position)
            if at < 0:
                return self._content(text, start, len(text), out)
            if not text.startswith("</", at) and at + 1 < len(text):
                position = at + 1
                continue
            closed = value.end.match(text, at, at + MAX_CANDIDATE)
            if closed:
                return self._possible_end(text, start, at, closed.end(), out)
            given_up = self._gives_up(text, at) if self._rejected else False
            if given_up == "yes":
                return self._abandon(text, start, at, out)
            if given_up == "undecided" or self._may_end(value, text, at):
                self._wait = True
                return self._content(text, start, at, out)
            position = at + 1

    def _gives_up(self, text: str, at: int) -> Literal["yes", "no", "undecided"]:
        """Whether the tool's end tag stands here and another call or the block's end follows.

        Asked only when an end tag of the value was passed over: then the value was closed in vain, most likely
        because an unknown argument follows it, and only this call should fail.
        """
        call = self._expect_call()
        rest = text[at : at + MAX_CANDIDATE]
        end = f"</{call.element}"
        if not rest.startswith(end[: len(rest)]):
            return "no"
        short = "undecided" if len(rest) < MAX_CANDIDATE else "no"
        closed = re.compile(rf"{re.escape(end)}\s*>\s*").match(rest)
        if closed is None or closed.end() == len(rest):
            return short if closed or re.fullmatch(rf"{re.escape(end)}\s*", rest) or len(rest) < len(end) else "no"
        tag = match_tag(rest, closed.end(), NAMED_CALL)
        if tag is None:
            return short if TAG_START.fullmatch(rest, closed.end()) else "no"
        follows = tag.element.lower() == self._block if tag.closing else tag.name in self._tools
        return "yes" if follows else "no"

    def _abandon(self, text: str, start: int, at: int, out: list[Delta]) -> int:
        call, value = self._expect_call(), self._expect_value()
        self._content(text, start, at, out)
        stop = text.index(">", at) + 1
        call.problem = call.problem or Problem("unknown_argument", self.hint())
        call.arguments[value.name] = value.text.value()
        self._value, self._rejected = None, ""
        self._end_call(text, stop, out)
        return stop

    def _in_cdata(self, text: str, position: int, out: list[Delta]) -> int:
        value = self._expect_value()
        start = position
        while True:
            at = text.find("]", position)
            if at < 0:
                return self._content(text, start, len(text), out)
            rest = text[at : at + MAX_CANDIDATE]
            if rest.startswith(CDATA_END + CDATA):
                stop = self._content(text, start, at, out)
                return stop if self.problem else at + len(CDATA_END + CDATA)
            if rest.startswith(CDATA_END):
                space = _SPACE.match(text, at + len(CDATA_END))
                tag_at = space.end() if space else at
                closed = value.end.match(text, tag_at, at + MAX_CANDIDATE)
                if closed:
                    return self._possible_end(text, start, at, closed.end(), out)
                tail = text[tag_at : at + MAX_CANDIDATE]
                wait = tail == "" or CDATA.startswith(tail) or self._may_end(value, text, tag_at)
                wait = wait and at + MAX_CANDIDATE > len(text)
            else:
                wait = CDATA_END.startswith(rest)
            if wait:
                self._wait = True
                return self._content(text, start, at, out)
            position = at + 1

    def _possible_end(self, text: str, start: int, at: int, end: int, out: list[Delta]) -> int:
        stop = self._content(text, start, at, out)
        if self.problem:
            return stop
        self._expect_value().pending.add(text[at:end])
        self._state = self._after_value
        return end

    def _after_value(self, text: str, position: int, out: list[Delta]) -> int:
        """Behind a possible end tag: it counts only if what follows may follow a value."""
        call, value = self._expect_call(), self._expect_value()
        found = _SPACE.match(text, position)
        stop = found.end() if found else position
        value.pending.add(text[position:stop])
        if stop == len(text):
            return stop
        rest = text[stop : stop + MAX_CANDIDATE]
        tag = match_tag(text, stop, NAMED_ARGUMENT)
        if tag is None and TAG_START.fullmatch(rest) and len(rest) < MAX_CANDIDATE:
            self._wait = True
            return stop
        if tag is not None and self._may_follow(call, tag):
            self._end_value(out)
        else:
            self._rejected = self._rejected or (f"<{'/' if tag.closing else ''}{tag.element}>" if tag else "text")
            self._release(value, out)
            self._state = self._in_cdata if value.cdata else self._in_value
        return stop

    def _may_follow(self, call: _Call, tag: Tag) -> bool:
        if tag.closing:
            return tag.element == call.element or tag.element.lower() == self._block
        spec = call.spec
        if spec is None or tag.name in spec.properties or tag.name in spec.aliases:
            return True
        # Said explicitly, that is: JSON Schema's default would make every tag in a value a sibling.
        return spec.parameters.get("additionalProperties") not in (None, False)

    def _may_end(self, value: _Value, text: str, at: int) -> bool:
        """Whether the text from `at` is a beginning of the value's end tag, and nothing more."""
        end = f"</{value.element}"
        rest = text[at : at + MAX_CANDIDATE]
        if len(rest) <= len(end):
            return end.startswith(rest)
        return len(rest) < MAX_CANDIDATE and rest.startswith(end) and not rest[len(end) :].strip()

    def _content(self, text: str, start: int, stop: int, out: list[Delta]) -> int:
        value = self._expect_value()
        room = self.caps.characters - value.text.length
        if stop - start > room:
            stop = start + room
            self._fail("too_large", f"an argument is over {self.caps.characters} characters", stop)
        piece = text[start:stop]
        value.text.add(piece)
        if value.streams and piece:
            self._argument_text(json.dumps(piece, ensure_ascii=False)[1:-1], out)
        return stop

    def _release(self, value: _Value, out: list[Delta]) -> None:
        pending = value.pending.value()
        value.pending = Buffer(self.caps.characters)
        self._content(pending, 0, len(pending), out)

    def _end_value(self, out: list[Delta]) -> None:
        call, value = self._expect_call(), self._expect_value()
        text = value.text.value()
        result: JSON = text if value.streams else read_typed(text, value.types, value.explicit_json, self.caps)
        if isinstance(result, Problem):
            reason = f"the value of <{value.element}> cannot be read: {result.reason}"
            call.problem = call.problem or Problem(result.code, reason)
            result = text
        self._argument_text('"' if value.streams else json.dumps(result, ensure_ascii=False), out)
        call.arguments[value.name] = result
        self._value, self._rejected = None, ""
        self._state = self._in_call

    def _end_call(self, text: str, stop: int, out: list[Delta]) -> None:
        call = self._expect_call()
        call.raw.add(text[self._from : stop])
        self._argument_text("}" if call.arguments else "{}", out)
        if not call.arguments and "attributes" in call.notes and call.problem is None:
            # Never an executable {} in place of arguments that stand elsewhere.
            element = call.element
            reason = f"arguments are elements, not attributes: <{element}><argument>value</argument></{element}>"
            call.problem = Problem("no_arguments", reason)
        if call.problem is None:
            delta: CallCompleted | CallMalformed = CallCompleted(
                self._index, call.name, call.arguments, None, tuple(dict.fromkeys(call.notes))
            )
        else:
            problem = call.problem
            delta = CallMalformed(self._index, call.raw.value(), problem.code, problem.reason, call.offset, call.name)
        out.append(delta)
        self.calls.append(delta)
        self._index += 1
        self._call = None
        self._state = self._between

    def _end_block(self, position: int) -> None:
        if self.calls:
            self.done = True
        else:
            self._fail("empty_batch", f"<{self._block}> holds no call", position)

    def _read_tag(self, text: str, position: int, named: str) -> Tag | None:
        """The tag at `position`; None after asking for more or failing."""
        if position == len(text):
            return None
        tag = match_tag(text, position, named)
        rest = text[position : position + MAX_CANDIDATE]
        if tag is None and TAG_START.fullmatch(rest) and len(rest) < MAX_CANDIDATE:
            self._wait = True
        elif tag is None:
            inside = f"<{self._call.element}>" if self._call else f"<{self._block}>"
            what = "<argument>value</argument>" if self._call else "<tool><argument>value</argument></tool>"
            found = "a tag that cannot be read" if rest[0] == "<" else repr(rest[0])
            self._fail("invalid_xml", f"expected {what} inside {inside}, found {found}", position)
        return tag

    def _skip_space(self, text: str, position: int) -> int:
        found = _SPACE.match(text, position)
        return found.end() if found else position

    def _argument_text(self, text: str, out: list[Delta]) -> None:
        out.append(ArgumentsDelta(self._index, text))

    def _fail(self, code: str, reason: str, position: int) -> None:
        self.problem, self.problem_offset = Problem(code, reason), self._base + position

    def _expect_call(self) -> _Call:
        assert self._call is not None, "an argument outside of a call is our bug"
        return self._call

    def _expect_value(self) -> _Value:
        assert self._value is not None, "a value outside of an argument is our bug"
        return self._value
