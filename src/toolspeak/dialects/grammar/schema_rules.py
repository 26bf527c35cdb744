"""JSON Schema as nodes, for targets without JSON Schema, for values in other notations (Python, Gemma) or in tags.

These keywords count: `type` (or several), `enum`, `const`, `properties`, `required`, `additionalProperties`, `items`,
`prefixItems`, `minItems`, `maxItems`, `minLength` and `maxLength` (up to 64), `anyOf`, `oneOf`, `allOf` (of objects),
and `$ref` into the tool's own schema, recursive ones too. The grammar ignores all others (`pattern`, `format`, bounds
of numbers, `not`, `uniqueItems` …), so it accepts more than the schema; the tool's validation decides. It is narrower
than the schema in two points: properties come in the schema's order, and an object that names properties takes no
others unless `additionalProperties` allows them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from toolspeak.data.messages import JSON, as_mapping
from toolspeak.data.values import quick
from toolspeak.dialects.grammar.avoid import Pattern, exactly
from toolspeak.dialects.grammar.ir import (
    EMPTY,
    NOTHING,
    Chars,
    JsonText,
    Node,
    Repeat,
    Rules,
    Token,
    choice,
    json_literal,
    optional,
    separated_list,
    series,
)
from toolspeak.dialects.text.typed_text import json_type, resolve, schema_types

_DIGIT, _EXPONENT = Chars("0-9"), Chars("eE")
_WHOLE = choice("0", series(Chars("1-9"), Repeat(_DIGIT)))
_FRACTION = series(".", Repeat(_DIGIT, 1))
# Up to e99, and up to e307 after one digit: an infinite number cannot be read.
_POWER = series(_EXPONENT, choice(series("-", Repeat(_DIGIT, 1, 3)), series(optional("+"), Repeat(_DIGIT, 1, 2))))
_HIGH_POWER = series(_EXPONENT, optional("+"), choice(series(Chars("12"), _DIGIT, _DIGIT), series("30", Chars("0-7"))))
INTEGER = Token(choice("0", series(optional("-"), Chars("1-9"), Repeat(_DIGIT))))
NUMBER = Token(
    choice(
        series(optional("-"), _WHOLE, optional(_FRACTION), optional(_POWER)),
        series(optional("-"), Chars("1-9"), optional(_FRACTION), _HIGH_POWER),
    )
)
SPACE = Token(optional(choice(" ", series("\n", Repeat(Chars(" \\t"), 0, 20)))))
_MOST_COUNTED = 64  # the most characters of a string, or entries of an array, that a rule counts
_STRING_CHAR = choice(
    Chars('"\\\\\\x00-\\x1f', True),
    series("\\", choice(Chars('"\\\\/bfnrt'), series("u", Repeat(Chars("0-9a-fA-F"), 4, 4)))),
)


@quick(eq=False, kw_only=True)
class Notation:
    """How values are written: as JSON, or in a notation like it."""

    string: Node
    """Any string."""
    text: Callable[[str], Node]
    """One specific string."""
    key: Callable[[str], Node]
    """One specific key of an object."""
    any_key: Callable[[Sequence[str]], Node]
    """Any key but these."""
    counted: bool = False
    """Whether bounds of a string's length count."""
    colon: str = ":"
    space: Node = SPACE
    """The white space inside brackets, around commas and after `colon`."""
    words: tuple[str, str, str] = ("true", "false", "null")
    dump: Callable[[JSON], Sequence[str]]
    """The ways to write one specific value."""

    def word(self, value: bool | None) -> Node:
        return Token(series(self.words[2 if value is None else 0 if value else 1]))


@lru_cache(64)
def json_notation(avoid: tuple[Pattern, ...] = (), live: re.Pattern[str] | None = None) -> Notation:
    """JSON whose strings do not contain the patterns. A specific text may also have its live markers escaped."""

    def sources(value: JSON) -> list[str]:
        plain = json.dumps(value, ensure_ascii=False)
        escaped_text = live.sub(lambda char: f"\\u{ord(char[0]):04x}", plain) if live else plain
        return list(dict.fromkeys((plain, escaped_text)))

    def text(value: str) -> Node:
        return choice(*sources(value))

    def other_key(names: Sequence[str]) -> Node:
        key_patterns = tuple(exactly(json_literal(name)[1:], anchored=True) for name in names)
        return JsonText((*avoid, *key_patterns))

    return Notation(string=JsonText(avoid), text=text, key=text, any_key=other_key, counted=not avoid, dump=sources)


