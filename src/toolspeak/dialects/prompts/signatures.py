"""Tools as signatures: the complete listing with the fewest tokens.

    search(query: str, limit?: int(1..100) = 10, by?: "name"|"date", area?: Box)
    Find things.
    Box = {left: number, top: number}
    - query: What to look for.
    - Box.left: In pixels.

Types are those of TypeScript with shorter names: `str[]`, `{key: type, other?: type}`, `{[key]: type}`, `int|null`,
literals for enums. The bounds of a value follow its type in brackets. A `$ref` is a named type. Deeply nested
schemas are written as JSON Schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from toolspeak.data.messages import JSON, as_list, as_mapping
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.prompts.references import (
    Names,
    is_too_deep,
    json_text,
    references,
    resolve_references,
    subschemas,
)
from toolspeak.dialects.text.typed_text import resolve

_SHORT = {"integer": "int", "boolean": "bool", "string": "str"}
_RANGES = (
    ("minimum", "maximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
)
_UNITS = {"minLength": " characters", "minItems": " items", "minProperties": " keys"}
_HANDLED_KEYS = frozenset(  # elsewhere in the signature, or useless to a caller
    {
        *("type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "items", "properties", "required", "default"),
        *("description", "title", "additionalProperties", "$defs", "definitions", "$schema", "$id", "$comment"),
        *("nullable", "prefixItems", *(key for pair in _RANGES for key in pair)),
    }
)
_CHOICES = frozenset({"anyOf", "oneOf", "allOf", "$ref"})
_DEEPEST = 12
"""The levels of types that are written as signatures. The notes repeat the path of each type."""


def signature(spec: ToolSpec) -> str:
    """A tool's signature, and below it the descriptions of the tool and of its parameters."""
    parameters = resolve_references(spec.parameters) if is_too_deep(spec.parameters) else spec.parameters
    writer = _SignatureWriter(parameters)
    lines = [f"{spec.name}({writer.properties(parameters)})"]
    lines += [line.rstrip() for line in spec.description.splitlines() if line.strip()]
    properties = as_mapping(parameters.get("properties"))
    notes = [note for name, schema in properties.items() for note in writer.notes(name, schema)]
    others = parameters.get("additionalProperties")
    if as_mapping(others):
        notes += [f"any other argument: {writer.type(others)}", *writer.notes("any other argument", others)]
    rest = {key: value for key, value in parameters.items() if key in _CHOICES or key not in _HANDLED_KEYS}
    if rest:  # the schema of all arguments together
        notes += [f"all arguments: {writer.type(rest)}", *writer.notes("all arguments", rest)]
    return "\n".join([*lines, *writer.named_types(), *(f"- {note}" for note in notes)])


