"""JSON Schemas without references: each `$ref` is replaced by its target, so that a model reads the type in place.

A reference stays if its target holds itself, if the schema would become many times as long, or at great depth.
The targets of such references are in the `$defs` of the new schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import unquote

from toolspeak.data.messages import JSON, as_list, as_mapping
from toolspeak.data.values import quick
from toolspeak.dialects.text.scan import Caps
from toolspeak.dialects.text.typed_text import resolve

ROOT = "#"
_NOT_IN_NAMES = str.maketrans({"/": ".", "~": "-", "%": "-"})  # characters with a meaning in references
_ONE = frozenset(
    {
        *("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"),
        *("unevaluatedItems", "unevaluatedProperties", "additionalItems", "contentSchema"),
    }
)
_BRANCH_KEYS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems", "items"})
_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas"})
_DEFINITIONS = frozenset({"$defs", "definitions"})
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"})
_INLINE_DEPTH = 32
"""A reference stays if at least this number of schemas are around it."""

_GROWTH, _ALWAYS = 4, 2000
"""The factor by which a schema's keywords may grow, and the number of keywords that is always allowed."""


def resolve_references(parameters: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """A tool's parameters with their references resolved; the same object if there are none.

    Schemas nested deeper than arguments may be are left out. A reference without a target in the schema stays.
    """
    survey = _Survey(parameters)
    if not survey.uses and not survey.too_deep:
        return parameters
    return _SchemaWriter(parameters, survey.references_to_keep()).whole()


def is_too_deep(parameters: Mapping[str, JSON]) -> bool:
    """Whether schemas are nested deeper than arguments may be."""
    return _Survey(parameters).too_deep


def references(value: JSON) -> Iterator[str]:
    """Every `$ref` in a part of a schema."""
    waiting: list[JSON] = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            reference = as_mapping(each).get("$ref")
            if isinstance(reference, str):
                yield reference
            waiting += as_mapping(each).values()
        elif isinstance(each, list | tuple):
            waiting += as_list(each)


def json_text(value: JSON) -> str:
    """A part of a schema as JSON, or a placeholder if it is nested deeper than arguments may be."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "(nested too deeply to be shown)"


def subschemas(schema: Mapping[str, JSON]) -> Iterator[JSON]:
    """The schemas directly inside a schema, without its definitions."""
    for key, value in schema.items():
        if key in _BY_NAME:
            yield from as_mapping(value).values()
        elif key in _BRANCH_KEYS and isinstance(value, list | tuple):
            yield from value
        elif key in _ONE:
            yield value


@quick()
class _DefinitionSize:
    """The number of keywords of a definition, or of the whole schema, and the references in it."""

    keywords: int
    references: tuple[str, ...]


class _Survey:
    """The references of a schema. `uses` counts each in the parts that can be reached."""

    def __init__(self, root: Mapping[str, JSON]) -> None:
        self._root = root
        self.too_deep = False
        self.uses: dict[str, int] = {}
        self._definitions: dict[str, _DefinitionSize] = {}
        waiting = [""]
        while waiting:
            name = waiting.pop()
            if name not in self._definitions:
                size = self._definitions[name] = self._count(root if name == "" else resolve(name, root))
                for each in size.references:
                    self.uses[each] = self.uses.get(each, 0) + 1
                waiting += size.references

    def _count(self, schema: JSON) -> _DefinitionSize:
        keywords, references = 0, list[str]()
        level: list[JSON] = [schema]
        for _ in range(Caps().depth):
            inner: list[JSON] = []
            for each in level:
                mapping = as_mapping(each)
                keywords += len(mapping) + 1
                reference = mapping.get("$ref")
                if isinstance(reference, str) and isinstance(resolve(reference, self._root), bool | Mapping):
                    references.append(reference)
                inner += subschemas(mapping)
            level = inner
            if not level:
                break
        self.too_deep |= bool(level)
        return _DefinitionSize(keywords, tuple(references))

    def references_to_keep(self) -> frozenset[str]:
        """The references that stay: those to types that hold themselves.

        All that are used more than once, if the schema would otherwise grow too much.
        """
        names, recursive = self._walk()
        sizes: dict[str, int] = {}
        for name in names:  # each definition follows those in it
            inner = (1 if each in recursive else sizes[each] for each in self._definitions[name].references)
            sizes[name] = self._definitions[name].keywords + sum(inner)
        before = sum(each.keywords for each in self._definitions.values())
        if sizes[""] + sum(sizes[name] for name in recursive) > max(_ALWAYS, _GROWTH * before):
            recursive |= {name for name, uses in self.uses.items() if uses > 1}
        return frozenset(recursive)

    def _walk(self) -> tuple[list[str], set[str]]:
        """All definitions, each after those that it holds; and those that hold themselves."""
        names: list[str] = []
        recursive: set[str] = set()
        under_way: dict[str, Iterator[str]] = {"": iter(self._definitions[""].references)}
        complete_names: set[str] = set()
        while under_way:
            name, inner = next(reversed(under_way.items()))
            following = next((each for each in inner if each not in complete_names), None)
            if following is None:
                del under_way[name]
                complete_names.add(name)
                names.append(name)
            elif following in under_way:
                recursive.add(following)
            else:
                under_way[following] = iter(self._definitions[following].references)
        return names, recursive


class Names:
    """The names of the types that references point to, in the order of their first use."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._references: list[str] = []
        self._used_names: set[str] = set()

    def of(self, reference: str) -> str:
        name = self._names.get(reference)
        if name is not None:
            return name
        name = type_name(reference)
        while name in self._used_names:
            name += "_"
        self._names[reference] = name
        self._references.append(reference)
        self._used_names.add(name)
        return name

    def each(self) -> Iterator[tuple[str, str]]:
        """Reference and name, including those that are added during the iteration."""
        for reference in self._references:
            yield reference, self._names[reference]


class _SchemaWriter:
    """Writes a schema without references, except those in `kept_references`."""

    def __init__(self, root: Mapping[str, JSON], kept_references: frozenset[str]) -> None:
        self._root = root
        self._kept_references = kept_references
        self._names = Names()

    def whole(self) -> dict[str, JSON]:
        schema = as_mapping(self._schema(self._root, 0, 0))
        definitions: dict[str, JSON] = {}
        for reference, name in self._names.each():
            definitions[name] = self._schema(resolve(reference, self._root), 0, 0)
        return {**schema, "$defs": definitions} if definitions else dict(schema)

    def _schema(self, schema: JSON, depth: int, inline_depth: int) -> JSON:
        """`inline_depth` is the number of references in a row that this schema replaces."""
        if not isinstance(schema, Mapping):
            return schema
        if depth >= Caps().depth:
            return {}
        mapping = as_mapping(schema)
        reference = mapping.get("$ref")
        if isinstance(reference, str):
            target = resolve(reference, self._root)
            if isinstance(target, bool | Mapping):
                others = {key: value for key, value in mapping.items() if key != "$ref"}
                if reference != ROOT and (reference in self._kept_references or depth + inline_depth >= _INLINE_DEPTH):
                    return {"$ref": f"#/$defs/{self._names.of(reference)}", **self._inner(others, depth)}
                if reference != ROOT:
                    return self._schema(_join_schema(target, others), depth, inline_depth + 1)
        return self._inner(mapping, depth)

    def _inner(self, mapping: Mapping[str, JSON], depth: int) -> dict[str, JSON]:
        write: Callable[[JSON], JSON] = lambda schema: self._schema(schema, depth + 1, 0)  # noqa: E731
        copy: dict[str, JSON] = {}
        for key, value in mapping.items():
            if key in _DEFINITIONS:
                continue
            if key in _BY_NAME and isinstance(value, Mapping):
                copy[key] = {name: write(each) for name, each in as_mapping(value).items()}
            elif key in _BRANCH_KEYS and isinstance(value, list | tuple):
                copy[key] = [write(each) for each in as_list(value)]
            else:
                copy[key] = write(value) if key in _ONE else value
        return copy


def type_name(reference: str) -> str:
    """The name of the type that a reference points to: `Node` of `#/$defs/Node`."""
    last = unquote(reference.rpartition("/")[2].lstrip("#")).replace("~1", "/").replace("~0", "~")
    return last.translate(_NOT_IN_NAMES) or "Arguments"


def _join_schema(target: JSON, others: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """The target of a reference, joined with the keywords beside the reference, whose annotations win."""
    mapping = as_mapping({"not": {}} if target is False else target)
    if all(key in _ANNOTATIONS or key not in mapping for key in others):
        return {**mapping, **others}
    return {**others, "allOf": [target, *as_list(others.get("allOf"))]}
