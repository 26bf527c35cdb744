"""Cogency's XML protocol: think, execute calls written as elements, read the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolspeak.data.messages import MalformedCall, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.grammar.ir import Node, Rules, series
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.parser.block_state import BlockFormat
from toolspeak.dialects.parser.blocks import BlockParser
from toolspeak.dialects.protocols.cogency import (
    BATCH,
    EARLIER,
    EXECUTE,
    MARKERS,
    RESULTS,
    THINK,
    CogencyDialect,
    marker_table,
    unreadable,
)
from toolspeak.dialects.readers.xml_calls import XmlCalls
from toolspeak.dialects.readers.xml_tags import NAMED_CALL, open_tag
from toolspeak.dialects.readers.xml_values import argument_nodes, markers_of, write_argument
from toolspeak.dialects.text.markers import Marker
from toolspeak.dialects.text.scan import Caps
from toolspeak.dialects.turn_rules import BatchRule, Section

_TABLE = marker_table("<[{")

_INTRODUCTION = """\
## Tools

You can use tools. To call them, write one <execute> block that holds an element for each call, and in it an
element for each argument:

{example}

- Element names are the tool's name and its argument names.
- A value is everything between its tags, exactly: text, code and HTML stand there as they are, with no escapes
  and no extra spaces or line breaks. Numbers, true and false are written plainly; arrays and objects as JSON.
- Only if a value contains an end tag of its own call, or one of this protocol's tags, wrap the whole value:
  <![CDATA[the value]]> (and write ]]> in it as ]]]]><![CDATA[>).
- The calls of a block take effect in their order; a failed call does not stop those behind it.
- At most one block in a message. Without a block your message is the answer, and the work is over."""


def _new_body(_marker: Marker, first_index: int, caps: Caps, tools: Mapping[str, ToolSpec]) -> XmlCalls:
    return XmlCalls(EXECUTE, tools, first_index, caps)


class CogencyXml(CogencyDialect):
    """Implements `Dialect`."""

    name = "cogency-xml"
    info = DialectInfo(
        "cogency-xml",
        "<execute><tool><argument>value</argument></tool>…</execute>; results as a JSON array",
        "Cogency, docs/xml-protocol.md",
        "sequential",
        arguments="text, typed by the tool's schema",
        results="a JSON array in <results>, in a user turn",
        earlier=EARLIER,
    )
    introduction = _INTRODUCTION

    def parser(self, tools: Sequence[ToolSpec] = (), starts_in: Section = "text") -> BlockParser:
        by_name = {spec.name: spec for spec in tools}
        format = BlockFormat(_TABLE, BATCH, _new_body, by_name, thoughts_hide=True, writes=self.example)  # noqa: A001
        return BlockParser(format, starts_in)

    def grammar_parts(self) -> tuple[Frame, Sequence[Marker], BatchRule]:
        return _FRAME, _TABLE.markers, self.batch

    def render_calls(self, calls: Sequence[ToolCall | MalformedCall], tools: Sequence[ToolSpec]) -> str:
        whole = unreadable(calls)
        if whole is not None:
            return f"<{EXECUTE}>{whole.raw}</{EXECUTE}>"
        by_name = {spec.name: spec for spec in tools}
        body = "\n".join(
            f"  {_element(call, by_name.get(call.name)) if isinstance(call, ToolCall) else call.raw}" for call in calls
        )
        return f"<{EXECUTE}>\n{body}\n</{EXECUTE}>"


def _element(call: ToolCall, spec: ToolSpec | None) -> str:
    start, element = open_tag(call.name, NAMED_CALL)
    arguments = "".join(write_argument(name, value, spec, MARKERS) for name, value in call.arguments.items())
    return f"{start}{arguments}</{element}>"


def _call_node(spec: ToolSpec, rules: Rules) -> Node:
    """The layout of `_element` for grammars."""
    start, own = open_tag(spec.name, NAMED_CALL)
    avoid = (*_MARKERS, f"</{own}>")
    return series(start, *argument_nodes(spec, rules, MARKERS, avoid), f"</{own}>")


_MARKERS = markers_of((EXECUTE, RESULTS, THINK))
_FRAME = Frame(
    call=_call_node,
    start=f"<{EXECUTE}>\n  ",
    joint="\n  ",
    end=f"\n</{EXECUTE}>",
    triggers=lambda _: [f"<{EXECUTE}>"],
)


COGENCY_XML = CogencyXml()
