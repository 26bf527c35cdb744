"""Cogency's XML protocol: think, execute calls written as elements, read the results."""

from __future__ import annotations

from collections.abc import Mapping

from toolspeak.data.messages import MalformedCall, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.grammar.ir import Node, Rules, series
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.protocols.cogency import (
    EARLIER,
    EXECUTE,
    MARKERS,
    RESULTS,
    THINK,
    CogencyDialect,
    marker_table,
)
from toolspeak.dialects.readers.xml_calls import XmlCalls
from toolspeak.dialects.readers.xml_tags import NAMED_CALL, open_tag
from toolspeak.dialects.readers.xml_values import argument_nodes, markers_of, write_argument
from toolspeak.dialects.text.markers import Marker
from toolspeak.dialects.text.scan import Caps

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
- The calls of a block take effect in their order; a failed call does not stop those after it.
- At most one block in a message. Without a block your message is the answer, and the work is over."""


_MARKERS = markers_of((EXECUTE, RESULTS, THINK))


def _call_node(spec: ToolSpec, rules: Rules) -> Node:
    """The layout of `CogencyXml.render_call` for grammars."""
    start, own = open_tag(spec.name, NAMED_CALL)
    avoid = (*_MARKERS, f"</{own}>")
    return series(start, *argument_nodes(spec, rules, MARKERS, avoid), f"</{own}>")


class CogencyXml(CogencyDialect):
    """Implements `Dialect`."""

    name = "cogency-xml"
    info = DialectInfo(
        "cogency-xml",
        "<execute><tool><argument>value</argument></tool>…</execute>; results as a JSON array",
        "Cogency, docs/xml-protocol.md",
        native_schedule="sequential",
        arguments="text, typed by the tool's schema",
        results="a JSON array in <results>, in a user turn",
        earlier=EARLIER,
    )
    introduction = _INTRODUCTION
    table = marker_table("<[{")
    frame = Frame(
        call=_call_node,
        start=f"<{EXECUTE}>\n  ",
        joint="\n  ",
        end=f"\n</{EXECUTE}>",
        triggers=lambda _: [f"<{EXECUTE}>"],
    )

    def new_body(self, marker: Marker, first_index: int, caps: Caps, tools: Mapping[str, ToolSpec]) -> XmlCalls:
        return XmlCalls(EXECUTE, tools, first_index, caps)

    def render_call(self, call: ToolCall | MalformedCall, tools: Mapping[str, ToolSpec]) -> str:
        if isinstance(call, MalformedCall):
            return call.raw
        start, element = open_tag(call.name, NAMED_CALL)
        spec = tools.get(call.name)
        arguments = "".join(write_argument(name, value, spec, MARKERS) for name, value in call.arguments.items())
        return f"{start}{arguments}</{element}>"


COGENCY_XML = CogencyXml()
