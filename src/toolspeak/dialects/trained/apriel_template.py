"""Apriel: each tool as Python prints a dictionary, behind the system text; Apertus: types as in TypeScript."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.prompt import Prompt
from toolspeak.dialects.text.typed_text import as_list, as_mapping
from toolspeak.dialects.trained.template import Template, dump, in_a_new_line, tool_of

# --- Apriel -----------------------------------------------------------------------------------------


def _apriel15_list(tools: Sequence[ToolSpec]) -> str:
    listed = "".join(f"{tool_of(spec)}\n" for spec in tools)
    return (
        "You are provided with function signatures within <available_tools></available_tools> XML tags. You may call one "
        "or more functions to assist with the user query. Don't make assumptions about the arguments. You should infer "
        "the argument values from previous user responses and the system message. Here are the available tools:\n"
        f"<available_tools>\n{listed}</available_tools>"
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
    listed = "".join(str(tool_of(spec)) for spec in tools)
    return f"""\
You are provided with function signatures within <available_tools></available_tools> XML tags.
        You may call one or more functions to assist with the user query.
        Don't make assumptions about the arguments. You should infer the argument values from previous
        user responses and the system message.
        Here are the available tools: 
        <available_tools>
{listed}        
        </available_tools>.

        Return all function calls as a list of JSON objects within <tool_calls></tool_calls> XML tags.
        Each JSON object should contain a function name and arguments as follows:
        <tool_calls>[
            {{"name": <function-name-1>, "arguments": <args-dict-1>}},
            {{"name": <function-name-2>, "arguments": <args-dict-2>}},
            ...
        ]</tool_calls>"""  # noqa: W291 - the template's own white space


def _apriel16(system: str, tools: Sequence[ToolSpec]) -> Prompt:
    listing = _apriel16_list(tools)
    return Prompt((f"{system}\n{listing}" if system else listing,))


APRIEL16 = Template(source="ServiceNow-AI/Apriel-1.6-15b-Thinker", place=_apriel16, turn=in_a_new_line, tool_turns=True)
APRIEL15 = Template(
    source="ServiceNow-AI/Apriel-1.5-15b-Thinker",
    models=("apriel-1.5",),
    place=_apriel15,
    turn=in_a_new_line,
    tool_turns=True,
)

# --- Apertus ----------------------------------------------------------------------------------------

_INDENT = "\n                "  # which the template leaves in front of an inner type
_PLAIN = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean"}


def _apertus_type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    null = " | null" if schema.get("nullable") else ""
    if kind == "array":
        items = as_mapping(schema.get("items"))
        if not items:
            return f"any[]{null}"
        inner = _PLAIN.get(str(items.get("type"))) or _apertus_type(items)
        long = str(items.get("type")) not in _PLAIN and (inner == "object | object" or len(inner) > 50)
        return f"{'any' if long else inner}[]{null}"
    if as_list(kind):
        return " | ".join(map(str, as_list(kind)))
    if as_list(schema.get("oneOf")):
        return _apertus_choice(as_list(schema["oneOf"]))
    if kind == "string":
        return '"' + '" | "'.join(map(str, schema["enum"])) + '"' if schema.get("enum") else f"string{null}"
    if kind in ("number", "integer", "boolean"):
        return _PLAIN[str(kind)]
    if kind != "object":
        return "any"
    properties, required = as_mapping(schema.get("properties")), as_list(schema.get("required"))
    if not properties:
        return "object"
    keys = [
        f"{name}{'' if name in required else '?'}: {_INDENT}{_apertus_type(as_mapping(each))}"
        for name, each in properties.items()
    ]
    return "{\n" + ", ".join(keys) + "}"


def _apertus_choice(branches: Sequence[JSON]) -> str:
    mappings = [as_mapping(branch) for branch in branches]
    if len(mappings) > 1 and any(branch.get("type") == "object" for branch in mappings):
        return "any"
    text = ""
    for i, branch in enumerate(mappings):
        text += _apertus_type(branch)
        text += f"// {branch['description']}" if branch.get("description") else ""
        text += f"{_INDENT[1:]}    // default: {dump(branch['default'])}" if "default" in branch else ""
        text += " | \n" if i + 1 < len(mappings) else ""
    return text


def _apertus_argument(name: str, schema: Mapping[str, Any], required: bool) -> str:
    comment = f"// {schema['description']}\n" if schema.get("description") else ""
    default = ""
    if "default" in schema:
        if schema.get("enum"):
            default = f", // default: {schema['default']}"
        elif schema.get("oneOf"):
            default = f"// default: {schema['default']}"
        else:
            default = f", // default: {dump(schema['default'])}"
    return f"{comment}{name}{'' if required else '?'}: {_apertus_type(schema)}{default}"


def _apertus_tool(spec: ToolSpec) -> str:
    required = as_list(spec.parameters.get("required"))
    parameters = [_apertus_argument(name, as_mapping(each), name in required) for name, each in spec.properties.items()]
    arguments = "(_: {\n" + ",\n".join(parameters) + "\n}) => any;" if parameters else "() => any;"
    return f"// {spec.description}\ntype {spec.name} = {arguments}"


def _apertus_place(system: str, tools: Sequence[ToolSpec]) -> Prompt:
    listing = "Tool Capabilities:\n" + "\n".join(map(_apertus_tool, tools))
    return Prompt((f"{system}\n\n{listing}" if system else listing,))


APERTUS = Template(source="swiss-ai/Apertus-8B-Instruct", place=_apertus_place)
