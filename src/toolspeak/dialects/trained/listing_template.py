"""Models whose templates list the tools after the system text, each as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from toolspeak.data.messages import MalformedCall, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.prompts.rendering import join_block
from toolspeak.dialects.trained.hermes_template import QWEN_PROMPT
from toolspeak.dialects.trained.template import (
    Template,
    dump,
    fill_tools,
    function_of,
    in_system,
    tool_array,
    tool_lines,
    tool_of,
)

# --- Bielik -----------------------------------------------------------------------------------------


def _bielik_tools(tools: Sequence[ToolSpec]) -> str:
    tool_text = ",\n".join(dump(tool_of(spec)) for spec in tools)
    return (
        "Masz dostęp do następujących narzędzi. Definicje narzędzi znajdują się poniżej wewnątrz znaczników "
        f"<|function_list|>:\n<|function_list|>\n[{tool_text}]\n<|function_list|>\n\nAby wywołać narzędzie, użyj formatu "
        '<tool_call>{"name": "nazwa_narzędzia", "arguments": {"argument": "wartość"}}</tool_call>. Wyniki działania '
        "narzędzi zostaną przekazane z markerem <|function_output|>.\n"
    )


def _bielik_results(_results: Sequence[ToolResult], texts: Sequence[str]) -> str:
    return "".join(f"<|function_output|>{text}" for text in texts)


BIELIK = Template(
    source="speakleash/Bielik-11B-v3.0-Instruct",
    models=("bielik",),
    place=in_system(_bielik_tools, lead="\n\n"),
    results=_bielik_results,
    tool_turns=True,
)

# --- Step, MiniCPM ------------------------------------------------------------------------------------


_STEP = """\
# Tools

You have access to the following functions in JSONSchema format:

<tools>
{tools}
</tools>

If you choose to call a function ONLY reply in the following format with NO suffix:

<tool_call>
<function=example_function_name>
<parameter=example_parameter_1>
value_1
</parameter>
<parameter=example_parameter_2>
This is the value for the second parameter
that can span
multiple lines
</parameter>
</function>
</tool_call>

<IMPORTANT>
Reminder:
- Function calls MUST follow the specified format: an inner <function=...>
...
</function> block must be nested within <tool_call>
...
</tool_call> XML tags
- Required parameters MUST be specified
</IMPORTANT>"""


_MINICPM = """\
# Tools

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

Tool usage guidelines:
- You may call zero or more functions. If no function calls are needed, just answer normally and do not include any \
<function ... </function>.
- When calling a function, return an XML object within <function ... </function> using:
<function name="function-name"><param name="param-name">param-value</param></function>
- param-value may be multi-line. If it contains <, & or newline characters, wrap it in a CDATA block: \
<param name="param-name"><![CDATA[...multi-line value...]]></param>"""


STEP35 = Template(
    source="stepfun-ai/Step-3.5-Flash", place=in_system(fill_tools(_STEP, tool_lines)), gap="", tool_turns=True
)
MINICPM5 = Template(source="openbmb/MiniCPM5-1B", place=in_system(fill_tools(_MINICPM, tool_lines)), tool_turns=True)

# --- Reka -----------------------------------------------------------------------------------------------


def _ascii_lines(tools: Sequence[ToolSpec]) -> str:
    return "\n".join(json.dumps(tool_of(spec)) for spec in tools)


def _reka_turn(text: str, calls: Sequence[ToolCall | MalformedCall], block: str) -> str:
    # The JSON of a call holds no line break, and the template writes none between calls.
    block = block.replace("</tool_call>\n<tool_call>", "</tool_call><tool_call>") if len(calls) > 1 else block
    return join_block(text, block)


REKA = Template(
    source="RekaAI/reka-edge",
    models=("reka",),
    place=in_system(fill_tools(QWEN_PROMPT, _ascii_lines)),
    turn=_reka_turn,
    tool_turns=True,
)

# --- LFM2 -------------------------------------------------------------------------------------------------

LFM2 = Template(
    source="LiquidAI/LFM2-8B-A1B",
    place=in_system(fill_tools("List of tools: <|tool_list_start|>{tools}<|tool_list_end|>", tool_array), joint="\n"),
    tool_turns=True,
)
LFM25 = Template(
    source="LiquidAI/LFM2.5-8B-A1B and LFM2.5-Instruct",
    place=in_system(fill_tools("List of tools: {tools}", tool_array), joint="\n"),
    gap="",
    tool_turns=True,
)

# --- MiniMax ------------------------------------------------------------------------------------------------

_MINIMAX_DEFAULT = "You are a helpful assistant."


_MINIMAX = """\
# Tools
You may call one or more tools to assist with the user query.
Here are the tools available in JSONSchema format:

