"""Converts schemas of answers to the parts of JSON Schema that APIs with structured outputs accept. Pure.

A constraint that an API refuses goes into the description: the caller checks the answer in any case.

Sources: OpenAI, "Structured model outputs" (Supported schemas); Anthropic, "Structured outputs" (JSON Schema
limitations); the schemas that their Python packages make of a type (openai 3.54 `to_strict_json_schema`, anthropic 2.12
`transform_schema`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.wire.base import OutputSchema

_OBJECTS_OF_SCHEMAS = ("properties", "$defs", "definitions")
"""Keywords whose values are objects of schemas."""

_LISTS_OF_SCHEMAS = ("anyOf", "allOf", "oneOf", "prefixItems")
"""Keywords whose values are lists of schemas."""

_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_LENGTHS = ("minLength", "maxLength", "minProperties", "maxProperties", "uniqueItems", "minContains", "maxContains")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "maxItems", "pattern", "default")

_TYPE_KEYS = ("type", "$ref", "anyOf", "oneOf", "enum", "const")
"""Without one of these keywords a value may be anything."""

_BEYOND = ("allOf", "not", "if", "patternProperties", "prefixItems", "propertyNames", "contains", "dependentSchemas")
"""Keywords that change what an answer means, and that OpenAI's strict mode does not support."""

_LOOKAROUND = re.compile(r"\(\?<?[=!]")


@quick()
class _Support:
    """The part of JSON Schema that an API supports."""

    unsupported_keys: tuple[str, ...]
    """Keywords that go into the description."""
    formats: frozenset[str]
    """Formats of strings."""


_OPENAI = _Support(_LENGTHS, _FORMATS)
_ANTHROPIC = _Support((*_LENGTHS, *_BOUNDS), _FORMATS | {"uri"})


class _NotStrict(Exception):
    """The schema allows more than a strict one can express."""


def openai_form(output: OutputSchema) -> OutputSchema:
    """The schema for OpenAI: strict, with every object closed and all its properties required. If that is impossible (a
    dictionary, a value of any type), the schema is unchanged and not strict."""
    if not output.strict:
        return output
    try:
        schema = _strict(output.schema)
    except _NotStrict:
        return OutputSchema(output.name, output.schema, strict=False, description=output.description)
    return OutputSchema(output.name, schema, description=output.description)


def anthropic_form(schema: Mapping[str, JSON]) -> dict[str, JSON]:
    """The schema for Anthropic: every object is closed, and bounds of values are in the description."""
    return cast("dict[str, JSON]", _close_objects(schema))


def is_closed(schema: Mapping[str, JSON]) -> bool:
    """Whether a schema is not recursive and names all keys of its objects: their `additionalProperties` is missing or
    false."""
    definitions = {**_definitions(schema, "$defs"), **_definitions(schema, "definitions")}
    return _names_all(schema, definitions, frozenset(), set())


def _definitions(schema: Mapping[str, JSON], keyword: str) -> Mapping[str, JSON]:
    definitions = cast("Mapping[str, JSON]", schema.get(keyword) or {})
    return {f"#/{keyword}/{name}": one for name, one in definitions.items()}


def _names_all(schema: JSON, definitions: Mapping[str, JSON], within: frozenset[str], checked_refs: set[str]) -> bool:
    """`within`: the definitions around this schema. `checked_refs`: the definitions that name all their keys."""
    if not isinstance(schema, Mapping) or not any(keyword in schema for keyword in _TYPE_KEYS):
        return False
    fields = cast("Mapping[str, Any]", schema)
    kind = fields.get("type")
    if kind == "object" and (fields.get("additionalProperties", False) is not False or "properties" not in fields):
        return False
    if "patternProperties" in fields or "propertyNames" in fields or (kind == "array" and not fields.get("items")):
        return False
    inner = [*cast("Mapping[str, JSON]", fields.get("properties", {})).values()]
    for keyword in _LISTS_OF_SCHEMAS:
        inner += cast("Sequence[JSON]", fields.get(keyword, ()))
    if fields.get("items"):
        inner.append(fields["items"])
    if not all(_names_all(one, definitions, within, checked_refs) for one in inner):
        return False
    place = fields.get("$ref")
    if place is None or place in checked_refs:
        return True
    if place in within or not _names_all(definitions.get(place), definitions, within | {place}, checked_refs):
        return False
    checked_refs.add(place)
    return True


def _strict(schema: JSON) -> dict[str, JSON]:
    if not isinstance(schema, Mapping):
        raise _NotStrict
    result = _with_words(cast("Mapping[str, JSON]", schema), _OPENAI)
    if any(keyword in result for keyword in _BEYOND) or not any(keyword in result for keyword in _TYPE_KEYS):
        raise _NotStrict
    result.pop("default", None)
    for keyword in _OBJECTS_OF_SCHEMAS:
        if isinstance(result.get(keyword), Mapping):
            result[keyword] = {name: _strict(one) for name, one in result[keyword].items()}
    if result.get("type") == "object":
        if result.get("additionalProperties", False) is not False or "properties" not in result:
            raise _NotStrict
        result["additionalProperties"] = False
        if set(result.get("required", ())) != set(result["properties"]):
            result["required"] = list(result["properties"])
    if result.get("type") == "array":
        result["items"] = _strict(result.get("items"))
    if "anyOf" in result:
        result["anyOf"] = [_strict(one) for one in result["anyOf"]]
    if "$ref" in result and len(result.keys() - {"$defs", "definitions"}) > 1:  # a reference stands alone
        result["anyOf"] = [{"$ref": result.pop("$ref")}]
    return result


def _close_objects(schema: JSON) -> JSON:
    if not isinstance(schema, Mapping):
        return schema
    result = _with_words(cast("Mapping[str, JSON]", schema), _ANTHROPIC)
    for keyword, value in result.items():
        if keyword in _OBJECTS_OF_SCHEMAS and isinstance(value, Mapping):
            result[keyword] = {name: _close_objects(one) for name, one in cast("Mapping[str, JSON]", value).items()}
        elif keyword in _LISTS_OF_SCHEMAS and isinstance(value, list | tuple):
            result[keyword] = [_close_objects(one) for one in cast("Sequence[JSON]", value)]
        elif keyword == "items":
            result[keyword] = _close_objects(value)
    if result.get("type") == "object":
        result.setdefault("additionalProperties", False)
    return result


def _with_words(schema: Mapping[str, JSON], support: _Support) -> dict[str, JSON]:
    """A schema, not those inside it, with the unsupported keywords in its description."""
    result, constraints = dict(schema), dict[str, JSON]()
    for keyword in support.unsupported_keys:
        if keyword in result:
            constraints[keyword] = result.pop(keyword)
    if isinstance(result.get("format"), str) and result["format"] not in support.formats:
        constraints["format"] = result.pop("format")
    if isinstance(result.get("pattern"), str) and _LOOKAROUND.search(result["pattern"]):
        constraints["pattern"] = result.pop("pattern")
    if support is _ANTHROPIC and result.get("minItems", 0) not in (0, 1):
        constraints["minItems"] = result.pop("minItems")
    result.pop("discriminator", None)  # OpenAPI's; the alternatives hold the same
    if isinstance(result.get("oneOf"), list) and "anyOf" not in result:
        result["anyOf"] = result.pop("oneOf")
    if constraints:
        words = ", ".join(
            f"{keyword}: {json.dumps(value, ensure_ascii=False)}" for keyword, value in constraints.items()
        )
        result["description"] = " ".join(filter(None, (result.get("description"), f"({words})")))
    return result
