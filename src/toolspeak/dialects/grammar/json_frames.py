"""Frames of calls whose arguments are JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from toolspeak.data.messages import JSON, as_mapping
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.grammar.ir import Chars, Json, Node, Repeat, Rules, Token, series
from toolspeak.dialects.grammar.schema_rules import SchemaNodes, close_objects, json_notation

ID = Token(Repeat(Chars("0-9A-Za-z_.:\\x2d"), 1, 64))
"""An id of a call, as models and runtimes write them."""


def arguments(spec: ToolSpec, rules: Rules, live: re.Pattern[str] | None = None) -> Node:
    """A tool's arguments as a JSON object."""
    schema = arguments_schema(spec)
    form = SchemaNodes(json_notation(live=live), spec.parameters, rules, spec.name).value(schema)
    return Json(json.dumps(schema, ensure_ascii=False), form)


def name_source(spec: ToolSpec, live: re.Pattern[str]) -> Node:
    """A tool's name as a JSON string, with its live markers escaped or not."""
    return json_notation(live=live).text(spec.name)


def json_call(
    live: re.Pattern[str],
    *,
    name_key: str,
    arguments_key: str,
    id_key: str = "",
    id_first: bool = False,
    keyed: bool = False,
    before: str = "",
    after: str = "",
) -> Callable[[ToolSpec, Rules], Node]:
    """`{"name": …, "arguments": …}` between `before` and `after`.

    `keyed`: `{name: …}`. `id_key`: the key of the call's id, which is last, or with `id_first` first.
    """

    def call(spec: ToolSpec, rules: Rules) -> Node:
        name, body = name_source(spec, live), arguments(spec, rules, live)
        if keyed:
            return series(before, "{", name, ": ", body, "}", after)
        last = series(f', "{id_key}": "', ID, '"') if id_key and not id_first else series()
        front = series(f'"{id_key}": "', ID, '", ') if id_key and id_first else series()
        return series(before, "{", front, f'"{name_key}": ', name, f', "{arguments_key}": ', body, last, "}", after)

    return call


def named_call(
    live: re.Pattern[str], before: Callable[[str], Node | str], after: str = ""
) -> Callable[[ToolSpec, Rules], Node]:
    """The arguments as JSON, between `before`, which names the tool, and `after`."""

    def call(spec: ToolSpec, rules: Rules) -> Node:
        return series(before(spec.name), arguments(spec, rules, live), after)

    return call


def arguments_schema(spec: ToolSpec) -> dict[str, JSON]:
    """The schema that a matcher enforces: an object without undeclared properties, unless the schema allows them."""
    schema: dict[str, JSON] = {**as_mapping(close_objects(spec.parameters, spec.parameters)), "type": "object"}
    schema.setdefault("properties", {})
    if not schema["properties"]:
        schema.setdefault("additionalProperties", False)
    return schema


def call_schema(tools: Sequence[ToolSpec], name_key: str, arguments_key: str) -> JSON:
    """The schema of one call as a JSON object. Each tool has a separate place for its definitions."""
    definitions: dict[str, JSON] = {}
    options: list[JSON] = []
    for spec in tools:
        place = f"{len(options)}"
        definitions[place] = _relocate(arguments_schema(spec), f"#/$defs/{place}")
        properties: dict[str, JSON] = {name_key: {"const": spec.name}, arguments_key: {"$ref": f"#/$defs/{place}"}}
        options.append(
            {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
        )
    return {"anyOf": options, "$defs": definitions}


def calls_schema(tools: Sequence[ToolSpec], name_key: str, arguments_key: str, max_calls: int | None) -> JSON:
    """The schema of a turn's calls as an array."""
    one = dict(as_mapping(call_schema(tools, name_key, arguments_key)))
    definitions = one.pop("$defs")
    bound: dict[str, JSON] = {} if max_calls is None else {"maxItems": max_calls}
    return {"type": "array", "items": one, "minItems": 1, **bound, "$defs": definitions}


def _relocate(schema: JSON, place: str) -> JSON:
    """A schema with its references adapted to its new place."""
    if isinstance(schema, Mapping):
        return {
            key: place + value[1:]
            if key == "$ref" and isinstance(value, str) and value.startswith("#")
            else _relocate(value, place)
            for key, value in as_mapping(schema).items()
        }
    return [_relocate(each, place) for each in cast("list[JSON]", schema)] if isinstance(schema, list) else schema
