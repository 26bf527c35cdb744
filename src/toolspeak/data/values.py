"""What all values share: the empty mapping, and a quick way to make those that are made by the thousand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from itertools import repeat
from types import FunctionType
from typing import Any, Protocol, TypeAlias, TypeVar, cast, dataclass_transform, get_origin

import msgspec

JSON: TypeAlias = Any
"""A JSON value as `json.loads` gives it; treated as immutable once it is inside a value."""

ValueT = TypeVar("ValueT")


class _Nothing(dict[str, JSON]):
    """The empty mapping of all values that have nothing extra: one for thousands of values, so nothing enters it."""

    def __setitem__(self, key: str, value: JSON) -> None:
        raise TypeError("values are not changed; make a new one with dataclasses.replace(value, extra={…})")

    def update(self, *_: Any, **__: Any) -> None:
        raise TypeError("values are not changed; make a new one with dataclasses.replace(value, extra={…})")

    def setdefault(self, key: str, default: JSON = None, /) -> JSON:
        raise TypeError("values are not changed; make a new one with dataclasses.replace(value, extra={…})")


_NOTHING = _Nothing()
_SORTED = json.JSONEncoder(sort_keys=True)


def no_extra() -> Mapping[str, JSON]:
    return _NOTHING


def same_json(one: JSON, other: JSON) -> bool:
    """Whether both are the same JSON: Python takes 1, 1.0 and True for equal."""
    # Most often the order of the keys is the same too; then there is nothing to sort.
    return one == other and (repr(one) == repr(other) or _SORTED.encode(one) == _SORTED.encode(other))


_KEPT = frozenset({"__doc__", "__module__", "__qualname__", "__dataclass_fields__", "__dataclass_params__"})
"""What else of a dataclass goes on, with the names that its author gave: so `dataclasses.replace` and `fields` work."""


class _Making:
    """Makes a class of the one it is given."""

    def __init__(self, *, gc: bool, frozen: bool, eq: bool, kw_only: bool) -> None:
        self._options = {"gc": gc, "frozen": frozen, "eq": eq, "kw_only": kw_only}

    def __call__(self, cls: type[ValueT], /) -> type[ValueT]:
        return _struct(cls, **self._options)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def quick(*, frozen: bool = True, eq: bool = True, kw_only: bool = False) -> _Making:
    """A dataclass with slots that is made in C, for values that are made by the thousand: a `msgspec.Struct` of the
    fields that the class lists. 0.1 in place of 0.9 µs for the 11 fields of a Record, and 0.1 in place of 0.6 ms when
    its module is imported. Of `field` its fields take `default_factory` alone, and nothing can be derived from it. So
    `type(it) is …` tells what it is: `isinstance` takes five times as long to say no, for classes whose own class is
    not `type`."""
    return _Making(gc=True, frozen=frozen, eq=eq, kw_only=kw_only)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(*, frozen: bool = True, eq: bool = True, kw_only: bool = False) -> _Making:
    """`quick`, for values that cannot hold themselves, as no JSON can: the garbage collector leaves them out. Looking
    through them again and again is a third of what a thousand runs at the same time cost."""
    return _Making(gc=False, frozen=frozen, eq=eq, kw_only=kw_only)


class _Changed(Protocol):
    def __call__(self, value: ValueT, /, **changes: Any) -> ValueT: ...


changed: _Changed = cast("Any", msgspec.structs.replace)
"""`dataclasses.replace` for `quick` values and those made by `value`, ten times as fast."""


def _struct(cls: type[ValueT], *, gc: bool, frozen: bool, eq: bool, kw_only: bool) -> type[ValueT]:
    # Its fields alone are the standard library's, which would write and compile each method anew at every import.
    cls.__doc__ = cls.__doc__ or cls.__name__  # for a class without one `dataclass` reads its signature, for 0.1 ms
    template: Any = dataclass(init=False, repr=False, eq=False, match_args=False, kw_only=kw_only)(cls)
    template.__dataclass_params__.frozen, template.__dataclass_params__.eq = frozen, eq
    specified: list[tuple[str, Any, Any]] = []
    for one in fields(template):
        default: Any = msgspec.NODEFAULT if one.default is MISSING else one.default
        if one.default_factory is not MISSING:
            factory: Any = get_origin(one.default_factory) or one.default_factory  # list, in place of list[str]
            if factory is no_extra:
                factory = repeat(_NOTHING).__next__
            default = msgspec.field(default_factory=factory)
        specified.append((one.name, one.type, default))
    names = {name for name, _, _ in specified}
    kept = {name: own for name, own in vars(cls).items() if name not in names and _goes_on(cls, name, own)}
    made: Any = msgspec.defstruct(
        cls.__name__, specified, namespace=kept, module=cls.__module__, frozen=frozen, eq=eq, gc=gc, kw_only=kw_only
    )
    return made


def _goes_on(cls: type, name: str, own: object) -> bool:
    """Whether it is the author's, `__call__` and `__post_init__` included, and not what every class has."""
    if name in _KEPT or not (name.startswith("__") and name.endswith("__")):
        return True
    return isinstance(own, FunctionType) and own.__qualname__ == f"{cls.__qualname__}.{name}"
