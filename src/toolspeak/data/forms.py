"""How each class of the format (see `codec`), and each type of their fields, is written and read.

Everything twice: by loops over the fields, which define it and say what does not fit and where; and by generated code.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from typing import Any, Literal

from toolspeak.data import approvals, deltas, events, messages, tools
from toolspeak.data.checks import (
    SCALARS,
    Convert,
    Misfit,
    array,
    json_object,
    json_text,
    json_value,
    kind_of,
    object_text,
    one_of,
    plain_object,
    quote,
    text,
    text_object,
    to_text,
    unchanged,
)
from toolspeak.data.events import UnknownEvent
from toolspeak.data.generated import FieldRule, Form, make_reader, make_writer
from toolspeak.data.messages import JSON

FORMAT = 1
"""The version that is written."""

CLASSES: Mapping[str, type] = {
    name: found
    for module in (messages, tools, approvals, deltas, events)
    for name, found in vars(module).items()
    if isinstance(found, type) and is_dataclass(found) and found.__module__ == module.__name__
}
"""Every class of the format by its tag."""


class Codec:
    """How one dataclass is written and read; made once per class from its type hints."""

    __slots__ = ("cls", "dumps", "fields", "has_extra", "read", "reserved", "tag", "write")

    def __init__(self, cls: type[Any]) -> None:
        hints = typing.get_type_hints(cls)
        found: list[FieldRule] = []
        for field in fields(cls):
            if field.name == "extra":
                continue
            # Values are immutable: what a factory makes is made once, as every other default is.
            default = field.default if field.default_factory is MISSING else field.default_factory()
            empty = MISSING if default else default
            form = _form(hints[field.name])
            found.append(FieldRule(field.name, form, default, empty, _plain_type(hints[field.name], empty)))
        self.cls = cls
        self.tag = cls.__name__
        self.fields = tuple(found)
        self.has_extra = "extra" in hints
        self.reserved = frozenset({"type", *(field.name for field in found)})
        unknown = cls is UnknownEvent
        self.write = _write_unknown if unknown else self.writer()
        self.read = self.reader()
        # As the outermost object, with the format's version.
        self.dumps = _dumps_unknown if unknown else self.writer(version=FORMAT)

    def writer(self, apart: Sequence[str] = (), version: int | None = None) -> Callable[[Any], str]:
        return make_writer(self.tag, self.fields, self.has_extra, apart, version)

    def reader(self, apart: Sequence[str] = (), version: int | None = None) -> Callable[..., Any]:
        return make_reader(self.cls, self.fields, [field.name for field in fields(self.cls)], apart, version)

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
                data[name] = field.form.encode(item)
            name = "extra"
            if self.has_extra and value.extra:
                self._add_extra(data, value.extra)
        except Misfit as misfit:
            misfit.place.append(f".{name}")
            raise
        return data

    def _add_extra(self, data: dict[str, JSON], extra: Any) -> None:
        for key, item in json_object(extra).items():
            if key in self.reserved:
                raise Misfit(f"{quote(key)} is a field of {self.tag} and cannot be in its extra")
            data[key] = item

    def decode(self, data: dict[str, JSON]) -> Any:
        arguments: dict[str, Any] = {}
        name = ""
        try:
            for field in self.fields:
                name = field.name
                if name in data:
                    arguments[name] = field.form.decode(data[name])
                elif field.default is MISSING:
                    raise Misfit("missing")
        except Misfit as misfit:
            misfit.place.append(f".{name}")
            raise
        # One more than the fields: the tag.
        if self.has_extra and len(data) > len(arguments) + 1:
            arguments["extra"] = {key: item for key, item in data.items() if key not in self.reserved}
        return self.cls(**arguments)


def _plain_type(hint: Any, empty: Any) -> type | None:
    """The scalar type of a field whose values need no conversion; of `X | None` it is X where None is not written."""
    if hint in SCALARS and hint is not bytes:
        return hint
    others = [member for member in typing.get_args(hint) if member is not types.NoneType]
    optional = typing.get_origin(hint) in (typing.Union, types.UnionType) and empty is None and len(others) == 1
    return others[0] if optional and others[0] in SCALARS and others[0] is not bytes else None


@cache
def codec_of(cls: type[Any]) -> Codec:
    return Codec(cls)


def _decode_tagged(data: Any, allowed: Mapping[str, type], unknown_events: bool) -> Any:
    """The dataclass an object's tag names; `unknown_events`: a tag nobody knows is an event of a later version."""
    stored = plain_object(data)
    tag = stored.get("type")
    if not isinstance(tag, str):
        raise Misfit("missing the text field 'type'" if tag is None else f"'type' is {kind_of(tag)}, not text")
    if unknown_events and (tag not in CLASSES or tag == UnknownEvent.__name__):
        return UnknownEvent(tag, {key: item for key, item in stored.items() if key != "type"})
    cls = allowed.get(tag)
    if cls is None:
        raise Misfit(f"type {quote(tag)} does not belong here; expected {one_of(allowed)}")
    return codec_of(cls).decode(stored)


