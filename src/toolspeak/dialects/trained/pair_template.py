"""GLM and the models that write calls as keys and values: one line of JSON for each tool, in `<tools>`."""

from __future__ import annotations

from toolspeak.dialects.trained.template import Template, WriteTools, fill_tools, first_message, in_system, tool_lines

_HEAD = "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
_TOOLS = "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{tools}\n</tools>\n\n"
_PAIRS = """\
<tool_call>{function-name}
<arg_key>{arg-key-1}</arg_key>
<arg_value>{arg-value-1}</arg_value>
<arg_key>{arg-key-2}</arg_key>
<arg_value>{arg-value-2}</arg_value>
...
</tool_call>"""
_GLM = "For each function call, output the function name and arguments within the following XML format:\n"


_LING = f"""\
If none of the functions can be used, point it out. If the given question lacks the parameters required by the function, \
also point it out.
If you need to use a function, for each function call, output the function name and arguments within the following XML \
format:
{_PAIRS}"""
_HY3 = """\
For function call returns, you should first print <tool_calls:opensource>
For each function call, you should return object like:
<tool_call:opensource>{function-name}<tool_sep:opensource>
<arg_key:opensource>{arg-key-1}</arg_key:opensource>
<arg_value:opensource>{arg-value-1}</arg_value:opensource>
<arg_key:opensource>{arg-key-2}</arg_key:opensource>
<arg_value:opensource>{arg-value-2}</arg_value:opensource>
...
</tool_call:opensource>
At the end of function call returns, you should print </tool_calls:opensource>"""


def _with_tools(rules: str) -> WriteTools:
    return fill_tools(_HEAD + _TOOLS + rules, tool_lines)


GLM46 = Template(
    source="zai-org/GLM-4.6, of 4.5 too", place=first_message(_with_tools(f"{_GLM}{_PAIRS}")), tool_turns=True
)
GLM47 = Template(
    source="zai-org/GLM-4.7-Flash",
    # Its template writes a line break between `<|system|>` and the tools, and none before a system text.
    place=first_message(fill_tools(f"\n{_HEAD}{_TOOLS}{_GLM}{_PAIRS.replace(chr(10), '')}", tool_lines)),
    tool_turns=True,
)
LING3 = Template(source="inclusionAI/Ling-3.0-flash", place=in_system(_with_tools(_LING), joint="\n"), tool_turns=True)
HY3 = Template(source="tencent/Hy3", place=in_system(_with_tools(_HY3)), tool_turns=True)
