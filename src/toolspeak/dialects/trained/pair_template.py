"""GLM and those that write calls as keys and values: a line of JSON for each tool in `<tools>`."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.prompt import Prompt
from toolspeak.dialects.trained.hermes_template import first_message
from toolspeak.dialects.trained.template import Template, in_system, tool_lines

_HEAD = "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
_LISTED = "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{tools}\n</tools>\n\n"
_PAIRS = """\
<tool_call>{function-name}
<arg_key>{arg-key-1}</arg_key>
<arg_value>{arg-value-1}</arg_value>
<arg_key>{arg-key-2}</arg_key>
<arg_value>{arg-value-2}</arg_value>
...
</tool_call>"""
_GLM = "For each function call, output the function name and arguments within the following XML format:\n"


def _listed(tools: Sequence[ToolSpec]) -> str:
    return _HEAD + _LISTED.replace("{tools}", tool_lines(tools))


def _glm46(tools: Sequence[ToolSpec]) -> str:
    return f"{_listed(tools)}{_GLM}{_PAIRS}"


def _glm47(tools: Sequence[ToolSpec]) -> str:
    return f"{_listed(tools)}{_GLM}{_PAIRS.replace(chr(10), '')}"


def _glm47_place(system: str, tools: Sequence[ToolSpec]) -> Prompt:
    # Its template writes a line break between `<|system|>` and the tools, and none in front of a system text.
    return first_message(lambda tools: f"\n{_glm47(tools)}")(system, tools)


def _ling(tools: Sequence[ToolSpec]) -> str:
    return (
        f"{_listed(tools)}If none of the functions can be used, point it out. If the given question lacks the "
        "parameters required by the function, also point it out.\n"
        "If you need to use a function, for each function call, output "
        f"the function name and arguments within the following XML format:\n{_PAIRS}"
    )


def _hy3(tools: Sequence[ToolSpec]) -> str:
    return (
        f"{_listed(tools)}For function call returns, you should first print <tool_calls:opensource>\n"
        "For each function call, you should return object like:\n"
        "<tool_call:opensource>{function-name}<tool_sep:opensource>\n"
        "<arg_key:opensource>{arg-key-1}</arg_key:opensource>\n"
        "<arg_value:opensource>{arg-value-1}</arg_value:opensource>\n"
        "<arg_key:opensource>{arg-key-2}</arg_key:opensource>\n"
        "<arg_value:opensource>{arg-value-2}</arg_value:opensource>\n...\n</tool_call:opensource>\n"
        "At the end of function call returns, you should print </tool_calls:opensource>"
    )


GLM46 = Template(source="zai-org/GLM-4.6, of 4.5 too", place=first_message(_glm46), tool_turns=True)
GLM47 = Template(source="zai-org/GLM-4.7-Flash", place=_glm47_place, tool_turns=True)
LING3 = Template(source="inclusionAI/Ling-3.0-flash", place=in_system(_ling, joint="\n"), tool_turns=True)
HY3 = Template(source="tencent/Hy3", place=in_system(_hy3), tool_turns=True)
