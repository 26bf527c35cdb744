"""The JSON form of each class of the format (see `codec`) and of each type of their fields, as loops over the fields.

They define the format, and their errors name the place. msgspec writes and reads what fits, see `codec`.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal

from toolspeak.data import approvals, deltas, events, interceptor_events, messages, run_values, tools
from toolspeak.data.checks import (
    SCALARS,
    Convert,
    FieldMismatch,
    array,
    identity,
    json_object,
    json_value,
    kind_of,
    one_of,
    plain_object,
    quote,
    text,
    text_object,
)
from toolspeak.data.events import UnknownEvent
from toolspeak.data.messages import JSON
from toolspeak.data.values import Unread, UntaggedStruct, quick

FORMAT = 1
"""The version that is written."""

CLASSES: Mapping[str, type] = {
    name: cls
    for module in (messages, tools, approvals, run_values, interceptor_events, deltas, events)
    for name, cls in vars(module).items()
    if isinstance(cls, type) and is_dataclass(cls) and cls.__module__ == module.__name__
}
"""Every class of the format by its tag."""


@quick()
class TypeRule:
    """How the values of one type are written as JSON and read."""

    encode: Convert
    decode: Convert


@quick()
class FieldRule:
    """How a field is written and read.

    `default`: its default; MISSING if the field is required.
    `empty`: its default if that is an empty value, which is not written; else MISSING."""

    name: str
    rule: TypeRule
    default: Any
    empty: Any


class Codec:
    """How one class is written and read; made once per class from its type hints."""

    __slots__ = ("cls", "fields", "has_extra", "reserved_keys", "tag")

    def __init__(self, cls: type[Any]) -> None:
        hints = typing.get_type_hints(cls)
        rules: list[FieldRule] = []
        for field in fields(cls):
            if hints[field.name] is Unread:
                continue
            # Values are immutable: what a factory makes is made once, as every other default is.
            default = field.default if field.default_factory is MISSING else field.default_factory()
            rules.append(FieldRule(field.name, _type_rule(hints[field.name]), default, MISSING if default else default))
        self.cls = cls
        self.tag = cls.__name__
        self.fields = tuple(rules)
        self.has_extra = "extra" in hints
        self.reserved_keys = frozenset({"type", *(field.name for field in rules)})

    def encode(self, value: Any) -> dict[str, JSON]:
        if type(value) is UnknownEvent:
            return _encode_unknown(value)
        data: dict[str, JSON] = {"type": self.tag}
        name = ""
        try:
            for field in self.fields:
                name = field.name
                item = getattr(value, name)
                # Only None itself is None: a JSON value is not asked whether it equals it.
                if item is field.empty or (field.empty is not None and item == field.empty):
                    continue
                data[name] = field.rule.encode(item)
            name = "extra"
            if self.has_extra and value.extra:
                self._add_extra(data, value.extra)
        except FieldMismatch as misfit:
            misfit.place.append(f".{name}")
            raise
        return data

    def _add_extra(self, data: dict[str, JSON], extra: Any) -> None:
        for key, item in json_object(extra).items():
            if key in self.reserved_keys:
                raise FieldMismatch(f"{quote(key)} is a field of {self.tag} and cannot be in its extra")
            data[key] = item

    def decode(self, data: dict[str, JSON]) -> Any:
        arguments: dict[str, Any] = {}
        name = ""
        try:
            for field in self.fields:
                name = field.name
                if name in data:
                    arguments[name] = field.rule.decode(data[name])
                elif field.default is MISSING:
                    raise FieldMismatch("missing")
        except FieldMismatch as misfit:
            misfit.place.append(f".{name}")
            raise
        # One more than the fields: the tag.
        if self.has_extra and len(data) > len(arguments) + 1:
            arguments["extra"] = {key: item for key, item in data.items() if key not in self.reserved_keys}
        return self.cls(**arguments)


@cache
def codec_of(cls: type[Any]) -> Codec:
    return Codec(cls)


def _decode_tagged(data: Any, classes_by_tag: Mapping[str, type], unknown_events: bool) -> Any:
    """The dataclass that an object's tag names. `unknown_events`: an unknown tag is an event of a later version."""
    fields = plain_object(data)
    tag = fields.get("type")
    if not isinstance(tag, str):
        raise FieldMismatch("missing the text field 'type'" if tag is None else f"'type' is {kind_of(tag)}, not text")
    if unknown_events and (tag not in CLASSES or tag == UnknownEvent.__name__):
        return UnknownEvent(tag, {key: item for key, item in fields.items() if key != "type"})
    cls = classes_by_tag.get(tag)
    if cls is None:
        raise FieldMismatch(f"type {quote(tag)} does not belong here; expected {one_of(classes_by_tag)}")
    return codec_of(cls).decode(fields)


def _encode_unknown(event: UnknownEvent) -> dict[str, JSON]:
    kind = text(event.kind)
    if kind in CLASSES and kind != UnknownEvent.__name__:
        raise FieldMismatch(f"an unknown event cannot be of the known type {kind!r}")
    data = json_object(event.data)
    if "type" in data:
        raise FieldMismatch("the data of an unknown event cannot have a field 'type'")
    return {"type": kind, **data}


def _type_rule(hint: Any) -> TypeRule:
    """How values of one type hint are written and read."""
    if hint is Any:
        return TypeRule(json_value, identity)
    if hint in SCALARS:
        return TypeRule(*SCALARS[hint])
    if hint in CLASSES.values():
        return _tagged_rule([hint])
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return _literal(arguments)
    if origin in (typing.Union, types.UnionType):
        return _union(arguments)
    if origin is tuple and arguments[1:] == (...,):
        item = _type_rule(arguments[0])
        return TypeRule(array(item.encode, (tuple, list), list), array(item.decode, (list,), tuple))
    if origin is frozenset and arguments == (str,):
        return TypeRule(array(text, (frozenset,), sorted), array(text, (list,), frozenset))
    if origin is Mapping and arguments == (str, Any):
        return TypeRule(json_object, plain_object)
    if origin is Mapping and arguments == (str, str):
        return TypeRule(text_object, text_object)
    raise TypeError(f"forms.py has no rule for fields of type {hint}")


def _union(members: tuple[Any, ...]) -> TypeRule:
    """`X | None`, or a union of classes told apart by their tags (with None or without)."""
    others = [member for member in members if member not in (types.NoneType, UntaggedStruct)]
    rule = _type_rule(others[0]) if len(others) == 1 else _tagged_rule(others)
    return rule if types.NoneType not in members else TypeRule(_or_none(rule.encode), _or_none(rule.decode))


def _or_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _tagged_rule(classes: Iterable[type[Any]]) -> TypeRule:
    classes_by_tag = {cls.__name__: cls for cls in classes}
    unknown_events = UnknownEvent in classes_by_tag.values()

    def encode(value: Any) -> dict[str, JSON]:
        cls = typing.cast("type[Any]", type(value))
        if classes_by_tag.get(cls.__name__) is not cls:
            raise FieldMismatch(f"expected {one_of(classes_by_tag)}, found {kind_of(value)}")
        return codec_of(cls).encode(value)

    return TypeRule(encode, lambda data: _decode_tagged(data, classes_by_tag, unknown_events))


def _literal(choices: tuple[Any, ...]) -> TypeRule:
    def check(value: Any) -> Any:
        if isinstance(value, str) and value in choices:
            return value
        raise FieldMismatch(f"{quote(value)} is not one of: {', '.join(map(repr, choices))}")

    return TypeRule(check, check)


ANY = _tagged_rule([*CLASSES.values()])