def _encode_unknown(event: UnknownEvent) -> dict[str, JSON]:
    kind = text(event.kind)
    if kind in CLASSES and kind != UnknownEvent.__name__:
        raise Misfit(f"an unknown event cannot be of the known type {kind!r}")
    data = json_object(event.data)
    if "type" in data:
        raise Misfit("the data of an unknown event cannot have a field 'type'")
    return {"type": kind, **data}


def _dumps_unknown(event: UnknownEvent) -> str:
    data = _encode_unknown(event)
    if "format" in data:
        raise Misfit("a field named 'format' cannot be written at the outermost level")
    return to_text({"format": FORMAT, **data})


def _write_unknown(event: UnknownEvent) -> str:
    return to_text(_encode_unknown(event))


def _form(hint: Any) -> Form:
    """How values of one type hint are written and read."""
    if hint is Any:
        return Form(json_value, unchanged, json_text, unchanged)
    if hint in SCALARS:
        return _by_value(*SCALARS[hint])
    if hint in CLASSES.values():
        return _tagged([hint])
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return _literal(arguments)
    if origin in (typing.Union, types.UnionType):
        return _union(arguments)
    if origin is tuple and arguments[1:] == (...,):
        return _tuple(_form(arguments[0]))
    if origin is frozenset and arguments == (str,):
        return _by_value(array(text, (frozenset,), sorted), array(text, (list,), frozenset))
    if origin is Mapping and arguments == (str, Any):
        return Form(json_object, plain_object, object_text, plain_object)
    if origin is Mapping and arguments == (str, str):
        return _by_value(text_object, text_object)
    raise TypeError(f"forms.py has no rule for fields of type {hint}")


def _by_value(encode: Convert, decode: Convert) -> Form:
    return Form(encode, decode, lambda value: to_text(encode(value)), decode)


def _tuple(item: Form) -> Form:
    encode, decode = array(item.encode, (tuple, list), list), array(item.decode, (list,), tuple)
    if item.writers is None or item.many:
        return _by_value(encode, decode)
    return replace(_by_value(encode, decode), writers=item.writers, readers=item.readers, many=True)


def _union(members: tuple[Any, ...]) -> Form:
    """`X | None`, or a union of dataclasses told apart by their tags (with None or without)."""
    others = [member for member in members if member is not types.NoneType]
    form = _form(others[0]) if len(others) == 1 else _tagged(others)
    if types.NoneType not in members:
        return form
    return replace(
        form,
        encode=_or_none(form.encode),
        decode=_or_none(form.decode),
        write=_or_null(form.write),
        read=_or_none(form.read),
    )


def _or_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _or_null(write: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: "null" if value is None else write(value)


def _tagged(classes: Iterable[type[Any]]) -> Form:
    allowed = {cls.__name__: cls for cls in classes}
    members = frozenset(allowed.values())
    unknown_events = UnknownEvent in members
    writers, readers = _Writers(members), _Readers(allowed)

    def encode(value: Any) -> dict[str, JSON]:
        cls = typing.cast("type[Any]", type(value))
        if cls not in members:
            raise Misfit(f"expected {one_of(allowed)}, found {kind_of(value)}")
        return codec_of(cls).encode(value)

    return Form(
        encode,
        lambda data: _decode_tagged(data, allowed, unknown_events),
        lambda value: writers[type(value)](value),
        lambda data: readers[data["type"]](data),
        writers,
        readers,
    )


class _Writers(dict[type[Any], Callable[[Any], str]]):
    """Filled as they are met: a class may hold a member of its own union."""

    def __init__(self, members: frozenset[type[Any]]) -> None:
        self._members = members

    def __missing__(self, cls: type[Any]) -> Callable[[Any], str]:
        if cls not in self._members:
            raise Misfit("does not belong here")
        self[cls] = codec_of(cls).write
        return self[cls]


class _Readers(dict[str, Convert]):
    """Filled as they are met."""

    def __init__(self, allowed: Mapping[str, type[Any]]) -> None:
        self._allowed = allowed

    def __missing__(self, tag: str) -> Convert:
        cls = self._allowed.get(tag)
        if cls is None or cls is UnknownEvent:
            raise Misfit("does not belong here")
        self[tag] = codec_of(cls).read
        return self[tag]


def _literal(choices: tuple[Any, ...]) -> Form:
    texts = {choice: to_text(choice) for choice in choices}

    def check(value: Any) -> Any:
        if isinstance(value, str) and value in texts:
            return value
        raise Misfit(f"{quote(value)} is none of: {', '.join(map(repr, choices))}")

    return Form(check, check, texts.__getitem__, check, texts=texts)


ANY = _tagged([*CLASSES.values()])
