"""Granite and Nemotron Nano 2: the tools in the system text, or in a separate turn after it."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.trained.template import (
    Template,
    dump,
    fill_tools,
    function_array,
    in_system,
    tool_lines,
    tool_of,
)

_GRANITE4 = """\
You are a helpful assistant with access to the following tools. You may call one or more tools to assist with the user \
query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each tool call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>. If a tool does not exist in the provided list of tools, notify the user that you do not have the ability \
to fulfill the request."""

_GRANITE3 = (
    "Knowledge Cutoff Date: April 2024. You are Granite, developed by IBM. You are a helpful assistant with access to "
    "the following tools. When a tool is required to answer the user's query, respond only with <|tool_call|> followed "
    "by a JSON list of tools used. If a tool does not exist in the provided list of tools, notify the user that you do "
    "not have the ability to fulfill the request."
)
"""Without the date, which only the template knows."""

_NEMOTRON = """\
You can use the following tools to assist the user if required:
<AVAILABLE_TOOLS>{tools}</AVAILABLE_TOOLS>

If you decide to call any tool(s), use the following format:
<TOOLCALL>[{{"name": "tool_name1", "arguments": "tool_args1"}}, {{"name": "tool_name2", "arguments": "tool_args2"}}]\
</TOOLCALL>

The user will execute tool-calls and return responses from tool(s) in this format:
<TOOL_RESPONSE>[{{"tool_response1"}}, {{"tool_response2"}}]</TOOL_RESPONSE>

Based on the tool responses, you can call additional tools if needed, correct tool calls if any errors are found, or \
just respond to the user."""


def _granite3(tools: Sequence[ToolSpec]) -> str:
    return dump([tool_of(spec) for spec in tools], indent=4)


GRANITE4 = Template(
    source="ibm-granite/granite-4.0-h-small, of 4.1 too",
    place=in_system(fill_tools(_GRANITE4, tool_lines)),
    tool_turns=True,
)
GRANITE3 = Template(
    source="ibm-granite/granite-3.3-2b-instruct",
    # The end of the system's turn and the beginning of the tools': the template writes the end of theirs.
    place=in_system(
        _granite3,
        joint="<|end_of_text|>\n<|start_of_role|>available_tools<|end_of_role|>",
        default=_GRANITE3,
    ),
)
NEMOTRON2 = Template(
    source="nvidia/NVIDIA-Nemotron-Nano-9B-v2", place=in_system(fill_tools(_NEMOTRON, function_array)), tool_turns=True
)
