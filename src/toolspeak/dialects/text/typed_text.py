"""Values written as text, typed by the tool's JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from toolspeak.data.messages import JSON, as_list, as_mapping
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.text.scan import Caps, Problem, decode_json


class Types(frozenset[str]):
    """The JSON Schema types that a schema allows."""

    literals: frozenset[str] = frozenset()
    """Strings that the schema lists (`enum`, `const`) and that it does not allow as another type. Such a text is always
    that string, even if it looks like a number."""


_ALL = Types({"string", "integer", "number", "boolean", "null", "array", "object"})
_ITSELF = Types()
"""The types of a reference inside the schema that it names: it adds no constraint."""
# Type names in handwritten tool definitions. An unknown name is no constraint.
_NAMES: Mapping[str, frozenset[str]] = {
    name: frozenset(kinds.split())
    for kinds, names in {
        "string": "string str text char varchar enum",
        "integer": "integer int int32 int64 uint uint32 uint64 long short unsigned",
        "number integer": "number float float32 float64 double",
        "boolean": "boolean bool",
        "null": "null none",
        "array": "array arr list tuple sequence",
        "object": "object dict map",
    }.items()
    for name in names.split()
}
_ONE_TYPE = {name: Types(kinds) for name, kinds in _NAMES.items()}
_COMBINING_KEYS = frozenset({"$ref", "allOf", "anyOf", "oneOf"})
_NARROWING_KEYS = _COMBINING_KEYS | {"enum", "const"}


def properties_of(spec: ToolSpec | None) -> Mapping[str, Any]:
    """The schemas of a tool's arguments by name; empty for an unknown tool."""
    return as_mapping(spec.parameters.get("properties")) if spec else {}


def schema_problem(arguments: Mapping[str, JSON], spec: ToolSpec | None) -> Problem | None:
    """The problem of arguments that are the JSON Schema of an object, as in a listing of tools; else None."""
    if arguments.get("type") != "object" or not isinstance(arguments.get("properties", {}), Mapping):
        return None
    reason = "these are the types of the arguments; a call gives their values"
    return None if "type" in properties_of(spec) else Problem("arguments_not_values", reason)


def json_type(value: JSON) -> str:
    """The JSON Schema type of a value; `integer` for an int."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case Mapping():
            return "object"
        case _:
            return "array"


def schema_types(
    schema: JSON, root: Mapping[str, JSON], depth: int = 0, references: dict[str, Types] | None = None
) -> Types:
    """The types that a JSON Schema allows; all types if it has no constraint.

    `root`: the schema in which `$ref` is resolved.
    `references`: the types of the references so far. Each is resolved once: otherwise a few that refer to each other
    take exponential time.
    """
    mapping = as_mapping(schema)
    kinds = mapping.get("type")
    if isinstance(kinds, str) and _NARROWING_KEYS.isdisjoint(mapping):
        return _ONE_TYPE.get(kinds) or _ONE_TYPE.get(kinds.lower(), _ALL)
    if not mapping or depth > 32:
        return _ALL
    references = {} if references is None else references
    reference = mapping.get("$ref")
    if isinstance(reference, str):
        if reference not in references:
            references[reference] = _ITSELF
            references[reference] = schema_types(resolve(reference, root), root, depth + 1, references)
        return references[reference] if depth or references[reference] is not _ITSELF else _ALL
    type_names: frozenset[str] = _ALL
    literals: frozenset[str] = frozenset()
    if kinds is not None:
        names = [kinds] if isinstance(kinds, str) else as_list(kinds)
        type_names &= frozenset[str]().union(*(_NAMES.get(str(name).lower(), _ALL) for name in names))
    enum_values = [*as_list(mapping.get("enum")), *([mapping["const"]] if "const" in mapping else [])]
    listed_types = frozenset(json_type(value) for value in enum_values)
    if not type_names.isdisjoint(
        listed_types
    ):  # otherwise the `enum` of a handwritten schema lists an array's elements
        type_names &= listed_types
        others = {json.dumps(value) for value in enum_values if not isinstance(value, str)}
        literals |= {value for value in enum_values if isinstance(value, str) and value not in others}
    for key in ("anyOf", "oneOf"):
        branches = [schema_types(branch, root, depth + 1, references) for branch in as_list(mapping.get(key))]
        branches = [branch for branch in branches if branch is not _ITSELF]
        if branches:
            type_names &= frozenset[str]().union(*branches)
            literals |= {text for branch in branches for text in branch.literals if not _is_other(text, branches)}
    for branch in as_list(mapping.get("allOf")):
        branch_types = schema_types(branch, root, depth + 1, references)
        if branch_types is not _ITSELF:
            type_names, literals = type_names & branch_types, literals | branch_types.literals
    types = Types(type_names)
    types.literals = literals if "string" in types else frozenset()
    return types


def _is_other(literal: str, branches: Sequence[Types]) -> bool:
    """Whether one of these schemas allows the text as a value of another type."""
    value = decode_json(literal)
    kind = "string" if isinstance(value, Problem) else json_type(value)
    return kind != "string" and any(kind in branch and literal not in branch.literals for branch in branches)


def argument_schemas(spec: ToolSpec) -> Mapping[str, JSON]:
    """The schemas of a tool's arguments by name. Follows references, and joins the branches of a choice."""
    parameters = spec.parameters
    if _COMBINING_KEYS.isdisjoint(parameters):
        return as_mapping(parameters.get("properties"))
    return _argument_schemas(parameters, parameters, 0, {})


