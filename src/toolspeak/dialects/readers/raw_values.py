"""What the readers of raw argument values share: `pair_calls`, `kimi_k3` and `xml_calls`.

A value is text, byte for byte, up to its end tag, and the end tag counts only if white space and something that may
follow a value come next, and if it does not end what began in the value: a whole call in a value is text. Where the
call ends though its value has not, nobody can tell the two apart: that call alone fails. Where the types admit a string
alone the text leaves as it comes; where they admit other values too, text that is JSON of such a type is that value,
and it is held back no longer than it may be JSON. A value that begins with `<![CDATA[` is the text of its CDATA
sections: so the renderer writes a string that would else be read as something else.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON
from toolspeak.dialects.prompts.rendering import dump_json
from toolspeak.dialects.readers.loose_values import read_other
from toolspeak.dialects.readers.reader_states import CallSteps, OpenCall, ends_line, skip_space, string_text, without
from toolspeak.dialects.text.end_marker import begins, stands
from toolspeak.dialects.text.scan import MAX_CANDIDATE, Buffer, Caps, JsonScanner, Problem, shorten
from toolspeak.dialects.text.typed_text import Types, read_typed

CDATA, CDATA_END = "<![CDATA[", "]]>"
_JOINT = CDATA_END + CDATA
TEXT = Types({"string"})
Answer = Literal["yes", "no", "undecided"]
Landmark = Literal["call", "argument", "call_end", "content", "undecided"]
"""What stands in a value: the beginning of a whole call or of an argument, or a call's end."""
_JSON_STARTS = frozenset("{[-0123456789tfn")  # of a value that is no string


def read_value(text: str, types: Types, caps: Caps) -> JSON | Problem:
    """The value of a text. Where a string is admitted among others, JSON of another type is what it says, exactly
    as the models' templates write it; all other text is a string."""
    if "string" not in types:
        return read_other(text, types, caps)
    others = types - TEXT
    if not others or text in types.literals or text[:1] not in _JSON_STARTS or text[-1:].isspace():
        return text
    value = read_typed(text, others, False, caps)
    return text if isinstance(value, Problem) else value


def write_value(value: JSON, types: Types, end: EndTag, caps: Caps) -> str:
    """What `read_value` reads back: text as it is, other values as JSON, CDATA where text would be misread."""
    if not isinstance(value, str):
        return dump_json(value, re.compile(f"<(?={re.escape(end.text[1:])})"))
    if end.stands_in(value) or value.startswith(CDATA) or read_value(value, types, caps) != value:
        return CDATA + value.replace(CDATA_END, f"]]{CDATA_END}{CDATA}>") + CDATA_END
    return value


def _beginning(mark: str) -> str:
    """The pattern of a text that more characters may make the mark of."""
    return "(?:".join(map(re.escape, mark[:-1])) + ")?" * (len(mark) - 2)


_GOES_ON = re.compile(r"[^\W_]|\|")  # the rest of a tag, or a value whose tags were lost


class EndTag:
    """How a value's end tag is found in its text. `loose`: white space may stand in front of its `>`. `around` is how
    other tags begin that say whether it ends the value."""

    __slots__ = ("_anchor", "_loose", "_marks", "_stands", "flow", "start", "text")

    def __init__(self, text: str, around: tuple[str, ...], *, loose: bool = False) -> None:
        self.text = text
        self.start = text.replace("</", "<", 1).replace("<|close|>", "<|open|>", 1).removesuffix("<|sep|>")
        self._loose = loose
        self._anchor = text[:-1] if loose else text
        marks = (self._anchor, *around)
        literals = "|".join(map(re.escape, marks))
        self._stands = re.compile(literals)
        self._marks = re.compile(rf"{literals}|(?:{'|'.join(map(_beginning, marks))})\Z")
        self.flow = without("<", "".join(dict.fromkeys(mark[1] for mark in marks)))

    def stands_in(self, value: str) -> bool:
        """Whether a text holds it, or one of the tags around it."""
        return self._stands.search(value) is not None

    def find(self, text: str, position: int) -> int:
        """Where it, or a tag around it, may begin next; -1 for nowhere in this text."""
        found = self._marks.search(text, position)
        return found.start() if found else -1

    def match(self, text: str, at: int) -> int:
        """Where the tag that begins at `at` ends; 0 if more characters are needed to tell, -1 if there is none."""
        if not text.startswith(self._anchor, at):
            return 0 if begins(text, at, self._anchor) else -1
        stop = at + len(self._anchor)
        if not self._loose:
            return stop
        stop = skip_space(text, stop)
        if stop - at >= MAX_CANDIDATE:
            return -1
        return 0 if stop == len(text) else stop + 1 if text[stop] == ">" else -1

    def match_cdata(self, text: str, at: int, *, spaced: bool) -> int:
        """The same for the tag behind the end of a CDATA section at `at`."""
        if not text.startswith(CDATA_END, at):
            return 0 if begins(text, at, CDATA_END) else -1
        after = at + len(CDATA_END)
        after = skip_space(text, after) if spaced else after
        if after - at >= MAX_CANDIDATE:
            return -1
        return 0 if after == len(text) or begins(text, at, _JOINT) else self.match(text, after)


