"""Declares a dialect whose calls and arguments are elements with a name, `<invoke name="f"><parameter name="k">`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from toolspeak.data.messages import JSON, MalformedCall, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import Calls, DeclaredDialect, ResultLayout, Tools
from toolspeak.dialects.grammar.ir import Node, Rules, series
from toolspeak.dialects.grammar.text_frames import Argument, argument, in_order
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.prompts.rendering import marker_prefix
from toolspeak.dialects.readers.body import Body
from toolspeak.dialects.readers.element_tags import ElementSyntax
from toolspeak.dialects.readers.elements import ElementCalls
from toolspeak.dialects.readers.foreign_formats import form_body, with_forms
from toolspeak.dialects.readers.tagged_values import TEXT, needs_mark, value_types, write_json, write_text
from toolspeak.dialects.text.block_delimiters import Alone, FirstTag, Starts, Texts
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.dialects.text.scan import Caps


@quick(kw_only=True)
class ElementLayout:
    """How calls are laid out."""

    block: tuple[str, str] = ("", "")
    """Start and end of a block of calls."""
    each: bool = False
    """Whether each call has its own block; otherwise one block holds all calls."""
    before: str = ""
    after: str = ""
    joint: str = "\n"
    """The text between calls, or between their blocks."""
    gap: str = "\n"
    """The text between tags."""
    edge: str = ""
    """The text on both sides of a value."""


@quick()
class Spelling:
    """Another way to write the tags. It is read and never written."""

    syntax: ElementSyntax
    wrappers: Sequence[tuple[str, str]]
    """The markers of blocks: start and end."""

    def markers(self, forms: Sequence[str]) -> Iterator[Marker]:
        syntax, texts = self.syntax, tuple(end for _, end in self.wrappers)
        call = syntax.call if syntax.call.endswith("=") else f"{syntax.call} "
        for start, end in self.wrappers:
            yield with_forms(Marker("calls", start, end, Texts((call, end))), forms)
        inner = ("<name>",) if syntax.named_inside else (syntax.argument, syntax.call_end)
        yield Marker("calls", syntax.call.removesuffix(">"), syntax.call_end, FirstTag(inner), tails=texts)


def element_dialect(
    info: DialectInfo,
    syntax: ElementSyntax,
    layout: ElementLayout,
    *,
    wrappers: Sequence[tuple[str, str]] = (),
    bare: bool = True,
    forms: Sequence[str] = (),
    also: Sequence[Spelling] = (),
    tails: Sequence[str] = (),
    reasoning: tuple[str, str] | None = ("<think>", "</think>"),
    results: ResultLayout,
    results_marker: tuple[str, str] | None,
    live: Sequence[str],
    rules: str,
) -> DeclaredDialect:
    """Makes a dialect of elements.

    - `wrappers`: start and end of blocks, the usual ones first.
    - `bare`: a call may also lack a block; one of `tails` or a block's end may follow it.
    - `forms`: the other forms in which a block may be filled (`with_forms`).
    - `also`: other spellings of the tags, which are read.
    - `results_marker`: start and end of results that the model forges.
    - `live`: the names whose tags are escaped in results.
    """
    first = (syntax.call, *syntax.fillers)
    markers = [with_forms(Marker("calls", start, end, Texts((*first, end))), forms) for start, end in wrappers]
    if bare:
        after = tuple(dict.fromkeys((*(end for _, end in wrappers), *tails)))
        inner = (syntax.argument, syntax.call_end)
        markers.append(Marker("calls", syntax.call, syntax.call_end, FirstTag(inner), tails=after))
    syntaxes = {marker.text: syntax for marker in markers}
    for spelling in also:
        additions = [each for each in spelling.markers(forms) if each.text not in syntaxes]
        syntaxes.update((marker.text, spelling.syntax) for marker in additions)
        markers += additions
    if results_marker:
        # A line break that the template writes after the marker distinguishes it from prose; otherwise the marker does.
        starts_on_new_line = f"{results_marker[0]}\n" in (results.before or results.start)
        markers.append(
            Marker("results", *results_marker, Starts('\n[{"') if starts_on_new_line else Alone(), plain=True)
        )
    if reasoning:
        markers.append(Marker("reasoning", *reasoning))
    live_pattern = marker_prefix(live)
    ends = re.compile(rf"{syntax.ends.pattern}|{live_pattern.pattern}")

    def new_body(marker: Marker, first_index: int, caps: Caps, tools: Tools) -> Body:
        if marker.form:
            return form_body(marker, tools, first_index, caps)
        block = (marker.text, marker.end or "")
        bare = isinstance(marker.opening, FirstTag)
        return ElementCalls(syntaxes[marker.text], block, tools, first_index, caps, bare)

    def write_calls(calls: Calls, tools: Tools) -> str:
        start, end = layout.block
        bodies = [write_call(call, tools.get(call.name or ""), syntax, layout, ends) for call in calls]
        whole = next((call for call in calls if isinstance(call, MalformedCall) and call.whole_block), None)
        if whole is not None and start:
            bodies = [whole.raw.strip()]
        if layout.each:
            return layout.joint.join(f"{start}{layout.gap}{text}{layout.gap}{end}" for text in bodies)
        block = layout.joint.join(bodies)
        return f"{start}{layout.gap}{block}{layout.gap}{end}" if start else block

    return DeclaredDialect(
        info=info,
        table=MarkerTable(markers, info.stop),
        new_body=new_body,
        write_calls=write_calls,
        results=results,
        live=live_pattern,
        frame=_frame(syntax, layout, ends),
        rules=rules,
    )


def _frame(syntax: ElementSyntax, layout: ElementLayout, ends: re.Pattern[str]) -> Frame:
    """The layout of `write_calls`, for grammars."""
    start, end = layout.block
    before, after = (f"{start}{layout.gap}", f"{layout.gap}{end}") if start else ("", "")

    def call(spec: ToolSpec, rules: Rules) -> Node:
        node = call_node(spec, rules, syntax, layout, ends)
        return series(before, node, after) if layout.each else node

    outer = ("", "") if layout.each else (before, after)
    trigger = start or syntax.call
    return Frame(call=call, start=outer[0], joint=layout.joint, end=outer[1], triggers=lambda _: [trigger])


def call_node(
    spec: ToolSpec, rules: Rules, syntax: ElementSyntax, layout: ElementLayout, ends: re.Pattern[str]
) -> Node:
    """What `write_call` may write for a tool, for grammars."""

    def argument_node(name: str, schema: JSON) -> Node:
        how = Argument(
            text=syntax.open(syntax.argument, name, ' string="true"' if syntax.typed else ""),
            json=syntax.open(syntax.argument, name, ' string="false"' if syntax.typed else ""),
            explicit_json=syntax.open(syntax.argument, name, ' string="false"' if syntax.typed else ' type="json"'),
            edge=layout.edge,
            end=syntax.argument_end,
            avoid=(syntax.call_end, syntax.argument),
            write_fixed=lambda value: _write_argument(name, value, spec, syntax, layout, ends),
        )
        return series(layout.gap, argument(spec, name, schema, rules, how))

    opening, closing = syntax.open(syntax.call, spec.name), f"{layout.gap}{syntax.call_end}{layout.after}"
    return series(layout.before, opening, *in_order(spec, argument_node), closing)


def write_call(
    call: ToolCall | MalformedCall,
    spec: ToolSpec | None,
    syntax: ElementSyntax,
    layout: ElementLayout,
    ends: re.Pattern[str],
) -> str:
    if isinstance(call, MalformedCall):
        return call.raw.strip()
    arguments = [_write_argument(name, value, spec, syntax, layout, ends) for name, value in call.arguments.items()]
    lines = [syntax.open(syntax.call, call.name), *arguments, syntax.call_end]
    return layout.before + layout.gap.join(lines) + layout.after


def _write_argument(
    name: str, value: JSON, spec: ToolSpec | None, syntax: ElementSyntax, layout: ElementLayout, ends: re.Pattern[str]
) -> str:
    types = value_types(spec, name, syntax.guesses)
    if isinstance(value, str):
        attribute = ' string="true"' if syntax.typed else ""
        text = write_text(value, ends, TEXT if syntax.typed else types)
    else:
        needs_type = not syntax.typed and needs_mark(value, types)
        attribute = ' string="false"' if syntax.typed else ' type="json"' if needs_type else ""
        text = write_json(value)
    return f"{syntax.open(syntax.argument, name, attribute)}{layout.edge}{text}{layout.edge}{syntax.argument_end}"
