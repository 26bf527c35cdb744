"""Declares a dialect whose calls are JSON, with little more said than its markers and keys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from toolspeak.data.messages import JSON, MalformedCall, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.body import Body
from toolspeak.dialects.declared import Calls, DeclaredDialect, Tools
from toolspeak.dialects.grammar.avoid import SPACE, Pattern, items_of
from toolspeak.dialects.grammar.json_frames import call_schema, calls_schema, json_call
from toolspeak.dialects.grammar.turn import Frame
from toolspeak.dialects.json_calls import CallShape, JsonCalls
from toolspeak.dialects.live import Live
from toolspeak.dialects.markers import Marker, MarkerTable
from toolspeak.dialects.openings import Signature
from toolspeak.dialects.scan import Caps, Problem, decode_json
from toolspeak.errors import UsageError

WriteResult = Callable[[Live, ToolResult], str]
THINK = Marker("reasoning", "<think>", "</think>")

_SPACE = re.compile(r"\s*")
_NAME = re.compile(r'[^"\\\x00-\x1f]+')
_KEY = re.compile(r"(?:parameters|arguments|args)(?=\")|[a-z]{0,10}\Z")


def _bare(array: bool, *leading: str) -> Signature:
    r"""`{"name": "…", "arguments": {`, alone or in an array; all of it lies in the body."""
    gap = _SPACE
    parts: list[str | re.Pattern[str]] = ["[", gap, "{", gap] if array else ["{", gap]
    for text in leading:
        parts += [text, gap]
    parts += ['"name"', gap, ":", gap, '"', _NAME, '"', gap, ",", gap, '"', _KEY, '"', gap, ":", gap, "{"]
    # The brace is live: without it no bare call, with or without the array, is one.
    return Signature(tuple(parts), 0, "[" if array else "{", ("{", _after_brace(leading)))


def _object(depth: int) -> str:
    """A JSON object of at most `depth` levels, or the beginning of one that the text ends in."""
    inner = _object(depth - 1) if depth else r"(?!)"
    return rf'\{{(?:"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[^"{{}}]|{inner})*+(?:\}}|\Z)'


_OBJECT = re.compile(_object(4))


def _turned(array: bool) -> Signature:
    """`{"arguments": {…}, "name": "…"}`, the whole call: its name tells it from other objects."""
    gap = _SPACE
    start: list[str | re.Pattern[str]] = ["[", gap, "{", gap] if array else ["{", gap]
    keys = ['"', _KEY, '"', gap, ":", gap, _OBJECT, gap, ",", gap, '"name"', gap, ":", gap, '"', _NAME, '"', gap, "}"]
    steps = ['"(?:parameters|arguments|args)"', ":", _OBJECT.pattern, ",", '"name"']
    return Signature((*start, *keys), 0, "[" if array else "{", ("{", _in_order(steps)))


def _after_brace(leading: Sequence[str]) -> str:
    """What makes a brace in a result live: the start of a call, or as much of it as there is before the result ends."""
    steps = [
        *map(re.escape, leading),
        '"name"',
        ":",
        r'"[^"\\\x00-\x1f]{1,256}"',
        ",",
        '"(?:parameters|arguments|args)"',
    ]
    return _in_order(steps)


def _in_order(steps: Sequence[str]) -> str:
    pattern = ""
    for step in reversed(steps):
        pattern = rf"\s*+(?:\Z|{step}{pattern})"
    return pattern


def bare_markers(separator: str = "") -> list[Marker]:
    """A call, or an array of calls, without any marker, recognised by its first two keys; with the arguments first by
    the whole of it, which has to end within `MAX_CANDIDATE` characters."""
    kinds = (
        *(_bare(False), _bare(True), _bare(False, '"type"', ":", '"function"', ",")),
        *(_turned(False), _turned(True)),
    )
    return [
        Marker("calls", "the JSON of a call", None, signature, tails=(separator,) if separator else ())
        for signature in kinds
    ]


def frames(*texts: str) -> list[Marker]:
    return [Marker("noise", text, None) for text in texts]


def json_dialect(
    info: DialectInfo,
    markers: Sequence[Marker],
    shape: CallShape,
    *,
    around: tuple[str, str] = ("", ""),
    between: str = "",
    write_result: WriteResult = Live.result,
    results_around: tuple[str, str] = ("", ""),
    results_between: str = "\n",
    call_id: bool = False,
    rules: str = "",
    kind: type[DeclaredDialect] = DeclaredDialect,
) -> DeclaredDialect:
    """The declaration of a JSON dialect.

    With `shape.array` all calls of a turn stand in one array, else each stands `around` its own and `between` joins
    them. `call_id`: calls are written with their id, behind the arguments. Arguments that are an object written as a
    JSON string are read in all of them: many models do that, and what it means is plain.
    """
    table = MarkerTable(markers, info.stop)
    shape = replace(shape, arguments_text=True)
    live = Live(table)

    def new_body(_marker: Marker, first_index: int, caps: Caps, _tools: Tools) -> Body:
        return JsonCalls(shape, first_index, caps)

    def element(call: ToolCall | MalformedCall) -> str:
        if isinstance(call, MalformedCall):
            value: JSON = decode_json(call.raw)
            return live.dump(call.raw if isinstance(value, Problem) else value)
        if shape.keyed:
            return live.dump({call.name: call.arguments})
        entry: dict[str, JSON] = {shape.name_key: call.name, shape.arguments_key: call.arguments}
        if call_id:
            entry[shape.id_key] = call.provider_id or call.id
        return live.dump(entry)

    def write_calls(calls: Calls, _tools: Tools) -> str:
        opening, closing = around
        if not shape.array:
            return between.join(f"{opening}{_raw_or(call, element)}{closing}" for call in calls)
        if len(calls) == 1 and isinstance(calls[0], MalformedCall) and calls[0].whole_block:
            return f"{opening}{calls[0].raw}{closing}"
        return f"{opening}[{', '.join(element(call) for call in calls)}]{closing}"

    def write_results(results: Sequence[ToolResult]) -> str:
        opening, closing = results_around
        return opening + results_between.join(write_result(live, result) for result in results) + closing

    return kind(
        info=info,
        table=table,
        new_body=new_body,
        write_calls=write_calls,
        write_results=write_results,
        live=live.pattern,
        frame=_frame(shape, markers, around, between, live.pattern, call_id),
        rules=rules,
    )


def _frame(
    shape: CallShape,
    markers: Sequence[Marker],
    around: tuple[str, str],
    between: str,
    live: re.Pattern[str],
    call_id: bool,
) -> Frame:
    """The same layout as `write_calls` has, for grammars. Free text ends where a marker stands, or a bare call."""
    opening, closing = around
    before, after = ("", "") if shape.array else around
    call = json_call(
        live,
        name_key=shape.name_key,
        arguments_key=shape.arguments_key,
        id_key=shape.id_key if call_id else "",
        keyed=shape.keyed,
        before=before,
        after=after,
    )
    bare = "[{" if shape.array else "{"
    found = [each.text for each in markers if each.kind == "calls" and each.text in opening]
    trigger = opening[: opening.index(found[0]) + len(found[0])] if found else opening

    def triggers(tools: Sequence[ToolSpec]) -> list[str]:
        if trigger:
            return [trigger]
        return [
            f'{bare}"{shape.name_key}": {json.dumps(spec.name, ensure_ascii=False)}, "{shape.arguments_key}": '
            for spec in tools
        ]

    def avoid(_tools: Sequence[ToolSpec]) -> list[Pattern]:
        """Behind a bracket a bare call would be the first of an array."""
        return [] if opening else [Pattern((*items_of("["), SPACE, *items_of("{"), SPACE, *items_of('"name"')))]

    def schema(tools: Sequence[ToolSpec], max_calls: int | None) -> JSON:
        if shape.array:
            return calls_schema(tools, shape.name_key, shape.arguments_key, max_calls)
        if max_calls != 1:
            raise UsageError("several calls of this dialect are no JSON value; set max_calls to 1")
        return call_schema(tools, shape.name_key, shape.arguments_key)

    if not shape.array:
        return Frame(call=call, joint=between, triggers=triggers, avoid=avoid, json_schema=None if opening else schema)
    return Frame(
        call=call,
        start=f"{opening}[",
        joint=", ",
        end=f"]{closing}",
        triggers=triggers,
        json_schema=None if opening else schema,
    )


def tagged_result(name: str) -> WriteResult:
    """A result in an element of its own, on lines of its own."""
    return lambda live, result: f"<{name}>\n{live.result(result)}\n</{name}>"


def _raw_or(call: ToolCall | MalformedCall, element: Callable[[ToolCall | MalformedCall], str]) -> str:
    return call.raw if isinstance(call, MalformedCall) else element(call)


STRICT_JSON = "- Strict JSON: double quotes, no comments, no trailing comma; write a line break in a string as \\n."
ONE_ARRAY = f"- All calls of a message stand in one array.\n{STRICT_JSON}"
EACH_ALONE = f"- One JSON object for each call; several calls one behind the other.\n{STRICT_JSON}"
