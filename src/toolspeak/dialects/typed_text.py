"""Values written as text, typed by the tool's JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from toolspeak.data.messages import JSON
from toolspeak.dialects.scan import Caps, Problem, decode_json

_ALL = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
# What tool definitions say that were written by hand in Python or another language.
_NAMES = {
    "float": "number",
    "double": "number",
    "int": "integer",
    "bool": "boolean",
    "str": "string",
    "dict": "object",
    "list": "array",
    "tuple": "array",
    "none": "null",
}


def as_mapping(value: JSON) -> Mapping[str, Any]:
    """A JSON object, or an empty one in place of any other value."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def as_list(value: JSON) -> list[Any]:
    """A JSON array, or an empty one in place of any other value."""
    return cast("list[Any]", value) if isinstance(value, list) else []


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


def schema_types(schema: JSON, root: Mapping[str, JSON], depth: int = 0) -> frozenset[str]:
    """The types a JSON Schema admits; all of them where it says nothing. `$ref` is looked up in `root`."""
    mapping = as_mapping(schema)
    if not mapping or depth > 32:
        return _ALL
    reference = mapping.get("$ref")
    if isinstance(reference, str):
        return schema_types(resolve(reference, root), root, depth + 1)
    admitted = _ALL
    kinds = mapping.get("type")
    if kinds is not None:
        named = frozenset(_NAMES.get(str(kind), str(kind)) for kind in as_list(kinds) or [kinds])
        admitted &= named | {"integer"} if "number" in named else named
    if as_list(mapping.get("enum")):
        admitted &= frozenset(json_type(value) for value in mapping["enum"])
    if "const" in mapping:
        admitted &= {json_type(mapping["const"])}
    for key in ("anyOf", "oneOf"):
        if as_list(mapping.get(key)):
            branches = [schema_types(branch, root, depth + 1) for branch in mapping[key]]
            admitted &= frozenset[str]().union(*branches)
    for branch in as_list(mapping.get("allOf")):
        admitted &= schema_types(branch, root, depth + 1)
    return admitted


def resolve(reference: str, root: Mapping[str, JSON]) -> JSON:
    """What `#/$defs/name` stands for in a schema; None if nothing."""
    found: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        found = as_mapping(found).get(key)
    return found


def read_typed(text: str, types: frozenset[str], is_json: bool, caps: Caps) -> JSON | Problem:
    """The value of a text: itself where a string is admitted, else the JSON it holds if that fits the types.

    What is no JSON or does not fit stays text, so that the tool's validation can say what was expected and what
    came; JSON that nobody may read (past a cap, a key twice) is a problem. `is_json`: the model said so itself.
    """
    if "string" in types and not is_json:
        return text
    value = decode_json(text.strip(), caps)
    if isinstance(value, Problem):
        return value if is_json or value.code != "invalid_json" else text
    return value if is_json or _fits(value, types) else text


def _fits(value: JSON, types: frozenset[str]) -> bool:
    # JSON Schema takes 1.0 for an integer.
    whole = isinstance(value, float) and value.is_integer() and "integer" in types
    return whole or json_type(value) in types