def _argument_schemas(
    schema: JSON, root: Mapping[str, JSON], depth: int, references: dict[str, Mapping[str, JSON]]
) -> Mapping[str, JSON]:
    """`references`: the arguments of the references so far; each is resolved once."""
    mapping = as_mapping(schema)
    if depth > 32:
        return {}
    together: list[Mapping[str, JSON]] = [as_mapping(mapping.get("properties"))]
    reference = mapping.get("$ref")
    if isinstance(reference, str):
        if reference not in references:
            references[reference] = {}
            references[reference] = _argument_schemas(resolve(reference, root), root, depth + 1, references)
        together.append(references[reference])
    together += [_argument_schemas(each, root, depth + 1, references) for each in as_list(mapping.get("allOf"))]
    for key in ("anyOf", "oneOf"):
        choices = [_argument_schemas(each, root, depth + 1, references) for each in as_list(mapping.get(key))]
        together.append(_merge_schemas("anyOf", choices))
    return _merge_schemas("allOf", together)


def _merge_schemas(keyword: str, parts: Sequence[Mapping[str, JSON]]) -> dict[str, JSON]:
    by_name: dict[str, list[JSON]] = {}
    for part in parts:
        for name, schema in part.items():
            by_name.setdefault(name, []).append(schema)
    return {name: schemas[0] if len(schemas) == 1 else {keyword: schemas} for name, schemas in by_name.items()}


def has_argument(spec: ToolSpec, name: str) -> bool:
    """Whether the tool has an argument of this name or alias."""
    return name in argument_schemas(spec) or name in spec.aliases


def admits_argument(spec: ToolSpec, name: str) -> bool:
    """Whether the tool may have an argument of this name."""
    # Unlisted arguments must be allowed explicitly: JSON Schema's default would make every tag in a value a sibling.
    return has_argument(spec, name) or spec.parameters.get("additionalProperties") not in (None, False)


def argument_types(spec: ToolSpec | None, name: str) -> Types:
    """The types of an argument, by its name or an alias; all types if the schema has no constraint."""
    if spec is None:
        return _ALL
    return schema_types(argument_schemas(spec).get(spec.aliases.get(name, name)), spec.parameters)


def resolve(reference: str, root: Mapping[str, JSON]) -> JSON:
    """The part of a schema that a reference such as `#/$defs/name` names; None outside of the schema."""
    if reference in ("#", ""):
        return root
    if not reference.startswith("#/"):
        return None
    target: Any = root
    for step in reference[2:].split("/"):
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(target, list | tuple):
            entries = as_list(target)
            target = entries[int(key)] if key.isdecimal() and len(key) < 9 and int(key) < len(entries) else None
        else:
            target = as_mapping(target).get(key)
    return target


def read_typed(text: str, types: frozenset[str], is_json: bool, caps: Caps) -> JSON | Problem:
    """The value of a text: the text if the types allow a string, otherwise its JSON value if that fits the types.

    Text that is not JSON, or does not fit, stays text: the tool's validation reports it. JSON beyond a limit or with
    a duplicate key is a problem. `is_json`: the model marked the text as JSON.
    """
    if "string" in types and not is_json:
        return text
    value = decode_json(text.strip(), caps)
    if isinstance(value, Problem):
        return value if is_json or value.code != "invalid_json" else text
    return value if is_json or _fits(value, types) else text


def _fits(value: JSON, types: frozenset[str]) -> bool:
    # In JSON Schema 1.0 is an integer.
    whole = isinstance(value, float) and value.is_integer() and "integer" in types
    return whole or json_type(value) in types
