"""What all values share: the empty mapping, and an `__init__` for those that are made by the thousand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeAlias, TypeVar

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
MADE: Any = object()
"""The default of a field whose factory is called for each value (see `quick`)."""


def no_extra() -> Mapping[str, JSON]:
    return _NOTHING


def same_json(one: JSON, other: JSON) -> bool:
    """Whether both are the same JSON: Python takes 1, 1.0 and True for equal."""
    # Most often the order of the keys is the same too; then there is nothing to sort.
    return one == other and (repr(one) == repr(other) or _SORTED.encode(one) == _SORTED.encode(other))


def quick(cls: type[ValueT]) -> type[ValueT]:
    """Halves what making a frozen dataclass with slots costs (0.5 in place of 0.9 µs for the 11 fields of a Record).

    The `__init__` of dataclasses assigns by name through `object.__setattr__`; this one calls the slots' own setters.
    The signature stays the same, but for factories that give a new value each time: their default is a mark that stands
    for it. No `__post_init__`.
    """
    parameters, lines = ["self"], list[str]()
    names: dict[str, Any] = {"MADE": MADE}
    for field in fields(cls):  # pyright: ignore[reportArgumentType] - the decorator below this one made a dataclass
        name, default, value = field.name, field.default, field.name
        if field.default_factory is no_extra:
            default = no_extra()
        elif field.default_factory is not MISSING:
            default, names[f"make_{name}"] = MADE, field.default_factory
            value = f"make_{name}() if {name} is MADE else {name}"
        names[f"set_{name}"] = getattr(cls, name).__set__
        names[f"default_{name}"] = default
        parameters.append(name if default is MISSING else f"{name}=default_{name}")
        lines.append(f"    set_{name}(self, {value})")
    exec("\n".join([f"def __init__({', '.join(parameters)}):", *lines]), names)
    made, own = names["__init__"], cls.__init__
    made.__qualname__, made.__module__, made.__annotations__ = own.__qualname__, cls.__module__, own.__annotations__
    type.__setattr__(cls, "__init__", made)
    return cls
