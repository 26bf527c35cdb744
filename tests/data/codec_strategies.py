"""Hypothesis strategies for every class the codec stores, derived from the classes' own type hints."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal

from hypothesis import strategies as st

from toolspeak.data.events import UnknownEvent
from toolspeak.data.forms import CLASSES
from toolspeak.data.values import UntaggedStruct


def joined_surrogates(text: str) -> str:
    """A high and a low surrogate side by side become the character they stand for; lone ones stay."""
    characters: list[str] = []
    for character in text:
        if characters and "\ud800" <= characters[-1] <= "\udbff" and "\udc00" <= character <= "\udfff":
            characters[-1] = chr(0x10000 + ((ord(characters[-1]) - 0xD800) << 10) + ord(character) - 0xDC00)
        else:
            characters.append(character)
    return "".join(characters)


ANY_CHARACTER = st.one_of(st.sampled_from('\x00\ud800\udbff\udc00\udfff\u2028\x7f"\\</é😀'), st.characters())
TEXTS = st.text(ANY_CHARACTER, max_size=8).map(joined_surrogates)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
# Keys that mean something in the format, on purpose: a JSON value may hold them anywhere.
KEYS = st.one_of(st.sampled_from(["type", "format", "extra", "text", "kind"]), TEXTS)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), FLOATS, TEXTS, st.sampled_from(sorted(CLASSES)))
JSON_VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=6,
)


def _extras(cls: type) -> st.SearchStrategy[dict[str, Any]]:
    reserved_keys = {"type", "format", *(field.name for field in fields(cls) if field.name != "extra")}
    return st.dictionaries(KEYS.filter(lambda key: key not in reserved_keys), JSON_VALUES, max_size=2)


def _of_hint(hint: Any) -> st.SearchStrategy[Any]:
    scalars: dict[Any, st.SearchStrategy[Any]] = {
        Any: JSON_VALUES,
        str: TEXTS,
        int: st.integers(),
        float: FLOATS,
        bool: st.booleans(),
        bytes: st.binary(max_size=8),
        types.NoneType: st.none(),
    }
    if hint in scalars:
        return scalars[hint]
    if hint in CLASSES.values():
        return values_of(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([_of_hint(argument) for argument in arguments if argument is not UntaggedStruct])
    if origin is tuple:
        return st.lists(_of_hint(arguments[0]), max_size=2).map(tuple)
    if origin is frozenset:
        return st.frozensets(_of_hint(arguments[0]), max_size=3)
    assert origin is Mapping, hint
    return st.dictionaries(KEYS, _of_hint(arguments[1]), max_size=3)


def values_of(cls: type) -> st.SearchStrategy[Any]:
    """Instances of one class of the format, everything optional sometimes left out."""
    if cls is UnknownEvent:
        kinds = TEXTS.filter(lambda kind: kind not in CLASSES or kind == "UnknownEvent")
        data = st.dictionaries(KEYS.filter(lambda key: key not in ("type", "format")), JSON_VALUES, max_size=3)
        return st.builds(UnknownEvent, kinds, data)
    hints = typing.get_type_hints(cls)
    strategies = {
        field.name: _extras(cls)
        if field.name == "extra"
        else st.deferred(lambda hint=hints[field.name]: _of_hint(hint))
        for field in fields(cls)
    }
    return st.builds(cls, **strategies)


STORED_VALUES = st.sampled_from(sorted(CLASSES)).flatmap(lambda name: values_of(CLASSES[name]))
"""An instance of any class of the format."""
