"""Gemma 4: each tool as a declaration in Gemma's own notation, after the system text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolspeak.data.messages import JSON, as_list, as_mapping
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.trained.template import Template, in_system

_QUOTE = '<|"|>'
_STANDARD = ("description", "type", "properties", "required", "nullable")


def _value(value: JSON) -> str:
    if isinstance(value, str):
        return f"{_QUOTE}{value}{_QUOTE}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_value(key)}:{_value(each)}" for key, each in _sorted_items(as_mapping(value))) + "}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_value, as_list(value)))}]"
    return str(value)


def _sorted_items(mapping: Mapping[str, JSON]) -> list[tuple[str, JSON]]:
    """Like jinja's `dictsort`: by key, regardless of case."""
    return sorted(mapping.items(), key=lambda item: item[0].lower())


def _quoted_names(names: Sequence[JSON]) -> str:
    return f"[{','.join(f'{_QUOTE}{name}{_QUOTE}' for name in names)}]"


def _upper(kind: JSON) -> str:
    """Like jinja's `upper`: empty for nothing, and for a list its text in Python."""
    return "" if kind is None else str(kind).upper()


def _items(items: Mapping[str, JSON]) -> str:
    parts: list[str] = []
    for key, value in _sorted_items(items):
        if value is None:
            continue
        if key == "properties":
            parts.append("properties:{" + _properties(as_mapping(value)) + "}")
        elif key == "required":
            parts.append(f"required:{_quoted_names(as_list(value))}")
        elif key == "type":
            kind = value.upper() if isinstance(value, str) else [str(each).upper() for each in as_list(value)]
            parts.append(f"type:{_value(kind)}")
        else:
            parts.append(f"{key}:{_value(value)}")
    return ",".join(parts)


def _schema(mapping: Mapping[str, JSON]) -> str:
    parts: list[str] = []
    if mapping.get("description"):
        parts.append(f"description:{_QUOTE}{mapping['description']}{_QUOTE}")
    kind = _upper(mapping.get("type"))
    items = mapping.get("items")
    if kind == "STRING" and mapping.get("enum"):
        parts.append(f"enum:{_value(mapping['enum'])}")
    elif kind == "ARRAY" and isinstance(items, Mapping) and items:
        parts.append("items:{" + _items(as_mapping(items)) + "}")
    if mapping.get("nullable"):
        parts.append("nullable:true")
    if kind == "OBJECT":
        properties = mapping.get("properties")
        inner = as_mapping(properties) if isinstance(properties, Mapping) else mapping
        parts.append("properties:{" + _properties(inner) + "}")
        if mapping.get("required"):
            parts.append(f"required:{_quoted_names(as_list(mapping['required']))}")
    return ",".join([*parts, f"type:{_QUOTE}{kind}{_QUOTE}"])


def _properties(properties: Mapping[str, JSON]) -> str:
    own = ((name, as_mapping(schema)) for name, schema in _sorted_items(properties) if name not in _STANDARD)
    return ",".join(f"{name}:{{{_schema(schema)}}}" for name, schema in own)


def _declaration(spec: ToolSpec) -> str:
    parameters = spec.parameters
    text = f"declaration:{spec.name}{{description:{_QUOTE}{spec.description}{_QUOTE}"
    if parameters:
        text += ",parameters:{"
        if spec.properties:
            text += f"properties:{{{_properties(spec.properties)}}},"
        if parameters.get("required"):
            text += f"required:{_quoted_names(as_list(parameters['required']))},"
        if parameters.get("type"):
            text += f"type:{_QUOTE}{_upper(parameters['type'])}{_QUOTE}}}"
    return f"<|tool>{text}}}<tool|>"


def _tools(tools: Sequence[ToolSpec]) -> str:
    return "".join(map(_declaration, tools))


GEMMA4 = Template(source="google/gemma-4-31B-it", place=in_system(_tools, joint=""))
