"""Kimi K3: `<|open|>tag attributes<|sep|>…<|close|>tag<|sep|>`, the type of every value in the text."""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON, MalformedCall, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import Calls, DeclaredDialect, Tools
from toolspeak.dialects.grammar.ir import COUNTER, Node, Rules, choice, series
from toolspeak.dialects.grammar.schema_rules import only
from toolspeak.dialects.grammar.text_frames import Argument, argument, in_order
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.prompt import EarlierThoughts
from toolspeak.dialects.prompts.rendering import dump_json, marker_prefix
from toolspeak.dialects.readers.body import skip_space
from toolspeak.dialects.readers.open_value import OpenValue, ValueEvent, ValueTags
from toolspeak.dialects.readers.pair_tags import KINDS
from toolspeak.dialects.readers.tagged_calls import MayFollow, TaggedCalls, no_call_end
from toolspeak.dialects.readers.tagged_values import TEXT, value_types, write_text
from toolspeak.dialects.text.block_delimiters import NEVER, Matches, followed_by, stands
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.dialects.text.scan import shorten
from toolspeak.dialects.text.typed_text import json_type, schema_types

_OPEN, _CLOSE, _SEP = "<|open|>", "<|close|>", "<|sep|>"
_CALL, _ARGUMENT, _JSON = f"{_OPEN}call", f"{_OPEN}argument", f"{_OPEN}json"
_ARGUMENT_END, _JSON_END, _CALL_END, _TOOLS_END = (
    f"{_CLOSE}{name}{_SEP}" for name in ("argument", "json", "call", "tools")
)
_VALUE_TAGS = ValueTags(_ARGUMENT_END, (_ARGUMENT, _CALL, _CALL_END), start=_ARGUMENT)
_VALUE_END = re.compile(f"<(?={re.escape(_ARGUMENT_END[1:])})")
_LIVE = marker_prefix((_OPEN[1:], _CLOSE[1:]))
_MAX_HEAD = 2048  # the escaped name of an argument, and the text around it
_HEAD = re.compile(r'<\|open\|>(\w+)((?:[^"<]|"[^"]*")*+)<\|sep\|>')
_HEAD_START = re.compile(r'<\|open\|>(?:[^"<]|"[^"]*")*+(?:"[^"]*|<[|sep]*)?')
_BARE = re.compile(r'tool="[^"<>]*"[^<>]*<\|sep\|>')  # for a call without the block around it
_BARE_START = re.compile(r"(?:t(?:oo?)?|tool(?:=[^<>]*+(?:<[|sep]*+)?)?)?")
_ATTRIBUTE = re.compile(r'([\w-]+)\s*=\s*"([^"]*)"')
_ATTRIBUTES = re.compile(r'(?:\s*+[\w-]++\s*+=\s*+"[^"]*")*+\s*+')
_SIGNS: Mapping[str, ValueEvent] = {
    _ARGUMENT: "argument",
    _CALL: "call",
    _CALL_END: "call_end",
    _TOOLS_END: "block_end",
}


