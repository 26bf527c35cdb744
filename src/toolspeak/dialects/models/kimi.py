"""Kimi K2: an id that holds the name and a counter, then the arguments as JSON, between special tokens."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from toolspeak.data.messages import MalformedCall, ToolResult
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import Calls, DeclaredDialect, Tools
from toolspeak.dialects.grammar.ir import COUNTER, series
from toolspeak.dialects.grammar.json_frames import named_call
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.prompt import EarlierThoughts
from toolspeak.dialects.prompts.rendering import dump_json, escape_text, malformed_text, result_text
from toolspeak.dialects.readers.named_calls import Header, NamedCalls, NamedShape, plain_name
from toolspeak.dialects.text.block_delimiters import Follows, Signature, followed_by
from toolspeak.dialects.text.candidates import MAX_NAME, NAME, first_of, one_of
from toolspeak.dialects.text.markers import Marker, MarkerTable

_SECTION, _SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_OTHER_SECTION, _OTHER_END = "<|tool_call_section_begin|>", "<|tool_call_section_end|>"  # ggml-org/llama.cpp#17376
_CALL, _ARGUMENT, _CALL_END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
_LIVE = re.compile(r"<(?=\|tool_call|\s*+(?:/\s*+)?(?ai:think))")
_RETURN = re.compile(r"#(?=# Return of )")
_CALL_REST = re.compile(rf"f(?=unctions\.{NAME}:[0-9]++[ \t]*+\{{)")  # the rest of a call without its tokens
_SAME_LINE = re.compile(r"[ \t]*")  # a result's heading names its call too
_COUNTER = re.compile(r"[0-9]+")
_ID = re.compile(rf"(?:functions\.)?(?P<name>{NAME}):\d+")
_ANY_ID = re.compile(r"(?:functions\.)?(?P<name>.+):\d+")
_STOP = ("<|im_end|>", "[EOS]", "[EOT]")
_EXAMPLE = f"{_CALL}functions.name:0{_ARGUMENT}{{…}}{_CALL_END}"
_SHAPE = NamedShape(lambda text: _read_id(text), _EXAMPLE, _CALL, _ARGUMENT, _CALL_END, (_SECTION_END, _OTHER_END))
_FOLLOWS = (_CALL_END, _CALL, _SECTION_END, _OTHER_END)
_ONE = NamedShape(lambda text: _read_id(text), _EXAMPLE, separator=_ARGUMENT, others=_FOLLOWS)
_NO_TOKENS, _NAMELESS = "functions.name:0 {…}", f"{_ARGUMENT}{{…}}"
# Calls that lost the tokens before the id, all tokens, or the id, in a server.
_SHAPES = {
    _CALL: _ONE,
    _ARGUMENT: replace(_ONE, unended=True),
    _NO_TOKENS: NamedShape(lambda text: _read_id(text), _EXAMPLE, others=_FOLLOWS, unended=True),
    _NAMELESS: NamedShape(lambda text: _read_id(text), _EXAMPLE, others=_FOLLOWS, unended=True),
}


def _read_id(text: str, tools: Collection[str] = ()) -> Header | None:
    """The header in an id, which holds the tool's name; None if it names no tool. Names of known tools may have spaces.

    Kimi sometimes writes a bare counter. With one tool this is that tool; with several it names none, and nothing is
    guessed from the arguments.
    """
    text = text.strip()
    if match := _ID.fullmatch(text):
        return Header(match["name"], text)
    if (match := _ANY_ID.fullmatch(text)) and match["name"] in tools:
        return Header(match["name"], text)
    if len(tools) == 1 and _COUNTER.fullmatch(text):
        return Header(next(iter(tools)), None, ("only_tool",))
    return None


@lru_cache(64)
def _shape(marker: str, tools: tuple[str, ...]) -> NamedShape:
    shape = _SHAPES.get(marker, _SHAPE)
    return replace(shape, read_header=partial(_read_id, tools=tools)) if tools else shape


_ID_TEXT = r"[^\s<>{}\[\]\"'`][^<>{}\[\]\"'`\n]*"  # a tool's name may have spaces
_CALL_START = re.compile(rf"\s*{_ID_TEXT}{re.escape(_ARGUMENT)}")
_CALL_STARTED = re.compile(rf"\s*(?:{_ID_TEXT})?(?P<marker><[^>]*)?")


def _call_follows(rest: str) -> bool | None:
    if _CALL_START.match(rest):
        return True
    match = _CALL_STARTED.fullmatch(rest)
    return None if match and _ARGUMENT.startswith(match["marker"] or "") else False


def _bare(names: tuple[str, ...]) -> list[Marker]:
    """The markers of calls without the tokens before the id, without all tokens, or without the id (malformed)."""
    live = ("<", re.escape(_ARGUMENT[1:]))
    gap, count = re.compile(r"\s*"), re.compile("[0-9]+")
    bare_or_prefixed, prefixed_names = one_of(names, "functions."), one_of(tuple(f"functions.{name}" for name in names))
    if not names:
        bare_or_prefixed = prefixed_names = re.compile(
            rf"functions\.{NAME.removesuffix('+')}+?(?=:[0-9]|:?\Z)|[\w./-]{{1,{MAX_NAME}}}+:?\Z"
        )
    words = (*names, "functions.")
    return [
        Marker(
            "calls",
            _ARGUMENT,
            None,
            Signature((bare_or_prefixed, ":", count, gap, _ARGUMENT, gap, "{"), 0, first_of(words), live, words),
            place="word",
        ),
        Marker(
            "calls",
            _NO_TOKENS,
            None,
            Signature(
                (prefixed_names, ":", count, _SAME_LINE, "{"), 0, "f", ("f", _CALL_REST.pattern[4:-1]), ("functions.",)
            ),
            place="word",
        ),
        Marker("calls", _NAMELESS, _CALL_END, Signature((_ARGUMENT, gap, "{"), 2, "<", live)),
    ]


def _id(own: str, name: str, position: int) -> str:
    """The model's own id if it has Kimi's form, else one in that form, whose counter is the position in the batch."""
    match = _ID.fullmatch(own)
    return own if match and match["name"] == name else f"functions.{name}:{position}"


def _write_calls(calls: Calls, _tools: Tools) -> str:
    parts: list[str] = []
    for i, call in enumerate(calls):
        if isinstance(call, MalformedCall):
            parts.append(malformed_text(call, _CALL, _CALL_END))
        else:
            own = _id(call.provider_id or call.id, call.name, i)
            parts.append(f"{_CALL}{own}{_ARGUMENT}{dump_json(dict(call.arguments), _LIVE)}{_CALL_END}")
    return f"{_SECTION}{''.join(parts)}{_SECTION_END}"


def _write_results(results: Sequence[ToolResult]) -> str:
    return "\n".join(_result(result, i) for i, result in enumerate(results))


def _result(result: ToolResult, position: int) -> str:
    own = _id(result.call_id, plain_name(result.name), position)
    text = escape_text(escape_text(result_text(result, _LIVE), _CALL_REST), _RETURN)
    return f"## Return of {own}\n{text}"


@lru_cache(64)
def _table(names: tuple[str, ...] = ()) -> MarkerTable:
    opening = followed_by(_CALL, _SECTION_END, _OTHER_END)
    return MarkerTable(
        [
            Marker("reasoning", "<think>", "</think>"),
            *(
                Marker("calls", each, _SECTION_END, opening, also_ends=(_OTHER_END,), spare=True)
                for each in (_SECTION, _OTHER_SECTION)
            ),
            # Models sometimes forget the section.
            Marker("calls", _CALL, _CALL_END, Follows(_call_follows)),
            *_bare(names),
            *(Marker("noise", text, None) for text in (_SECTION_END, _OTHER_END, _ARGUMENT, _CALL_END)),
        ],
        specials=_STOP,
    )


KIMI_K2 = DeclaredDialect(
    info=DialectInfo(
        "kimi-k2",
        f"{_CALL}functions.name:0{_ARGUMENT}{{…}}{_CALL_END}; all calls in one section",
        "chat template and docs/tool_call_guidance.md of moonshotai/Kimi-K2-Instruct and Kimi-K2-Thinking",
        models=("kimi-k2.x", "kimi-linear"),
        results="## Return of functions.name:0, in a tool turn",
        earlier=EarlierThoughts("<think>", "</think>"),
        stop=_STOP,
    ),
    table=_table(),
    by_tools=_table,
    new_body=lambda marker, first, caps, tools: NamedCalls(_shape(marker.text, tuple(tools)), first, caps, tools),
    write_calls=_write_calls,
    write_results=_write_results,
    live=_LIVE,
    frame=Frame(
        call=named_call(_LIVE, lambda name: series(f"{_CALL}functions.{name}:", COUNTER, _ARGUMENT), _CALL_END),
        start=_SECTION,
        end=_SECTION_END,
    ),
    rules=(
        "- One section holds all calls of a turn. Each call has an id: `functions.`, the tool's name, a colon, and a\n"
        "  counter from 0. The arguments are one JSON object."
    ),
)