@dataclass(slots=True)
class OpenValue:
    """The value being read. `scanner` is there while it may be JSON or a string; `streams`: it is a string.
    `explicit`: the model said that it is JSON. `rejected`: what followed an end tag that was passed over, which
    is `torn` if that was another tag, or what may be left of one, or a line break. `calls` and
    `argument`: how many calls began in it, and whether an argument did, that have not ended."""

    name: str
    end: EndTag
    types: Types
    pending: Buffer  # a possible end tag and the white space behind it; in front of a value the white space
    explicit: bool = False
    streams: bool = False
    scanner: JsonScanner | None = None
    cdata: bool = False
    rejected: str = ""
    torn: bool = False
    calls: int = 0
    argument: bool = False


class RawValues(CallSteps):
    """A body whose calls hold raw values. A subclass reads what stands between them: its states call `_start_call`,
    `_start_value` and `_end_call`, and `_in_call` is where a value's end leads.

    `spaced`: white space may stand around CDATA sections. `tears`: a value in which an end tag that nothing opened ends
    a line, or a tag or a word follows it, may be two: its call fails. `signs` are how an argument and a call begin, and
    how a call and the block end, in a block of which a call that cannot be read fails alone.
    """

    spaced = False
    tears = False
    signs: tuple[str, str, str, str] | None = None
    _value: OpenValue | None = None
    _depth = 0  # calls that began behind what could not be read

    def flow(self) -> Callable[[str], object] | None:
        value = self._value
        if value is None or not value.streams or self._state != self._in_value:
            return None
        if value.cdata:
            return None if value.rejected else without("]")
        return value.end.flow

    def recover(self) -> bool:
        """A call in which something cannot be read fails alone, and so does one whose beginning cannot be read."""
        problem = self.problem
        if self.signs is None or problem is None or problem.code != "invalid_call":
            return False
        if self._call is None:
            self._call = OpenCall("", None, self.problem_offset)
        self._call.problem = self._call.problem or problem
        self.problem, self._depth, self._state = None, 0, self._lost
        return True

    def _lost(self, text: str, position: int, out: list[Delta]) -> int:
        """Behind what could not be read, which stands here."""
        self._state = self._skip_lost
        return position + 1

    def _skip_lost(self, text: str, position: int, out: list[Delta]) -> int:
        """Up to an argument, or the call's own end. A call that begins in between may be part of a value whose tags
        could not be read: it never runs."""
        assert self.signs is not None, "only a body with signs recovers"
        argument, call, call_end, block_end = self.signs
        at = text.find("<", position)
        while at >= 0:
            sign = stands(text, at, self.signs)
            if sign == call:
                self._depth += 1
            elif sign == call_end and self._depth:
                self._depth -= 1
            elif sign == block_end or (sign in (argument, call_end) and not self._depth):
                self._state = self._in_call
                return at
            elif sign is None:
                self._wait = True
                return at
            at = text.find("<", at + 1)
        return len(text)

    @abstractmethod
    def _in_call(self, text: str, position: int, out: list[Delta]) -> int:
        """The state between values."""

    @abstractmethod
    def _may_follow(self, text: str, position: int) -> Answer:
        """Whether what stands at `position` may follow a value."""

    @abstractmethod
    def _landmark(self, value: OpenValue, text: str, at: int) -> Landmark:
        """What begins at `at`. An argument counts if it stands in a call that began in the value, or where the value
        may have ended: behind an end tag that was passed over, or if it is one that the open call has not got yet."""

    @abstractmethod
    def _gives_up(self, text: str, position: int) -> Answer:
        """Whether behind the call's end tag, which stands here, follows what can only follow a call: the value has no
        end, or was closed in vain, and only this call should fail."""

    @abstractmethod
    def _in_vain(self, value: OpenValue) -> Problem:
        """What the model should know of a value that was closed in vain."""

    def _rejected(self, text: str, position: int) -> str:
        """What stands there, which may not follow a value."""
        return "text"

    def _start_value(self, name: str, end: EndTag, types: Types, *, explicit: bool = False) -> None:
        self._start_argument(name)
        self._value = OpenValue(name, end, types, Buffer(self.caps.characters), explicit)
        self._state = self._value_start

    def _value_start(self, text: str, position: int, out: list[Delta]) -> int:
        """White space in front of a CDATA section is no part of the value; in front of anything else it is."""
        value, stop = self._open_value(), skip_space(text, position) if self.spaced else position
        value.pending.add(text[position:stop])
        if value.pending.overflown:
            over = value.pending.length - self.caps.characters
            return self._fail("too_large", f"an argument is over {self.caps.characters} characters", stop - over)
        if stop == len(text):
            return stop
        if begins(text, stop, CDATA):
            self._wait = True
            return stop
        value.cdata = text.startswith(CDATA, stop)
        if value.cdata:
            value.pending, stop = Buffer(self.caps.characters), stop + len(CDATA)
        if "string" in value.types and not value.explicit:
            may_be_json = not value.cdata and value.types != TEXT and text[stop] in _JSON_STARTS
            if may_be_json:
                value.scanner = JsonScanner(self.caps, depth=2)
            else:
                self._stream(value)
        self._release(value)
        self._state = self._in_value
        return stop

    def _in_value(self, text: str, position: int, out: list[Delta]) -> int:
        value, start = self._open_value(), position
        while (at := self._next(value, text, position)) >= 0:
            if value.cdata and text[at] == "]":
                if text.startswith(_JOINT, at):
                    stop = self._pass(value, text, start, at)
                    return stop if self.problem else at + len(_JOINT)
                ended = value.end.match_cdata(text, at, spaced=self.spaced)
            else:
                ended = -1 if value.cdata else value.end.match(text, at)
            if ended > 0 and value.argument:
                value.argument, position = False, ended
                continue
            if ended > 0:
                stop = self._pass(value, text, start, at)
                if self.problem is None:
                    value.pending.add(text[at:ended])
                    self._state, stop = self._after_value, ended
                return stop
            given_up = self._ends_call(value, text, at)
            if given_up == "yes":
                return self._abandon(value, text, start, at)
            if given_up == "undecided" or ended == 0:
                self._wait = True
                return self._pass(value, text, start, at)
            position = at + 1
        return self._pass(value, text, start, len(text))

    def _next(self, value: OpenValue, text: str, position: int) -> int:
        """Where something may stand that `_in_value` looks at; -1 for nowhere."""
        if value.cdata:
            first = text.find("]", position)
            other = text.find("<", position) if value.rejected else -1
            return min(first, other) if first >= 0 and other >= 0 else max(first, other)
        return value.end.find(text, position)

    def _ends_call(self, value: OpenValue, text: str, at: int) -> Answer:
        """Whether the call ends here, and not one that began in the value."""
        mark: Landmark = "content" if value.cdata and not value.rejected else self._landmark(value, text, at)
        if mark == "argument":
            value.argument = True
        elif mark == "call":
            value.calls, value.argument = value.calls + 1, False
        elif mark == "call_end" and value.calls:
            value.calls, value.argument = value.calls - 1, False
        elif mark == "call_end":
            return self._gives_up(text, at)
        return "undecided" if mark == "undecided" else "no"

    def _abandon(self, value: OpenValue, text: str, start: int, at: int) -> int:
        stop, call = self._pass(value, text, start, at), self._open_call()
        unclosed = f"the value of {shorten(value.name)!r} has no end; write {value.end.text} behind it"
        call.problem = call.problem or (self._in_vain(value) if value.rejected else Problem("unclosed", unclosed))
        self._value, self._state = None, self._in_call
        return stop

    def _after_value(self, text: str, position: int, out: list[Delta]) -> int:
        """Behind a possible end tag: it counts only if what follows may follow a value."""
        value, stop = self._open_value(), skip_space(text, position)
        value.pending.add(text[position:stop])
        if stop == len(text):
            return stop
        answer = self._may_follow(text, stop)
        if answer == "undecided":
            self._wait = True
        elif answer == "yes":
            self._end_value()
        else:
            value.rejected = value.rejected or self._rejected(text, stop)
            tag, behind = len(value.end.text), value.pending.value() + text[stop : stop + 1]
            value.torn = value.torn or ends_line(behind, tag) or bool(_GOES_ON.match(behind, tag))
            self._release(value)
            self._state = self._in_value
        return stop

    def _pass(self, value: OpenValue, text: str, start: int, stop: int) -> int:
        """Takes a piece of the value, as `_content` does; text that can be no JSON any more is a string."""
        stop = self._content(text, start, stop, said=value.streams)
        if value.scanner is not None and stop > start:
            taken = value.scanner.feed(text[start:stop], 0)
            if value.scanner.problem is not None or taken < stop - start:
                value.scanner = None
                self._stream(value)
        return stop

    def _release(self, value: OpenValue) -> None:
        """What was pending belongs to the value."""
        pending, value.pending = value.pending.value(), Buffer(self.caps.characters)
        self._pass(value, pending, 0, len(pending))

    def _stream(self, value: OpenValue) -> None:
        value.streams = True
        self._say('"' + string_text(self._text.value()))

    def _end_value(self) -> None:
        value, text = self._open_value(), self._text.value()
        if self.tears and value.torn and not value.cdata and text.count(value.end.text) > text.count(value.end.start):
            call = self._open_call()
            call.problem = call.problem or self._in_vain(value)
        read = text if value.streams else self._read(value, text)
        self._keep(value.name, text, read, streamed=value.streams)
        self._value, self._state = None, self._in_call

    def _read(self, value: OpenValue, text: str) -> JSON | Problem:
        """What a value is that is no text for certain."""
        return read_value(text, value.types, self.caps)

    def _open_value(self) -> OpenValue:
        assert self._value is not None, "a value outside of an argument is our bug"
        return self._value
