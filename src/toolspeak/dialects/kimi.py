"""Kimi K2: an id that holds the name and a counter, then the arguments as JSON, between special tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial

from toolspeak.data.messages import MalformedCall, ToolResult
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.body import Body
from toolspeak.dialects.declared import Calls, DeclaredDialect, Tools
from toolspeak.dialects.grammar.ir import COUNTER, series
from toolspeak.dialects.grammar.json_frames import named_call
from toolspeak.dialects.grammar.turn import Frame
from toolspeak.dialects.markers import ENGINE_TOKENS, Marker, MarkerTable
from toolspeak.dialects.named_calls import NAME, Header, NamedCalls, NamedShape, plain_name
from toolspeak.dialects.openings import Follows, followed_by
from toolspeak.dialects.render import dump_json, escape_text, result_text
from toolspeak.dialects.scan import Caps

_SECTION, _SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_OTHER_SECTION, _OTHER_END = "<|tool_call_section_begin|>", "<|tool_call_section_end|>"  # ggml-org/llama.cpp#17376
_CALL, _ARGUMENT, _CALL_END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
_LIVE = re.compile(r"<(?=\|tool_call|\s*+(?:/\s*+)?(?ai:think))")
_RETURN = re.compile(r"#(?=# Return of )")
_COUNTER = re.compile(r"[0-9]+")
_ID = re.compile(rf"(?:functions\.)?(?P<name>{NAME}):\d+")
_EXAMPLE = f"{_CALL}functions.name:0{_ARGUMENT}{{…}}{_CALL_END}"
_SHAPE = NamedShape(lambda text: _read_id(text), _EXAMPLE, _CALL, _ARGUMENT, _CALL_END, (_SECTION_END, _OTHER_END))
_ONE = NamedShape(
    lambda text: _read_id(text), _EXAMPLE, separator=_ARGUMENT, others=(_CALL_END, _CALL, _SECTION_END, _OTHER_END)
)


def _read_id(text: str) -> Header | None:
    """The name is in the id. A bare counter names no tool, and guessing one by its arguments is not ours to do."""
    text = text.strip()
    found = _ID.fullmatch(text)
    return Header(found["name"], text) if found else None


def _read_id_of_one_tool(text: str, name: str) -> Header | None:
    """With one tool a name says nothing new: a bare counter, which Kimi writes at times, can only be this tool."""
    return Header(name, None, ("only_tool",)) if _COUNTER.fullmatch(text.strip()) else _read_id(text)


def _new_body(marker: Marker, first_index: int, caps: Caps, tools: Tools) -> Body:
    (name,) = tools if len(tools) == 1 else ("",)
    return NamedCalls(_shape(marker.text == _CALL, name), first_index, caps)


@lru_cache(64)
def _shape(single: bool, only_tool: str) -> NamedShape:
    shape = _ONE if single else _SHAPE
    return replace(shape, read_header=partial(_read_id_of_one_tool, name=only_tool)) if only_tool else shape


_CALL_START = re.compile(rf"\s*{NAME}\s*{re.escape(_ARGUMENT)}")
_CALL_STARTED = re.compile(rf"\s*(?:{NAME}\s*)?(?P<marker><[^>]*)?")


def _call_behind(rest: str) -> bool | None:
    if _CALL_START.match(rest):
        return True
    found = _CALL_STARTED.fullmatch(rest)
    return None if found and _ARGUMENT.startswith(found["marker"] or "") else False


def _id(own: str, name: str, position: int) -> str:
    """The id as the model knows it, if it is one of Kimi's; else one of its kind.

    The counter of such an id is the position in the batch: what was called in other dialects has no counter.
    """
    found = _ID.fullmatch(own)
    return own if found and found["name"] == name else f"functions.{name}:{position}"


def _write_calls(calls: Calls, _tools: Tools) -> str:
    parts: list[str] = []
    for i, call in enumerate(calls):
        if isinstance(call, MalformedCall):
            parts.append(call.raw)
        else:
            own = _id(call.provider_id or call.id, call.name, i)
            parts.append(f"{_CALL}{own}{_ARGUMENT}{dump_json(dict(call.arguments), _LIVE)}{_CALL_END}")
    return f"{_SECTION}{''.join(parts)}{_SECTION_END}"


def _write_results(results: Sequence[ToolResult]) -> str:
    return "\n".join(_result(result, i) for i, result in enumerate(results))


def _result(result: ToolResult, position: int) -> str:
    own = _id(result.call_id, plain_name(result.name), position)
    return f"## Return of {own}\n{escape_text(result_text(result, _LIVE), _RETURN)}"


KIMI_K2 = DeclaredDialect(
    info=DialectInfo(
        "kimi-k2",
        f"{_CALL}functions.name:0{_ARGUMENT}{{…}}{_CALL_END}; all calls in one section",
        "chat template and docs/tool_call_guidance.md of moonshotai/Kimi-K2-Instruct and Kimi-K2-Thinking",
        "parallel",
        models=("kimi-k2",),
        results="## Return of functions.name:0, in a tool turn",
        stop=("<|im_end|>",),
    ),
    table=MarkerTable(
        [
            Marker("reasoning", "<think>", "</think>"),
            Marker(
                "calls",
                _SECTION,
                _SECTION_END,
                followed_by(_CALL, _SECTION_END, _OTHER_END),
                ends_reasoning=True,
                also_ends=(_OTHER_END,),
            ),
            Marker(
                "calls",
                _OTHER_SECTION,
                _SECTION_END,
                followed_by(_CALL, _SECTION_END, _OTHER_END),
                ends_reasoning=True,
                also_ends=(_OTHER_END,),
            ),
            # Without the section, which models forget.
            Marker("calls", _CALL, _CALL_END, Follows(_call_behind), ends_reasoning=True),
            *(Marker("noise", text, None) for text in (_SECTION_END, _OTHER_END, _ARGUMENT, _CALL_END)),
        ],
        specials=("<|im_end|>", *ENGINE_TOKENS),
    ),
    new_body=_new_body,
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
