"""Tools in words: a heading for each, a line for each parameter, and for what a parameter holds.

    ### search(query, limit?, area?)
    Find things.
    - query: string, required, 1 to 200 characters. What to look for.
    - limit: integer, optional, 1 to 100, default 10
    - area: Box, optional
    Box: object
    - left: number, required, at least 0. In pixels.

The text contains all of a schema except titles and what only a validator reads (`$id`, `additionalProperties: false`).
Recursive types have a name (`references.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from toolspeak.data.messages import JSON, as_list, as_mapping
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.prompts.references import (
    ROOT,
    Names,
    json_text,
    references,
    resolve_references,
    subschemas,
    type_name,
)

_DEEPEST = 12
"""Levels of lines. Deeper levels are JSON Schema, because indentation would be most of the text."""

_RANGES = (
    ("minimum", "maximum", ""),
    ("minLength", "maxLength", "character"),
    ("minItems", "maxItems", "item"),
    ("minProperties", "maxProperties", "key"),
)
_FACTS: Mapping[str, Callable[[JSON], str]] = {
    "exclusiveMinimum": lambda value: f"more than {json_text(value)}",
    "exclusiveMaximum": lambda value: f"less than {json_text(value)}",
    "multipleOf": lambda value: f"a multiple of {json_text(value)}",
    "pattern": lambda value: f"matching {value}",
    "format": lambda value: f"format {value}",
    "uniqueItems": lambda value: "no item twice" if value is True else "",
    "examples": lambda value: f"for example {', '.join(map(json_text, as_list(value)))}" if as_list(value) else "",
    "deprecated": lambda value: "deprecated" if value is True else "",
    "default": lambda value: "" if value is None else f"default {json_text(value)}",
}
_HANDLED_KEYS = frozenset(  # written as words, or useless to a caller
    {
        *("type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "items", "prefixItems", "properties", "required"),
        *("patternProperties", "additionalProperties", "nullable", "description", "title", "$defs", "definitions"),
        *("$schema", "$id", "$comment", "$anchor", *(key for low, high, _ in _RANGES for key in (low, high))),
    }
)
_ANY = "any JSON value"
_PLAIN = frozenset({"type", "properties", "required", "patternProperties", "additionalProperties", "items"})


def describe(spec: ToolSpec) -> str:
    """A tool as a section of the prompt."""
    parameters = resolve_references(spec.parameters)
    writer = _ProseWriter(parameters)
    description = writer.value(
        {key: value for key, value in parameters.items() if key not in ("type", "description")}, 0
    )
    required_names = as_list(parameters.get("required"))
    names = [name if name in required_names else f"{name}?" for name in _property_names(parameters)]
    lines = [f"### {spec.name}({', '.join(names)})", *([spec.description] if spec.description else [])]
    lines += [f"- all arguments: {fact}" for fact in description.facts]
    return "\n".join([*lines, *description.lines, *writer.named_types()])


def _property_names(schema: JSON, depth: int = 0) -> dict[str, None]:
    """The names of a tool's arguments, including those in a choice of several schemas."""
    mapping = as_mapping(schema)
    names = dict.fromkeys(as_mapping(mapping.get("properties")))
    for key in ("allOf", "anyOf", "oneOf"):
        for branch in as_list(mapping.get(key)) if depth < _DEEPEST else ():
            names |= _property_names(branch, depth + 1)
    return names


@dataclass(slots=True)
class _Description:
    """A value in words."""

    words: str
    """Its type."""
    facts: list[str] = field(default_factory=list[str])
    """Its bounds and similar facts."""
    meaning: str = ""
    lines: list[str] = field(default_factory=list[str])
    """The lines below, about what it holds."""

    @property
    def is_short(self) -> bool:
        return not self.meaning and not self.lines

    @property
    def in_brackets(self) -> str:
        return f"{self.words} ({', '.join(self.facts)})" if self.facts else self.words