class SchemaNodes:
    """Writes the schemas of one tool as nodes.

    `root` is the schema that `$ref` points into. `hint` begins the names of rules. `inner` writes the values of an
    object's properties if their notation differs from the object's.
    """

    def __init__(
        self,
        notation: Notation,
        root: Mapping[str, JSON],
        rules: Rules,
        hint: str,
        inner: SchemaNodes | None = None,
    ) -> None:
        self._notation = notation
        self._root = root
        self._rules = rules
        self._hint = hint
        self._inner = inner or self

    def value(self, schema: JSON) -> Node:
        """Any value of the schema; NOTHING if it has no values."""
        if schema is False:
            return NOTHING
        mapping = merge_all_of(as_mapping(schema), self._root)
        reference = mapping.get("$ref")
        if isinstance(reference, str):
            key = (self._notation, self._hint, reference)
            hint = f"{self._hint}-{reference.rsplit('/', 1)[-1]}"
            return self._rules.once(key, hint, lambda: self.value(resolve(reference, self._root)))
        if "const" in mapping or "enum" in mapping:
            values: Sequence[JSON] = [mapping["const"]] if "const" in mapping else mapping["enum"]
            return choice(*(source for value in values for source in self._notation.dump(value)))
        for key in ("anyOf", "oneOf"):
            if mapping.get(key):
                rest = {name: each for name, each in mapping.items() if name != key}
                return choice(*(self.value(_both(rest, branch)) for branch in mapping[key]))
        kinds = schema_types(mapping, self._root)
        if kinds >= schema_types({}, {}) and not _BOUNDS & mapping.keys():
            return self.anything()
        return choice(*(self._kind(kind, mapping) for kind in _ORDER if kind in kinds))

    def anything(self) -> Node:
        """Any value at all."""
        notation = self._notation

        def make() -> Node:
            simple = (notation.word(True), notation.word(False), notation.word(None))
            return choice(notation.string, NUMBER, self.object({}), self._list({}), *simple)

        return self._rules.once((notation, "any"), "value", make)

    def _kind(self, kind: str, mapping: Mapping[str, Any]) -> Node:
        notation = self._notation
        match kind:
            case "object":
                return self.object(mapping)
            case "array":
                return self._list(mapping)
            case "string":
                return self._string(mapping)
            case "integer":
                # `number` includes the integers.
                return NOTHING if "number" in schema_types(mapping, self._root) else INTEGER
            case "number":
                return NUMBER
            case "boolean":
                return choice(notation.word(True), notation.word(False))
            case _:
                return choice(notation.word(None))

    def _string(self, mapping: Mapping[str, Any]) -> Node:
        low, high = _count(mapping, "minLength", "maxLength")
        if (not low and high is None) or not self._notation.counted:
            return self._notation.string
        return Token(series('"', Repeat(_STRING_CHAR, low, high), '"'))

    def _list(self, mapping: Mapping[str, Any]) -> Node:
        space = self._notation.space
        prefix_items: Sequence[JSON] = mapping.get("prefixItems", ())
        items: JSON = mapping.get("items", True)
        if isinstance(items, Sequence) and not isinstance(items, str):  # drafts before 2020-12
            prefix_items, items = cast("Sequence[JSON]", items), mapping.get("additionalItems", True)
        low, high = _count(mapping, "minItems", "maxItems")
        joint = series(space, ",", space)
        rest = self.value(items)
        high = 0 if rest == NOTHING and not prefix_items else high
        if prefix_items:
            front = [part for each in prefix_items for part in (joint, self.value(each))][1:]
            most = None if high is None else max(high - len(prefix_items), 0)
            more = EMPTY if rest == NOTHING else Repeat(series(joint, rest), max(low - len(prefix_items), 0), most)
            return series("[", space, *front, more, space, "]")
        inner = series(separated_list(rest, joint, max(low, 1), high), space) if high != 0 else NOTHING
        return series("[", space, inner if low else optional(inner), "]")

    def object(self, mapping: Mapping[str, Any], brackets: tuple[str, str] = ("{", "}")) -> Node:
        """An object with its brackets."""
        properties = as_mapping(mapping.get("properties"))
        required_names = set(mapping.get("required", ()))
        pairs = [(name, self._pair(name, schema), name in required_names) for name, schema in properties.items()]
        pairs = [(name, pair, is_required) for name, pair, is_required in pairs if pair != NOTHING or is_required]
        others = mapping.get("additionalProperties", not properties)
        missing = [name for name in mapping.get("required", ()) if name not in properties]
        pairs += [(name, self._pair(name, others), True) for name in missing]
        return self._object(pairs, others, list(properties) + missing, brackets)

    def _object(
        self, pairs: Sequence[tuple[str, Node, bool]], others: JSON, names: Sequence[str], brackets: tuple[str, str]
    ) -> Node:
        """Pairs in their order, each optional one present or not, then pairs of `others`."""
        space = self._notation.space
        joint = series(space, ",", space)
        other = NOTHING
        if others is not False:
            other = series(self._notation.any_key(names), self._colon(), self.value(others))
        # A comma precedes each pair but the first that is present.
        after: Node = space if other == NOTHING else series(Repeat(series(joint, other)), space)
        first: Node = optional(series(separated_list(other, joint, 1, None), space)) if other != NOTHING else EMPTY
        for name, pair, is_required in reversed(pairs):
            follow = self._rules.add(f"{self._hint}-after-{name}", after) if after != EMPTY else EMPTY
            alone = series(pair, follow)
            first = alone if is_required else choice(alone, first)
            each = series(joint, pair)
            after = series(each if is_required else optional(each), follow)
        return series(brackets[0], space, first, brackets[1])

    def _pair(self, name: str, schema: JSON) -> Node:
        return series(self._notation.key(name), self._colon(), self._inner.value(schema))

    def _colon(self) -> Node:
        return series(self._notation.colon, self._notation.space)


