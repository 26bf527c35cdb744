"""Muse: the tools as lines of JSON after the system text, with an example of a call."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.trained.template import Template, dump, in_system


def _tools(tools: Sequence[ToolSpec]) -> str:
    spaces = dict.fromkeys(spec.name.split(".")[0] for spec in tools)
    metadata = "".join(f'{{"name": {dump(space)}, "description": ""}}\n' for space in spaces)
    schemas = "".join(
        f'\n{{"name": {dump(spec.name)}, "description": {dump(spec.description)}, "parameters": {dump(spec.parameters)}}}'
        for spec in tools
    )
    return f"""\
In this environment you have access to a set of tools you can use to answer the user's question.

You can invoke a function by writing a "<atem:function_calls>" block like the following:
<atem:function_calls>
<atem:invoke name="$FUNCTION_NAME">
<atem:parameter name="$PARAMETER_NAME">$PARAMETER_VALUE</atem:parameter>
...
</atem:invoke>
</atem:function_calls>

String and scalar parameters should be specified as is, while lists and objects should use JSON format. Note that \
spaces for string values are not stripped. The output is not expected to be valid XML and is parsed with regular \
expressions.
Here are the functions available in JSONSchema format:
// Tool metadata
{metadata}// Function schemas{schemas}

Here's an example of how to call a function in the tool set:
(If the tool namespace is not specified, invoke the function directly as `example_function_name` rather than \
`example_tool_name.example_function_name`)

to=example_tool_name.example_function_name

<atem:function_calls>
<atem:invoke name="example_tool_name.example_function_name">
<atem:parameter name="example_parameter_1">value_1</atem:parameter>
<atem:parameter name="example_parameter_2">This is the value for the second parameter
that can span
"multiple" lines
</atem:parameter>
</atem:invoke>
</atem:function_calls>"""


MUSE = Template(source="muse-glimmer, as llama.cpp has it", place=in_system(_tools))
