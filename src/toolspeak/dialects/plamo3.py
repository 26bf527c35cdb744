"""PLaMo 3: tags of the form `<|plamo:begin_…:plamo|>` around each call's name and its JSON arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from toolspeak.data.deltas import ArgumentsDelta, CallCompleted, CallMalformed, CallStarted, Delta
from toolspeak.data.messages import MalformedCall, ToolCall, ToolResult
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.body import Body
from toolspeak.dialects.declared import Calls, DeclaredDialect, Tools
from toolspeak.dialects.grammar.json_frames import named_call
from toolspeak.dialects.grammar.turn import Frame
from toolspeak.dialects.markers import Marker, MarkerTable
from toolspeak.dialects.raw_values import stands
from toolspeak.dialects.render import dump_json, marker_prefix, result_text
from toolspeak.dialects.scan import MAX_CANDIDATE, Buffer, Caps, JsonScanner, Problem, decode_json
from toolspeak.dialects.typed_text import as_mapping


def _tags(name: str) -> tuple[str, str]:
    return f"<|plamo:begin_{name}:plamo|>", f"<|plamo:end_{name}:plamo|>"


_BLOCK, _BLOCK_END = _tags("tool_requests")
_CALL, _CALL_END = _tags("tool_request")
_NAME, _NAME_END = _tags("tool_name")
_ARGUMENTS, _ARGUMENTS_END = _tags("tool_arguments")
_THINK, _THINK_END = _tags("think")
_MESSAGE, _CONSTRAINED = "<|plamo:msg|>", "<|plamo:constrain|>json<|plamo:msg|>"
_LIVE = marker_prefix(("|plamo:",))
_SPACE = re.compile(r"\s*")
_NAME_TEXT = re.compile(r"[^<]*")

_State = Callable[[str, int, list[Delta]], int]


class PlamoCalls(Body):
    """Implements `Body`; argument text leaves as it comes."""

    def __init__(self, first_index: int, caps: Caps) -> None:
        super().__init__(caps)
        self._index = first_index
        self._base = 0  # the body's offset of the current chunk's character 0
        self._from = 0  # where the open call's raw text starts in the current chunk
        self._wait = False  # the state needs more characters behind those it did not take
        self._name = ""
        self._raw: Buffer | None = None  # of the open call
        self._offset = 0
        self._scanner = JsonScanner(caps)
        self._text = Buffer(caps.characters)
        self._complete = False  # nothing but end tags may come before the next call
        # The tags that may stand here, and the state each leads to.
        self._after_call: Mapping[str, _State] = {_CALL: self._open, _BLOCK_END: self._close}
        self._expected = self._after_call
        self._state: _State = self._tag

    def feed(self, text: str, start: int, out: list[Delta]) -> int:
        position, end = start, len(text)
        self._base, self._from, self._wait = self.raw.length - start, start, False
        while position < end and not (self.done or self._wait or self.problem):
            position = self._state(text, position, out)
        self.raw.add(text[start:position])
        if self._raw is not None:
            self._raw.add(text[self._from : position])
        return position

    def end(self, out: list[Delta]) -> None:
        self.done = self._complete

    def may_end(self, rest: str) -> bool:
        return self._complete and any(tag.startswith(rest) for tag in self._expected if tag != _CALL)

    # States, as in `blocks`; `_wait` asks for the same text again with more behind it.

    def _tag(self, text: str, position: int, out: list[Delta]) -> int:
        found = _SPACE.match(text, position)
        stop = found.end() if found else position
        if stop == len(text):
            return stop
        tag = stands(text, stop, tuple(self._expected))
        if tag is None:
            self._wait = True
        elif tag:
            return self._expected[tag](text, stop, out) if tag == _BLOCK_END else self._enter(tag, text, stop, out)
        else:
            self._fail("invalid_call", f"expected {' or '.join(self._expected)}", stop)
        return stop

    def _enter(self, tag: str, text: str, position: int, out: list[Delta]) -> int:
        self._expected[tag](text, position, out)
        return position + len(tag)

    def _expect(self, expected: Mapping[str, _State]) -> None:
        self._expected, self._state = expected, self._tag

    def _close(self, text: str, position: int, out: list[Delta]) -> int:
        if self.calls:
            self.done = True
        else:
            self._fail("empty_batch", f"the block holds no call; write {_CALL}", position)
        return position

    def _open(self, text: str, position: int, out: list[Delta]) -> int:
        self._raw, self._from, self._offset = Buffer(self.caps.characters), position, self._base + position
        self._complete = False
        self._expect({_NAME: self._open_name})
        return position

    def _open_name(self, text: str, position: int, out: list[Delta]) -> int:
        self._state = self._read_name
        return position

    def _read_name(self, text: str, position: int, out: list[Delta]) -> int:
        found = _NAME_TEXT.match(text, position, position + MAX_CANDIDATE)
        stop = found.end() if found else position
        tag = stands(text, stop, (_NAME_END,)) if stop < len(text) else None
        if tag is None:
            self._wait = True
        elif not tag or not text[position:stop].strip():
            self._fail("no_name", f"expected the tool's name, then {_NAME_END}", position)
        else:
            self._name = text[position:stop].strip()
            out.append(CallStarted(self._index, self._name))
            self._expect({_ARGUMENTS: self._open_arguments})
            return stop + len(tag)
        return position

    def _open_arguments(self, text: str, position: int, out: list[Delta]) -> int:
        self._expect({_CONSTRAINED: self._open_json, _MESSAGE: self._open_json})
        return position

    def _open_json(self, text: str, position: int, out: list[Delta]) -> int:
        self._scanner, self._text = JsonScanner(self.caps, depth=2), Buffer(self.caps.characters)
        self._state = self._read_json
        return position

    def _read_json(self, text: str, position: int, out: list[Delta]) -> int:
        stop = self._scanner.feed(text, position)
        room = self.caps.characters - self._text.length
        if stop - position > room:
            stop = position + room
            self._fail("too_large", f"the arguments are over {self.caps.characters} characters", stop)
        elif self._scanner.problem is not None:
            self._fail(self._scanner.problem.code, self._scanner.problem.reason, stop - self._scanner.back)
        self._text.add(text[position:stop])
        if stop > position:
            out.append(ArgumentsDelta(self._index, text[position:stop]))
        if self.problem is not None:
            return stop
        if self._scanner.done:
            self._end_arguments(text, stop, out)
        return stop

    def _end_arguments(self, text: str, stop: int, out: list[Delta]) -> None:
        raw = self._raw or Buffer(self.caps.characters)
        raw.add(text[self._from : stop])
        value, problem = decode_json(self._text.value()), None
        if isinstance(value, Problem):
            problem = value
        elif not isinstance(value, Mapping):
            problem = Problem("arguments_not_object", "the arguments must be a JSON object")
        if problem is None:
            delta: CallCompleted | CallMalformed = CallCompleted(self._index, self._name, as_mapping(value))
        else:
            shown = raw.value() + _ARGUMENTS_END + _CALL_END
            delta = CallMalformed(self._index, shown, problem.code, problem.reason, self._offset, self._name)
        out.append(delta)
        self.calls.append(delta)
        self._index += 1
        self._raw, self._complete = None, True
        self._expect({_ARGUMENTS_END: self._close_arguments})

    def _close_arguments(self, text: str, position: int, out: list[Delta]) -> int:
        self._expect({_CALL_END: self._close_call})
        return position

    def _close_call(self, text: str, position: int, out: list[Delta]) -> int:
        self._expect(self._after_call)
        return position

    def _fail(self, code: str, reason: str, position: int) -> None:
        self.problem, self.problem_offset = Problem(code, reason), self._base + position


def _new_body(_marker: Marker, first_index: int, caps: Caps, _tools: Tools) -> Body:
    return PlamoCalls(first_index, caps)


def _write_calls(calls: Calls, _tools: Tools) -> str:
    whole = next((call for call in calls if isinstance(call, MalformedCall) and call.whole_block), None)
    body = whole.raw if whole is not None else "".join(_write_call(call) for call in calls)
    return f"{_BLOCK}{body}{_BLOCK_END}"


def _write_call(call: ToolCall | MalformedCall) -> str:
    if isinstance(call, MalformedCall):
        return call.raw
    name = f"{_NAME}{call.name}{_NAME_END}"
    arguments = f"{_ARGUMENTS}{_CONSTRAINED}{dump_json(call.arguments, _LIVE)}{_ARGUMENTS_END}"
    return f"{_CALL}{name}{arguments}{_CALL_END}"


def _write_results(results: Sequence[ToolResult]) -> str:
    return "\n".join(result_text(result, _LIVE) for result in results)


PLAMO3 = DeclaredDialect(
    info=DialectInfo(
        "plamo3",
        "<|plamo:begin_tool_request:plamo|> with the tool's name and its JSON arguments in tags of their own",
        "tool and reasoning parsers that Preferred Networks publishes with pfnet/plamo-3",
        "parallel",
        models=("plamo-3",),
        results="the text of a tool turn",
        reasoning=_THINK,
        stop=("<|plamo:tag|>",),
    ),
    table=MarkerTable(
        [
            Marker("calls", _BLOCK, _BLOCK_END),
            Marker("reasoning", _THINK, _THINK_END),
            Marker("noise", "<|plamo:tag|>", None),
        ]
    ),
    new_body=_new_body,
    write_calls=_write_calls,
    write_results=_write_results,
    live=_LIVE,
    frame=Frame(
        call=named_call(
            _LIVE,
            lambda name: f"{_CALL}{_NAME}{name}{_NAME_END}{_ARGUMENTS}{_CONSTRAINED}",
            f"{_ARGUMENTS_END}{_CALL_END}",
        ),
        start=_BLOCK,
        end=_BLOCK_END,
    ),
    rules="- The arguments are one strict JSON object; one request element for each call, all in one block.",
)
