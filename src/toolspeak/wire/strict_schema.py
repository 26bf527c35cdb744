"""Schemas of answers, as APIs take them that hold a model to one: each knows a part of JSON Schema. Pure.

A constraint that an API refuses is told in the description instead: whoever asked checks the answer anyway.

Sources: OpenAI, "Structured model outputs" (Supported schemas); Anthropic, "Structured outputs" (JSON Schema
limitations); what their Python packages make of a type (openai 3.54 `to_strict_json_schema`, anthropic 2.12
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

_NAMED = ("properties", "$defs", "definitions")
"""Keywords whose values are objects of schemas."""

_LISTED = ("anyOf", "allOf", "oneOf", "prefixItems")
"""Those whose values are lists of schemas."""

_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_LENGTHS = ("minLength", "maxLength", "minProperties", "maxProperties", "uniqueItems", "minContains", "maxContains")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "maxItems", "pattern", "default")

_TYPED = ("type", "$ref", "anyOf", "oneOf", "enum", "const")
"""Without one of these a value may be anything."""

_BEYOND = ("allOf", "not", "if", "patternProperties", "prefixItems", "propertyNames", "contains", "dependentSchemas")
"""What a model cannot be held to strictly by OpenAI, and changes what an answer means."""

_LOOKAROUND = re.compile(r"\(\?<?[=!]")


@quick()
class _Rules:
    """`told`: keywords that are told in words; `formats`: those of strings that are taken."""

    told: tuple[str, ...]
    formats: frozenset[str]


_OPENAI = _Rules(_LENGTHS, _FORMATS)
_ANTHROPIC = _Rules((*_LENGTHS, *_BOUNDS), _FORMATS | {"uri"})


class _Open(Exception):
    """The schema lets more through than a strict one can say."""


def openai_form(output: OutputSchema) -> OutputSchema:
    """The schema as OpenAI takes it: strictly, every object closed and all of its properties required; where it cannot
    be said so (a dictionary, a value of any type), as it is and not strictly."""
    if not output.strict:
        return output
    try:
        schema = _strict(output.schema)
    except _Open:
        return OutputSchema(output.name, output.schema, strict=False, description=output.description)
    return OutputSchema(output.name, schema, description=output.description)


def anthropic_form(schema: Mapping[str, JSON]) -> dict[str, JSON]:
    """The schema as Anthropic takes it: every object closed, and bounds of values told in words."""
    return cast("dict[str, JSON]", _closed(schema))


def is_closed(schema: Mapping[str, JSON]) -> bool:
    """Whether a schema names all keys of its objects, or can be read so (it says nothing of others), and does not hold
    itself."""
    definitions = {**_definitions(schema, "$defs"), **_definitions(schema, "definitions")}
    return _names_all(schema, definitions, frozenset(), set())


def _definitions(schema: Mapping[str, JSON], keyword: str) -> Mapping[str, JSON]:
    found = cast("Mapping[str, JSON]", schema.get(keyword) or {})
    return {f"#/{keyword}/{name}": one for name, one in found.items()}


def _names_all(schema: JSON, definitions: Mapping[str, JSON], within: frozenset[str], known: set[str]) -> bool:
    """`within`: the definitions that the schema stands in; `known`: those that do."""
    if not isinstance(schema, Mapping) or not any(keyword in schema for keyword in _TYPED):
        return False
    found = cast("Mapping[str, Any]", schema)
    kind = found.get("type")
    if kind == "object" and (found.get("additionalProperties", False) is not False or "properties" not in found):
        return False
    if "patternProperties" in found or "propertyNames" in found or (kind == "array" and not found.get("items")):
        return False
    inner = [*cast("Mapping[str, JSON]", found.get("properties", {})).values()]
    for keyword in _LISTED:
        inner += cast("Sequence[JSON]", found.get(keyword, ()))
    if found.get("items"):
        inner.append(found["items"])
    if not all(_names_all(one, definitions, within, known) for one in inner):
        return False
    place = found.get("$ref")
    if place is None or place in known:
        return True
    if place in within or not _names_all(definitions.get(place), definitions, within | {place}, known):
        return False
    known.add(place)
    return True


def _strict(schema: JSON) -> dict[str, JSON]:
    if not isinstance(schema, Mapping):
        raise _Open
    found = _in_words(cast("Mapping[str, JSON]", schema), _OPENAI)
    if any(keyword in found for keyword in _BEYOND) or not any(keyword in found for keyword in _TYPED):
        raise _Open
    found.pop("default", None)
    for keyword in _NAMED:
        if isinstance(found.get(keyword), Mapping):
            found[keyword] = {name: _strict(one) for name, one in found[keyword].items()}
    if found.get("type") == "object":
        if found.get("additionalProperties", False) is not False or "properties" not in found:
            raise _Open
        found["additionalProperties"] = False
        if set(found.get("required", ())) != set(found["properties"]):
            found["required"] = list(found["properties"])
    if found.get("type") == "array":
        found["items"] = _strict(found.get("items"))
    if "anyOf" in found:
        found["anyOf"] = [_strict(one) for one in found["anyOf"]]
    if "$ref" in found and len(found.keys() - {"$defs", "definitions"}) > 1:  # a reference stands alone
        found["anyOf"] = [{"$ref": found.pop("$ref")}]
    return found


def _closed(schema: JSON) -> JSON:
    if not isinstance(schema, Mapping):
        return schema
    found = _in_words(cast("Mapping[str, JSON]", schema), _ANTHROPIC)
    for keyword, value in found.items():
        if keyword in _NAMED and isinstance(value, Mapping):
            found[keyword] = {name: _closed(one) for name, one in cast("Mapping[str, JSON]", value).items()}
        elif keyword in _LISTED and isinstance(value, list | tuple):
            found[keyword] = [_closed(one) for one in cast("Sequence[JSON]", value)]
        elif keyword == "items":
            found[keyword] = _closed(value)
    if found.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found


def _in_words(schema: Mapping[str, JSON], rules: _Rules) -> dict[str, JSON]:
    """A schema, not those within it, whose unknown keywords stand in its description."""
    found, told = dict(schema), dict[str, JSON]()
    for keyword in rules.told:
        if keyword in found:
            told[keyword] = found.pop(keyword)
    if isinstance(found.get("format"), str) and found["format"] not in rules.formats:
        told["format"] = found.pop("format")
    if isinstance(found.get("pattern"), str) and _LOOKAROUND.search(found["pattern"]):
        told["pattern"] = found.pop("pattern")
    if rules is _ANTHROPIC and found.get("minItems", 0) not in (0, 1):
        told["minItems"] = found.pop("minItems")
    found.pop("discriminator", None)  # OpenAPI's, and said by the options themselves
    if isinstance(found.get("oneOf"), list) and "anyOf" not in found:
        found["anyOf"] = found.pop("oneOf")
    if told:
        words = ", ".join(f"{keyword}: {json.dumps(value, ensure_ascii=False)}" for keyword, value in told.items())
        found["description"] = " ".join(filter(None, (found.get("description"), f"({words})")))
    return found
