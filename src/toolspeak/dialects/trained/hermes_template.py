"""Hermes and its relatives: one line of JSON for each tool, in `<tools>`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolspeak.data.messages import JSON, as_list, as_mapping
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.trained.template import Template, dump, fill_tools, first_message, in_system, tool_lines

QWEN_PROMPT = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""


def _qwen(source: str, *models: str, default: str = "", lead: str = "") -> Template:
    return Template(
        source=source,
        models=models,
        place=in_system(fill_tools(QWEN_PROMPT, tool_lines), default=default, lead=lead),
        gap="\n",
        tool_turns=True,
    )


QWEN3 = _qwen("Qwen/Qwen3-0.6B", "qwen3")
QWEN25 = _qwen(
    "Qwen/Qwen2.5-7B-Instruct",
    "qwen2.5",
    default="You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
)
QWQ = _qwen("Qwen/QwQ-32B", "qwq", lead="\n\n")
MIMO_VL = _qwen("XiaomiMiMo/MiMo-VL", "mimo-vl", default="You are MiMo, an AI assistant developed by Xiaomi.")


_PYTHON = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"}


def python_type(schema: JSON, array: str = "list", mapping: str = "dict", other_object: str = "dict") -> str:
    """A schema as a type of Python. `other_object` is the type of an object without `additionalProperties`."""
    keywords = as_mapping(schema)
    kind = keywords.get("type")
    if isinstance(kind, str) and kind in _PYTHON:
        return _PYTHON[kind]
    if kind == "array":
        return f"{array}[Union[]]"  # the template looks for the items' type in the wrong place
    if kind == "object" and "additionalProperties" not in keywords:
        return other_object
    if kind == "object":
        return f"{mapping}[str, {python_type(keywords['additionalProperties'], array, mapping, other_object)}]"
    if isinstance(kind, str):
        return "Any"
    kinds = [python_type({"type": each}, array, mapping, other_object) for each in as_list(kind)]
    return f"Union[{','.join(kinds)}]"


def _hermes_tool(spec: ToolSpec) -> str:
    """A tool as the template writes it: JSON, with the description unescaped."""
    properties: Mapping[str, JSON] = spec.properties
    signature = ", ".join(f"{name}: {python_type(schema)}" for name, schema in properties.items())
    parameter_lines = "".join(
        f"        {name}({python_type(schema)}): {str(as_mapping(schema).get('description') or '').strip()}"
        for name, schema in properties.items()
    )
    arguments = f"    Args:\n{parameter_lines}" if properties else ""
    parameters = dump(spec.parameters) if properties else "{}"
    return (
        f'{{"type": "function", "function": {{"name": "{spec.name}", "description": "{spec.name}({signature})'
        f' - {spec.description}\n\n{arguments}", "parameters": {parameters}}}'
    )


def _hermes_tools(tools: Sequence[ToolSpec]) -> str:
    tool_text = "\n".join(map(_hermes_tool, tools))
    return (
        "You are a function calling AI model. You are provided with function signatures within <tools></tools> XML "
        "tags. You may call one or more functions to assist with the user query. Don't make assumptions about what "
        f"values to plug into functions. Here are the available tools: <tools> {tool_text} </tools>Use the following "
        'pydantic model json schema for each tool call you will make: {"properties": {"name": {"title": "Name", '
        '"type": "string"}, "arguments": {"title": "Arguments", "type": "object"}}, "required": ["name", '
        '"arguments"], "title": "FunctionCall", "type": "object"}}\n'
        "For each function call return a json object with function name and arguments within <tool_call></tool_call> "
        'XML tags as follows:\n<tool_call>\n{"name": <function-name>, "arguments": <args-dict>}\n</tool_call>'
    )


HERMES2 = Template(
    source="NousResearch/Hermes-2-Pro-Llama-3-8B (tool_use)",
    models=("hermes",),
    place=first_message(_hermes_tools),
    tool_turns=True,
)
