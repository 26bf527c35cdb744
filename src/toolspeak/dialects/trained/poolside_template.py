"""Poolside's Laguna and iFlytek's Spark: a line of JSON for each tool; calls as GLM writes them."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.prompt import Prompt
from toolspeak.dialects.trained.template import Template, directly, function_lines, in_system, tool_lines

_IDENTITY = (
    "You are a helpful, conversationally-fluent assistant made by Poolside. You are here to be helpful to users through "
    "natural language conversations."
)


def _list(tools: Sequence[ToolSpec]) -> str:
    return (
        "### Tools\n\nYou may call functions to assist with the user query.\nAll available function signatures are "
        f"listed below:\n<available_tools>\n{tool_lines(tools)}\n</available_tools>"
    )


def _list_and_format(tools: Sequence[ToolSpec]) -> str:
    return (
        f"{_list(tools)}\n\nFor each function call, return an unescaped XML-like object with function name and arguments "
        "within '<tool_call>' and '</tool_call>' tags, like here:\n<tool_call>function-name\n<arg_key>argument-key"
        "</arg_key>\n<arg_value>value-of-argument-key</arg_value>\n</tool_call>"
    )


LAGUNA_XS2 = Template(
    source="poolside/Laguna-XS.2",
    models=("laguna",),
    place=in_system(_list_and_format, default=_IDENTITY),
    tool_turns=True,
)
LAGUNA_XS21 = Template(
    source="poolside/Laguna-XS-2.1",
    models=("laguna-xs-2.1",),
    place=in_system(_list_and_format, lead="\n"),
    tool_turns=True,
)
LAGUNA_S21 = Template(
    source="poolside/Laguna-S-2.1", place=in_system(_list, default=_IDENTITY), turn=directly, tool_turns=True
)


def _spark_place(system: str, tools: Sequence[ToolSpec]) -> Prompt:
    listing = f"## Tools\nYou have access to the following functions:\n<tools>\n{function_lines(tools)}\n</tools>"
    return Prompt((f"{listing}\n\n{system}" if system else listing,))


SPARK25 = Template(source="iFlytek Spark2.5", place=_spark_place, turn=directly, tool_turns=True)
