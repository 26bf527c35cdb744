"""Values to JSON and back: everything of `messages`, `tools`, `deltas` and `events`.

The format, version 1 (our own; this file is its definition):

- a dataclass is an object with its class name under `"type"` and its fields under their names; the
  outermost object also has `"format": 1`. A field is left out when it has its default and that is empty (null,
  false, "", no items). Any other default is written, so that a later version may change it (a limit, say);
- tuples are arrays, frozensets sorted arrays, bytes base64 text (RFC 4648, section 4);
- a JSON-typed field holds its value as it is; an object in it is never taken for one of ours;
- fields a class does not know go to its `extra` and are written back beside the known ones. A class
  without `extra` ignores them. So a later version may add fields without a new format version;
- an event of an unknown type becomes `UnknownEvent(kind, data)` and is written back as it was.

Text may hold NUL and lone surrogates (`dumps` escapes everything beyond ASCII). A high surrogate directly
followed by a low one comes back as the one character the two stand for, as everywhere in JSON.
"""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any, Literal, NoReturn

from toolspeak.data import approvals, deltas, events, messages, tools
from toolspeak.data.checks import (
    SCALARS,
    Convert,
    Misfit,
    array,
    json_object,
    json_value,
    kind_of,
    one_of,
    plain_object,
    quote,
    text,
    text_object,
    unchanged,
)
from toolspeak.data.events import UnknownEvent
from toolspeak.data.generated import FieldRule, make_reader, make_writer
from toolspeak.data.messages import JSON
from toolspeak.errors import FormatError

FORMAT = 1
"""The version `dump` writes."""

READABLE = (1,)
"""The versions `load` reads."""

CLASSES: Mapping[str, type] = {
    name: found
    for module in (messages, tools, approvals, deltas, events)
    for name, found in vars(module).items()
    if isinstance(found, type) and is_dataclass(found) and found.__module__ == module.__name__
}
"""Every class of the format by its tag."""


def dump(value: Any) -> dict[str, JSON]:
    """`value` (an instance of one of `CLASSES`) as an object that `json.dumps` takes.

    The object shares nothing mutable with `value`. Raises FormatError naming the place if something in it is
    not of its field's type or no JSON (NaN, a set, a key that is no text), so what is written can be read.
    """
    cls = typing.cast("type[Any]", type(value))
    if CLASSES.get(cls.__name__) is not cls:
        raise FormatError(f"{cls.__name__} is not a value that can be stored; known: {', '.join(sorted(CLASSES))}")
    try:
        data = _codec(cls).encode(value)
        if "format" in data:
            raise Misfit("a field named 'format' cannot be written at the outermost level")
    except (Misfit, RecursionError) as error:
        raise _format_error(error, cls.__name__) from error
    return {"format": FORMAT, **data}


def load(data: JSON) -> Any:
    """The value that `dump` wrote. JSON-typed fields share their objects with `data`.

    Raises FormatError for an unknown format version, an unknown shape, or a missing or ill-typed field.
    """
    if not isinstance(data, dict):
        raise FormatError(f"expected an object with 'format' and 'type', found {kind_of(data)}")
    stored = typing.cast("dict[str, JSON]", data)
    _check_version(stored)
    tag = stored.get("type")
    try:
        # Only events may be of an unknown type, so an unknown type at the top is one.
        bare = dict(stored)
        del bare["format"]
        return _load_any(bare)
    except (Misfit, RecursionError) as error:
        raise _format_error(error, tag if isinstance(tag, str) and tag in CLASSES else "value") from error


def dumps(value: Any) -> str:
    """`dump` as one line of ASCII text. Raises FormatError as `dump` does."""
    return dump_text(dump(value), type(value).__name__)


def loads(text: str) -> Any:
    """The value that `dumps` wrote. Raises FormatError as `load` does, and for text that is no JSON."""
    return load(load_text(text))


