"""The state machine that reads calls whose arguments are text between tags, and finds where each value ends.

A value is text, byte for byte, up to its end tag, and may hold tags. The effect of a tag on the value around it:

    tag            in the value                    in a call that began in it   in an argument of that call
    argument_end   ends it, if `_may_follow`       as in the value              ends the inner argument
    call_end       ends the call, if `_call_ends`  ends the inner call          ends the inner call
    argument       `_argument_begins`              begins an inner argument     begins an inner argument
    call           begins an inner call            begins one in that           begins one in that
    block          begins an inner block           likewise                     likewise
    block_end      `_block_ends`                   of an inner block: ends it   likewise

So a whole call in a value is text. If a call ends before its value does, the call is ambiguous and fails alone.
`<![CDATA[…]]>` holds any text. A family of dialects defines the tags (`ValueTags`), what begins or ends at a tag
(`_event`), and the states between values (`_between`, `_in_call`). Every decision needs at most `MAX_CANDIDATE`
characters after a tag.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Literal

from toolspeak.data.deltas import Delta
from toolspeak.dialects.readers.body import skip_space
from toolspeak.dialects.readers.open_call import CallSteps, OpenCall, string_text, without
from toolspeak.dialects.readers.open_value import NestingCounts, OpenValue, ValueEvent, ValueRules, ValueTags
from toolspeak.dialects.readers.tagged_values import CDATA, CDATA_END, Explicit, begins_json, is_text, read_value
from toolspeak.dialects.text.block_delimiters import begins, stands
from toolspeak.dialects.text.scan import MAX_CANDIDATE, JsonScanner, Problem, shorten
from toolspeak.dialects.text.typed_text import Types, admits_argument

MayFollow = Literal["yes", "no", "undecided"]
ValueEnd = Literal["content", "joint", "closed", "open", "broken", "undecided"]
"""The effect of a tag on its value.

