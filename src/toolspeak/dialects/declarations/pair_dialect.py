"""A dialect of `pair_calls` as a declaration: its tags, and where its chat template puts line breaks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolspeak.data.messages import JSON, MalformedCall, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import Calls, DeclaredDialect, ResultLayout, Tools
from toolspeak.dialects.grammar.ir import Node, Rules, optional, series
from toolspeak.dialects.grammar.text_frames import Argument, argument, in_order
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.prompts.rendering import dump_json, marker_prefix
from toolspeak.dialects.readers.body import Body
from toolspeak.dialects.readers.foreign_formats import form_body, with_forms
from toolspeak.dialects.readers.pair_calls import PairCalls
from toolspeak.dialects.readers.pair_tags import PairTags
from toolspeak.dialects.readers.tagged_values import write_text
from toolspeak.dialects.text.block_delimiters import Follows, followed_by
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.dialects.text.scan import Caps

_RULES = """\
- In a block first the tool's name, then a key and a value for each argument.
- A value is everything between its tags, exactly: text and code stand there as they are, without quotes or escapes.
  Numbers, true, false and null are written plainly; arrays and objects as JSON.
- Only if a text contains such tags itself, wrap the whole value: <![CDATA[the text]]>"""


@quick()
class PairLayout:
    """What the chat template writes between tags: after the name and between key and value (`gap`), after each
    value, before the call's end (`last`, if there are arguments), and between calls."""

    gap: str = ""
    after_value: str = ""
    last: str = ""
    between: str = ""


LINES = PairLayout(gap="\n", after_value="\n", between="\n")


def pair_dialect(
    info: DialectInfo,
    tags: PairTags,
    layout: PairLayout,
    results: ResultLayout,
    *,
    thoughts: Sequence[Marker] = (Marker("reasoning", "<think>", "</think>"),),
    results_markers: Sequence[Marker] = (),
    also: Sequence[PairTags] = (),
    live: Sequence[str] = ("tool_call", "tool_response", "arg_key", "think"),
    rules: str = "",
) -> DeclaredDialect:
    """Makes a dialect of pairs. `also` are tags that are read and never written.

    A call without the element around all calls is read too.
    """
    by_marker = {marker.text: (each, is_wrapped) for each in (tags, *also) for marker, is_wrapped in _markers(each)}
    pattern = marker_prefix(live)

    def new_body(marker: Marker, first_index: int, caps: Caps, tools: Tools) -> Body:
        if marker.form:
            return form_body(marker, tools, first_index, caps)
        own_tags, is_wrapped = by_marker[marker.text]
        nameless = marker.text == own_tags.start("arg_key")
        return PairCalls(own_tags, is_wrapped, tools, first_index, caps, nameless=nameless)

    def write_calls(calls: Calls, tools: Tools) -> str:
        return _write_calls(tags, layout, calls, tools)

    calls_markers = [marker for each in (tags, *also) for marker, _ in _markers(each)]
    return DeclaredDialect(
        info=info,
        table=MarkerTable([*calls_markers, *results_markers, *thoughts], specials=info.stop),
        new_body=new_body,
        write_calls=write_calls,
        results=results,
        live=pattern,
        frame=_frame(tags, layout),
        rules=_RULES + (f"\n{rules}" if rules else ""),
    )


def _markers(tags: PairTags) -> list[tuple[Marker, bool]]:
    call = Marker(
        "calls", tags.start("tool_call"), tags.end("tool_call"), Follows(tags.call_follows, f"(?={tags.usual()})")
    )
    # A call without its beginning is malformed, and reported to the model.
    rest = Marker("calls", tags.start("arg_key"), tags.end("tool_call"), Follows(tags.key_follows))
    if not tags.block:
        return [(with_forms(call, ("json", "python", "function", "named_function")), False), (rest, False)]
    block = Marker(
        "calls",
        tags.start(tags.block),
        tags.end(tags.block),
        followed_by(tags.start("tool_call"), tags.end(tags.block)),
    )
    return [(block, True), (call, False), (rest, False)]


def _write_calls(tags: PairTags, layout: PairLayout, calls: Calls, tools: Tools) -> str:
    if not tags.block:
        return layout.between.join(_write_call(tags, layout, call, tools) for call in calls)
    start, end = tags.start(tags.block), tags.end(tags.block)
    unreadable = next((call for call in calls if isinstance(call, MalformedCall) and call.whole_block), None)
    if unreadable is not None:
        return f"{start}{unreadable.raw}{end}"
    parts = [start, *(_write_call(tags, layout, call, tools) for call in calls), end]
    return layout.between.join(parts)


def _write_call(tags: PairTags, layout: PairLayout, call: ToolCall | MalformedCall, tools: Tools) -> str:
    start, end = tags.start("tool_call"), tags.end("tool_call")
    if isinstance(call, MalformedCall):
        return f"{start}{call.raw}{end}"
    spec = tools.get(call.name)
    name_end = tags.start(tags.name_end) if tags.name_end else ""
    pairs = "".join(_write_pair(tags, layout, spec, name, value) for name, value in call.arguments.items())
    return f"{start}{call.name}{name_end}{layout.gap}{pairs}{layout.last if pairs else ''}{end}"


def _write_pair(tags: PairTags, layout: PairLayout, spec: ToolSpec | None, name: str, value: JSON) -> str:
    if isinstance(value, str):
        text = write_text(value, tags.value.pattern, tags.types(spec, name), "exact")
    else:
        text = dump_json(value, re.compile(f"<(?={re.escape(tags.value.end[1:])})"))
    key = f"{tags.start('arg_key')}{name}{tags.end('arg_key')}"
    return f"{key}{layout.gap}{tags.start('arg_value')}{text}{tags.end('arg_value')}{layout.after_value}"


def _frame(tags: PairTags, layout: PairLayout) -> Frame:
    """The layout of `_write_calls` for grammars."""
    name_end = tags.start(tags.name_end) if tags.name_end else ""

    def call(spec: ToolSpec, rules: Rules) -> Node:
        def pair(name: str, schema: JSON) -> Node:
            opening = f"{tags.start('arg_key')}{name}{tags.end('arg_key')}{layout.gap}{tags.start('arg_value')}"
            how = Argument(
                text=opening,
                json=opening,
                explicit_json=None,
                end=tags.end("arg_value"),
                avoid=(tags.start("arg_key"), tags.end("tool_call")),
                write_fixed=lambda value: _write_pair(tags, layout, spec, name, value).removesuffix(layout.after_value),
            )
            return series(argument(spec, name, schema, rules, how), layout.after_value)

        pairs = list(in_order(spec, pair))
        opening = f"{tags.start('tool_call')}{spec.name}{name_end}{layout.gap}"
        # A call may have no arguments, and then nothing follows them.
        last = optional(layout.last) if pairs and layout.last else ""
        return series(opening, *pairs, last, tags.end("tool_call"))

    if not tags.block:
        return Frame(call=call, joint=layout.between, triggers=lambda _: [tags.start("tool_call")])
    start, end = f"{tags.start(tags.block)}{layout.between}", f"{layout.between}{tags.end(tags.block)}"
    return Frame(call=call, start=start, joint=layout.between, end=end, triggers=lambda _: [tags.start(tags.block)])