class _ProseWriter:
    """Writes the values of one tool, and collects the names of their types."""

    def __init__(self, root: Mapping[str, JSON]) -> None:
        self._root = root
        self._names = Names()

    def named_types(self) -> Iterator[str]:
        """The types with a name, including those that only such types refer to."""
        for reference, name in self._names.each():
            if reference == ROOT:
                yield f"{name}: all arguments of this tool, as above"
            else:
                yield from _lines(name, self.value(as_mapping(self._root.get("$defs")).get(name), 0), "", dash="")

    def value(self, schema: JSON, depth: int) -> _Description:
        if schema is False:
            return _Description("nothing")
        mapping = as_mapping(schema)
        if depth > _DEEPEST and any(True for _ in subschemas(mapping)):
            return _Description(f"as JSON Schema {self._json(mapping)}")
        description = self._type(mapping, depth)
        description.facts += _bounds(mapping)
        description.facts += [
            f"{key} {self._json(value)}" for key, value in mapping.items() if key not in _HANDLED_KEYS | _FACTS.keys()
        ]
        nearer = str(mapping.get("description") or "").strip()
        if nearer:
            description.meaning = nearer if description.meaning in ("", nearer) else f"{nearer}\n{description.meaning}"
        return description

    def _type(self, mapping: Mapping[str, JSON], depth: int) -> _Description:
        reference = mapping.get("$ref")
        if isinstance(reference, str):
            if reference != ROOT and type_name(reference) not in as_mapping(self._root.get("$defs")):
                return _Description(f"any JSON value ({reference})")
            return _Description(self._names.of(reference))
        if "const" in mapping:
            return _Description(f"always {json_text(mapping['const'])}")
        if as_list(mapping.get("enum")):
            return _Description(f"one of {', '.join(map(json_text, mapping['enum']))}")
        parts: list[_Description] = [self.value(branch, depth + 1) for branch in as_list(mapping.get("allOf"))]
        choices = [as_list(mapping.get(key)) for key in ("anyOf", "oneOf")]
        parts += [self._either([self.value(branch, depth + 1) for branch in each]) for each in choices if each]
        if not parts or not _PLAIN.isdisjoint(mapping):
            parts.insert(0, self._plain(mapping, depth))
        return parts[0] if len(parts) == 1 else _together(parts)

    def _either(self, branches: Sequence[_Description]) -> _Description:
        """One of several types. If only one of them has lines below, these lines omit its name."""
        long = [branch for branch in branches if not branch.is_short]
        if len(long) > 1:
            lines = [
                line for branch in branches for line in _lines("or" if branch is not branches[0] else "either", branch)
            ]
            return _Description("one of these", lines=lines)
        words = " or ".join(dict.fromkeys(branch.in_brackets for branch in branches))
        return _Description(words, [], long[0].meaning, long[0].lines) if long else _Description(words)

    def _plain(self, mapping: Mapping[str, JSON], depth: int) -> _Description:
        """The type by the schema's own keywords, without `$ref` and choices."""
        kinds = as_list(mapping.get("type")) or [mapping.get("type") or _implied_type(mapping)]
        kinds = [*kinds, "null"] if mapping.get("nullable") is True and "null" not in kinds else kinds
        parts = [self._kind(str(kind), mapping, depth) for kind in dict.fromkeys(map(str, kinds))]
        words = " or ".join(part.words for part in parts)
        return _Description(
            words, [fact for part in parts for fact in part.facts], "", [line for part in parts for line in part.lines]
        )

    def _kind(self, kind: str, mapping: Mapping[str, JSON], depth: int) -> _Description:
        if kind == "array":
            return self._array(mapping, depth)
        if kind == "object":
            return self._object(mapping, depth)
        return _Description(kind)

    def _array(self, mapping: Mapping[str, JSON], depth: int) -> _Description:
        items = mapping.get("items")
        first = as_list(mapping.get("prefixItems")) or as_list(items)
        lines = [line for i, each in enumerate(first, 1) for line in _lines(f"item {i}", self.value(each, depth + 1))]
        if not isinstance(items, Mapping):
            return _Description("array", lines=lines)
        item = self.value(items, depth + 1)
        if not item.meaning and (not item.facts or item.is_short):
            words = f"({item.in_brackets})" if " or " in item.words else item.in_brackets
            return _Description(f"array of {words}", lines=[*lines, *item.lines])
        return _Description("array", lines=[*lines, *_lines("each item", item)])

    def _object(self, mapping: Mapping[str, JSON], depth: int) -> _Description:
        required_names, properties = as_list(mapping.get("required")), as_mapping(mapping.get("properties"))
        lines: list[str] = []
        for name, schema in properties.items():
            lines += _lines(name, self.value(schema, depth + 1), "required" if name in required_names else "optional")
        for pattern, schema in as_mapping(mapping.get("patternProperties")).items():
            lines += _lines(f"keys that match {pattern}", self.value(schema, depth + 1))
        others = mapping.get("additionalProperties")
        if as_mapping(others):
            lines += _lines("any other key" if lines else "any key", self.value(others, depth + 1))
        undescribed_names = [str(name) for name in required_names if name not in properties]
        return _Description("object", [f"with {', '.join(undescribed_names)}"] if undescribed_names else [], "", lines)

    def _json(self, value: JSON) -> str:
        """A part of a schema as JSON. The types that it refers to are listed too."""
        for reference in references(value):
            if reference == ROOT or type_name(reference) in as_mapping(self._root.get("$defs")):
                self._names.of(reference)
        return json_text(value)


def _together(parts: Sequence[_Description]) -> _Description:
    """Several descriptions that all apply, as one."""
    words = " and ".join(dict.fromkeys(part.words for part in parts if part.words != _ANY)) or _ANY
    facts = list(dict.fromkeys(fact for part in parts for fact in part.facts))
    meaning = "\n".join(dict.fromkeys(part.meaning for part in parts if part.meaning))
    return _Description(words, facts, meaning, [line for part in parts for line in part.lines])


def _lines(name: str, description: _Description, presence: str = "", dash: str = "- ") -> list[str]:
    facts = [description.words, *([presence] if presence else []), *description.facts]
    indent = " " * len(dash)
    meaning = description.meaning.replace("\n", f"\n{indent}")
    head = f"{dash}{name}: {', '.join(facts)}{f'. {meaning}' if meaning else ''}"
    return [head, *(f"{indent}{line}" for line in description.lines)]


def _bounds(mapping: Mapping[str, JSON]) -> list[str]:
    facts: list[str] = []
    for low, high, unit in _RANGES:
        least, most = mapping.get(low), mapping.get(high)
        if least is not None and most is not None:
            facts.append(
                _count_text("", least, unit)
                if least == most
                else f"{json_text(least)} to {_count_text('', most, unit)}"
            )
        elif least is not None:
            facts.append(_count_text("at least ", least, unit))
        elif most is not None:
            facts.append(_count_text("at most ", most, unit))
    return [fact for fact in (*facts, *(_FACTS[key](value) for key, value in mapping.items() if key in _FACTS)) if fact]


def _count_text(before: str, value: JSON, unit: str) -> str:
    return f"{before}{json_text(value)}{f' {unit}' if unit else ''}{'s' if unit and value != 1 else ''}"


def _implied_type(mapping: Mapping[str, JSON]) -> str:
    objects = {"properties", "required", "additionalProperties", "patternProperties"}
    return "object" if objects & mapping.keys() else "array" if "items" in mapping else _ANY
