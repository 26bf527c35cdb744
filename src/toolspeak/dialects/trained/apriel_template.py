"""Apriel: each tool as Python prints a dictionary, after the system text; Apertus: the types of gpt-oss."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.data.messages import as_list
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.prompt import Prompt
from toolspeak.dialects.trained.harmony_template import parameter
from toolspeak.dialects.trained.template import Template, in_a_new_line, in_system, tool_of

# --- Apriel -----------------------------------------------------------------------------------------


def _apriel15_list(tools: Sequence[ToolSpec]) -> str:
    tool_lines = "".join(f"{tool_of(spec)}\n" for spec in tools)
    return (
        "You are provided with function signatures within <available_tools></available_tools> XML tags. You may call one "
        "or more functions to assist with the user query. Don't make assumptions about the arguments. You should infer "
        "the argument values from previous user responses and the system message. Here are the available tools:\n"
        f"<available_tools>\n{tool_lines}</available_tools>"
    )


_APRIEL15_FORMAT = (
    "Return all function calls as a list of json objects within <tool_call></tool_call> XML tags. Each json object should "
    'contain a function name and arguments as follows:\n<tool_calls>[{"name": <function-name-1>, "arguments": '
    '<args-dict-1>}, {"name": <function-name-2>, "arguments": <args-dict-2>},...]</tool_calls>'
)


def _apriel15(system: str, tools: Sequence[ToolSpec]) -> Prompt:
    # The template describes the format of calls only without a system text.
    listing = _apriel15_list(tools)
    return Prompt((f"{system}\n{listing}" if system else f"{listing}\n{_APRIEL15_FORMAT}",))


def _apriel16_list(tools: Sequence[ToolSpec]) -> str:
    tool_texts = "".join(str(tool_of(spec)) for spec in tools)
    return f"""\
You are provided with function signatures within <available_tools></available_tools> XML tags.
        You may call one or more functions to assist with the user query.
        Don't make assumptions about the arguments. You should infer the argument values from previous
        user responses and the system message.
        Here are the available tools: 
        <available_tools>
{tool_texts}        
        </available_tools>.

        Return all function calls as a list of JSON objects within <tool_calls></tool_calls> XML tags.
        Each JSON object should contain a function name and arguments as follows:
        <tool_calls>[
            {{"name": <function-name-1>, "arguments": <args-dict-1>}},
            {{"name": <function-name-2>, "arguments": <args-dict-2>}},
            ...
        ]</tool_calls>"""  # noqa: W291 - the template's own white space


APRIEL16 = Template(
    source="ServiceNow-AI/Apriel-1.6-15b-Thinker",
    place=in_system(_apriel16_list, joint="\n"),
    turn=in_a_new_line,
    tool_turns=True,
)
APRIEL15 = Template(
    source="ServiceNow-AI/Apriel-1.5-15b-Thinker",
    models=("apriel-1.5",),
    place=_apriel15,
    turn=in_a_new_line,
    tool_turns=True,
)

# --- Apertus ----------------------------------------------------------------------------------------


def _apertus_tool(spec: ToolSpec) -> str:
    required_names = as_list(spec.parameters.get("required"))
    parameters = [parameter(name, each, name in required_names) for name, each in spec.properties.items()]
    arguments = "(_: {\n" + ",\n".join(parameters) + "\n}) => any;" if parameters else "() => any;"
    return f"// {spec.description}\ntype {spec.name} = {arguments}"


def _apertus_tools(tools: Sequence[ToolSpec]) -> str:
    return "Tool Capabilities:\n" + "\n".join(map(_apertus_tool, tools))


APERTUS = Template(source="swiss-ai/Apertus-8B-Instruct", place=in_system(_apertus_tools))