_ORDER = ("string", "integer", "number", "boolean", "array", "object", "null")
_BOUNDS = frozenset(
    {"properties", "items", "prefixItems", "additionalProperties", "minLength", "maxLength", "minItems", "required"}
)


def _count(mapping: Mapping[str, Any], low: str, high: str) -> tuple[int, int | None]:
    """Bounds of a length. Bounds over `_MOST_COUNTED` do not count: a matcher would copy the rule that many times."""
    least, most = int(mapping.get(low, 0) or 0), mapping.get(high)
    bound = None if most is None or most > _MOST_COUNTED else int(most)
    return min(least, _MOST_COUNTED), bound


def _both(rest: Mapping[str, Any], branch: JSON) -> JSON:
    """A branch of `anyOf` joined with the keywords beside it."""
    if not isinstance(branch, Mapping):
        return cast("JSON", rest) if branch is True else branch
    beside = {name: each for name, each in rest.items() if name in _SHAPES}
    mapping = as_mapping(branch)
    return _add(beside, mapping) if beside and "$ref" not in mapping else mapping


_SHAPES = _BOUNDS | {"type", "additionalItems", "maxItems"}


def merge_all_of(mapping: Mapping[str, Any], root: Mapping[str, JSON], depth: int = 0) -> Mapping[str, Any]:
    """The schema with `allOf` joined with the keywords beside it, if these describe objects."""
    branches = mapping.get("allOf")
    if not branches or depth > 8:
        return mapping
    rest = {name: each for name, each in mapping.items() if name not in ("allOf", "$ref")}
    if not any(name in rest for name in (*_SHAPES, "enum", "const", "anyOf", "oneOf")) and len(branches) == 1:
        return merge_all_of(as_mapping(branches[0]), root, depth + 1)
    for branch in branches:
        part = as_mapping(branch)
        if isinstance(part.get("$ref"), str):
            part = as_mapping(resolve(part["$ref"], root))
        rest = _add(rest, merge_all_of(part, root, depth + 1))
    return rest


