"""Qwen3-Coder and its relatives: the tools as elements, or as lines of JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from toolspeak.data.messages import JSON, as_mapping
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.trained.template import (
    Template,
    ToolPlacement,
    apart,
    before_system,
    dump,
    in_system,
    tool_lines,
)

_CALL = """\
<tool_call>
<function=example_function_name>
<parameter=example_parameter_1>
value_1
</parameter>
<parameter=example_parameter_2>
{second}
</parameter>
</function>
</tool_call>"""

_REMINDER = """\
<IMPORTANT>
Reminder:
- Function calls MUST follow the specified format: {format}
- Required parameters MUST be specified
- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after
- If there is no function call available, answer the question like normal with your current knowledge and do not tell \
the user about function calls
</IMPORTANT>"""

_NESTED_REMINDER = _REMINDER.format(
    format="an inner <function=...></function> block must be nested within <tool_call></tool_call> XML tags"
)
_WHOLE = _REMINDER.format(
    format="the tool calling block MUST begin with an opening <tool_call> tag and end with a closing </tool_call> tag."
)
_LONG = _CALL.format(second="This is the value for the second parameter\nthat can span\nmultiple lines")


def text_of(value: JSON) -> str:
    """A value as these templates print it: JSON for arrays and objects, Python's `str` for others."""
    return dump(value) if isinstance(value, Mapping | list | tuple) else str(value)


def _others(schema: Mapping[str, JSON], keys: Collection[str]) -> str:
    return "".join(f"\n<{key}>{text_of(value)}</{key}>" for key, value in schema.items() if key not in keys)


def _parameter(name: str, schema: JSON, first: Sequence[str]) -> str:
    mapping = as_mapping(schema)
    text = f"\n<parameter>\n<name>{name}</name>"
    if "type" in mapping:
        text += f"\n<type>{mapping['type']}</type>"
    if "description" in mapping:
        text += f"\n<description>{str(mapping['description']).strip()}</description>"
    text += "".join(f"\n<{key}>{dump(mapping[key])}</{key}>" for key in first if key in mapping)
    return f"{text}{_others(mapping, ('name', 'type', 'description', *first))}\n</parameter>"


def _functions(tools: Sequence[ToolSpec], first: Sequence[str] = (), last: Sequence[str] = ()) -> str:
    """Each tool as an element.

    `first` are keys of a parameter that precede its others, `last` are keys of all parameters that follow these.
    """
    text = "<tools>"
    for spec in tools:
        text += f"\n<function>\n<name>{spec.name}</name>"
        if spec.description:
            text += f"\n<description>{spec.description.strip()}</description>"
        text += "\n<parameters>"
        text += "".join(_parameter(name, schema, first) for name, schema in spec.properties.items())
        text += _others(spec.parameters, ("type", "properties", *last))
        text += "".join(f"\n<{key}>{dump(spec.parameters[key])}</{key}>" for key in last if key in spec.parameters)
        text += "\n</parameters>\n</function>"
    return text + "\n</tools>"


def _coder_tools(tools: Sequence[ToolSpec]) -> str:
    return (
        f"# Tools\n\nYou have access to the following tools:\n\n{_functions(tools)}\n\n"
        "If you choose to call a tool ONLY reply in the following format with NO suffix:\n\n"
        f"{_CALL.format(second='value_2')}\n\n{_WHOLE}"
    )


def _of_functions(tool_text: str) -> str:
    return (
        f"# Tools\n\nYou have access to the following functions:\n\n{tool_text}\n\n"
        "If you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
        f"{_LONG}\n\n{_NESTED_REMINDER}"
    )


def _nemotron_tools(tools: Sequence[ToolSpec]) -> str:
    return _of_functions(_functions(tools, ("enum",), ("required",)))


def _json_tools(tools: Sequence[ToolSpec]) -> str:
    return _of_functions(f"<tools>\n{tool_lines(tools)}\n</tools>")


def _strip_system(place: ToolPlacement) -> ToolPlacement:
    return lambda system, tools: place(system.strip(), tools)


CODER = Template(
    source="Qwen/Qwen3-Coder-30B-A3B-Instruct",
    models=("qwen3-coder",),
    place=in_system(
        _coder_tools,
        default="You are Qwen, a helpful AI assistant that can interact with a computer to solve tasks.",
    ),
    turn=apart,
    tool_turns=True,
)
QWEN35 = Template(
    source="Qwen/Qwen3.5-4B",
    models=("qwen3.5", "qwen3.6", "qwen3.8"),
    place=_strip_system(before_system(_json_tools)),
    turn=apart,
    tool_turns=True,
)
NEMOTRON3 = Template(
    source="nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    models=("nemotron-3",),
    place=in_system(_nemotron_tools),
    tool_turns=True,
)
