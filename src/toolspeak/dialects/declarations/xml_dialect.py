"""Declares a dialect whose arguments are elements named after them, `<path>a.txt</path>`, in a block of calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import MalformedCall, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import Calls, DeclaredDialect, Tools
from toolspeak.dialects.grammar.ir import Node, Rules, series
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.prompts.rendering import marker_prefix, result_text
from toolspeak.dialects.readers.body import Body, skip_space
from toolspeak.dialects.readers.open_call import OpenCall
from toolspeak.dialects.readers.tagged_values import escape_name, unescape_name
from toolspeak.dialects.readers.xml_calls import XmlCalls
from toolspeak.dialects.readers.xml_tags import NAMED_ARGUMENT, NAMED_CALL, XmlTag, open_tag
from toolspeak.dialects.readers.xml_values import argument_nodes, markers_of, write_argument
from toolspeak.dialects.text.block_delimiters import Starts
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.dialects.text.scan import MAX_CANDIDATE, Caps

XML_RULES = """\
- One element for each argument, its value between the tags as it is: no quotes, no escapes; arrays and objects as JSON.
- Only a text that holds its own end tag goes into <![CDATA[…]]>."""


@quick(kw_only=True)
class XmlTags:
    """The names of a dialect's elements."""

    block: str
    """Holds the calls of a turn."""
    call: str = ""
    """Holds a call; empty: the tool's name is the element's."""
    name: str = "tool_name"
    """Holds the tool's name in a `call`."""
    arguments: str = "parameters"
    """Holds the arguments in a `call`."""

    def head(self, name: str) -> tuple[str, ...]:
        """The lines before a call's arguments."""
        if self.call:
            return f"<{self.call}>", f"<{self.name}>{escape_name(name)}</{self.name}>", f"<{self.arguments}>"
        return (open_tag(name, NAMED_CALL)[0],)

    def foot(self, name: str) -> tuple[str, ...]:
        """The lines after a call's arguments."""
        return (f"</{self.arguments}>", f"</{self.call}>") if self.call else (f"</{open_tag(name, NAMED_CALL)[1]}>",)


def xml_dialect(
    info: DialectInfo,
    tags: XmlTags,
    *,
    result: str,
    results: str = "{}",
    results_marker: tuple[str, str] | None,
    reasoning: tuple[str, str] | None = ("<think>", "</think>"),
    live: Sequence[str],
    rules: str = "",
) -> DeclaredDialect:
    """Makes a dialect of XML calls.

    - `result`: the frame of one result, with `{}` for its text and, before that, `{name}` for the tool's name.
    - `results`: the frame of a batch, with `{}` for its results.
    - `results_marker`: start and end of results that the model forges.
    - `live`: the names whose tags are escaped in results: those of calls, results and reasoning.
    """
    live_pattern, avoid = marker_prefix(live), markers_of(live)
    start, end = f"<{tags.block}>", f"</{tags.block}>"
    markers = [Marker("calls", start, end, Starts("<"))]
    if results_marker:
        markers.append(Marker("results", *results_marker, plain=True))
    if reasoning:
        markers.append(Marker("reasoning", *reasoning))

    def new_body(_marker: Marker, first_index: int, caps: Caps, tools: Tools) -> Body:
        if tags.call:
            return _WrappedCalls(tags, tools, first_index, caps)
        return XmlCalls(tags.block, tools, first_index, caps)

    def write_call(call: ToolCall | MalformedCall, tools: Tools) -> str:
        if isinstance(call, MalformedCall):
            return call.raw.strip()
        spec = tools.get(call.name)
        arguments = (write_argument(name, value, spec, live_pattern) for name, value in call.arguments.items())
        return "\n".join((*tags.head(call.name), *arguments, *tags.foot(call.name)))

    def write_calls(calls: Calls, tools: Tools) -> str:
        return "\n".join((start, *(write_call(call, tools) for call in calls), end))

    before, _, after = result.partition("{}")

    def write_result(each: ToolResult) -> str:
        return f"{before.replace('{name}', escape_name(each.name))}{result_text(each, live_pattern)}{after}"

    def write_results(batch: Sequence[ToolResult]) -> str:
        return results.replace("{}", "\n".join(map(write_result, batch)))

    def call_node(spec: ToolSpec, grammar_rules: Rules) -> Node:
        head, foot = ("\n".join(lines) for lines in (tags.head(spec.name), tags.foot(spec.name)))
        return series(
            f"{head}\n",
            *argument_nodes(spec, grammar_rules, live_pattern, (*avoid, tags.foot(spec.name)[0]), "\n"),
            foot,
        )

    return DeclaredDialect(
        info=info,
        table=MarkerTable(markers, info.stop),
        new_body=new_body,
        write_calls=write_calls,
        write_results=write_results,
        live=live_pattern,
        frame=Frame(call=call_node, start=f"{start}\n", joint="\n", end=f"\n{end}", triggers=lambda _: [start]),
        rules=rules,
    )