def dump_text(data: JSON, name: str = "value") -> str:
    """JSON as one line of ASCII text. Raises FormatError, with the name of what it is, if it cannot be written."""
    try:
        return _ENCODER.encode(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{name}: cannot be written as JSON: {error}") from error


def load_text(text: str) -> JSON:
    """What `dump_text` wrote. Raises FormatError for text that is no JSON, or holds NaN or an infinite number."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON that can be read: {error}") from error


def _check_version(data: Mapping[str, JSON]) -> None:
    version = data.get("format")
    if type(version) is int and version in READABLE:
        return
    known = ", ".join(map(str, READABLE))
    if "format" not in data:
        raise FormatError(f"no format version: expected a field 'format' with one of: {known}")
    raise FormatError(
        f"format version {quote(version)} is unknown; this build of toolspeak reads: {known}. "
        "Upgrade toolspeak to read what a later version wrote."
    )


def _format_error(error: Misfit | RecursionError, root: str) -> FormatError:
    if isinstance(error, RecursionError):
        return FormatError(f"{root}: nested too deeply")
    return FormatError(f"{root}{''.join(reversed(error.place))}: {error.problem}")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite_float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits[:20]} is too large")
    return value


_ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False, check_circular=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite_float)


class _Codec:
    """How one dataclass is written and read; made once per class from its type hints."""

    __slots__ = ("cls", "fields", "has_extra", "read", "reserved", "tag", "write")

    def __init__(self, cls: type[Any]) -> None:
        hints = typing.get_type_hints(cls)
        found: list[FieldRule] = []
        for field in fields(cls):
            if field.name == "extra":
                continue
            encode, decode = _compile(hints[field.name])
            default = field.default if field.default_factory is MISSING else field.default_factory()
            make = None if default is MISSING else _maker(field)
            empty = MISSING if default else default
            found.append(FieldRule(field.name, encode, decode, make, empty, _plain_type(hints[field.name], empty)))
        self.cls = cls
        self.tag = cls.__name__
        self.fields = tuple(found)
        self.has_extra = "extra" in hints
        self.reserved = frozenset({"type", *(field.name for field in found)})
        self.write = make_writer(self.tag, found)
        self.read = make_reader(cls, found, [field.name for field in fields(cls)])

    def encode(self, value: Any) -> dict[str, JSON]:
        if type(value) is UnknownEvent:
            return _encode_unknown(value)
        try:
            data = self.write(value)
        except Misfit:
            return self._encode(value)
        if self.has_extra and value.extra:
            try:
                self._add_extra(data, value.extra)
            except Misfit as misfit:
                misfit.place.append(".extra")
                raise
        return data

    def _encode(self, value: Any) -> dict[str, JSON]:
        """Field by field, so that what does not fit has a name."""
        data: dict[str, JSON] = {"type": self.tag}
        name = ""
        try:
            for field in self.fields:
                name = field.name
                item = getattr(value, name)
                # Only None itself is None: a JSON value is not asked whether it equals it.
                if item is field.empty or (field.empty is not None and item == field.empty):
                    continue
                data[name] = field.encode(item)
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
        try:
            return self.read(data)
        except Misfit:
            return self._decode(data)

    def _decode(self, data: dict[str, JSON]) -> Any:
        """Field by field, so that what does not fit has a name."""
        arguments: dict[str, Any] = {}
        name = ""
        try:
            for field in self.fields:
                name = field.name
                if name in data:
                    arguments[name] = field.decode(data[name])
                elif field.default is None:
                    raise Misfit("missing")
        except Misfit as misfit:
            misfit.place.append(f".{name}")
            raise
        # One more than the fields: the tag.
        if self.has_extra and len(data) > len(arguments) + 1:
            arguments["extra"] = {key: item for key, item in data.items() if key not in self.reserved}
        return self.cls(**arguments)


def _maker(field: Field[Any]) -> Callable[[], Any]:
    if field.default_factory is not MISSING:
        return field.default_factory
    return lambda: field.default


def _plain_type(hint: Any, empty: Any) -> type | None:
    """The scalar type of a field whose values need no conversion; of `X | None` it is X where None is not written."""
    if hint in SCALARS and hint is not bytes:
        return hint
    others = [member for member in typing.get_args(hint) if member is not types.NoneType]
    optional = typing.get_origin(hint) in (typing.Union, types.UnionType) and empty is None and len(others) == 1
    return others[0] if optional and others[0] in SCALARS and others[0] is not bytes else None


@cache
def _codec(cls: type[Any]) -> _Codec:
    return _Codec(cls)


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
    return _codec(cls).decode(stored)


def _encode_unknown(event: UnknownEvent) -> dict[str, JSON]:
    kind = text(event.kind)
    if kind in CLASSES and kind != UnknownEvent.__name__:
        raise Misfit(f"an unknown event cannot be of the known type {kind!r}")
    data = json_object(event.data)
    if "type" in data:
        raise Misfit("the data of an unknown event cannot have a field 'type'")
    return {"type": kind, **data}


def _compile(hint: Any) -> tuple[Convert, Convert]:
    """The writer and the reader of one type hint."""
    if hint is Any:
        return json_value, unchanged
    if hint in SCALARS:
        return SCALARS[hint]
    if hint in CLASSES.values():
        return _tagged([hint])
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return _literal(arguments)
    if origin in (typing.Union, types.UnionType):
        return _union(arguments)
    if origin is tuple and arguments[1:] == (...,):
        encode, decode = _compile(arguments[0])
        return array(encode, (tuple, list), list), array(decode, (list,), tuple)
    if origin is frozenset and arguments == (str,):
        return array(text, (frozenset,), sorted), array(text, (list,), frozenset)
    if origin is Mapping and arguments == (str, Any):
        return json_object, plain_object
    if origin is Mapping and arguments == (str, str):
        return text_object, text_object
    raise TypeError(f"codec.py has no rule for fields of type {hint}")


def _union(members: tuple[Any, ...]) -> tuple[Convert, Convert]:
    """`X | None`, or a union of dataclasses told apart by their tags (with None or without)."""
    others = [member for member in members if member is not types.NoneType]
    encode, decode = _compile(others[0]) if len(others) == 1 else _tagged(others)
    if types.NoneType not in members:
        return encode, decode
    return (
        lambda value: None if value is None else encode(value),
        lambda value: None if value is None else decode(value),
    )


def _tagged(classes: Iterable[type[Any]]) -> tuple[Convert, Convert]:
    allowed = {cls.__name__: cls for cls in classes}
    members = frozenset(allowed.values())
    unknown_events = UnknownEvent in members
    # Filled as they are met: a class may hold a member of its own union.
    writers: dict[type[Any], Convert] = {}
    readers: dict[str, Convert] = {}

    def encode(value: Any) -> dict[str, JSON]:
        cls = typing.cast("type[Any]", type(value))
        if cls in writers:
            return writers[cls](value)
        if cls not in members:
            raise Misfit(f"expected {one_of(allowed)}, found {kind_of(value)}")
        writers[cls] = _codec(cls).encode
        return writers[cls](value)

    def decode(data: Any) -> Any:
        if type(data) is dict:
            tag: Any = typing.cast("dict[str, JSON]", data).get("type")
            if type(tag) is str:
                if tag in readers:
                    return readers[tag](data)
                if tag in allowed and tag != UnknownEvent.__name__:
                    readers[tag] = _codec(allowed[tag]).decode
        return _decode_tagged(data, allowed, unknown_events)

    return encode, decode


_load_any = _tagged([*CLASSES.values()])[1]


def _literal(choices: tuple[Any, ...]) -> tuple[Convert, Convert]:
    allowed = frozenset(choices)

    def check(value: Any) -> Any:
        if isinstance(value, str) and value in allowed:
            return value
        raise Misfit(f"{quote(value)} is none of: {', '.join(map(repr, choices))}")

    return check, check
