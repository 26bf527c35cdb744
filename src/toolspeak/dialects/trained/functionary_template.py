"""Functionary: v3.1 describes each tool in a sentence and as JSON, v3.2 as TypeScript types; both before everything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolspeak.data.messages import JSON, as_list, as_mapping
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.prompt import Prompt
from toolspeak.dialects.trained.template import Template, dump, function_of

_RULES_V31 = """
Think very carefully before calling functions.
If a you choose to call a function ONLY reply in the following format:
<{start_tag}={function_name}>{parameters}{end_tag}
where

start_tag => `<function`
parameters => a JSON dict with the function argument name as key and function argument value as value.
end_tag => `</function>`

Here is an example,
<function=example_function_name>{"example_name": "example_value"}</function>

Reminder:
- If looking for real time information use relevant functions before falling back to brave_search
- Function calls MUST follow the specified format, start with <function= and end with </function>
- Required parameters MUST be specified
- Only call one function at a time
- Put the entire function call reply on one line

"""


def _v31(system: str, tools: Sequence[ToolSpec]) -> Prompt:
    tool_text = "".join(
        f"Use the function '{spec.name}' to '{spec.description}'\n{dump(function_of(spec))}\n\n" for spec in tools
    )
    return Prompt((f"You have access to the following functions:\n\n{tool_text}{_RULES_V31}", system))


def _join_types(kinds: Sequence[JSON]) -> str:
    return " | ".join(map(str, kinds))


def _type(schema: Mapping[str, Any]) -> str:
    if "type" in schema:
        kind = schema["type"]
        text = kind if isinstance(kind, str) else _join_types(as_list(kind))
    elif "oneOf" in schema:
        kinds = (as_mapping(each).get("type") for each in as_list(schema["oneOf"]))
        text = _join_types(list(dict.fromkeys(kind for kind in kinds if kind is not None)))
    else:
        return ""  # the template never writes the default either
    return "number" if text in ("integer", "float") else text


def _format(schema: Mapping[str, Any]) -> str | None:
    if "format" in schema:
        return str(schema["format"])
    if "oneOf" not in schema:
        return None
    choices = [as_mapping(each) for each in as_list(schema["oneOf"])]
    last = choices[-1].get("format") if choices else None
    formats = [str(each["format"]) for each in choices if "format" in each]
    return "".join(each if each == last else f"{each} or " for each in formats)


_BOUNDS = {
    "maximum": "Maximum",
    "minimum": "Minimum",
    "maxLength": "Maximum length",
    "minLength": "Minimum length",
}


def _comment(schema: Mapping[str, Any]) -> str | None:
    form = _format(schema)
    if not ({"description", "default"} & schema.keys() or form is not None or any(map(schema.get, _BOUNDS))):
        return None
    comment = "//"
    if "description" in schema:
        description = str(schema["description"])
        comment += f" {description}" if description.endswith(".") else f" {description}."
    if "default" in schema:
        default = f'"{schema["default"]}"' if schema.get("type") == "string" else schema["default"]
        comment += f" Default={default}."
    comment += f" Format={form}" if form is not None else ""
    return comment + "".join(f" {name}={schema[key]}" for key, name in _BOUNDS.items() if key in schema)


def _values(values: Sequence[JSON]) -> str:
    return " | ".join(f'"{value}"' if isinstance(value, str) else str(value) for value in values)


def _array(name: str | None, schema: Mapping[str, Any], depth: int) -> str:
    offset, items = "    " * depth, as_mapping(schema.get("items"))
    label = "" if name is None else f"{name}: "
    if not items:
        return f"\n{offset}{label}[]"
    kind = _type(items)
    if kind == "object":
        inner = _properties(as_mapping(items.get("properties")), as_list(items.get("required")), depth + 1)
        return f"\n{offset}{label}{{{inner}\n{offset}}}[]"
    if kind == "array":
        inner = _array(None, items, depth + 1)
        return f"\n{inner}[]" if name is None else f"\n{offset}{label}{inner.strip()}[]"
    if "enum" in items:
        values = f"({_values(as_list(items['enum']))})[]"
        return values if name is None else f"\n{offset}{label}{values}"
    return f"\n{kind}[]" if name is None else f"\n{offset}{label}{kind}[],"


def _properties(properties: Mapping[str, Any], required_names: Sequence[JSON], depth: int) -> str:
    text, offset = "", "    " * depth
    for name, each in properties.items():
        if not isinstance(each, Mapping):
            continue
        schema = as_mapping(each)
        comment = _comment(schema)
        comment_line = "" if comment is None else f"\n{offset}{comment}"
        examples = [f"Example {name}:", *as_list(schema["examples"])] if "examples" in schema else []
        example_lines = "".join("\n" + offset + "// " + str(example).replace("'", '"') for example in examples)
        label = name if name in required_names else f"{name}?"
        kind = _type(schema)
        if kind == "object":
            inner = _properties(as_mapping(schema.get("properties")), as_list(schema.get("required")), depth + 1)
            text += f"{comment_line}{example_lines}\n{offset}{label}: {{{inner}\n{offset}}},"
        elif kind == "array" and "type" in as_mapping(schema.get("items")):
            array = _array(label, schema, depth)
            text += comment_line + example_lines + (array if array.endswith(",") else f"{array},")
        else:
            value = "[]" if kind == "array" else _values(as_list(schema["enum"])) if "enum" in schema else kind
            value += " | null" if kind != "array" and schema.get("nullable") else ""
            # The template shows the examples of a simple value only after a comment.
            text += f"{comment_line}{example_lines if comment is not None else ''}\n{offset}{label}: {value},"
    return text


def _tool(spec: ToolSpec) -> str:
    inner = _properties(spec.properties, as_list(spec.parameters.get("required")), 0)
    arguments = f"(_: {{{inner}\n}}) => any;" if spec.properties else "() => any;"
    return f"// {spec.description}\ntype {spec.name} = {arguments}\n\n"


def _v32(system: str, tools: Sequence[ToolSpec]) -> Prompt:
    head = "// Supported function definitions that should be called when necessary.\nnamespace functions {\n\n"
    text = (
        "You are capable of executing available function(s) if required.\nOnly execute function(s) when absolutely "
        "necessary.\nAsk for the required input to:recipient==all\nUse JSON for function arguments.\nRespond in this "
        f"format:\n>>>${{recipient}}\n${{content}}\nAvailable functions:\n{head}{''.join(map(_tool, tools))}"
        "} // namespace functions"
    )
    return Prompt((text, system))


FUNCTIONARY_V31 = Template(source="meetkai/functionary-medium-v3.1", place=_v31, tool_turns=True)
FUNCTIONARY_V32 = Template(source="meetkai/functionary-medium-v3.2", place=_v32, tool_turns=True)
