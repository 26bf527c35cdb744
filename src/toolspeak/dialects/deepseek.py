"""DeepSeek V3, R1 and V3.1: the name outside, the arguments as JSON, between special tokens with full-width bars.

V3 and R1 name the type of the call first and put the arguments in a code fence; V3.1 leaves both out. A model of either
kind now and then writes the other's form, and what it means is plain, so both are read by one reader.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolspeak.data.messages import MalformedCall, ToolCall, ToolResult
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.body import Body
from toolspeak.dialects.declared import Calls, DeclaredDialect, Tools
from toolspeak.dialects.grammar.json_frames import named_call
from toolspeak.dialects.grammar.turn import Frame
from toolspeak.dialects.markers import Marker, MarkerTable
from toolspeak.dialects.named_calls import NAME, Header, NamedCalls, NamedShape
from toolspeak.dialects.openings import Follows, followed_by
from toolspeak.dialects.render import dump_json, result_text
from toolspeak.dialects.scan import Caps

_CALLS, _CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
_SEP = "<｜tool▁sep｜>"
_OUTPUTS, _OUTPUTS_END = "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"
_OUTPUT, _OUTPUT_END = "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"
_LIVE = re.compile(r"<(?=｜tool▁|\s*+(?:/\s*+)?(?ai:think))")
_HEADER = re.compile(rf"\s*(?:function{_SEP}\s*(?P<v3>{NAME})|(?P<v31>{NAME})\s*{_SEP})\s*")


def _read_header(text: str) -> Header | None:
    found = _HEADER.fullmatch(text)
    return Header(found["v3"] or found["v31"]) if found else None


def _shape(example: str, *, fenced: bool, single: bool = False) -> NamedShape:
    if single:  # the call's own marker opened the block, and the frame reads its end
        return NamedShape(_read_header, example, others=(_CALL_END, _CALL, _CALLS_END), fenced=fenced)
    return NamedShape(_read_header, example, _CALL, "", _CALL_END, (_CALLS_END,), fenced=fenced)


def _new_body(example: str, fenced: bool):  # noqa: ANN202 - what `DeclaredDialect.new_body` takes
    many, one = _shape(example, fenced=fenced), _shape(example, fenced=fenced, single=True)

    def new_body(marker: Marker, first_index: int, caps: Caps, _tools: Tools) -> Body:
        return NamedCalls(one if marker.text == _CALL else many, first_index, caps)

    return new_body


def _table() -> MarkerTable:
    return MarkerTable(
        [
            Marker("reasoning", "<think>", "</think>"),
            Marker("calls", _CALLS, _CALLS_END, followed_by(_CALL, _CALLS_END), ends_reasoning=True),
            # Without the wrapper, which models forget.
            Marker("calls", _CALL, _CALL_END, Follows(_call_behind), ends_reasoning=True),
            Marker("results", _OUTPUTS, _OUTPUTS_END, plain=True),
            Marker("results", _OUTPUT, _OUTPUT_END, plain=True),
            *(Marker("noise", text, None) for text in (_CALLS_END, _CALL_END, _OUTPUTS_END, _OUTPUT_END)),
        ],
        specials=("<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>"),
    )


_CALL_START = re.compile(rf"\s*{NAME}\s*{_SEP}")
_CALL_STARTED = re.compile(rf"\s*(?:{NAME}\s*)?(?P<sep><[^>]*)?")


def _call_behind(rest: str) -> bool | None:
    if _CALL_START.match(rest):
        return True
    found = _CALL_STARTED.fullmatch(rest)
    return None if found and _SEP.startswith(found["sep"] or "") else False


def _write_v3(calls: Calls, _tools: Tools) -> str:
    return _CALLS + "\n".join(_call_v3(call) for call in calls) + _CALLS_END


def _call_v3(call: ToolCall | MalformedCall) -> str:
    if isinstance(call, MalformedCall):
        return call.raw
    return f"{_CALL}function{_SEP}{call.name}\n```json\n{dump_json(dict(call.arguments), _LIVE)}\n```{_CALL_END}"


def _write_v31(calls: Calls, _tools: Tools) -> str:
    return _CALLS + "".join(_call_v31(call) for call in calls) + _CALLS_END


def _call_v31(call: ToolCall | MalformedCall) -> str:
    if isinstance(call, MalformedCall):
        return call.raw
    return f"{_CALL}{call.name}{_SEP}{dump_json(dict(call.arguments), _LIVE)}{_CALL_END}"


def _outputs(results: Sequence[ToolResult]) -> list[str]:
    return [f"{_OUTPUT}{result_text(result, _LIVE)}{_OUTPUT_END}" for result in results]


def _results_v3(results: Sequence[ToolResult]) -> str:
    return _OUTPUTS + "\n".join(_outputs(results)) + _OUTPUTS_END


def _results_v31(results: Sequence[ToolResult]) -> str:
    return "".join(_outputs(results))


_RULES = (
    "- Copy the markers letter by letter: the bars are full-width (｜) and the words are joined by ▁. One pair of\n"
    "  begin and end around all calls, one around each call."
)

DEEPSEEK_V3 = DeclaredDialect(
    info=DialectInfo(
        "deepseek-v3",
        f"{_CALL}function{_SEP}name, the arguments as fenced JSON, {_CALL_END}; all calls in one block",
        "chat templates of deepseek-ai/DeepSeek-V3-0324 and deepseek-ai/DeepSeek-R1",
        "parallel",
        aliases=("deepseek-r1",),
        models=("deepseek-v3", "deepseek-r1"),
        arguments="fenced JSON",
        results=f"{_OUTPUT}…{_OUTPUT_END} inside {_OUTPUTS}…{_OUTPUTS_END}",
        stop=("<｜end▁of▁sentence｜>",),
    ),
    table=_table(),
    new_body=_new_body(f"{_CALL}function{_SEP}name\n```json\n{{…}}\n```{_CALL_END}", fenced=True),
    write_calls=_write_v3,
    write_results=_results_v3,
    live=_LIVE,
    frame=Frame(
        call=named_call(_LIVE, lambda name: f"{_CALL}function{_SEP}{name}\n```json\n", f"\n```{_CALL_END}"),
        start=_CALLS,
        joint="\n",
        end=_CALLS_END,
    ),
    rules=f"{_RULES}\n- The arguments are one JSON object in a ```json fence.",
)

DEEPSEEK_V31 = DeclaredDialect(
    info=DialectInfo(
        "deepseek-v31",
        f"{_CALL}name{_SEP}{{…}}{_CALL_END}; all calls in one block",
        "chat template of deepseek-ai/DeepSeek-V3.1",
        "parallel",
        aliases=("deepseek-v3.1",),
        models=("deepseek-v3.1", "deepseek-v3.2-exp"),
        results=f"{_OUTPUT}…{_OUTPUT_END}",
        stop=("<｜end▁of▁sentence｜>",),
    ),
    table=_table(),
    new_body=_new_body(f"{_CALL}name{_SEP}{{…}}{_CALL_END}", fenced=False),
    write_calls=_write_v31,
    write_results=_results_v31,
    live=_LIVE,
    frame=Frame(call=named_call(_LIVE, lambda name: f"{_CALL}{name}{_SEP}", _CALL_END), start=_CALLS, end=_CALLS_END),
    rules=f"{_RULES}\n- The arguments are one JSON object, right behind {_SEP}.",
)
