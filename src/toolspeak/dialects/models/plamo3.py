"""PLaMo 3: tags of the form `<|plamo:begin_…:plamo|>` around each call's name and its JSON arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import MalformedCall, ToolCall
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import Calls, DeclaredDialect, Tools
from toolspeak.dialects.grammar.json_frames import named_call
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.prompts.rendering import dump_json, marker_prefix
from toolspeak.dialects.readers.body import ReaderState, known_name, skip_space
from toolspeak.dialects.readers.open_call import CallSteps, OpenCall
from toolspeak.dialects.text.block_delimiters import begins, stands
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.dialects.text.scan import MAX_CANDIDATE, Caps, JsonScanner


def _tags(name: str) -> tuple[str, str]:
    return f"<|plamo:begin_{name}:plamo|>", f"<|plamo:end_{name}:plamo|>"


_BLOCK, _BLOCK_END = _tags("tool_requests")
_CALL, _CALL_END = _tags("tool_request")
_NAME, _NAME_END = _tags("tool_name")
_ARGUMENTS, _ARGUMENTS_END = _tags("tool_arguments")
_THINK, _THINK_END = _tags("think")
_MESSAGE, _JSON_MESSAGE = "<|plamo:msg|>", "<|plamo:constrain|>json<|plamo:msg|>"
_LIVE = marker_prefix(("|plamo:",))
_REQUEST_ENDS = (_CALL_END, _CALL, _BLOCK_END)
_REQUEST_END = re.compile("|".join(map(re.escape, _REQUEST_ENDS)))
_NAME_TEXT = re.compile(r"[^<]*")


class PlamoCalls(CallSteps):
    """Implements `Body`. Streams the arguments."""

    def __init__(self, tools: Tools, first_index: int, caps: Caps) -> None:
        super().__init__(tools, first_index, caps)
        self._start = 0  # the body's offset of the open call
        self._complete = False  # nothing but end tags may come before the next call
        # The tags that may come next, and the state that each leads to.
        self._after_call: Mapping[str, ReaderState] = {_CALL: self._open, _BLOCK_END: self._close}
        self._expected = self._after_call

    def end(self, out: list[Delta]) -> None:
        self.is_complete = self._complete
        if self._complete and self._call is not None:
            missing = (_ARGUMENTS_END if _ARGUMENTS_END in self._expected else "") + _CALL_END
            self._base = self.raw.length
            self._end_call(missing, len(missing), out)

    def recover(self) -> bool:
        """Turns an unreadable request into one malformed call, up to its end tag or a tag that may follow one."""
        if self._expected is self._after_call and self._call is None:
            return False
        call = self._call or OpenCall("", None, self._start)
        call.problem, self.problem = call.problem or self.problem, None
        self._call, self._scanner, self._complete, self._state = call, JsonScanner(self.caps), False, self._skip_request
        return True

    def _skip_request(self, text: str, position: int, out: list[Delta]) -> int:
        end = _REQUEST_END.search(text, position)
        if end is None:
            at = max(position, len(text) - len(_BLOCK_END))
            stop = next((at for at in range(at, len(text)) if begins(text, at, *_REQUEST_ENDS)), len(text))
            self._wait = stop < len(text)
            return stop
        stop = end.end() if end[0] == _CALL_END else end.start()
        self._end_call(text, stop, out)
        self._expect(self._after_call)
        return stop

    def may_end(self, rest: str) -> bool:
        return self._complete and any(tag.startswith(rest) for tag in self._expected if tag != _CALL)

    # States, as in `blocks`; `_wait` asks for the same text again with more after it.

    def _between(self, text: str, position: int, out: list[Delta]) -> int:
        """Between tags: an expected tag comes next."""
        stop = skip_space(text, position)
        if stop == len(text):
            return stop
        tag = stands(text, stop, tuple(self._expected))
        if tag is None:
            self._wait = True
        elif tag:
            return self._expected[tag](text, stop, out) if tag == _BLOCK_END else self._enter(tag, text, stop, out)
        elif self._expected is self._after_call and self.calls and text[stop] != "<":
            self._state = self._prose
        else:
            self._fail("invalid_call", f"expected {' or '.join(self._expected)}", stop)
        return stop

    def _enter(self, tag: str, text: str, position: int, out: list[Delta]) -> int:
        self._expected[tag](text, position, out)
        return position + len(tag)

    def _expect(self, expected: Mapping[str, ReaderState]) -> None:
        self._expected, self._state = expected, self._between

    def _close(self, text: str, position: int, out: list[Delta]) -> int:
        if self.calls:
            self.is_complete = True
        else:
            self._fail("empty_batch", f"the block holds no call; write {_CALL}", position)
        return position

    def _open(self, text: str, position: int, out: list[Delta]) -> int:
        self._start = position + self._base
        self._complete = False
        self._expect({_NAME: self._open_name})
        return position

    def _open_name(self, text: str, position: int, out: list[Delta]) -> int:
        self._state = self._read_name
        return position

    def _read_name(self, text: str, position: int, out: list[Delta]) -> int:
        match = _NAME_TEXT.match(text, position, position + MAX_CANDIDATE)
        stop = match.end() if match else position
        tag = stands(text, stop, (_NAME_END,)) if stop < len(text) else None
        if tag is None:
            self._wait = True
        elif not tag or not text[position:stop].strip():
            self._fail("no_name", f"expected the tool's name, then {_NAME_END}", position)
        else:
            self._start_call(known_name(text[position:stop].strip(), self._tools), self._start - self._base, out)
            self._expect({_ARGUMENTS: self._open_arguments})
            return stop + len(tag)
        return position

    def _open_arguments(self, text: str, position: int, out: list[Delta]) -> int:
        self._expect({_JSON_MESSAGE: self._open_json, _MESSAGE: self._open_json})
        return position

    def _open_json(self, text: str, position: int, out: list[Delta]) -> int:
        self._start_json()
        self._state = self._read_json
        return position

    def _read_json(self, text: str, position: int, out: list[Delta]) -> int:
        stop = self._take_json(text, position, out)
        if self._scanner.is_complete and self.problem is None:
            self._complete = True
            self._expect({_ARGUMENTS_END: self._close_arguments})
        return stop

    def _close_arguments(self, text: str, position: int, out: list[Delta]) -> int:
        self._expect({_CALL_END: self._close_call})
        return position

    def _close_call(self, text: str, position: int, out: list[Delta]) -> int:
        self._end_call(text, position + len(_CALL_END), out)
        self._expect(self._after_call)
        return position


def _write_calls(calls: Calls, _tools: Tools) -> str:
    whole = next((call for call in calls if isinstance(call, MalformedCall) and call.whole_block), None)
    body = whole.raw if whole is not None else "".join(_write_call(call) for call in calls)
    return f"{_BLOCK}{body}{_BLOCK_END}"


def _write_call(call: ToolCall | MalformedCall) -> str:
    if isinstance(call, MalformedCall):
        return call.raw
    name = f"{_NAME}{call.name}{_NAME_END}"
    arguments = f"{_ARGUMENTS}{_JSON_MESSAGE}{dump_json(call.arguments, _LIVE)}{_ARGUMENTS_END}"
    return f"{_CALL}{name}{arguments}{_CALL_END}"


PLAMO3 = DeclaredDialect(
    info=DialectInfo(
        "plamo3",
        "<|plamo:begin_tool_request:plamo|> with the tool's name and its JSON arguments in tags of their own",
        "tool and reasoning parsers that Preferred Networks publishes with pfnet/plamo-3",
        models=("plamo-3",),
        results="the text of a tool turn",
        reasoning=_THINK,
        stop=("<|plamo:tag|>",),
    ),
    table=MarkerTable(
        [
            Marker("calls", _BLOCK, _BLOCK_END),
            Marker("reasoning", _THINK, _THINK_END),
            Marker("noise", _THINK_END, None),  # the end of reasoning that never began
        ],
        specials=("<|plamo:tag|>",),
        common_start="<|plamo:",
    ),
    new_body=lambda _marker, first, caps, tools: PlamoCalls(tools, first, caps),
    write_calls=_write_calls,
    live=_LIVE,
    frame=Frame(
        call=named_call(
            _LIVE,
            lambda name: f"{_CALL}{_NAME}{name}{_NAME_END}{_ARGUMENTS}{_JSON_MESSAGE}",
            f"{_ARGUMENTS_END}{_CALL_END}",
        ),
        start=_BLOCK,
        end=_BLOCK_END,
    ),
    rules="- The arguments are one strict JSON object; one request element for each call, all in one block.",
)
