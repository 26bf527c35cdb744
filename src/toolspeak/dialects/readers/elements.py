"""Reads calls in elements whose tags carry the name: `<function=f><parameter=k>v</parameter></function>`,
`<invoke name="f"><parameter name="k">v</parameter></invoke>`, and DSML.

Values are text, byte for byte; some dialects drop one line break on each side. An end tag ends a value if a known
sibling, the call's end or the block's end follows, and if it does not end an element that began in the value: a whole
call in a value is text. `<![CDATA[…]]>` holds any text.

A value without an end tag ends at a sibling's start tag, or at the call's end before another call or the block's
end. It is noted as `missing_closer`. If the end of a value is ambiguous, its call is malformed, and the next call is
read.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON, as_mapping
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.readers.body import skip_space
from toolspeak.dialects.readers.element_tags import ElementSyntax, ElementTag, explicit_type, value_tags, whole_element
from toolspeak.dialects.readers.loose_values import read_other
from toolspeak.dialects.readers.open_call import OpenCall
from toolspeak.dialects.readers.open_value import OpenValue, ValueEvent
from toolspeak.dialects.readers.tagged_calls import MayFollow, TaggedCalls, ValueEnd, no_call_end
from toolspeak.dialects.readers.tagged_values import CDATA, CDATA_END, is_text, read_value, value_types
from toolspeak.dialects.text.block_delimiters import begins
from toolspeak.dialects.text.scan import MAX_CANDIDATE, Caps, Problem, shorten
from toolspeak.dialects.text.typed_text import argument_schemas, has_argument


class ElementCalls(TaggedCalls):
    """Implements `Body`.

    `block`: the markers around the calls. With `bare`, the end is the end tag of the only call.
    `breaks`: texts that, like another start of a block, end a block without its end marker.
    """

    _has_unreadable_part = False  # in the open call; the following text may belong to it
    _waits = False  # the text ends after a block's end marker in a value

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
        self._syntax, self.rules = syntax, syntax.rules
        self._block, self._block_end = block, block[1]
        self._breaks = breaks
        self._block_breaks = () if bare else (block[0], *breaks)  # what ends a block without its end marker
        self._bare = bare
        self._value_tags = value_tags(syntax, () if bare else block)
        self._whole = whole_element(syntax, () if bare else block)
        self.signs = {syntax.call_end: "call_end", self._block_end: "block_end"}

    def may_end(self, rest: str) -> bool:
        return self._waits

    def end(self, out: list[Delta]) -> None:
        """Ends the turn. If the block's end marker came while a value was open, that call alone fails."""
        if self._value is not None and self._waits:
            call = self._open_call()
            call.problem = call.problem or self._no_end(self._value)
            self._end_value()
            self._end_call("", 0, out)
        super().end(out)

    def hint(self) -> str:
        if self._value is None or not (following := self._value.following_end):
            return ""
        return (
            f"the value of {self._value.name!r} did not end at its {self._syntax.argument_end}, because {following!r} "
            f"follows; an argument, {self._syntax.call_end} or the block's end may follow"
        )

    # Tags in a value.

    def _event(self, value: OpenValue, rest: str, literal: str) -> ValueEvent:
        syntax, self._waits = self._syntax, False
        if literal == syntax.argument_end:
            return "argument_end"
        if literal == syntax.call_end:
            return "call_end"
        if literal == syntax.argument:
            tag = syntax.match(syntax.argument, rest, 0)
            if isinstance(tag, ElementTag):
                return "content" if tag.empty and value.inside.calls else "argument"
            return tag or "content"
        if literal == syntax.call:
            verdict, event = self._begins_call(rest, 0), "call"
        elif literal == self._block[0]:
            verdict, event = self._begins_block(rest, 0), "block"
        else:
            return "block_end"
        return event if verdict == "yes" else "content" if verdict == "no" else "undecided"

    def _may_follow(self, rest: str, position: int) -> MayFollow:
        """Whether the text after a value's end tag may follow a value: an argument, or the call's or block's end.

        The tool need not know the argument: otherwise the value would swallow it. The start of another call may follow
        too, although this call has no end.
        """
        syntax, first = self._syntax, position
        position = self._skip(rest, first) if rest.startswith("<", first) else first
        if position == len(rest):
            return "undecided" if len(rest) < MAX_CANDIDATE else "yes"
        ends = (syntax.call_end, self._block_end, *self._breaks)
        if rest.startswith(ends, position) or position > first:
            return "yes"
        tag, block, call = (
            syntax.match(syntax.argument, rest, position),
            self._starts_block(rest, position),
            self._begins_call(rest, position),
        )
        if isinstance(tag, ElementTag) or block == "yes" or call == "yes":
            return "yes"
        if rest.startswith(syntax.argument.rstrip("="), position) and (tag is None or len(rest) >= MAX_CANDIDATE):
            return "yes"  # an unreadable tag, at which the call fails
        may_begin = begins(rest, position, *ends, *syntax.fillers)
        return "undecided" if "undecided" in (tag, block, call) or may_begin else "no"

    def _call_ends(self, rest: str) -> MayFollow:
        """Whether the call ends here with its last value open: the block's end or another call follows."""
        syntax, position = self._syntax, self._skip(rest, len(self._syntax.call_end))
        if self._bare:
            open_ = (position == len(rest) or begins(rest, position, *syntax.fillers)) and len(rest) < MAX_CANDIDATE
            return "undecided" if open_ else self._begins_call(rest, position)
        block = self._starts_block(rest, position)
        if rest.startswith((self._block_end, *self._breaks), position) or block == "yes":
            return "yes"
        tag = syntax.match(syntax.call, rest, position)
        if isinstance(tag, ElementTag):
            return "yes" if not self._tools or tag.name in self._tools else "no"
        open_ = position == len(rest) or "undecided" in (tag, block)
        open_ = open_ or begins(rest, position, self._block_end, *self._breaks, *syntax.fillers)
        return "undecided" if open_ else "no"

    def _block_ends(self, rest: str) -> ValueEnd:
        """The block ends here with a value open if another block begins after its end marker."""
        position = skip_space(rest, len(self._block_end))
        self._waits = position == len(rest) < MAX_CANDIDATE
        if position == len(rest):
            return "undecided"
        if rest.startswith(self._breaks, position):
            return "broken"
        answer = self._begins_block(rest, position)
        if answer == "no" and not begins(rest, position, *self._breaks):
            return "content"
        return "broken" if answer == "yes" else "undecided"

    def _skip(self, rest: str, position: int) -> int:
        """The position after white space and the texts without meaning between calls."""
        position = skip_space(rest, position)
        while (filler := next((each for each in self._syntax.fillers if rest.startswith(each, position)), "")) != "":
            position = skip_space(rest, position + len(filler))
        return position

    def _starts_block(self, rest: str, position: int) -> MayFollow:
        """Whether the next block starts here with a call, although this block has no end marker."""
        if self._bare:
            return "no"
        if not rest.startswith(self._block[0], position):
            return "undecided" if begins(rest, position, self._block[0]) else "no"
        position = self._skip(rest, position + len(self._block[0]))
        tag = self._syntax.match(self._syntax.call, rest, position)
        open_ = position == len(rest) or tag == "undecided" or begins(rest, position, *self._syntax.fillers)
        return "yes" if isinstance(tag, ElementTag) else "undecided" if open_ else "no"

    def _begins_block(self, rest: str, position: int) -> MayFollow:
        """Whether a block begins here with a call that has an argument or an end."""
        verdict = self._starts_block(rest, position)
        if verdict != "yes":
            return verdict
        return self._begins_call(rest, self._skip(rest, position + len(self._block[0])))

    def _begins_call(self, rest: str, position: int) -> MayFollow:
        """Whether a call begins here with an argument or its end. A lone start tag may be a mention."""
        syntax = self._syntax
        tag = syntax.match(syntax.call, rest, position)
        if not isinstance(tag, ElementTag) or tag.empty:
            return "undecided" if tag == "undecided" else "no"
        position = skip_space(rest, position + tag.length)
        if rest.startswith(syntax.call_end, position):
            return "yes"
        argument = syntax.match(syntax.argument, rest, position)
        if isinstance(argument, ElementTag):
            return "yes"
        open_ = argument == "undecided" or position == len(rest) or begins(rest, position, syntax.call_end)
        return "undecided" if open_ else "no"

    def _argument_begins(self, value: OpenValue, text: str, start: int, at: int) -> ValueEnd:
        """An argument that the call does not have yet ends the value before it, which has no end tag."""
        syntax = self._syntax
        if syntax.cut_end(self._last(text, start, at)):
            return "broken"
        tag = syntax.match(syntax.argument, text, at)
        line = value.tags.line_break(text, start, at, value.crlf) < at or (at == start and not self._text.length)
        if not isinstance(tag, ElementTag) or not (self._stray or line or not syntax.trims):
            return "content"
        if not self._is_missing(value, tag.name):
            return "content"
        return "broken" if self._stray else "open"

    def _last(self, text: str, start: int, stop: int) -> str:
        """The end of the value before text[stop]."""
        start_offset = max(0, self._text.length - MAX_CANDIDATE)
        return (self._text.since(start_offset) if stop - start < MAX_CANDIDATE else "") + text[start:stop][
            -MAX_CANDIDATE:
        ]

    def _name_following(self, rest: str, position: int) -> str:
        return rest[position]

    def _no_end(self, value: OpenValue) -> Problem:
        reason = self.hint() or f"the value of {value.name!r} has no end; write {self._syntax.argument_end} after it"
        return Problem("unclosed", f"{reason}; a text that holds such tags goes into {CDATA}…{CDATA_END}")

    def _close_value(self, value: OpenValue, outcome: ValueEnd) -> None:
        if outcome == "open":
            self._open_call().notes.append("missing_closer")
            outcome = "broken" if self._syntax.ends_unread(self._text.value()) else outcome
        super()._close_value(value, outcome)

    def _store(self, value: OpenValue, text: str) -> None:
        if value.buffered:
            if self._unwrap(value.name, text):
                return
            self._start_argument(value.name)
        super()._store(value, text)

    # States, as in `StateBody`.

    def _between(self, text: str, position: int, out: list[Delta]) -> int:
        while (stop := self._take_whole(self._whole, text, position, out)) > position:
            if self._bare:
                self.is_complete = True
                return stop - len(self._syntax.call_end)
            position = stop
        position = skip_space(text, position)
        if position == len(text):
            return position
        for literal in self._syntax.fillers:
            if text.startswith(literal, position):
                return position + len(literal)
        if text.startswith(self._block_end, position) and not self._bare:
            self._end_block(position)
            return position
        if self.calls and text.startswith(self._block_breaks, position):
            self.is_complete = True
            return position
        tag = self._syntax.match(self._syntax.call, text, position)
        if isinstance(tag, ElementTag):
            self._open_element(tag, text, position, out)
            return position + tag.length
        ends = (self._block_end, *self._block_breaks) if self.calls else (self._block_end,)
        if tag == "undecided" or begins(text, position, *ends, *self._syntax.fillers, self._syntax.argument_end):
            self._wait = True
        elif text[position] != "<" and self.calls and not self._bare:
            self._state = self._prose
        else:
            if self.calls and text.startswith(self._syntax.argument_end, position):
                self.doubtful_calls |= {self.calls[-1].index}
            self._expected(f"{self._syntax.call}… or {self._block_end}", text, position)
        return position

    def _tool_name(self, name: str) -> str:
        half = name[: len(name) // 2]
        is_doubled = self._syntax.doubled and name == f"{half}.{half}" and name not in self._tools
        return half if is_doubled else name

    def _open_element(self, tag: ElementTag, text: str, position: int, out: list[Delta]) -> None:
        self._start_call(self._tool_name(tag.name), position, out)
        self._stray = self._has_unreadable_part = False
        self._state = self._in_call
        if tag.empty:
            self._end_call(text, position + tag.length, out)

    def _in_call(self, text: str, position: int, out: list[Delta]) -> int:
        call, syntax = self._open_call(), self._syntax
        position = skip_space(text, position)
        if position == len(text):
            return position
        if self._has_unreadable_part and self._sign(text, position) in ("call", "block"):
            self._state = self._skip_lost
            return position
        if text.startswith(syntax.call_end, position):
            stop = position + len(syntax.call_end)
            self._end_call(text, stop, out)
            self.is_complete = self._bare
            return position if self._bare else stop
        if text.startswith(self._block_end, position):
            return self._end_unclosed(text, position, out)
        if text.startswith(self._block_breaks, position):
            # A call without a sign that it is complete never runs.
            call.problem = call.problem or no_call_end(call, self._syntax.call_end)
            self._end_call(text, position, out)
            self.is_complete = True
            return position
        if not call.is_json and not call.arguments and text[position] == "{":
            self._start_json()
            call.notes.append("json_arguments")
            self._state = self._in_json
            return position
        argument = syntax.match(syntax.argument, text, position)
        if isinstance(argument, ElementTag) and not call.is_json:
            self._open_argument(call, argument)
            return position + argument.length
        following = syntax.match(syntax.call, text, position)
        between = text.startswith(syntax.fillers, position)  # no call holds such text
        if isinstance(following, ElementTag) or between:
            self.is_complete = self._bare
            return self._end_unclosed(text, position, out)
        may_begin = begins(text, position, syntax.call_end, self._block_end, *self._block_breaks, *syntax.fillers)
        if "undecided" in (argument, following) or may_begin:
            self._wait = True
        else:
            self._expected(f"{syntax.argument}… or {syntax.call_end}", text, position)
        return position

    def recover(self) -> bool:
        recovers = super().recover()
        if recovers:
            self._has_unreadable_part, self._state = True, self._skip_lost  # an argument may begin here
        return recovers

    def _sign(self, text: str, at: int) -> ValueEvent:
        syntax = self._syntax
        inner, argument = (syntax.match(opener, text, at) for opener in (syntax.call, syntax.argument))
        if isinstance(inner, ElementTag):
            return "call"
        if text.startswith(self._block_breaks[:1], at):
            return "block"
        if isinstance(argument, ElementTag):
            return "content" if self._open_call().is_json else "argument"
        if text.startswith(syntax.call_end, at):
            return "call_end"
        if text.startswith(self._block_end, at):
            return "block_end"
        if text.startswith((*self._block_breaks, *syntax.fillers), at):
            return "content" if self._unread_inside.calls or self._unread_inside.blocks else "block_end"
        ends = (syntax.call_end, self._block_end, *self._block_breaks, *syntax.fillers)
        return "undecided" if "undecided" in (inner, argument) or begins(text, at, *ends) else "content"

    def _end_unclosed(self, text: str, position: int, out: list[Delta]) -> int:
        call = self._open_call()
        call.notes.append("missing_closer")
        if self._bare or self._stray or not (call.arguments or call.is_json):
            call.problem = call.problem or no_call_end(call, self._syntax.call_end)
        self._end_call(text, position, out)
        return position

    def _whole_value(self, spec: ToolSpec | None, name: str, type_text: str, text: str) -> JSON | Problem:
        explicit, types = explicit_type(type_text), value_types(spec, name, self._syntax.guesses)
        if name in self._syntax.wrappers and explicit != "string":
            return Problem("wrapped", "all arguments may be in it")
        text = text.removesuffix("\n") if self._syntax.trims else text
        return text if is_text(types) and not explicit else read_value(text, types, explicit, self.caps)

    def _in_json(self, text: str, position: int, out: list[Delta]) -> int:
        """Reads one JSON object that replaces a call's elements."""
        stop = self._take_json(text, position, out)
        if self._scanner.is_complete:
            self._state = self._in_call
        return stop

    def _open_argument(self, call: OpenCall, tag: ElementTag) -> None:
        types = value_types(call.spec, tag.name, self._syntax.guesses)
        wrapper = tag.name in self._syntax.wrappers and tag.explicit != "string"
        wrapper = wrapper and call.spec is not None and not has_argument(call.spec, tag.name)
        self._start_value(tag.name, self._value_tags, types, explicit=tag.explicit, buffered=wrapper)
        if tag.empty:
            self._end_value()

    def _unwrap(self, name: str, text: str) -> bool:
        """Takes the object in an argument that the tool does not know as all arguments. Returns whether it fits."""
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