def _add(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    both = {**one, **other}
    if "properties" in one and "properties" in other:
        both["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        both["required"] = list(dict.fromkeys([*one["required"], *other["required"]]))
    return both


@quick()
class Split:
    """A schema's values by how text dialects write them."""

    text: bool
    """Any text is a value."""
    values: tuple[JSON, ...]
    """The values of `enum` and `const`."""
    others: tuple[JSON, ...]
    """Schemas of further values, which are not text."""


def split(schema: JSON, root: Mapping[str, JSON], depth: int = 0) -> Split:
    """The values of a schema by kind. Follows `anyOf`, `oneOf` and `$ref`."""
    if schema is False:
        return Split(False, (), ())
    mapping = as_mapping(schema)
    if isinstance(mapping.get("$ref"), str) and depth < 8:
        return split(resolve(mapping["$ref"], root), root, depth + 1)
    if "const" in mapping or "enum" in mapping:
        return Split(False, tuple([mapping["const"]] if "const" in mapping else mapping["enum"]), ())
    for key in ("anyOf", "oneOf"):
        if mapping.get(key) and depth < 8:
            parts = [
                split(_both({k: v for k, v in mapping.items() if k != key}, b), root, depth + 1) for b in mapping[key]
            ]
            return Split(
                any(each.text for each in parts),
                tuple(value for each in parts for value in each.values),
                tuple(other for each in parts for other in each.others),
            )
    kinds = schema_types(schema, root)
    other_kinds = sorted(kinds - {"string"})
    if "string" not in kinds:
        return Split(False, (), (schema,))
    return Split(True, (), ({**mapping, "type": other_kinds},) if other_kinds else ())


def only(schema: JSON, kind: str, root: Mapping[str, JSON]) -> JSON:
    """The schema restricted to one type; `number` includes integers. False if it has no such values."""
    mapping = as_mapping(schema)
    if isinstance(mapping.get("$ref"), str):
        return only(resolve(mapping["$ref"], root), kind, root)
    kinds = {kind, "integer"} if kind == "number" else {kind}
    values = [mapping["const"]] if "const" in mapping else mapping.get("enum")
    if values is not None:
        return {"enum": [value for value in values if json_type(value) in kinds]}
    for key in ("anyOf", "oneOf"):
        if mapping.get(key):
            return {**mapping, key: [only(branch, kind, root) for branch in mapping[key]]}
    common = sorted(kinds & schema_types(mapping, root))
    return {**mapping, "type": common} if common else False


def close_objects(schema: JSON, root: Mapping[str, JSON], inside_all: bool = False) -> JSON:
    """The schema as `SchemaNodes` reads it, for matchers that read JSON Schema.

    An object that names properties allows no others unless it says so. Objects joined with `allOf` become one, because
    each part would exclude the properties of the others. Optional properties without values are left out: xgrammar
    refuses them.
    """
    if not isinstance(schema, Mapping):
        return schema
    mapping = as_mapping(schema)
    if _of_objects(mapping.get("allOf", ()), root):
        mapping = merge_all_of(mapping, root)
    required_names = mapping.get("required", ())
    result: dict[str, Any] = {}
    for key, value in mapping.items():
        if key == "properties":
            each = as_mapping(value).items()
            result[key] = {
                name: close_objects(sub, root) for name, sub in each if sub is not False or name in required_names
            }
        elif key in ("$defs", "definitions"):
            result[key] = {name: close_objects(each, root) for name, each in as_mapping(value).items()}
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            result[key] = [close_objects(each, root, inside_all or key == "allOf") for each in value]
        elif key in ("items", "additionalProperties"):
            result[key] = close_objects(value, root)
        else:
            result[key] = value
    if mapping.get("properties") and not inside_all and "allOf" not in result:
        result.setdefault("additionalProperties", False)
    return result


def _of_objects(branches: Sequence[JSON], root: Mapping[str, JSON]) -> bool:
    """Whether all branches only name properties of an object, so that they can be joined."""
    mappings = [as_mapping(branch) for branch in branches]
    whole = [
        as_mapping(resolve(each["$ref"], root)) if isinstance(each.get("$ref"), str) else each for each in mappings
    ]
    return bool(whole) and all(each.get("type") == "object" and each.keys() <= _OBJECT_KEYS for each in whole)


_OBJECT_KEYS = frozenset({"type", "properties", "required", "additionalProperties", "title", "description"})