<tools>
{tools}</tools>

"""
_M2 = """\
When making tool calls, use XML format to invoke tools and pass parameters:

<minimax:tool_call>
<invoke name="tool-name-1">
<parameter name="param-key-1">param-value-1</parameter>
<parameter name="param-key-2">param-value-2</parameter>
...
</invoke>
</minimax:tool_call>"""

_M1 = """\
You are provided with these tools:
<tools>
{tools}
</tools>

If you need to call tools, please respond with <tool_calls></tool_calls> XML tags, and provide tool-name and \
json-object of arguments, following the format below:
<tool_calls>
{"name": <tool-name>, "arguments": <args-json-object>}
...
</tool_calls>"""


def _m1_results(_results: Sequence[ToolResult], texts: Sequence[str]) -> str:
    return "".join(f"tool result: {text}\n\n" for text in texts)


_M3 = """\
To call tools, wrap all invocations in a single |<tool_call>|</tool_call> block. Parameter values containing nested \
objects or arrays are recursively expanded into XML elements. Example:

|<tool_call>
|<invoke name="tool-name-1">|<param-1>value-1|</param-1>|<param-2>|<item>|<key-a>val-a|</key-a>|<key-b>val-b|</key-b>\
|</item>|</param-2>|</invoke>
|<invoke name="tool-name-2">|<param-1>value-1|</param-1>|</invoke>
|</tool_call>""".replace("|", "]<]minimax[>[")


def _minimax_lines(tools: Sequence[ToolSpec]) -> str:
    return "".join(f"<tool>{dump(function_of(spec))}</tool>\n" for spec in tools)


MINIMAX_M1 = Template(
    source="MiniMaxAI/MiniMax-M1-80k",
    # A separate system turn, which one message can hold if the server reads the tokens in its text.
    place=in_system(
        fill_tools(_M1, tool_lines),
        joint="<end_of_sentence>\n<beginning_of_sentence>system tool_setting=tools\n",
        default="You are a helpful assistant created by Minimax based on MiniMax-M1 model.",
    ),
    results=_m1_results,
    tool_turns=True,
)
MINIMAX_M2 = Template(
    source="MiniMaxAI/MiniMax-M2", place=in_system(fill_tools(_MINIMAX + _M2, _minimax_lines), default=_MINIMAX_DEFAULT)
)
MINIMAX_M3 = Template(
    source="MiniMaxAI/MiniMax-M3",
    place=in_system(fill_tools(_MINIMAX + _M3, _minimax_lines), default=_MINIMAX_DEFAULT),
    gap="",
)

# --- Solar ----------------------------------------------------------------------------------------------------


def _solar_tools(tools: Sequence[ToolSpec]) -> str:
    tool_text = "".join(f"<|tool:begin|>{dump(function_of(spec))}<|tool:end|>" for spec in tools)
    return (
        "## Tools\n\n### Tool Call Instruction\nYou may invoke one or more tools to assist with the user's query. "
        "Available tools are provided in JSON Schema format: <|tools:begin|><|tool:begin|><tools-json-object>"
        "<|tool:end|>...<|tools:end|>\n\n### Available Tools\n"
        f"<|tools:begin|>{tool_text}<|tools:end|>\n\n### Tool Call Format\n"
        "For each tool call, return a JSON object with the following structure, enclosed within <|tool_call:begin|> "
        "and <|tool_call:end|> tags: \n<|tool_call:begin|><tool-call-id><|tool_call:name|><tool-name>"
        "<|tool_call:args|><args-json-object><|tool_call:end|>\n"
        "- The <tool-call-id> must be a randomly generated string consisting of 10 lowercase letters (a-z) and/or "
        "digits (0-9) (e.g., a1b2c3d4e5)\n\n### Tool Response Format\n"
        "Each tool is responded by `tool` with the following structure:\n<|tool_response:id|><tool-call-id>"
        "<|tool_response:name|><tool-name><|tool_response:result|><results><|tool_response:end|>\n"
        "- Ensure the <tool-call-id> matches the corresponding tool call"
    )


SOLAR = Template(source="upstage/Solar-Open-100B", place=in_system(_solar_tools), gap="")
