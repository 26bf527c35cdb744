"""Declares a dialect whose calls are JSON, from its markers and keys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from toolspeak.data.messages import JSON, MalformedCall, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import Calls, DeclaredDialect, Tools
from toolspeak.dialects.grammar.avoid import SPACE, Pattern, items_of
from toolspeak.dialects.grammar.ir import EMPTY, Node
from toolspeak.dialects.grammar.json_frames import call_schema, calls_schema, json_call
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.prompts.rendering import MarkerEscaper
from toolspeak.dialects.readers.json_call import CallShape
from toolspeak.dialects.readers.json_calls import JsonCalls
from toolspeak.dialects.text.block_delimiters import Signature
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.dialects.text.scan import Problem, decode_json
from toolspeak.errors import ConfigurationError

Ids = Literal["none", "after", "numbers"]
BARE = "the JSON of a call"
WriteResult = Callable[[MarkerEscaper, ToolResult], str]
THINK = Marker("reasoning", "<think>", "</think>")

_SPACE = re.compile(r"\s*")
_NAME = re.compile(r'[^"\\\x00-\x1f]*')  # an empty name is a malformed call
_MAX_NAME = 160
_KEY = re.compile(r"(?:parameters|arguments|args)(?=\")|[a-z]{0,10}\Z")


def _told_of(*steps: str) -> re.Pattern[str]:
    """Matches nothing if these texts do not follow each other, and all of the text if they may still follow."""
    coming = ""
    for step in reversed(steps):
        for char in reversed(step):
            coming = rf"(?:\Z|{re.escape(char)}{coming})"
        coming = rf"\s*+{coming}"
    whole = "".join(rf"\s*+{re.escape(step)}" for step in steps)
    return re.compile(rf"(?!{whole})(?:{coming}|(?=.))", re.DOTALL)


_NO_SCHEMA = _told_of('"type"', ":", '"object"', ",", '"properties"')
"""Not the schema of an object: a listing of tools has the keys of a call, and such a schema instead of arguments."""


def _bare(
    array: bool, *leading: str, key: str = '"name"', name: re.Pattern[str] = _NAME, null: bool = False
) -> Signature:
    r"""`{"name": "…", "arguments": {`, alone or in an array. All of it is the body. `null`: null instead of `{`."""
    gap = _SPACE
    parts: list[str | re.Pattern[str]] = ["[", gap, "{", gap] if array else ["{", gap]
    for text in leading:
        parts += [text, gap]
    parts += [key, gap, ":", gap, '"', name, '"', gap, ",", gap, '"', _KEY, '"', gap, ":", gap]
    # The brace is live: every bare call begins with one, with or without the array.
    live = ("{", _after_brace((*leading, key)))
    first = "[" if array else "{"
    if null:
        return Signature((*parts, "null"), 0, first, live)
    return Signature((*parts, "{", _NO_SCHEMA), 0, first, live, fixed_part=r'\s*+(?:\}|"[^t])')


def _object(depth: int) -> str:
    """A JSON object of at most `depth` levels, or the beginning of one that the text ends in."""
    inner = _object(depth - 1) if depth else r"(?!)"
    return rf'\{{(?:"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[^"{{}}]|{inner})*+(?:\}}|\Z)'


_OBJECT = re.compile(_object(4))


def _arguments_first(array: bool) -> Signature:
    """`{"arguments": {…}, "name": "…"}`: the whole call, because its name distinguishes it from other objects."""
    gap = _SPACE
    start: list[str | re.Pattern[str]] = ["[", gap, "{", gap] if array else ["{", gap]
    keys = ['"', _KEY, '"', gap, ":", gap, _OBJECT, gap, ",", gap, '"name"', gap, ":", gap, '"', _NAME, '"', gap, "}"]
    steps = ['"(?:parameters|arguments|args)"', ":", _OBJECT.pattern, ",", '"name"']
    return Signature((*start, *keys), 0, "[" if array else "{", ("{", _in_order(steps)))


def _after_brace(leading: Sequence[str]) -> str:
    """What makes a brace in a result live: the start of a call after it, or as much of that as the result holds."""
    steps = [
        *map(re.escape, leading),
        ":",
        r'"[^"\\\x00-\x1f]{0,256}"',
        ",",
        '"(?:parameters|arguments|args)"',
    ]
    return _in_order(steps)


def _in_order(steps: Sequence[str]) -> str:
    pattern = ""
    for step in reversed(steps):
        pattern = rf"\s*+(?:\Z|{step}{pattern})"
    return pattern


_TYPE_PAIR = ('"type"', ":", '"function"', ",")


def bare_markers(separator: str = "") -> list[Marker]:
    """The markers of a call, or an array of calls, that begins without a marker.

    Its first two keys distinguish it from prose. If the arguments come first, the whole call does; it then has at most
    `MAX_CANDIDATE` characters.
    """
    kinds = (*_bare_kinds(_NAME), _arguments_first(False), _arguments_first(True))
    return [Marker("calls", BARE, None, kind, tails=(separator,) if separator else ()) for kind in kinds]


def _bare_kinds(name: re.Pattern[str]) -> list[Signature]:
    leading = ((), _TYPE_PAIR, (*_TYPE_PAIR, '"function"', ":", "{"))
    kinds = [_bare(array, *each, name=name) for each in leading for array in (False, True)]
    return [*kinds, _bare(False, *_TYPE_PAIR, key='"function"', name=name)]


def _bare_at_start(names: tuple[str, ...]) -> list[Marker]:
    """Such a call of a known tool at the start of a turn, even if it is only `{"name": "f"}`."""
    any_name = "|".join(re.escape(json.dumps(name, ensure_ascii=False)[1:-1]) for name in names)
    name = re.compile(rf'(?:{any_name})(?=")|[^"]{{0,{_MAX_NAME}}}+\Z')
    gap = _SPACE
    alone = Signature(("{", gap, '"name"', gap, ":", gap, '"', name, '"', gap, "}"), 0, "{", ("{", ""))
    null = (_bare(array, name=name, null=True) for array in (False, True))
    return [Marker("calls", BARE, None, kind, place="start") for kind in (*_bare_kinds(name), *null, alone)]


def frames(*texts: str) -> list[Marker]:
    """Markers without a meaning: they are dropped."""
    return [Marker("noise", text, None) for text in texts]


def json_dialect(
    info: DialectInfo,
    markers: Sequence[Marker],
    shape: CallShape,
    *,
    around: tuple[str, str] = ("", ""),
    between: str = "",
    block: tuple[str, str] = ("", ""),
    write_result: WriteResult = MarkerEscaper.result_text,
    results_around: tuple[str, str] = ("", ""),
    results_between: str = "\n",
    list_layout: tuple[str, str, str] = ("[", ", ", "]"),
    ids: Ids = "none",
    lead: Node = EMPTY,
    rules: str = "",
    by_names: Callable[[tuple[str, ...]], Sequence[Marker]] = lambda _: (),
    kind: type[DeclaredDialect] = DeclaredDialect,
) -> DeclaredDialect:
    """Makes a dialect of JSON calls.

    - `around`: the texts around the array of all calls (`shape.array`), otherwise around each call.
    - `list_layout`: opening, comma and end of that array, with the template's white space; `lead` may precede it.
    - `between`, `block`: without an array, the text between calls and the texts around all of them.
    - `ids`: the place of a call's id; "numbers" come first, and count the calls of the conversation from 0.
    - `by_names`: makes the markers that only a tool's name distinguishes from prose.

    All these dialects read arguments that are an object written as a JSON string: many models write them so.
    """

    @lru_cache(64)
    def table_of(names: tuple[str, ...] = ()) -> MarkerTable:
        """The markers, and those of bare calls of these tools, with which any turn may begin."""
        tool_markers = (*by_names(names), *_bare_at_start(names)) if names else ()
        return MarkerTable([*markers, *tool_markers], info.stop)

    table = table_of()
    shape = replace(shape, arguments_text=True, alone=True)
    escaper = MarkerEscaper(table)

    def element(call: ToolCall | MalformedCall) -> str:
        if isinstance(call, MalformedCall):
            value: JSON = decode_json(call.raw)
            return call.raw.strip() if isinstance(value, Problem) else escaper.dump(value)
        if shape.keyed:
            return escaper.dump({call.name: call.arguments})
        own: dict[str, JSON] = {shape.id_key: call.provider_id or call.id}
        entry: dict[str, JSON] = {shape.name_key: call.name, shape.arguments_key: call.arguments}
        return escaper.dump({"none": entry, "after": {**entry, **own}, "numbers": {**own, **entry}}[ids])

    def write_calls(calls: Calls, _tools: Tools) -> str:
        opening, closing = around
        if not shape.array:
            bodies = (call.raw if isinstance(call, MalformedCall) else element(call) for call in calls)
            return block[0] + between.join(f"{opening}{body}{closing}" for body in bodies) + block[1]
        if len(calls) == 1 and isinstance(calls[0], MalformedCall) and calls[0].whole_block:
            return f"{opening}{calls[0].raw}{closing}"
        start, comma, end = list_layout
        return f"{opening}{start}{comma.join(element(call) for call in calls)}{end}{closing}"

    def write_results(results: Sequence[ToolResult]) -> str:
        opening, closing = results_around
        return opening + results_between.join(write_result(escaper, result) for result in results) + closing

    return kind(
        info=info,
        table=table,
        by_tools=table_of if shape.wraps else None,
        new_body=lambda marker, first, caps, tools: JsonCalls(
            shape, first, caps, tools, several=marker.end is not None
        ),
        write_calls=write_calls,
        write_results=write_results,
        bare_result=escaper.result_text,
        live=escaper.pattern,
        frame=_frame(shape, markers, around, between, block, escaper.pattern, list_layout, ids, lead),
        rules=rules,
        numbers_calls=ids == "numbers",
    )


def _frame(
    shape: CallShape,
    markers: Sequence[Marker],
    around: tuple[str, str],
    between: str,
    block: tuple[str, str],
    live: re.Pattern[str],
    list_layout: tuple[str, str, str],
    ids: Ids,
    lead: Node,
) -> Frame:
    """The layout of `write_calls` for grammars. Free text ends at a marker, or at a bare call."""
    opening, closing = block[0] + around[0], around[1] + block[1]
    before, after = ("", "") if shape.array else around
    call = json_call(
        live,
        name_key=shape.name_key,
        arguments_key=shape.arguments_key,
        id_key="" if ids == "none" else shape.id_key,
        id_first=ids == "numbers",
        keyed=shape.keyed,
        before=before,
        after=after,
    )
    bare = "[{" if shape.array else "{"
    starts = [each.text for each in markers if each.kind == "calls" and each.text in opening]
    trigger = opening[: opening.index(starts[0]) + len(starts[0])] if starts else opening

    def triggers(tools: Sequence[ToolSpec]) -> list[str]:
        if trigger:
            return [trigger]
        return [
            f'{bare}"{shape.name_key}": {json.dumps(spec.name, ensure_ascii=False)}, "{shape.arguments_key}": '
            for spec in tools
        ]

    def avoid(_tools: Sequence[ToolSpec]) -> list[Pattern]:
        """An array of bare calls, in a dialect without a marker; else a bare call at the start of the turn."""
        call, type_key = ((*items_of("{"), SPACE, *items_of(key)) for key in ('"name"', '"type"'))
        array = (*items_of("["), SPACE, *call)
        if not opening:
            return [Pattern(array)]
        at_start = (call, type_key, array, (*items_of("["), SPACE, *type_key))
        return [Pattern((SPACE, *each), anchored=True) for each in at_start] if shape.wraps else []

    def schema(tools: Sequence[ToolSpec], max_calls: int | None) -> JSON:
        if shape.array:
            return calls_schema(tools, shape.name_key, shape.arguments_key, max_calls)
        if max_calls != 1:
            raise ConfigurationError("several calls of this dialect are not one JSON value; set max_calls to 1")
        return call_schema(tools, shape.name_key, shape.arguments_key)

    if not shape.array:
        return Frame(
            call=call,
            start=block[0],
            joint=between,
            end=block[1],
            triggers=triggers,
            avoid=avoid,
            json_schema=None if opening else schema,
        )
    return Frame(
        call=call,
        start=f"{opening}{list_layout[0]}",
        lead=lead,
        joint=list_layout[1],
        end=f"{list_layout[2]}{closing}",
        triggers=triggers,
        avoid=avoid if opening else None,
        json_schema=None if opening else schema,
    )


def tagged_result(name: str) -> WriteResult:
    """Writes each result in an element of this name, on its own lines."""
    return lambda escaper, result: f"<{name}>\n{escaper.result_text(result)}\n</{name}>"


STRICT_JSON = "- Strict JSON: double quotes, no comments, no trailing comma; write a line break in a string as \\n."
ONE_ARRAY = f"- All calls of a message stand in one array.\n{STRICT_JSON}"
EACH_ALONE = f"- One JSON object for each call; several calls one after the other.\n{STRICT_JSON}"
