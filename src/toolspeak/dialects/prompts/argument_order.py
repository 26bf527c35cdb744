"""Calls with their arguments in the order of the tool's schema, which is the one order that a grammar takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from toolspeak.data.messages import JSON, MalformedCall, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import changed
from toolspeak.dialects.grammar.schema_rules import merged
from toolspeak.dialects.text.typed_text import as_mapping, resolve, schema_types

_DEEPEST = 64
_SIMPLE = (str, int, float, type(None))


def in_schema_order(
    calls: Sequence[ToolCall | MalformedCall], tools: Mapping[str, ToolSpec]
) -> list[ToolCall | MalformedCall]:
    """The calls, the properties of each object in the order in which its schema names them; what it does not name
    comes behind, as it came. A call of a tool that is not there stays as it is."""
    return [_ordered_call(call, tools.get(call.name)) if isinstance(call, ToolCall) else call for call in calls]


def _ordered_call(call: ToolCall, spec: ToolSpec | None) -> ToolCall:
    if spec is None:
        return call
    ordered = _ordered(call.arguments, spec.parameters, spec.parameters, 0)
    return call if ordered is call.arguments else changed(call, arguments=ordered)


def _ordered(value: JSON, schema: JSON, root: Mapping[str, JSON], depth: int) -> JSON:
    """The same object where nothing moves."""
    if isinstance(value, _SIMPLE) or depth > _DEEPEST:
        return value
    if isinstance(value, Mapping):
        found = as_mapping(value)
        return _object(found, _described(found, schema, root), root, depth)
    described = as_mapping(_resolved(schema, root))
    fixed: Sequence[JSON] = described.get("prefixItems", ())
    items: JSON = described.get("items", True)
    listed = cast("Sequence[JSON]", value)
    made = [_ordered(each, fixed[i] if i < len(fixed) else items, root, depth + 1) for i, each in enumerate(listed)]
    return value if all(one is other for one, other in zip(made, listed, strict=True)) else made


def _object(value: Mapping[str, JSON], described: Mapping[str, Any], root: Mapping[str, JSON], depth: int) -> JSON:
    properties = as_mapping(described.get("properties"))
    named = [*properties, *(name for name in described.get("required", ()) if name not in properties)]
    order = [*(name for name in named if name in value), *(name for name in value if name not in named)]
    others: JSON = described.get("additionalProperties", True)
    made = {name: _ordered(value[name], properties.get(name, others), root, depth + 1) for name in order}
    same = order == list(value) and all(made[name] is value[name] for name in order)
    return value if same else made


def _described(value: Mapping[str, JSON], schema: JSON, root: Mapping[str, JSON]) -> Mapping[str, Any]:
    """What the schema says of this object: of several branches, the first that names all it has and it all needs."""
    mapping = _resolved(schema, root)
    for key in ("anyOf", "oneOf"):
        for branch in mapping.get(key) or ():
            found = _resolved(branch, root)
            whole = "object" in schema_types(found, root) and set(found.get("required", ())) <= set(value)
            named = set(value) <= set(as_mapping(found.get("properties"))) or found.get("additionalProperties")
            if whole and named:
                return found
    return mapping


def _resolved(schema: JSON, root: Mapping[str, JSON]) -> Mapping[str, Any]:
    mapping = merged(as_mapping(schema), root)
    for _ in range(8):
        if not isinstance(mapping.get("$ref"), str):
            break
        mapping = merged(as_mapping(resolve(mapping["$ref"], root)), root)
    return mapping