class _WrappedCalls(XmlCalls):
    """Implements `Body` for calls with an element for the name and one for the arguments."""

    whole = None

    def __init__(self, tags: XmlTags, tools: Mapping[str, ToolSpec], first_index: int, caps: Caps) -> None:
        super().__init__(tags.block, tools, first_index, caps)
        self._tags = tags
        self._element = tags.arguments
        self._name_end = f"</{tags.name}>"
        self._offset = 0  # of the call's element
        self._has_arguments = False  # whether the arguments' element has begun
        self.example = f"<{tags.call}><{tags.name}>tool</{tags.name}><{tags.arguments}>…"

    def _open_element(self, tag: XmlTag, text: str, position: int, out: list[Delta]) -> None:
        if tag.element != self._tags.call or tag.empty:
            self._fail("invalid_xml", f"expected {self.example}, found <{tag.element}>", position)
            return
        self._offset, self._has_arguments = self._base + position, False
        self._state = self._in_element

    def _in_element(self, text: str, position: int, out: list[Delta]) -> int:
        """Between the parts of a call."""
        position = skip_space(text, position)
        tag = self._read_tag(text, position, NAMED_ARGUMENT)
        if tag is None:
            return position
        stop, call, tags = position + tag.length, self._call, self._tags
        if tag.closing and (tag.element == tags.call or tag.element.lower() == self._block):
            call = call or self._start_named_call("", position, out)
            if tag.element != tags.call:
                call.notes.append("missing_closer")
                stop = position
            self._end_call(text, stop, out)
        elif not tag.closing and not tag.empty and tag.element == tags.name and call is None:
            self._state = self._in_name
        elif not tag.closing and tag.element == tags.arguments and call is not None and not self._has_arguments:
            self._has_arguments = True
            self._state = self._in_element if tag.empty else self._in_call
        else:
            element = f"<{'/' if tag.closing else ''}{tag.element}>"
            self._fail("invalid_xml", f"{element} is not allowed here; write {self.example}", position)
            return position
        return stop

    def _in_name(self, text: str, position: int, out: list[Delta]) -> int:
        at = text.find("<", position, position + MAX_CANDIDATE)
        if at >= 0 and text.startswith(self._name_end, at):
            self._start_named_call(unescape_name(text[position:at].strip()), position, out)
            self._state = self._in_element
            return at + len(self._name_end)
        if len(text) - position >= MAX_CANDIDATE or not self._name_end.startswith(text[at:] if at >= 0 else ""):
            self._fail("invalid_xml", f"expected a tool's name and {self._name_end}", position)
        else:
            self._wait = True
        return position

    def _start_named_call(self, name: str, position: int, out: list[Delta]) -> OpenCall:
        call = self._start_call(name, position, out)
        call.offset = self._offset
        return call

    def _close(self, call: OpenCall, text: str, stop: int, out: list[Delta]) -> None:
        """Ends the arguments. The call ends with its element."""
        self._state = self._in_element

    def _follows_call(self, tag: XmlTag) -> bool:
        return tag.closing and (tag.element == self._tags.call or tag.element.lower() == self._block)
