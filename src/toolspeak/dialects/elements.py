"""The body of calls in elements whose tags carry the name: `<function=f><parameter=k>v</parameter></function>`,
`<invoke name="f"><parameter name="k">v</parameter></invoke>`, and DSML.

Values are text, byte for byte (some dialects drop one line break on each side). An end tag counts if white space and
a known sibling, the call's end or the block's end follow. A sibling's start tag, or the call's and the block's end
together, end a value that was left open (noted as `missing_closer`). `<![CDATA[…]]>` holds any text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from toolspeak.data.deltas import ArgumentsDelta, CallCompleted, CallMalformed, CallStarted, Delta
from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.body import Body
from toolspeak.dialects.element_ends import Lookahead, begins
from toolspeak.dialects.element_tags import ElementSyntax, Tag
from toolspeak.dialects.element_values import CDATA, CDATA_END, Explicit, is_text, leaning, read_value, value_types
from toolspeak.dialects.scan import MAX_CANDIDATE, Buffer, Caps, JsonScanner, Problem, decode_json, shorten
from toolspeak.dialects.typed_text import as_mapping

_SPACE = re.compile(r"\s*")


@dataclass(slots=True)
class _Call:
    name: str
    spec: ToolSpec | None
    offset: int
    raw: Buffer
    arguments: dict[str, JSON] = field(default_factory=dict[str, JSON])
    notes: list[str] = field(default_factory=list[str])
    problem: Problem | None = None
    scanner: JsonScanner | None = None  # of a call whose body is one JSON object
    json: Buffer | None = None


@dataclass(slots=True)
class _Value:
    """The value being read. `streams`: it is text for certain, and leaves as it comes; `held`: it is not text, or may
    not be, for certain, until it ends; else its first characters have yet to tell."""

    name: str
    types: frozenset[str]
    explicit: Explicit
    streams: bool
    held: bool
    wrapper: bool
    text: Buffer


class ElementCalls(Body):
    """Implements `Body`. `block_end` follows the last call; with `bare` it is the end tag of the only call."""

    def __init__(
        self,
        syntax: ElementSyntax,
        block_end: str,
        tools: Mapping[str, ToolSpec],
        first_index: int,
        caps: Caps,
        bare: bool = False,
    ) -> None:
        super().__init__(caps)
        self._syntax = syntax
        self._block_end = block_end
        self._bare = bare
        self._tools = tools
        self._index = first_index
        self._state = self._between
        self._wait = False
        self._base = 0
        self._from = 0  # where the open call's raw text starts in the current chunk
        self._call: _Call | None = None
        self._value: _Value | None = None
        self._lookahead = Lookahead(syntax, block_end, tools, bare)

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
        rejected = self._lookahead.rejected
        if self._value is None or not rejected:
            return ""
        return (
            f"the value of {self._value.name!r} did not end at its {self._syntax.argument_end}, because {rejected!r} "
            f"follows; an argument, {self._syntax.call_end} or the block's end may follow"
        )

    # States, as in `blocks`; `_wait` asks for the same text again with more behind it.

    def _between(self, text: str, position: int, out: list[Delta]) -> int:
        position = self._skip_space(text, position)
        if position == len(text):
            return position
        for literal in self._syntax.skipped:
            if text.startswith(literal, position):
                return position + len(literal)
        if text.startswith(self._block_end, position) and not self._bare:
            if self.calls:
                self.done = True
            else:
                self._fail("empty_batch", "the block holds no call", position)
            return position
        tag = self._syntax.match(self._syntax.call, text, position)
        if isinstance(tag, Tag):
            self._start_call(tag, text, position, out)
            return position + tag.length
        if tag == "undecided" or begins(text, position, (self._block_end, *self._syntax.skipped)):
            self._wait = True
        else:
            self._expected(f"{self._syntax.call}… or {self._block_end}", text, position)
        return position

    def _start_call(self, tag: Tag, text: str, position: int, out: list[Delta]) -> None:
        self._from = position
        raw = Buffer(self.caps.characters)
        name, half = tag.name, tag.name[: len(tag.name) // 2]
        if self._syntax.doubled and name == f"{half}.{half}" and name not in self._tools:
            name = half
        self._call = _Call(name, self._tools.get(name), self._base + position, raw)
        out.append(CallStarted(self._index, name))
        self._state = self._in_call
        if tag.empty:
            self._end_call(text, position + tag.length, out)

    def _in_call(self, text: str, position: int, out: list[Delta]) -> int:
        call, syntax = self._expect_call(), self._syntax
        position = self._skip_space(text, position)
        if position == len(text):
            return position
        if text.startswith(syntax.call_end, position):
            stop = position + len(syntax.call_end)
            self._end_call(text, stop, out)
            self.done = self._bare
            return position if self._bare else stop
        if text.startswith(self._block_end, position):
            return self._end_unclosed(text, position, out)
        if call.scanner is None and not call.arguments and text[position] == "{":
            call.scanner, call.json = JsonScanner(self.caps, depth=1), Buffer(self.caps.characters)
            call.notes.append("json_arguments")
            self._state = self._in_json
            return position
        argument, following = syntax.match(syntax.argument, text, position), syntax.match(syntax.call, text, position)
        if isinstance(argument, Tag) and call.scanner is None:
            self._start_value(call, argument, out)
            return position + argument.length
        if isinstance(following, Tag) and not self._bare:
            return self._end_unclosed(text, position, out)
        begun = begins(text, position, (syntax.call_end, self._block_end))
        if "undecided" in (argument, following) or begun:
            self._wait = True
        else:
            self._expected(f"{syntax.argument}… or {syntax.call_end}", text, position)
        return position

    def _end_unclosed(self, text: str, position: int, out: list[Delta]) -> int:
        self._expect_call().notes.append("missing_closer")
        self._end_call(text, position, out)
        return position

    def _in_json(self, text: str, position: int, out: list[Delta]) -> int:
        """A call whose body is one JSON object in place of elements."""
        call = self._expect_call()
        assert call.scanner is not None, "JSON without a scanner is our bug"
        assert call.json is not None, "JSON without a buffer is our bug"
        stop = call.scanner.feed(text, position)
        call.json.add(text[position:stop])
        if call.scanner.problem is not None:
            self._fail(call.scanner.problem.code, call.scanner.problem.reason, stop)
        elif call.json.overflown:
            self._fail("too_large", f"the arguments are over {self.caps.characters} characters", stop)
        else:
            self._argument_text(text[position:stop], out)
        if call.scanner.done:
            value = decode_json(call.json.value())
            if isinstance(value, Problem):
                call.problem = value
            call.arguments = dict(as_mapping(value)) if not isinstance(value, Problem) else {}
            self._state = self._in_call
        return stop

    def _start_value(self, call: _Call, tag: Tag, out: list[Delta]) -> None:
        types = value_types(call.spec, tag.name, self._syntax.guesses)
        if tag.name in call.arguments and call.problem is None:
            call.problem = Problem("duplicate_argument", f"the argument {tag.name!r} is there twice")
        known = call.spec is None or tag.name in call.spec.properties or tag.name in call.spec.aliases
        wrapper = tag.name in self._syntax.wrappers and not known and tag.explicit != "string"
        is_string = is_text(types) if tag.explicit == "" else tag.explicit == "string" and "string" in types
        streams = is_string and not wrapper
        held = wrapper or (not streams and (tag.explicit != "" or "string" not in types))
        self._value = _Value(tag.name, types, tag.explicit, streams, held, wrapper, Buffer(self.caps.characters))
        if not wrapper:
            separator = ", " if call.arguments else "{"
            self._argument_text(f"{separator}{json.dumps(tag.name)}: " + ('"' if streams else ""), out)
        self._state = self._value_start
        if tag.empty:
            self._end_value(out)

    def _value_start(self, text: str, position: int, out: list[Delta]) -> int:
        """White space before a CDATA section is no part of the value; before anything else it is."""
        value = self._expect_value()
        stop = self._skip_space(text, position)
        if stop - position < MAX_CANDIDATE and (stop == len(text) or begins(text, stop, (CDATA,))):
            self._wait = True
            return position
        if stop - position < MAX_CANDIDATE and text.startswith(CDATA, stop):
            self._state = self._in_cdata
            if "string" in value.types and value.explicit == "" and not value.wrapper:
                value.explicit = "string"
                self._let_go(value, out)
            return stop + len(CDATA)
        self._state = self._in_value
        return position + (1 if self._syntax.trims and text[position] == "\n" else 0)

    def _in_value(self, text: str, start: int, out: list[Delta]) -> int:
        syntax, call, value = self._syntax, self._expect_call(), self._expect_value()
        position = start
        while (found := syntax.ends.search(text, position)) is not None:
            at = found.start()
            cut = at - 1 if syntax.trims and at > start and text[at - 1] == "\n" else at
            if found[0] == syntax.argument_end:
                verdict, stop = self._lookahead.ends_value(text, at), found.end()
            elif found[0] == syntax.call_end:
                verdict, stop = self._lookahead.ends_call(text, at), at
            else:
                alone = not syntax.trims or cut < at or (at == start and not value.text.length)
                given = {value.name, *call.arguments}
                verdict, stop = self._lookahead.starts_sibling(text, at, given, call.spec) if alone else "no", at
            if verdict == "no":
                position = at + 1
                continue
            if self._content(text, start, cut, out):
                return cut
            if verdict == "undecided":
                self._wait = True
                return cut
            if stop == at:
                call.notes.append("missing_closer")
            self._end_value(out)
            return stop
        hold = syntax.hold_from(text, max(position, start))
        if not self._content(text, start, hold, out):
            self._wait = hold < len(text)
        return hold

    def _in_cdata(self, text: str, start: int, out: list[Delta]) -> int:
        position = start
        while (at := text.find("]", position)) >= 0:
            rest = text[at : at + MAX_CANDIDATE]
            if rest.startswith(CDATA_END + CDATA):
                stop = at + len(CDATA_END + CDATA)
                return at if self._content(text, start, at, out) else stop
            after = self._skip_space(rest, len(CDATA_END))
            ended = rest.startswith(CDATA_END)
            if ended and rest.startswith(self._syntax.argument_end, after):
                if not self._content(text, start, at, out):
                    self._end_value(out)
                return at + after + len(self._syntax.argument_end)
            wait = ended and (after == len(rest) or begins(rest, after, (self._syntax.argument_end, CDATA)))
            if (wait and len(rest) < MAX_CANDIDATE) or begins(rest, 0, (CDATA_END,)):
                self._wait = not self._content(text, start, at, out)
                return at
            position = at + 1
        self._content(text, start, len(text), out)
        return len(text)

    def _content(self, text: str, start: int, stop: int, out: list[Delta]) -> bool:
        """Takes a piece of the value; True if it has grown too large."""
        value = self._expect_value()
        if stop - start > self.caps.characters - value.text.length:
            self._fail("too_large", f"an argument is over {self.caps.characters} characters", stop)
            return True
        piece = text[start:stop]
        value.text.add(piece)
        if value.streams:
            if piece:
                self._argument_text(json.dumps(piece, ensure_ascii=False)[1:-1], out)
        elif not value.held and piece:
            lean = leaning(value.text.value(), value.types)
            if lean == "text":
                self._let_go(value, out)
            value.held = lean == "other"
        return False

    def _let_go(self, value: _Value, out: list[Delta]) -> None:
        """A value that could have been something else is text for certain."""
        if not value.streams:
            value.streams, value.held = True, False
            self._argument_text(json.dumps(value.text.value(), ensure_ascii=False)[:-1], out)

    def _end_value(self, out: list[Delta]) -> None:
        call, value = self._expect_call(), self._expect_value()
        text = value.text.value()
        self._value, self._lookahead.rejected = None, ""
        self._state = self._in_call
        if value.streams:
            self._argument_text('"', out)
            call.arguments[value.name] = text
            return
        result = read_value(text, value.types, value.explicit, self.caps)
        if value.wrapper and self._unwrap(call, value, out):
            return
        if isinstance(result, Problem):
            reason = f"the value of {value.name!r} cannot be read: {result.reason}"
            call.problem = call.problem or Problem(result.code, reason)
            result = text
        if value.wrapper:
            self._argument_text(f"{', ' if call.arguments else '{'}{json.dumps(value.name)}: ", out)
        self._argument_text(json.dumps(result, ensure_ascii=False), out)
        call.arguments[value.name] = result

    def _unwrap(self, call: _Call, value: _Value, out: list[Delta]) -> bool:
        """All arguments in one, as JSON, under a name that is none of the tool's: taken for the arguments."""
        read = decode_json(value.text.value().strip(), self.caps)
        inner = as_mapping(None if isinstance(read, Problem) else read)
        if call.spec is None or not inner or call.arguments or not inner.keys() <= call.spec.properties.keys():
            return False
        call.notes.append(f"arguments_key:{value.name}")
        for name, each in inner.items():
            separator = ", " if call.arguments else "{"
            self._argument_text(f"{separator}{json.dumps(name)}: {json.dumps(each, ensure_ascii=False)}", out)
            call.arguments[name] = each
        return True

    def _end_call(self, text: str, stop: int, out: list[Delta]) -> None:
        call = self._expect_call()
        call.raw.add(text[self._from : stop])
        if call.scanner is None:
            self._argument_text("}" if call.arguments else "{}", out)
        if call.problem is None:
            notes = tuple(dict.fromkeys(call.notes))
            delta: CallCompleted | CallMalformed = CallCompleted(self._index, call.name, call.arguments, None, notes)
        else:
            problem = call.problem
            delta = CallMalformed(self._index, call.raw.value(), problem.code, problem.reason, call.offset, call.name)
        out.append(delta)
        self.calls.append(delta)
        self._index += 1
        self._call = None
        self._state = self._between

    def _expected(self, what: str, text: str, position: int) -> None:
        inside = f"the call of {shorten(self._call.name)}" if self._call else "the block"
        self._fail("invalid_xml", f"expected {what} in {inside}, found {text[position]!r}", position)

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
