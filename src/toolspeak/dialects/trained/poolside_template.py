"""Poolside's Laguna and iFlytek's Spark: a line of JSON for each tool; calls as GLM writes them."""

from __future__ import annotations

from toolspeak.dialects.trained.template import (
    Template,
    before_system,
    fill_tools,
    function_lines,
    in_system,
    tool_lines,
)

_IDENTITY = (
    "You are a helpful, conversationally-fluent assistant made by Poolside. You are here to be helpful to users through "
    "natural language conversations."
)


_LIST = """\
### Tools

You may call functions to assist with the user query.
All available function signatures are listed below:
<available_tools>
{tools}
</available_tools>"""
_FORMAT = """

For each function call, return an unescaped XML-like object with function name and arguments within '<tool_call>' and \
'</tool_call>' tags, like here:
<tool_call>function-name
<arg_key>argument-key</arg_key>
<arg_value>value-of-argument-key</arg_value>
</tool_call>"""
_LIST_AND_FORMAT = fill_tools(_LIST + _FORMAT, tool_lines)
_SPARK = "## Tools\nYou have access to the following functions:\n<tools>\n{tools}\n</tools>"


LAGUNA_XS2 = Template(
    source="poolside/Laguna-XS.2",
    models=("laguna",),
    place=in_system(_LIST_AND_FORMAT, default=_IDENTITY),
    tool_turns=True,
)
LAGUNA_XS21 = Template(
    source="poolside/Laguna-XS-2.1",
    models=("laguna-xs-2.1",),
    place=in_system(_LIST_AND_FORMAT, lead="\n"),
    tool_turns=True,
)
LAGUNA_S21 = Template(
    source="poolside/Laguna-S-2.1",
    place=in_system(fill_tools(_LIST, tool_lines), default=_IDENTITY),
    gap="",
    tool_turns=True,
)
SPARK25 = Template(
    source="iFlytek Spark2.5", place=before_system(fill_tools(_SPARK, function_lines)), gap="", tool_turns=True
)
