"""GigaChat: the tools as types of TypeScript, in a message of the role `function descriptions`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolspeak.data.messages import JSON, as_list, as_mapping
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.trained.template import Template, in_system

_COMMENT_KEYS = ("format", "maxItems", "maximum", "minItems", "minimum", "pattern")


def _lines(text: JSON, indent: str = "") -> list[str]:
    return [f"{indent}// {line}" for line in str(text).split("\n") if line.strip()]


def _literal(value: JSON) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _object(schema: Mapping[str, Any], indent: str) -> str:
    required_names = as_list(schema.get("required"))
    lines: list[str] = []
    for name, each in as_mapping(schema.get("properties")).items():
        value = as_mapping(each)
        if "description" in value:
            lines += _lines(value["description"], indent)
        lines += [f"{indent}// {key}: {_literal(fact)}" for key, fact in value.items() if key in _COMMENT_KEYS]
        default = f" // default: {_literal(value['default'])}" if "default" in value else ""
        lines.append(f"{indent}{name}{'' if name in required_names else '?'}: {_type(value, indent + '  ')},{default}")
    others = schema.get("additionalProperties")
    if others is True or isinstance(others, Mapping):
        lines.append(f"{indent}[key: string]: {'any' if others is True else _type(as_mapping(others), indent + '  ')}")
    return "".join(["{\n", *(f"{line}\n" for line in lines), indent[:-2], "}"])


def _type(schema: Mapping[str, Any], indent: str) -> str:
    match schema.get("type"):
        case "object":
            return _object(schema, indent)
        case "string":
            if schema.get("enum"):
                return " | ".join(f'"{value}"' for value in as_list(schema["enum"]))
            return "Date" if schema.get("format") in ("date-time", "date") else "string"
        case "number" | "integer":
            return " | ".join(map(str, as_list(schema["enum"]))) if schema.get("enum") else "number"
        case "boolean":
            return "boolean"
        case "array":
            return f"{_type(as_mapping(schema['items']), indent)}[]" if "items" in schema else "Array<any>"
        case _:
            return "any"


def _tool(spec: ToolSpec) -> str:
    arguments = f"(_: {_type(spec.parameters, '  ')}) => any;" if spec.properties else "() => any;"
    return "\n".join([*_lines(spec.description), f"type {spec.name} = {arguments}\n"])


def _tools(tools: Sequence[ToolSpec]) -> str:
    return "\n".join(["namespace functions {", *map(_tool, tools), "} // namespace functions"])


GIGACHAT3 = Template(
    source="ai-sage/GigaChat3-10B-A1.8B and GigaChat3.1-10B-A1.8B",
    place=in_system(_tools),
    gap="",
    tool_turns=True,
)
