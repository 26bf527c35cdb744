"""Tools as signatures: the listing that costs a prompt the fewest tokens and leaves nothing out.

    search(query: str, limit?: int(1..100) = 10, by?: "name"|"date", area?: Box)  # asks first
    Find things.
    Box = {left: number, top: number}
    - query: What to look for.
    - Box.left: In pixels.

Types read as in TypeScript, but for shorter names: `str[]`, `{key: type, other?: type}`, `{[key]: type}`, `int|null`,
literals for enums. What bounds a value stands behind its type in brackets, a `$ref` is a type with a name of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.typed_text import as_list, as_mapping, resolve

_SHORT = {"integer": "int", "boolean": "bool", "string": "str"}
_RANGES = (
    ("minimum", "maximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
)
_UNITS = {"minLength": " characters", "minItems": " items", "minProperties": " keys"}
_TOLD = frozenset(  # elsewhere in the signature, or nothing a caller needs
    {
        *("type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "items", "properties", "required", "default"),
        *("description", "title", "additionalProperties", "$defs", "definitions", "$schema", "$id", "$comment"),
        *("nullable", "prefixItems", *(key for pair in _RANGES for key in pair)),
    }
)


def signature(spec: ToolSpec) -> str:
    """A tool's signature and, below it, what it does and what its parameters mean."""
    writer = _Writer(spec.parameters)
    asks = "" if spec.effects.read_only and not spec.effects.external else "  # asks first"
    lines = [f"{spec.name}({writer.properties(spec.parameters)}){asks}"]
    lines += [line.rstrip() for line in spec.description.splitlines() if line.strip()]
    notes = [note for name, schema in spec.properties.items() for note in writer.notes(name, schema)]
    lines += [*writer.named_types(), *(f"- {note}" for note in notes)]
    if as_mapping(spec.parameters).get("additionalProperties") not in (None, False, True):
        lines.append(f"- any other argument: {writer.type(spec.parameters['additionalProperties'])}")
    return "\n".join(lines)


class _Writer:
    """Writes the types of one tool; `_named` are the references that it met, each to be told once."""

    def __init__(self, root: Mapping[str, JSON]) -> None:
        self._root = root
        self._named: dict[str, str] = {}  # reference -> name

    def properties(self, schema: JSON) -> str:
        mapping = as_mapping(schema)
        required, known = as_list(mapping.get("required")), as_mapping(mapping.get("properties"))
        told = [
            f"{_key(name)}{'' if name in required else '?'}: {self.type(each)}{_default(each)}"
            for name, each in known.items()
        ]
        return ", ".join([*told, *(f"{_key(str(name))}: any" for name in required if name not in known)])

    def type(self, schema: JSON) -> str:
        mapping = as_mapping(schema)
        if isinstance(mapping.get("$ref"), str):
            return self._name(mapping["$ref"])
        if "const" in mapping:
            return _dump(mapping["const"])
        if as_list(mapping.get("enum")):
            return "|".join(map(_dump, mapping["enum"]))
        parts: list[str] = []
        for key, joint in (("anyOf", "|"), ("oneOf", "|"), ("allOf", " & ")):
            if as_list(mapping.get(key)):
                parts.append(joint.join(dict.fromkeys(self._operand(branch, joint) for branch in mapping[key])))
        if not parts:
            return self._plain(mapping)
        if "type" in mapping or "properties" in mapping:
            parts.insert(0, self._plain(mapping))
        return parts[0] if len(parts) == 1 else " & ".join(f"({part})" if "|" in part else part for part in parts)

    def _plain(self, mapping: Mapping[str, JSON]) -> str:
        """The type that stands in the schema itself."""
        kinds = as_list(mapping.get("type")) or [mapping.get("type") or _implied(mapping)]
        kinds = [*kinds, "null"] if mapping.get("nullable") is True and "null" not in kinds else kinds
        return "|".join(dict.fromkeys(self._kind(str(kind), mapping) for kind in kinds)) + _bounds(mapping)

    def _operand(self, schema: JSON, joint: str) -> str:
        written = self.type(schema)
        return f"({written})" if joint != "|" and "|" in written else written

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

    def _name(self, reference: str) -> str:
        name = reference.rpartition("/")[2] or "Arguments"
        while any(known == name for key, known in self._named.items() if key != reference):
            name += "_"
        return self._named.setdefault(reference, name)

    def named_types(self) -> Iterator[str]:
        """`Name = type` of every reference, also of those that are met on the way."""
        done = 0
        while done < len(self._named):
            reference, name = list(self._named.items())[done]
            schema = resolve(reference, self._root)
            yield f"{name} = {self.type(schema)}"
            yield from (f"- {note}" for note in self.notes(name, schema))
            done += 1

    def notes(self, path: str, schema: JSON) -> Iterator[str]:
        """What is said of a value and of what it holds: `path: description`."""
        mapping = as_mapping(schema)
        said = " ".join(str(mapping.get("description") or "").split())
        if said:
            yield f"{path}: {said}"
        for key in ("anyOf", "oneOf", "allOf"):
            for branch in as_list(mapping.get(key)):
                yield from self.notes(path, branch)
        if "items" in mapping:
            yield from self.notes(f"{path}[]", mapping["items"])
        for name, each in as_mapping(mapping.get("properties")).items():
            yield from self.notes(f"{path}.{name}", each)
        if as_mapping(mapping.get("additionalProperties")):
            yield from self.notes(f"{path}[key]", mapping["additionalProperties"])


def _implied(mapping: Mapping[str, JSON]) -> str:
    return "object" if "properties" in mapping or "required" in mapping else "array" if "items" in mapping else "any"


def _bounds(mapping: Mapping[str, JSON]) -> str:
    told: list[str] = []
    for low, high in _RANGES:
        least, most = mapping.get(low), mapping.get(high)
        if least is not None or most is not None:
            told.append(f"{'' if least is None else least}..{'' if most is None else most}{_UNITS.get(low, '')}")
    told += [f"{key}={_dump(value)}" for key, value in mapping.items() if key not in _TOLD]
    return f"({', '.join(told)})" if told else ""


def _default(schema: JSON) -> str:
    value = as_mapping(schema).get("default")
    return "" if value is None else f" = {_dump(value)}"


def _key(name: str) -> str:
    return name if name.isidentifier() else _dump(name)


def _dump(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False)
