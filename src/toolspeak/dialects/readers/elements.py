"""The body of calls in elements whose tags carry the name: `<function=f><parameter=k>v</parameter></function>`,
`<invoke name="f"><parameter name="k">v</parameter></invoke>`, and DSML.

Values are text, byte for byte (some dialects drop one line break on each side). An end tag counts if white space and
a known sibling, the call's end or the block's end follow, and if it does not end what began in the value: a whole call
in a value is text. A sibling's start tag, or the call's end and another call or the block's end together, end a value
that was left open (noted as `missing_closer`). Where nobody can tell where a value ends, its call is malformed, and the
next one is read. `<![CDATA[…]]>` holds any text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.readers.element_ends import Lookahead
from toolspeak.dialects.readers.element_tags import ElementSyntax, Tag, explicit_type, landmarks
from toolspeak.dialects.readers.element_values import (
    CDATA,
    CDATA_END,
    Explicit,
    is_text,
    leaning,
    read_value,
    value_types,
)
from toolspeak.dialects.readers.loose_values import read_other
from toolspeak.dialects.readers.reader_states import CallSteps, OpenCall, skip_space, string_text, without
from toolspeak.dialects.text.end_marker import begins
from toolspeak.dialects.text.scan import MAX_CANDIDATE, Caps, Problem, shorten
from toolspeak.dialects.text.typed_text import Types, argument_schemas, as_mapping, has_argument


@dataclass(slots=True)
class _Value:
    """The value being read. `streams`: it is text for certain, and leaves as it comes; `held`: it is not text, or may
    not be, for certain, until it ends; else its first characters have yet to tell. `crlf`: its lines end so, as its
    first does."""

    name: str
    types: Types
    explicit: Explicit
    streams: bool
    held: bool
    wrapper: bool
    crlf: bool = False


def _streams(types: Types, explicit: Explicit) -> bool:
    """Whether a value of these types is text for certain."""
    return is_text(types) if explicit == "" else explicit == "string" and "string" in types


class ElementCalls(CallSteps):
    """Implements `Body`. `block` is its markers: the end follows the last call, and with `bare` is the end tag of the
    only call. Another start, or one of `breaks`, ends a block whose own end is missing."""

    _value: _Value | None = None
    _lost = False  # whether something in the open call could not be read
    _depth = 0  # calls and blocks that began behind that

    def __init__(
        self,
        syntax: ElementSyntax,
        block: tuple[str, str],
        tools: Mapping[str, ToolSpec],
        first_index: int,
        caps: Caps,
        bare: bool = False,
        breaks: tuple[str, ...] = (),
    ) -> None:
        super().__init__(tools, first_index, caps)
        self._syntax = syntax
        self._block, self._block_end = block, block[1]
        self._breaks = breaks
        self._unclosed = () if bare else (block[0], *breaks)  # what ends a block without its end
        self._bare = bare
        self._landmarks = landmarks(syntax, () if bare else block)

    @cached_property
    def _lookahead(self) -> Lookahead:
        return Lookahead(self._syntax, self._block, self._breaks, self._tools, self._bare)

    def flow(self) -> Callable[[str], object] | None:
        if self._value is None or not self._value.streams:
            return None
        if self._state == self._in_cdata:
            return without("]")
        return self._landmarks.flow if self._state == self._in_value else None

    def may_end(self, rest: str) -> bool:
        return self._lookahead.waits

    def end(self, out: list[Delta]) -> None:
        """Where the turn ends behind the block's end, though a value is open, its call alone fails."""
        if self._value is not None and self._lookahead.waits:
            call = self._open_call()
            call.problem = call.problem or self._no_end(self._value)
            self._end_value()
            self._end_call("", 0, out)
        super().end(out)

    def hint(self) -> str:
        if self._value is None or not (rejected := self._lookahead.rejected):
            return ""
        return (
            f"the value of {self._value.name!r} did not end at its {self._syntax.argument_end}, because {rejected!r} "
            f"follows; an argument, {self._syntax.call_end} or the block's end may follow"
        )

    # States, as in `Steps`.

    def _between(self, text: str, position: int, out: list[Delta]) -> int:
        while (stop := self._take_whole(self._landmarks.whole, text, position, out)) > position:
            if self._bare:
                self.done = True
                return stop - len(self._syntax.call_end)
            position = stop
        position = skip_space(text, position)
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
        if self.calls and text.startswith(self._unclosed, position):
            self.done = True
            return position
        tag = self._syntax.match(self._syntax.call, text, position)
        if isinstance(tag, Tag):
            self._open_element(tag, text, position, out)
            return position + tag.length
        ends = (self._block_end, *self._unclosed) if self.calls else (self._block_end,)
        if tag == "undecided" or begins(text, position, *ends, *self._syntax.skipped, self._syntax.argument_end):
            self._wait = True
        elif text[position] != "<" and self.calls and not self._bare:
            self._state = self._prose
        else:
            if self.calls and text.startswith(self._syntax.argument_end, position):
                self.doubted |= {self.calls[-1].index}
            self._expected(f"{self._syntax.call}… or {self._block_end}", text, position)
        return position

    def _tool_name(self, written: str) -> str:
        half = written[: len(written) // 2]
        doubled = self._syntax.doubled and written == f"{half}.{half}" and written not in self._tools
        return half if doubled else written

    def _open_element(self, tag: Tag, text: str, position: int, out: list[Delta]) -> None:
        self._start_call(self._tool_name(tag.name), position, out)
        self._lookahead.stray = self._lost = False
        self._state = self._in_call
        if tag.empty:
            self._end_call(text, position + tag.length, out)

    def _in_call(self, text: str, position: int, out: list[Delta]) -> int:
        call, syntax = self._open_call(), self._syntax
        position = skip_space(text, position)
        if position == len(text):
            return position
        if self._lost:
            stop = self._skip_lost(call, text, position)
            if stop > position or self._wait:
                return stop
        if text.startswith(syntax.call_end, position):
            stop = position + len(syntax.call_end)
            self._end_call(text, stop, out)
            self.done = self._bare
            return position if self._bare else stop
        if text.startswith(self._block_end, position):
            return self._end_unclosed(text, position, out)
        if text.startswith(self._unclosed, position):
            # Never a call of which nothing says that it is whole.
            call.problem = call.problem or self._unended(call)
            self._end_call(text, position, out)
            self.done = True
            return position
        if not call.written and not call.arguments and not self._lost and text[position] == "{":
            self._start_json()
            call.notes.append("json_arguments")
            self._state = self._in_json
            return position
        argument = syntax.match(syntax.argument, text, position)
        if isinstance(argument, Tag) and not call.written:
            self._start_value(call, argument)
            return position + argument.length
        following = syntax.match(syntax.call, text, position)
        between = text.startswith(syntax.skipped, position)  # no call holds that
        if isinstance(following, Tag) or between:
            self.done = self._bare
            return self._end_unclosed(text, position, out)
        begun = begins(text, position, syntax.call_end, self._block_end, *self._unclosed, *syntax.skipped)
        if "undecided" in (argument, following) or begun:
            self._wait = True
        else:
            self._expected(f"{syntax.argument}… or {syntax.call_end}", text, position)
        return position

    def recover(self) -> bool:
        """A call in which something cannot be read fails alone, and so does one whose tag cannot be read."""
        problem = self.problem
        if problem is None or problem.code != "invalid_xml":
            return False
        if self._call is None:
            self._call = OpenCall("", None, self.problem_offset)
        self._call.problem = self._call.problem or problem
        self.problem, self._lost, self._depth, self._state = None, True, 0, self._in_call
        return True

    def _skip_lost(self, call: OpenCall, text: str, position: int) -> int:
        """Behind what could not be read in a call: up to an argument or the call's own end. A call that begins in
        between may be part of a value whose tag could not be read: it never runs."""
        syntax, ends = self._syntax, (self._syntax.call_end, self._block_end)
        if text[position] != "<":
            at = text.find("<", position)
            return at if at >= 0 else len(text)
        inner = syntax.match(syntax.call, text, position)
        if isinstance(inner, Tag) or text.startswith(self._unclosed[:1], position):
            self._depth += 1
        elif self._depth and text.startswith(ends, position):
            self._depth -= 1
        elif not self._depth and text.startswith((*ends, *self._unclosed, *syntax.skipped), position):
            return position
        else:
            argument = syntax.match(syntax.argument, text, position)
            if isinstance(argument, Tag) and not self._depth and not call.written:
                return position
            begun = begins(text, position, *ends, *self._unclosed, *syntax.skipped)
            if "undecided" in (inner, argument) or begun:
                self._wait = True
                return position
        at = text.find("<", position + 1)
        return at if at >= 0 else len(text)

    def _end_unclosed(self, text: str, position: int, out: list[Delta]) -> int:
        call = self._open_call()
        call.notes.append("missing_closer")
        if self._bare or self._lookahead.stray or not (call.arguments or call.written):
            call.problem = call.problem or self._unended(call)
        self._end_call(text, position, out)
        return position

    def _whole_value(self, spec: ToolSpec | None, name: str, said: str, text: str) -> JSON | Problem:
        explicit, types = explicit_type(said), value_types(spec, name, self._syntax.guesses)
        if name in self._syntax.wrappers and explicit != "string":
            return Problem("wrapped", "all arguments may be in it")
        text = text.removesuffix("\n") if self._syntax.trims else text
        return text if _streams(types, explicit) else read_value(text, types, explicit, self.caps)

    def _unended(self, call: OpenCall) -> Problem:
        reason = f"the call of {shorten(call.name)!r} has no end; write {self._syntax.call_end} before the next one"
        return Problem("unclosed", reason)

    def _in_json(self, text: str, position: int, out: list[Delta]) -> int:
        """A call whose body is one JSON object in place of elements."""
        stop = self._take_json(text, position, out)
        if self._scanner.done:
            self._state = self._in_call
        return stop

    def _start_value(self, call: OpenCall, tag: Tag) -> None:
        types = value_types(call.spec, tag.name, self._syntax.guesses)
        wrapper = tag.name in self._syntax.wrappers and tag.explicit != "string"
        wrapper = wrapper and call.spec is not None and not has_argument(call.spec, tag.name)
        streams = not wrapper and _streams(types, tag.explicit)
        held = wrapper or (not streams and (tag.explicit != "" or "string" not in types))
        self._value = _Value(tag.name, types, tag.explicit, streams, held, wrapper)
        self._lookahead.start_value()
        # A wrapper's own name is only said if its value turns out to be none.
        self._start_argument(tag.name, said=not wrapper)
        if streams:
            self._say('"')
        self._state = self._value_start
        if tag.empty:
            self._end_value()

    def _value_start(self, text: str, position: int, out: list[Delta]) -> int:
        """White space before a CDATA section is no part of the value; before anything else it is."""
        value = self._open_value()
        stop = skip_space(text, position)
        if stop - position < MAX_CANDIDATE and (stop == len(text) or begins(text, stop, CDATA)):
            self._wait = True
            return position
        if stop - position < MAX_CANDIDATE and text.startswith(CDATA, stop):
            self._state = self._in_cdata
            if "string" in value.types and value.explicit == "" and not value.wrapper:
                value.explicit = "string"
                self._let_go(value)
            return stop + len(CDATA)
        self._state = self._in_value
        if not self._syntax.trims:
            return position
        value.crlf = text.startswith("\r\n", position)
        return position + (2 if value.crlf else text[position] == "\n")

    def _in_value(self, text: str, start: int, out: list[Delta]) -> int:
        syntax, call, value = self._syntax, self._open_call(), self._open_value()
        landmarks, position = self._landmarks, start
        while (found := landmarks.tags.search(text, position)) is not None:
            at = found.start()
            cut = syntax.line_break(text, start, at, value.crlf)
            alone = not syntax.trims or cut < at or (at == start and not self._text.length)
            given = (value.name, *call.arguments)
            half = found[0] == syntax.argument and syntax.cut_end(self._last(text, start, at))
            outcome = self._lookahead.outcome(text, at, found[0], alone, half, given, call.spec)
            if outcome == "content":
                position = at + 1
                continue
            if self._grow(text, start, cut):
                return cut
            if outcome == "undecided":
                self._wait = True
                return cut
            if outcome == "open":
                call.notes.append("missing_closer")
            if outcome == "broken" or (outcome == "open" and syntax.ends_unread(self._text.value())):
                call.problem = call.problem or self._no_end(value)
            self._end_value()
            return found.end() if outcome == "closed" else at
        hold = landmarks.hold_from(text, max(position, start), value.crlf)
        if not self._grow(text, start, hold):
            self._wait = hold < len(text)
        return hold

    def _last(self, text: str, start: int, stop: int) -> str:
        """The end of the value in front of text[stop]."""
        held = max(0, self._text.length - MAX_CANDIDATE)
        return (self._text.since(held) if stop - start < MAX_CANDIDATE else "") + text[start:stop][-MAX_CANDIDATE:]

    def _no_end(self, value: _Value) -> Problem:
        reason = self.hint() or f"the value of {value.name!r} has no end; write {self._syntax.argument_end} behind it"
        return Problem("unclosed", f"{reason}; a text that holds such tags goes into {CDATA}…{CDATA_END}")

    def _in_cdata(self, text: str, start: int, out: list[Delta]) -> int:
        position = start
        while (at := text.find("]", position)) >= 0:
            rest = text[at : at + MAX_CANDIDATE]
            if rest.startswith(CDATA_END + CDATA):
                stop = at + len(CDATA_END + CDATA)
                return at if self._grow(text, start, at) else stop
            after = skip_space(rest, len(CDATA_END))
            ended = rest.startswith(CDATA_END)
            if ended and rest.startswith(self._syntax.argument_end, after):
                if not self._grow(text, start, at):
                    self._end_value()
                return at + after + len(self._syntax.argument_end)
            wait = ended and (after == len(rest) or begins(rest, after, self._syntax.argument_end, CDATA))
            if (wait and len(rest) < MAX_CANDIDATE) or begins(rest, 0, CDATA_END):
                self._wait = not self._grow(text, start, at)
                return at
            position = at + 1
        self._grow(text, start, len(text))
        return len(text)

    def _grow(self, text: str, start: int, stop: int) -> bool:
        """Takes a piece of the value; True if it has grown too large."""
        value = self._open_value()
        self._content(text, start, stop, said=value.streams)
        if not (value.streams or value.held) and stop > start:
            lean = leaning(self._text.value(), value.types)
            if lean == "text":
                self._let_go(value)
            value.held = lean == "other"
        return self.problem is not None

    def _let_go(self, value: _Value) -> None:
        """A value that could have been something else is text for certain."""
        if not value.streams:
            value.streams, value.held = True, False
            self._say('"' + string_text(self._text.value()))

    def _end_value(self) -> None:
        value, text = self._open_value(), self._text.value()
        if self._lookahead.torn and self._syntax.lacks_start(text):
            # A value whose start tag was lost would be run as a part of this one.
            call = self._open_call()
            call.problem = call.problem or self._no_end(value)
        self._value, self._state = None, self._in_call
        if value.wrapper:
            if self._unwrap(value.name, text):
                return
            self._start_argument(value.name)
        read = text if value.streams else read_value(text, value.types, value.explicit, self.caps)
        self._keep(value.name, text, read, streamed=value.streams)

    def _unwrap(self, name: str, text: str) -> bool:
        """All arguments in one object, under a name that is none of the tool's: taken for the arguments."""
        call, read = self._open_call(), read_other(text, frozenset({"object"}), self.caps)
        inner = as_mapping(None if isinstance(read, Problem) else read)
        if call.spec is None or not inner or call.arguments or not inner.keys() <= argument_schemas(call.spec).keys():
            return False
        call.notes.append(f"arguments_key:{name}")
        for key, each in inner.items():
            self._start_argument(key)
            self._keep(key, "", each, streamed=False)
        return True

    def _expected(self, what: str, text: str, position: int) -> None:
        inside = f"the call of {shorten(self._call.name)}" if self._call else "the block"
        self._fail("invalid_xml", f"expected {what} in {inside}, found {text[position]!r}", position)

    def _open_value(self) -> _Value:
        assert self._value is not None, "a value outside of an argument is our bug"
        return self._value
