"""Tools as prompt text, for models that were not trained on a tool format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from toolspeak.data.messages import JSON, as_list, as_mapping
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import Listing
from toolspeak.dialects.prompts.prose import describe
from toolspeak.dialects.prompts.references import resolve_references
from toolspeak.dialects.prompts.signatures import signature
from toolspeak.dialects.text.typed_text import resolve, schema_types

_SAMPLES: dict[str, JSON] = {"boolean": True, "null": None, "array": [], "object": {}}
_SAMPLE_STRINGS = {"path": "notes/plan.md", "content": "two lines\nof text", "command": "ls -l", "prefix": "notes"}
_ORDER = ("string", "integer", "number", "boolean", "array", "object", "null")


def list_tools(tools: Sequence[ToolSpec], listing: Listing = "prose") -> str:
    """The tools as prompt text, in one of `Listing`. `trained` is prose here: only `Dialect.prompt` knows templates."""
    match listing:
        case "trained" | "prose":
            return "\n\n".join(describe(spec) for spec in tools) or "(no tools)"
        case "signatures":
            return "\n\n".join(signature(spec) for spec in tools) or "(no tools)"
        case "json_schema":
            return "\n".join(_definition(spec) for spec in tools) or "(no tools)"


def _definition(spec: ToolSpec) -> str:
    function = {
        "name": spec.name,
        "description": spec.description,
        "parameters": dict(resolve_references(spec.parameters)),
    }
    try:
        return json.dumps({"type": "function", "function": function}, ensure_ascii=False)
    except RecursionError:  # for example a default nested deeper than any argument may be
        names: dict[str, JSON] = {name: {} for name in spec.properties}
        function["parameters"] = {"type": "object", "properties": names}
        return json.dumps({"type": "function", "function": function}, ensure_ascii=False)


def sample_arguments(spec: ToolSpec) -> dict[str, JSON]:
    """Plausible arguments for an example: the required parameters, or else the first one."""
    required_names: Iterable[str] = as_list(spec.parameters.get("required"))
    names = list(required_names) or list(spec.properties)[:1]
    return {name: _sample(name, spec.properties.get(name), spec.parameters) for name in names}


def _sample(name: str, schema: JSON, root: Mapping[str, JSON], depth: int = 0) -> JSON:
    """A value that fits the schema's types, bounds and required properties."""
    mapping = as_mapping(schema)
    for key in ("const", "default"):
        if mapping.get(key) is not None:
            return mapping[key]
    for key in ("enum", "examples"):
        if mapping.get(key):
            return mapping[key][0]
    branches: list[JSON] = [branch for key in ("anyOf", "oneOf", "allOf") for branch in mapping.get(key, ())]
    if isinstance(mapping.get("$ref"), str):
        branches = [resolve(mapping["$ref"], root)]
    if branches and depth < 8:
        branch = next((each for each in branches if schema_types(each, root) != frozenset({"null"})), branches[0])
        return _sample(name, branch, root, depth + 1)
    kinds = schema_types(schema, root)
    kind = next((kind for kind in _ORDER if kind in kinds), "string")
    match kind:
        case "string":
            return _SAMPLE_STRINGS.get(name, "text").ljust(mapping.get("minLength", 0), "x")
        case "integer" | "number":
            return _sample_number(mapping)
        case "object" if depth < 8:
            inner = as_mapping(mapping.get("properties"))
            return {key: _sample(key, inner.get(key), root, depth + 1) for key in mapping.get("required", ())}
        case "array" if depth < 8 and mapping.get("minItems"):
            return [_sample(name, mapping.get("items"), root, depth + 1)] * mapping["minItems"]
        case _:
            return _SAMPLES[kind]


def _sample_number(mapping: Mapping[str, JSON]) -> JSON:
    above = mapping.get("exclusiveMinimum")
    lowest = above + 1 if above is not None else mapping.get("minimum", 1)
    below = mapping.get("exclusiveMaximum")
    highest = below - 1 if below is not None else mapping.get("maximum", 1)
    return lowest if lowest > 1 else min(1, highest)


def example_tools(tools: Sequence[ToolSpec]) -> list[ToolSpec]:
    """Up to two tools for the examples, read-only tools first: a model may copy an example by mistake."""
    specs = sorted(tools, key=lambda spec: (not spec.effects.read_only, not spec.properties))
    return specs[:2]
