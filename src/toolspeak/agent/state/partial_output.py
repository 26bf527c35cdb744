"""An answer of a type while it is written: what of it can be read, as a value of the type."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Hashable, Iterable, Mapping
from enum import Enum
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, NotRequired, Required, Union, cast, get_args, get_origin, get_type_hints

from typing_extensions import is_typeddict

from toolspeak.data.messages import JSON
from toolspeak.tools import pydantic_support

ABSENT: Any = object()
"""The value if nothing of it can be read yet."""

_THOUGHT_END = "</think>"
_FENCE = re.compile(r"\s*```[^\n]*\n")
_JSON_START = re.compile(r'\s*(?=[\[{"])')
_BRACKET = re.compile(r"[\[{]")
_LISTS = (list, tuple, set, frozenset)
_MAPPINGS = (dict, Mapping)


class PartialAnswer:
    """Reads an answer again and again while its text grows.

    - `type_`: the type of the answer.
    - `key`: the only key of the object that holds the answer, "" if the answer is the whole JSON.
    - `is_text`: whether plain text is an answer, too.
    """

    def __init__(self, type_: Any, key: str, *, is_text: bool) -> None:
        self._type = type_
        self._key = key
        self._is_text = is_text
        self.reset()

    def reset(self) -> None:
        """Starts an answer."""
        self._pieces: list[str] = []
        self._length = self._next = 0
        self._json: JSON = ABSENT
        self._value: Any = ABSENT

    def add(self, text: str) -> Any:
        """Adds a piece of the text. Returns the value so far; ABSENT if it has not changed, or nothing of
        it can be read."""
        self._pieces.append(text)
        self._length += len(text)
        if self._length < self._next:
            return ABSENT
        self._next = self._length + max(1, self._length // 100)  # linear time, however small the pieces are
        whole = "".join(self._pieces)
        self._pieces = [whole]
        value, is_open = _json_of(whole, is_text=self._is_text)
        if self._key and isinstance(value, dict):
            fields = cast("dict[str, JSON]", value)
            if [*fields] in ([self._key], []):
                value = fields.get(self._key, ABSENT)
        if value is ABSENT or value == self._json:
            return ABSENT
        self._json, earlier = value, self._value
        self._value = _partial(self._type, value, is_open=is_open)
        try:
            return ABSENT if self._value == earlier else self._value
        except AttributeError:  # a dataclass compares fields that are not there yet
            return self._value


def _json_of(text: str, *, is_text: bool) -> tuple[JSON, bool]:
    """The JSON at the beginning of an answer, without an unfinished number; and whether it ends in an unfinished
    text."""
    _, _, answer = text.rpartition(_THOUGHT_END)
    fence = _FENCE.match(answer)
    answer = answer[fence.end() :] if fence else answer
    start = _JSON_START.match(answer) or (None if is_text else _BRACKET.search(answer))
    if start is None:
        return (answer.strip(), True) if is_text and answer.strip() else (ABSENT, True)
    begins = answer[start.start() :].lstrip()
    try:
        value = pydantic_support.from_json(begins, allow_partial="trailing-strings")
        is_open = value != pydantic_support.from_json(begins, allow_partial=True)
    except ValueError:
        return ABSENT, True
    return (_without_last_number(value) if begins[-1] in "0123456789.eE+-" and not is_open else value), is_open


def _without_last_number(value: Any) -> JSON:
    """The value without the number that it ends in: more digits may follow."""
    if isinstance(value, dict) and value:
        fields = cast("dict[str, JSON]", value)
        *_, last = fields
        shorter = _without_last_number(fields[last])
        return {key: each for key, each in fields.items() if key != last} | (
            {} if shorter is ABSENT else {last: shorter}
        )
    if isinstance(value, list) and value:
        items = cast("list[JSON]", value)
        shorter = _without_last_number(items[-1])
        return [*items[:-1], *([] if shorter is ABSENT else [shorter])]
    return ABSENT if isinstance(value, int | float) and not isinstance(value, bool) else cast("JSON", value)


def _partial(kind: Any, value: JSON, *, is_open: bool) -> Any:
    """The value as this type, with what is missing left out; ABSENT if it does not fit. Only the last entry of each
    object and list may be unfinished: the others are validated whole."""
    origin = get_origin(kind) or kind
    arguments = get_args(kind)
    if origin in (Annotated, Required, NotRequired):
        return _partial(arguments[0], value, is_open=is_open)
    if origin in (Union, UnionType):
        readings = (_partial(each, value, is_open=is_open) for each in arguments)
        return next((each for each in readings if each is not ABSENT), ABSENT)
    if isinstance(value, dict):
        fields = _fields_of(kind, origin)
        if fields is not None:
            return _partial_object(origin, fields, cast("dict[str, JSON]", value), is_open=is_open)
        if origin in _MAPPINGS and len(arguments) == 2:
            return _partial_entries(arguments[1], cast("dict[str, JSON]", value).items(), is_open=is_open)
    if isinstance(value, list) and origin in _LISTS and (len(arguments) == 1 or arguments[1:] == (...,)):
        items = _partial_entries(arguments[0], enumerate(cast("list[JSON]", value)), is_open=is_open)
        return ABSENT if items is ABSENT else cast("type[list[Any]]", origin)(items.values())
    if is_open and isinstance(value, str):
        is_text = kind is Any or (isinstance(kind, type) and issubclass(kind, str) and not issubclass(kind, Enum))
        return value if is_text else ABSENT
    return _whole(kind, value)


def _partial_object(
    kind: Any, fields: Mapping[str, tuple[tuple[str, ...], Any]], value: Mapping[str, JSON], *, is_open: bool
) -> Any:
    """An instance of a class with the fields that are there."""
    values: dict[str, Any] = {}
    names = {key: name for name, (keys, _) in fields.items() for key in keys}
    items = [(names[key], each) for key, each in value.items() if key in names]
    if value and not items:
        return ABSENT
    for at, (name, each) in enumerate(items, 1):
        is_last = at == len(items) and each is value[[*value][-1]]
        read = _partial(fields[name][1], each, is_open=is_open) if is_last else _whole(fields[name][1], each)
        if read is not ABSENT:
            values[name] = read
        elif not is_last:
            return ABSENT
    if is_typeddict(kind):
        return values
    if issubclass(kind, pydantic_support.BaseModel):
        return kind.model_construct(set(values), **values)
    instance = object.__new__(kind)
    for field in dataclasses.fields(kind):
        if field.name not in values and field.default is not dataclasses.MISSING:
            values[field.name] = field.default
        elif field.name not in values and field.default_factory is not dataclasses.MISSING:
            values[field.name] = field.default_factory()
    for name, each in values.items():
        object.__setattr__(instance, name, each)  # the dataclass may be frozen
    return instance


def _partial_entries(kind: Any, entries: Iterable[tuple[Any, JSON]], *, is_open: bool) -> Any:
    """The entries with values of this type, without a last one that cannot be read yet."""
    items = [*entries]
    values = {key: _whole(kind, each) for key, each in items[:-1]}
    for key, each in items[-1:]:
        values[key] = _partial(kind, each, is_open=is_open)
        if values[key] is ABSENT:
            del values[key]
    return ABSENT if ABSENT in values.values() else values


def _fields_of(kind: Any, origin: Any) -> Mapping[str, tuple[tuple[str, ...], Any]] | None:
    """The fields of a class by name, each with the keys that it may have in JSON, and its type; None for another
    type."""
    if is_typeddict(origin):
        return {name: ((name,), each) for name, each in get_type_hints(origin, include_extras=True).items()}
    if not isinstance(origin, type):
        return None
    if issubclass(origin, pydantic_support.BaseModel):
        fields: dict[str, tuple[tuple[str, ...], Any]] = {}
        for name, field in cast("type[pydantic_support.BaseModel]", kind).model_fields.items():
            keys = (name, *(each for each in (field.alias, field.validation_alias) if isinstance(each, str)))
            field_type = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
            fields[name] = (keys, field_type)
        return None if [*fields] == ["root"] else fields
    container = cast("Any", origin)
    if not dataclasses.is_dataclass(container):
        return None
    hints = get_type_hints(container, include_extras=True)
    return {field.name: ((field.name,), hints[field.name]) for field in dataclasses.fields(container) if field.init}


def _whole(kind: Any, value: JSON) -> Any:
    try:
        adapter = _adapter(kind) if isinstance(kind, Hashable) else pydantic_support.TypeAdapter(kind)
        return adapter.validate_json(json.dumps(value))
    except (pydantic_support.ValidationError, pydantic_support.PydanticUserError):
        return ABSENT


@lru_cache(maxsize=256)
def _adapter(kind: Any) -> pydantic_support.TypeAdapter[Any]:
    return pydantic_support.TypeAdapter(kind)  # to make one takes a hundred times as long as to validate