class KimiCalls(TaggedCalls):
    """Implements `Body`. Streams text values."""

    signs = _SIGNS

    def _event(self, value: OpenValue, rest: str, literal: str) -> ValueEvent:
        if literal == _ARGUMENT_END:
            return "argument_end"
        if literal == _CALL_END:
            return "call_end"
        head = _HEAD.match(rest)
        if head is None:
            return "undecided" if _HEAD_START.fullmatch(rest) else "content"
        if head[1] == "call":
            after = stands(rest, skip_space(rest, head.end()), (_ARGUMENT, _CALL_END))
            return "undecided" if after is None else "call" if after else "content"
        key = dict(_ATTRIBUTE.findall(head[2])).get("key")
        if head[1] != "argument" or key is None:
            return "content"
        inside = value.following_end != "" or value.inside.calls > 0
        return "argument" if inside or self._is_missing(value, _unescape(key)) else "content"

    def _may_follow(self, rest: str, position: int) -> MayFollow:
        # The last two are mistakes there, but more likely a call that was not closed than content.
        tag = stands(rest, position, (_ARGUMENT, _CALL_END, _CALL, _TOOLS_END))
        return "undecided" if tag is None else "yes" if tag else "no"

    def _call_ends(self, rest: str) -> MayFollow:
        tag = stands(rest, skip_space(rest, len(_CALL_END)), (_CALL, _TOOLS_END))
        return "undecided" if tag is None else "yes" if tag else "no"

    # States, as in `blocks`; `wait` asks for the same text again with more after it.

    def _between(self, text: str, position: int, out: list[Delta]) -> int:
        tag, stop = self._expect(text, position, (_CALL, _TOOLS_END))
        if tag is None:
            return stop
        if tag == _TOOLS_END:
            self._end_block(stop, f'{_CALL} tool="…"{_SEP}')
        elif tag:
            head = self._head(text, stop, "call")
            if head is not None:
                attributes, length = head
                self._start_call(attributes.get("tool", ""), stop, out)
                self._state = self._in_call
                return stop + length
        else:
            self._no_call(f"expected {_CALL} or {_TOOLS_END}", text, stop)
        return stop

    def _in_call(self, text: str, position: int, out: list[Delta]) -> int:
        call = self._open_call()
        tag, stop = self._expect(text, position, (_ARGUMENT, _JSON, _CALL_END, _CALL, _TOOLS_END))
        if tag is None:
            return stop
        if tag == _CALL_END:
            self._end_call(text, stop + len(tag), out)
            return stop + len(tag)
        if tag == _TOOLS_END:
            call.notes.append("missing_closer")
            self._end_call(text, stop, out)
        elif tag == _CALL:
            call.problem = call.problem or no_call_end(call, _CALL_END)
            self._end_call(text, stop, out)
        elif tag and (call.is_json or (tag == _JSON and call.arguments)):
            self._fail("invalid_call", "arguments and a JSON object in one call, or two objects; write one", stop)
        elif tag:
            head = self._head(text, stop, tag.removeprefix(_OPEN))
            if head is not None and tag == _ARGUMENT and "key" not in head[0]:
                self._fail("invalid_call", f'an argument without its name; write {_ARGUMENT} key="…"', stop)
            elif head is not None:
                self._start(tag, head[0])
                return stop + head[1]
        else:
            self._fail("invalid_call", f"expected {_ARGUMENT} or {_CALL_END} in {shorten(call.name)!r}", stop)
        return stop

    def _start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag == _JSON:
            self._start_json()
            self._state = self._in_json
            return
        key = attributes.get("key", "")
        kinds = KINDS.get(attributes.get("type", ""))
        self._start_value(key, _VALUE_TAGS, kinds or value_types(self._open_call().spec, key, guesses=True))

    def _in_json(self, text: str, position: int, out: list[Delta]) -> int:
        stop = self._take_json(text, position, out)
        if self._scanner.is_complete:
            self._state = self._after_json
        return stop

    def _after_json(self, text: str, position: int, out: list[Delta]) -> int:
        tag, stop = self._expect(text, position, (_JSON_END,))
        if tag is None:
            return stop
        if tag:
            self._state = self._in_call
            return stop + len(tag)
        return self._fail("invalid_call", f"expected {_JSON_END} after the JSON object", stop)

    def _head(self, text: str, position: int, name: str) -> tuple[dict[str, str], int] | None:
        """A tag's attributes and length; None if more text is needed, or after a failure."""
        head = _HEAD.match(text, position, position + _MAX_HEAD)
        if head is not None and head[1] == name and _ATTRIBUTES.fullmatch(head[2]):
            pairs = {match[1]: _unescape(match[2]) for match in _ATTRIBUTE.finditer(head[2])}
            return pairs, head.end() - position
        rest = text[position : position + _MAX_HEAD]
        if head is None and len(rest) < _MAX_HEAD and _HEAD_START.fullmatch(rest):
            self._wait = True
        else:
            self._fail("invalid_call", f'a tag that cannot be read; write {_OPEN}{name} name="value"{_SEP}', position)
        return None


def _write_calls(calls: Calls, tools: Tools) -> str:
    whole = next((call for call in calls if isinstance(call, MalformedCall) and call.whole_block), None)
    if whole is not None:
        return f"{_OPEN}tools{_SEP}{whole.raw}{_TOOLS_END}"
    body = "".join(_write_call(call, i + 1) for i, call in enumerate(calls))
    return f"{_OPEN}tools{_SEP}{body}{_TOOLS_END}"