- `content`: the tag is a part of the value.
- `joint`: one CDATA section ends and the next begins.
- `closed`: the value ends.
- `open`: the value ends without its end tag.
- `broken`: the value ends at an unknown place, so its call fails.
- `undecided`: more characters are needed.
"""

_JOINT = CDATA_END + CDATA
_GOES_ON = re.compile(r"[^\W_]|\|")  # the rest of a tag, or a value without its tags
_ONE_CALL = frozenset({"invalid_call", "invalid_xml"})


def no_call_end(call: OpenCall, end: str) -> Problem:
    """The problem of a call in which another one begins. Its missing part is unknown, so it never runs."""
    return Problem("unclosed", f"the call of {shorten(call.name)!r} has no end; write {end} before the next one")


class TaggedCalls(CallSteps):
    """A body of calls whose arguments are text between tags.

    `signs`: the tags at which reading continues after an unreadable part, so that its call fails alone. Without signs
    the whole body fails.
    """

    rules = ValueRules()
    signs: Mapping[str, ValueEvent] = {}
    _gap: Callable[[str, int], int] = staticmethod(skip_space)  # skips what may be between tags
    _value: OpenValue | None = None
    _unread_inside = NestingCounts()  # what is open after an unreadable part
    _stray = False  # whether a value of the open call holds an end tag that ended nothing

    # What a family defines.

    @abstractmethod
    def _in_call(self, text: str, position: int, out: list[Delta]) -> int:
        """The state between values."""

    @abstractmethod
    def _event(self, value: OpenValue, rest: str, literal: str) -> ValueEvent:
        """What begins or ends at the start of `rest`, which is `literal`: one of the value's tags, or its beginning."""

    @abstractmethod
    def _may_follow(self, rest: str, position: int) -> MayFollow:
        """Whether rest[position:], after an end tag and white space, may follow a value."""

    @abstractmethod
    def _call_ends(self, rest: str) -> MayFollow:
        """Whether the text after the call's end tag, which begins `rest`, may only follow a call."""

    def _argument_begins(self, value: OpenValue, text: str, start: int, at: int) -> ValueEnd:
        """The effect of an argument's start tag at text[at] on the open value, whose text continues at `start`."""
        value.inside.argument = True
        return "content"

    def _block_ends(self, rest: str) -> ValueEnd:
        """The effect of the block's end tag, which begins `rest`, on the open value."""
        return "content"

    def _is_missing(self, value: OpenValue, name: str) -> bool:
        """Whether the open call may have an argument of this name and does not have one yet."""
        call = self._open_call()
        present = name == value.name or name in call.arguments
        return not present and (call.spec is None or admits_argument(call.spec, name))

    def _name_following(self, rest: str, position: int) -> str:
        """The name, for messages, of the text at rest[position:], which may not follow a value."""
        return "text"

    def _no_end(self, value: OpenValue) -> Problem:
        """The problem of a value with an unknown end."""
        if value.following_end:
            return self._rejected_end(value)
        return Problem("unclosed", f"the value of {shorten(value.name)!r} has no end; write {value.tags.end} after it")

    def _rejected_end(self, value: OpenValue) -> Problem:
        reason = f"the value of {shorten(value.name)!r} did not end at its {value.tags.end}, because text follows it"
        return Problem("invalid_value", reason)

    # The machine.

    def flow(self) -> Callable[[str], object] | None:
        value = self._value
        if value is None or not value.streams:
            return None
        if value.cdata:
            return None if value.following_end else without("]")
        return value.tags.flow if self._state == self._in_value else None

    def _expect(self, text: str, position: int, tags: tuple[str, ...]) -> tuple[str | None, int]:
        """The tag after white space, and its position. Empty if none of these tags is there; None if more
        characters are needed."""
        stop = self._gap(text, position)
        tag = stands(text, stop, tags)
        self._wait = tag is None
        return tag, stop

    def _end_block(self, position: int, example: str = "") -> None:
        if self.calls:
            self.is_complete = True
        else:
            self._fail("empty_batch", f"the block holds no call{example and f'; write {example}'}", position)

    def _no_call(self, reason: str, text: str, position: int) -> None:
        """Handles text between calls that is neither a call nor the block's end."""
        if self.calls and text[position] != "<":
            self._state = self._prose
        else:
            self._fail("invalid_call", reason, position)

    def recover(self) -> bool:
        """Lets a call with an unreadable part, or an unreadable tag, fail alone."""
        problem = self.problem
        if not self.signs or problem is None or problem.code not in _ONE_CALL:
            return False
        if self._call is None:
            self._call = OpenCall("", None, self.problem_offset)
        self._call.problem = self._call.problem or problem
        self.problem, self._unread_inside, self._state = None, NestingCounts(), self._unread
        return True

    def _unread(self, text: str, position: int, out: list[Delta]) -> int:
        """Skips the first character of the unreadable part."""
        self._state = self._skip_lost
        return position + 1

    def _skip_lost(self, text: str, position: int, out: list[Delta]) -> int:
        """Skips to an argument or to the call's end. A call that begins in between may be part of an unreadable value,
        so it never runs."""
        first = next(iter(self.signs))[0]
        at = text.find(first, position)
        while at >= 0:
            event = self._sign(text, at)
            if event == "undecided":
                self._wait = True
                return at
            inner = event != "block_end" and (self._unread_inside.calls > 0 or self._unread_inside.blocks > 0)
            if not (event == "content" or self._unread_inside.take(event) or inner):
                self._state = self._in_call
                return at
            at = text.find(first, at + 1)
        return len(text)

    def _sign(self, text: str, at: int) -> ValueEvent:
        """What begins or ends at text[at], after an unreadable part."""
        sign = stands(text, at, tuple(self.signs))
        return "undecided" if sign is None else self.signs.get(sign, "content")

    def _start_value(
        self, name: str, tags: ValueTags, types: Types, *, explicit: Explicit = "", buffered: bool = False
    ) -> None:
        # The name of a possible wrapper is only sent if its value is an ordinary one.
        self._start_argument(name, visible=not buffered)
        self._begin_text(OpenValue(name, tags, types, explicit, buffered))

    def _begin_text(self, value: OpenValue) -> None:
        text = is_text(value.types) if value.explicit == "" else value.explicit == "string" and "string" in value.types
        self._value, self._state = value, self._value_start
        if text and not value.buffered:
            self._stream(value)

    def _value_start(self, text: str, position: int, out: list[Delta]) -> int:
        """Begins the value's text. White space is part of the value unless a CDATA section follows."""
        value, stop = self._open_value(), skip_space(text, position)
        near = stop - position < MAX_CANDIDATE
        if near and (stop == len(text) or begins(text, stop, CDATA)):
            self._wait = True
            return position
        self._state = self._in_value
        if near and text.startswith(CDATA, stop):
            value.cdata = True
            if "string" in value.types and value.explicit == "" and not value.buffered:
                value.explicit = "string"
                self._stream(value)
            return stop + len(CDATA)
        if "string" in value.types and not (value.streams or value.explicit or value.buffered):
            first = text[position if self.rules.reading == "exact" else stop : stop + 1]
            if begins_json(first, value.types):
                value.scanner = JsonScanner(self.caps, depth=2)
            else:
                self._stream(value)
        if not self.rules.trims:
            return position
        value.crlf = text.startswith("\r\n", position)
        return position + (2 if value.crlf else text[position] == "\n")

    def _in_value(self, text: str, start: int, out: list[Delta]) -> int:
        value = self._open_value()
        tags, position = value.tags, start
        while (match := tags.find(text, position, value)) is not None:
            at, position = match.start(), match.end()
            if match[0] == "]":
                outcome, stop = self._section_ends(value, text, at)
            else:
                outcome = self._outcome(value, text, start, at, match[0])
                if outcome == "closed" and value.cdata:
                    continue  # the section must end first
                stop = tags.match_end(text, at) if outcome == "closed" else at
            if outcome == "content":
                continue
            value_end = at if value.cdata else tags.line_break(text, start, at, value.crlf)
            if self._grow(value, text, start, value_end):
                return value_end
            if outcome == "undecided":
                self._wait = True
                return value_end
            if outcome == "joint":
                return stop
            self._close_value(value, outcome)
            return stop
        hold = tags.hold_from(text, max(position, start), value)
        if not self._grow(value, text, start, hold):
            self._wait = hold < len(text)
        return hold

    def _section_ends(self, value: OpenValue, text: str, at: int) -> tuple[ValueEnd, int]:
        """The effect of a bracket in a CDATA section, and the end of what it begins."""
        rest = text[at : at + MAX_CANDIDATE]
        if rest.startswith(_JOINT):
            return "joint", at + len(_JOINT)
        if begins(rest, 0, _JOINT):
            return "undecided", at
        if not rest.startswith(CDATA_END):
            return "content", at
        after = skip_space(rest, len(CDATA_END))
        stop = value.tags.match_end(rest, after)
        if stop <= 0:
            return "undecided" if stop == 0 and len(rest) < MAX_CANDIDATE else "content", at
        if value.inside.take("argument_end"):
            return "content", at
        after += at
        return self._value_ends(value, text[after : after + MAX_CANDIDATE]), at + stop

    def _outcome(self, value: OpenValue, text: str, start: int, at: int, literal: str) -> ValueEnd:
        """The effect of the tag at text[at], as in the table at the top of this file."""
        rest = text[at : at + MAX_CANDIDATE]
        event = self._event(value, rest, literal)
        if event == "undecided":
            return "undecided" if len(rest) < MAX_CANDIDATE else "content"
        if event == "content" or value.inside.take(event):
            return "content"
        match event:
            case "argument_end":
                return self._value_ends(value, rest)
            case "argument":
                return self._argument_begins(value, text, start, at)
            case "call_end":
                answer = self._call_ends(rest)
                if answer == "yes":
                    return "open" if self.rules.mends and not self._stray else "broken"
                self._stray = self._stray or answer == "no"
                outcome: ValueEnd = "content" if answer == "no" else "undecided"
            case _:
                outcome = self._block_ends(rest)
        return "content" if outcome == "undecided" and len(rest) == MAX_CANDIDATE else outcome

    def _value_ends(self, value: OpenValue, rest: str) -> ValueEnd:
        """Whether the value's end tag, which begins `rest`, ends it: only text that may follow a value may follow."""
        stop = value.tags.match_end(rest, 0)
        position, full = skip_space(rest, stop), len(rest) == MAX_CANDIDATE
        answer: MayFollow = "undecided" if position == len(rest) else self._may_follow(rest, position)
        if answer == "undecided" and full:
            answer = "yes" if position == len(rest) else "no"
        if answer == "no":
            self._stray = True
            value.following_end = value.following_end or self._name_following(rest, position)
            continues = self.rules.tears == "word" and _GOES_ON.match(rest, stop) is not None
            value.may_be_torn = value.may_be_torn or continues or _ends_line(rest, stop)
            return "content"
        return "closed" if answer == "yes" else "undecided"

    def _grow(self, value: OpenValue, text: str, start: int, stop: int) -> bool:
        """Takes a piece of the value. Returns whether the value is too large."""
        stop = self._content(text, start, stop, visible=value.streams)
        if value.scanner is not None and stop > start:
            length = value.scanner.feed(text[start:stop], 0)
            after = text[start + length : stop]
            after = after if self.rules.reading == "exact" else after.strip()
            if value.scanner.problem is not None or after:
                self._stream(value)
        return self.problem is not None

    def _stream(self, value: OpenValue) -> None:
        """Marks the value as certainly text, and sends its text so far."""
        if not value.streams:
            value.streams, value.scanner = True, None
            self._add_fragment('"' + string_text(self._text.value()))

    def _close_value(self, value: OpenValue, outcome: ValueEnd) -> None:
        if outcome == "broken":
            call = self._open_call()
            call.problem = call.problem or self._no_end(value)
        self._end_value()

    def _end_value(self) -> None:
        value, text = self._open_value(), self._text.value()
        is_torn = value.may_be_torn and self.rules.tears != "never"
        if is_torn and text.count(value.tags.end) > text.count(value.tags.start):
            # A value without its start tag would be part of this one.
            call = self._open_call()
            call.problem = call.problem or self._no_end(value)
        self._value, self._state = None, self._in_call
        self._store(value, text)

    def _store(self, value: OpenValue, text: str) -> None:
        read = text if value.streams else read_value(text, value.types, value.explicit, self.caps, self.rules.reading)
        self._keep(value.name, text, read, streamed=value.streams)

    def _open_value(self) -> OpenValue:
        assert self._value is not None, "a value outside of an argument is our bug"
        return self._value


def _ends_line(text: str, position: int) -> bool:
    """Whether the rest of the line is empty or starts with a tag."""
    stop = skip_space(text, position)
    return "\n" in text[position:stop] or text.startswith("<", stop)
