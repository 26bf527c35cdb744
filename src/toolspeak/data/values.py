"""What all values share: the empty mapping, and classes whose instances are made fast."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from itertools import repeat
from types import FunctionType, GenericAlias
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast, dataclass_transform, get_origin

import msgspec

JSON: TypeAlias = Any
"""A JSON value as `json.loads` gives it; immutable once it is inside a value."""

ValueT = TypeVar("ValueT")


class _Nothing(dict[str, JSON]):
    """The empty mapping of every value without extra fields. It is shared, so it refuses changes."""

    def __setitem__(self, key: str, value: JSON) -> None:
        raise TypeError("values are immutable; make a new one with dataclasses.replace(value, extra={…})")

    def update(self, *_: Any, **__: Any) -> None:
        raise TypeError("values are immutable; make a new one with dataclasses.replace(value, extra={…})")

    def setdefault(self, key: str, default: JSON = None, /) -> JSON:
        raise TypeError("values are immutable; make a new one with dataclasses.replace(value, extra={…})")


_NOTHING = _Nothing()
_NAME = re.compile(r"\w+")
_SORTED_ENCODER = json.JSONEncoder(sort_keys=True)


def no_extra() -> Mapping[str, JSON]:
    return _NOTHING


def same_json(one: JSON, other: JSON) -> bool:
    """Whether both are the same JSON. To Python 1, 1.0 and True are equal."""
    # Mostly the keys have the same order, and need no sorting.
    return one == other and (repr(one) == repr(other) or _SORTED_ENCODER.encode(one) == _SORTED_ENCODER.encode(other))


_COPIED_NAMES = frozenset({"__doc__", "__module__", "__qualname__", "__dataclass_fields__", "__dataclass_params__"})
"""Attributes of a dataclass that its struct gets too, so that `dataclasses.replace` and `fields` work."""


class _Making:
    """Makes a struct of a class."""

    def __init__(self, **options: Any) -> None:
        self._options = options

    def __call__(self, cls: type[ValueT], /) -> type[ValueT]:
        return _struct(cls, **self._options)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def quick(*, frozen: bool = True, eq: bool = True, kw_only: bool = False) -> _Making:
    """A dataclass with slots that is made in C: a `msgspec.Struct` of the fields that the class lists.

    To make a Record takes 0.1 µs instead of 0.9, and its class, when its module is imported, 0.1 ms instead of 0.6. Its
    fields take only `default_factory` of `field`. Do not subclass it: code asks `type(it) is …`, because a negative
    `isinstance` takes five times as long.
    """
    return _Making(frozen=frozen, eq=eq, kw_only=kw_only)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(*, frozen: bool = True, eq: bool = True, kw_only: bool = False, unread: str = "extra") -> _Making:
    """`quick`, for values that cannot contain themselves, as JSON cannot: the garbage collector skips them.

    To scan them again and again is a third of the cost of a thousand concurrent runs. msgspec writes and reads them in
    the format of `codec`, except the field `unread`, which holds unknown fields: msgspec refuses a value with any.
    """
    msgspec_options = {"tag": True, "omit_defaults": True, "forbid_unknown_fields": True}
    return _Making(frozen=frozen, eq=eq, kw_only=kw_only, gc=False, unread=unread, stored=True, **msgspec_options)


class _Evolve(Protocol):
    def __call__(self, value: ValueT, /, **changes: Any) -> ValueT: ...


evolve: _Evolve = cast("Any", msgspec.structs.replace)
"""Returns a copy of a value with other fields: `dataclasses.replace` for `quick` values and those made by `value`, ten
times as fast."""


class Unread:
    """The type of a field that msgspec does not read. It has no instances."""


class UntaggedStruct(msgspec.Struct, tag=True):
    """Makes a union with each class that msgspec reads, because msgspec requires a tag only in a union."""

    never: Unread


_CODEC_TYPES: dict[Any, Any] = {}
"""The classes that msgspec reads and writes, each with `UntaggedStruct` beside it."""


def _struct(
    cls: type[ValueT], *, frozen: bool, eq: bool, kw_only: bool, unread: str = "", stored: bool = False, **options: Any
) -> type[ValueT]:
    # Its fields alone are the standard library's, which would write and compile each method anew at every import.
    cls.__doc__ = cls.__doc__ or cls.__name__  # for a class without one `dataclass` reads its signature, for 0.1 ms
    template: Any = dataclass(init=False, repr=False, eq=False, match_args=False, kw_only=kw_only)(cls)
    template.__dataclass_params__.frozen, template.__dataclass_params__.eq = frozen, eq
    field_specs: list[tuple[str, Any, Any]] = []
    for one in fields(template):
        default: Any = msgspec.NODEFAULT if one.default is MISSING else one.default
        if one.default_factory is no_extra:
            default = _NOTHING
        elif one.default_factory is not MISSING:
            factory: Any = get_origin(one.default_factory) or one.default_factory  # list, instead of list[str]
            default = msgspec.field(default_factory=factory)
        elif default is not msgspec.NODEFAULT and default:
            # msgspec leaves out what is the default, unless a factory makes that: only empty ones are left out.
            default = msgspec.field(default_factory=repeat(default).__next__)
        kind = Unread if one.name == unread else one.type
        if stored and isinstance(kind, str):
            scope = vars(sys.modules[cls.__module__])
            own = {name: _CODEC_TYPES[scope[name]] for name in _NAME.findall(kind) if scope.get(name) in _CODEC_TYPES}
            kind = eval(kind, scope, own) if own else kind
        field_specs.append((one.name, kind, default))
    names = {name for name, _, _ in field_specs}
    namespace = {name: own for name, own in vars(cls).items() if name not in names and _goes_on(cls, name, own)}
    if Generic in cls.__mro__:
        namespace["__class_getitem__"] = classmethod(
            GenericAlias
        )  # msgspec's generic structs cost each construction more
    struct: Any = msgspec.defstruct(
        cls.__name__,
        field_specs,
        namespace=namespace,
        module=cls.__module__,
        frozen=frozen,
        eq=eq,
        kw_only=kw_only,
        **options,
    )
    if stored:
        _CODEC_TYPES[struct] = struct | UntaggedStruct
    return struct


def _goes_on(cls: type, name: str, own: object) -> bool:
    """Whether the author of the class wrote this attribute, `__call__` and `__post_init__` included. `__init__` is left
    out: it tells type checkers what `__post_init__` takes, and msgspec has its own."""
    if name == "__init__":
        return False
    if name in _COPIED_NAMES or not (name.startswith("__") and name.endswith("__")):
        return True
    return isinstance(own, FunctionType) and own.__qualname__ == f"{cls.__qualname__}.{name}"