class _SignatureWriter:
    """Writes the types of one tool, and collects the references in them. Each is listed once."""

    def __init__(self, root: Mapping[str, JSON]) -> None:
        self._root = root
        self._names = Names()
        self._depth = 0

    def properties(self, schema: JSON) -> str:
        mapping = as_mapping(schema)
        required_names, properties = as_list(mapping.get("required")), as_mapping(mapping.get("properties"))
        parts = [
            f"{_key(name)}{'' if name in required_names else '?'}: {self.type(each)}{_default(each)}"
            for name, each in properties.items()
        ]
        return ", ".join([*parts, *(f"{_key(str(name))}: any" for name in required_names if name not in properties)])

    def type(self, schema: JSON) -> str:
        if schema is False:
            return "never"
        mapping = as_mapping(schema)
        if self._depth > _DEEPEST and any(True for _ in subschemas(mapping)):
            return f"JSON Schema {self._json(mapping)}"
        self._depth += 1
        text = self._type(mapping)
        self._depth -= 1
        return text

    def _type(self, mapping: Mapping[str, JSON]) -> str:
        if isinstance(mapping.get("$ref"), str):
            return self._names.of(mapping["$ref"]) + self._bounds(mapping)
        if "const" in mapping:
            return json_text(mapping["const"]) + self._bounds(mapping)
        if as_list(mapping.get("enum")):
            return "|".join(map(json_text, mapping["enum"])) + self._bounds(mapping)
        parts: list[str] = []
        for key, joint in (("anyOf", "|"), ("oneOf", "|"), ("allOf", " & ")):
            if as_list(mapping.get(key)):
                parts.append(joint.join(dict.fromkeys(self._operand(branch, joint) for branch in mapping[key])))
        if not parts:
            return self._plain(mapping)
        if "type" in mapping or "properties" in mapping:
            parts.insert(0, self._plain(mapping))
        elif bounds := self._bounds(mapping):
            parts.append(f"any{bounds}")
        return parts[0] if len(parts) == 1 else " & ".join(f"({part})" if "|" in part else part for part in parts)

    def _plain(self, mapping: Mapping[str, JSON]) -> str:
        """The type by the schema's own keywords, without `$ref` and choices."""
        kinds = as_list(mapping.get("type")) or [mapping.get("type") or _implied_type(mapping)]
        kinds = [*kinds, "null"] if mapping.get("nullable") is True and "null" not in kinds else kinds
        return "|".join(dict.fromkeys(self._kind(str(kind), mapping) for kind in kinds)) + self._bounds(mapping)

    def _operand(self, schema: JSON, joint: str) -> str:
        text = self.type(schema)
        return f"({text})" if joint != "|" and "|" in text else text

    def _kind(self, kind: str, mapping: Mapping[str, JSON]) -> str:
        if kind == "array":
            items = as_list(mapping.get("prefixItems"))
            if items:
                return f"[{', '.join(map(self.type, items))}]"
            item = self.type(mapping["items"]) if "items" in mapping else "any"
            return f"({item})[]" if "|" in item or (" " in item and not item.startswith("{")) else f"{item}[]"
        if kind == "object":
            inner = self.properties(mapping)
            other = mapping.get("additionalProperties")
            if isinstance(other, Mapping):
                inner += f"{', ' if inner else ''}[key]: {self.type(other)}"
            return f"{{{inner}}}" if inner else "object"
        return _SHORT.get(kind, kind)

    def _bounds(self, mapping: Mapping[str, JSON]) -> str:
        bounds: list[str] = []
        for low, high in _RANGES:
            least, most = mapping.get(low), mapping.get(high)
            if least is not None or most is not None:
                bounds.append(f"{'' if least is None else least}..{'' if most is None else most}{_UNITS.get(low, '')}")
        bounds += [f"{key}={self._json(value)}" for key, value in mapping.items() if key not in _HANDLED_KEYS]
        return f"({', '.join(bounds)})" if bounds else ""

    def _json(self, value: JSON) -> str:
        """A part of a schema as JSON. The types that it refers to are listed too."""
        for reference in references(value):
            self._names.of(reference)
        return json_text(value)

    def named_types(self) -> Iterator[str]:
        """`Name = type` of every reference, including those in the types themselves."""
        for reference, name in self._names.each():
            schema = resolve(reference, self._root)
            yield f"{name} = {self.type(schema)}"
            yield from (f"- {note}" for note in self.notes(name, schema))

    def notes(self, path: str, schema: JSON, depth: int = 0) -> Iterator[str]:
        """The descriptions of a value and of what it holds, as `path: description`."""
        mapping = as_mapping(schema)
        if depth > _DEEPEST and any(True for _ in subschemas(mapping)):
            return
        description = " ".join(str(mapping.get("description") or "").split())
        if description:
            yield f"{path}: {description}"
        inner = [(path, branch) for key in ("anyOf", "oneOf", "allOf") for branch in as_list(mapping.get(key))]
        inner += [(f"{path}[{i}]", each) for i, each in enumerate(as_list(mapping.get("prefixItems")))]
        inner += [(f"{path}[]", mapping["items"])] if "items" in mapping else []
        inner += [(f"{path}.{name}", each) for name, each in as_mapping(mapping.get("properties")).items()]
        if as_mapping(mapping.get("additionalProperties")):
            inner.append((f"{path}[key]", mapping["additionalProperties"]))
        for where, each in inner:
            yield from self.notes(where, each, depth + 1)


def _implied_type(mapping: Mapping[str, JSON]) -> str:
    return "object" if "properties" in mapping or "required" in mapping else "array" if "items" in mapping else "any"


def _default(schema: JSON) -> str:
    value = as_mapping(schema).get("default")
    return "" if value is None else f" = {json_text(value)}"


def _key(name: str) -> str:
    return name if name.isidentifier() else json_text(name)