def _write_call(call: ToolCall | MalformedCall, number: int) -> str:
    if isinstance(call, MalformedCall):
        return call.raw
    arguments = "".join(_write_argument(name, value) for name, value in call.arguments.items())
    return f'{_CALL} tool="{_escape(call.name)}" index="{number}"{_SEP}{arguments}{_CALL_END}'


def _write_argument(name: str, value: JSON) -> str:
    kind = json_type(value)
    text = write_text(value, _VALUE_TAGS.pattern, TEXT) if isinstance(value, str) else dump_json(value, _VALUE_END)
    type_name = "number" if kind == "integer" else kind
    return f'{_ARGUMENT} key="{_escape(name)}" type="{type_name}"{_SEP}{text}{_ARGUMENT_END}'


def _call_node(spec: ToolSpec, rules: Rules) -> Node:
    """The layout of `_write_call` for grammars."""

    def argument_node(name: str, schema: JSON) -> Node:
        kinds = KINDS.keys() & schema_types(schema, spec.parameters)
        type_names = dict.fromkeys("number" if kind == "integer" else kind for kind in sorted(kinds))
        head = f'{_ARGUMENT} key="{_escape(name)}" type="'
        return choice(
            *(
                argument(spec, name, only(schema, kind, spec.parameters), rules, _how(f'{head}{kind}"{_SEP}', name))
                for kind in type_names
            )
        )

    opening = series(f'{_CALL} tool="{_escape(spec.name)}" index="', COUNTER, f'"{_SEP}')
    return series(opening, *in_order(spec, argument_node), _CALL_END)


def _how(opening: str, name: str) -> Argument:
    return Argument(
        text=opening,
        json=opening,
        explicit_json=None,
        end=_ARGUMENT_END,
        avoid=(_ARGUMENT, _CALL_END),
        write_fixed=lambda value: _write_argument(name, value),
    )


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;")


def _unescape(text: str) -> str:
    return text.replace("&quot;", '"').replace("&amp;", "&")


def _noise(text: str, *, ends_reasoning: bool = False) -> Marker:
    return Marker("noise", text, None, ends_reasoning=ends_reasoning, ends_message=text.startswith(_CLOSE))


KIMI_K3 = DeclaredDialect(
    info=DialectInfo(
        "kimi-k3",
        '<|open|>tools<|sep|> with <|open|>call tool="…"<|sep|> and typed <|open|>argument key="…" type="…"<|sep|>',
        "encoding_k3.py of moonshotai/Kimi-K3",
        models=("kimi-k3",),
        arguments="by the type in the text: strings as they are, the rest JSON",
        results="the text of a tool turn",
        earlier=EarlierThoughts(f"{_OPEN}think{_SEP}", f"{_CLOSE}think{_SEP}", "always"),
        reasoning="<|open|>think<|sep|>",
        stop=("<|end_of_msg|>",),
        text_aside=True,
    ),
    table=MarkerTable(
        [
            Marker("calls", f"{_OPEN}tools{_SEP}", _TOOLS_END, followed_by(_CALL, _TOOLS_END)),
            Marker("calls", _CALL, _TOOLS_END, Matches(_BARE, _BARE_START, within=True)),
            # A server that puts blanks around its tokens writes this.
            Marker("calls", f"{_OPEN} tools {_SEP}", f"{_CLOSE} tools {_SEP}", NEVER),
            Marker("reasoning", f"{_OPEN}think{_SEP}", f"{_CLOSE}think{_SEP}"),
            _noise(f"{_OPEN}response{_SEP}", ends_reasoning=True),
            *(_noise(f"{_CLOSE}{name}{_SEP}") for name in ("response", "message", "think")),
        ],
        specials=("<|end_of_msg|>",),
    ),
    new_body=lambda _marker, first, caps, tools: KimiCalls(tools, first, caps),
    write_calls=_write_calls,
    live=_LIVE,
    frame=Frame(call=_call_node, start=f"{_OPEN}tools{_SEP}", end=_TOOLS_END),
    rules="""\
- The type of an argument is string, number, boolean, null, object or array. A string stands there as it is, without
  quotes or escapes; any other value is written as JSON. Calls are numbered from 1.
- In an attribute write & as &amp; and " as &quot;.
- Only if a text contains such tags itself, wrap the whole value: <![CDATA[the text]]>""",
)
