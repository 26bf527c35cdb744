"""gpt-oss: the tools as a TypeScript namespace, after the instructions of the developer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolspeak.data.messages import JSON, as_list, as_mapping
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.trained.template import Template, dump, in_system

_PLAIN = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean"}
_LONGEST_ITEM = 50
_BREAK = "\n" + 16 * " "
"""White space of the template's own lines, which it does not trim there. It counts for the longest item too."""


def type_of(schema: JSON) -> str:
    """A schema as a TypeScript type, of the keywords that the template knows."""
    mapping = as_mapping(schema)
    kind = mapping.get("type")
    if kind == "array":
        return _array(mapping) + (" | null" if mapping.get("nullable") else "")
    if kind is not None and not isinstance(kind, str) and as_list(kind):
        return " | ".join(map(str, kind))
    if mapping.get("oneOf"):
        return _one_of(mapping["oneOf"])
    if kind == "string":
        if mapping.get("enum"):
            return '"' + '" | "'.join(map(str, mapping["enum"])) + '"'
        return "string | null" if mapping.get("nullable") else "string"
    if kind == "object":
        return _object(mapping)
    return _PLAIN.get(str(kind), "any")


def _array(mapping: Mapping[str, JSON]) -> str:
    items = as_mapping(mapping.get("items"))
    if not items:
        return "any[]"
    kind = items.get("type")
    if isinstance(kind, str) and kind in _PLAIN:
        return f"{_PLAIN[kind]}[]"
    inner = type_of(items)
    return "any[]" if inner == "object | object" or len(inner) > _LONGEST_ITEM else f"{inner}[]"


def _one_of(variants: Sequence[JSON]) -> str:
    if len(variants) > 1 and any(as_mapping(each).get("type") == "object" for each in variants):
        return "any"
    parts: list[str] = []
    for variant in map(as_mapping, variants):
        comment = f"// {variant['description']}" if variant.get("description") else ""
        default = f"{20 * ' '}// default: {dump(variant['default'])}" if "default" in variant else ""
        parts.append(type_of(variant) + comment + default)
    return " | \n".join(parts)


def _object(mapping: Mapping[str, JSON]) -> str:
    properties = as_mapping(mapping.get("properties"))
    if not properties:
        return "object"
    required = as_list(mapping.get("required"))
    keys = (
        f"{name}{'' if name in required else '?'}: {_BREAK}{type_of(schema)}" for name, schema in properties.items()
    )
    return "{\n" + ", ".join(keys) + "}"


def parameter(name: str, schema: JSON, required: bool) -> str:
    """A parameter with its comments, without the comma after it."""
    mapping = as_mapping(schema)
    comment = f"// {mapping['description']}\n" if mapping.get("description") else ""
    default = ""
    if "default" in mapping:
        value = mapping["default"]
        if mapping.get("enum"):
            default = f", // default: {value}"
        elif mapping.get("oneOf"):
            default = f"// default: {value}"
        else:
            default = f", // default: {dump(value)}"
    return f"{comment}{name}{'' if required else '?'}: {type_of(mapping)}{default}"


def _function(spec: ToolSpec) -> str:
    required = as_list(spec.parameters.get("required"))
    keys = "".join(f"{parameter(name, schema, name in required)},\n" for name, schema in spec.properties.items())
    arguments = f"(_: {{\n{keys}}})" if keys else "()"
    return f"// {spec.description}\ntype {spec.name} = {arguments} => any;\n\n"


def _tools(tools: Sequence[ToolSpec]) -> str:
    functions = "".join(map(_function, tools))
    return f"# Tools\n\n## functions\n\nnamespace functions {{\n\n{functions}}} // namespace functions"


GPT_OSS = Template(source="openai/gpt-oss-120b", place=in_system(_tools))
