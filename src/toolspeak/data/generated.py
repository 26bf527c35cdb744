"""The fast writer and reader of one dataclass: straight code, made once from what the codec knows of its fields.

They do what the codec's loops over the fields do, without a loop, a name looked up or a call for what is text or a
number already. (A run of 100,000 events is read back by them.) What does not fit is left to the loops, which then say
where: so these raise `Misfit` without a place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass
from functools import partial
from typing import Any

from toolspeak.data.checks import Convert, Misfit
from toolspeak.data.messages import no_extra

_PLAIN = {
    str: "type({0}) is str",
    int: "type({0}) is int",
    bool: "type({0}) is bool",
    float: "type({0}) is float and -INFINITE < {0} < INFINITE",
}
"""When a value is stored as it is, for the types most fields have."""


@dataclass(frozen=True, slots=True)
class FieldRule:
    """How a field is written and read. `empty` is the default if it is an empty one, which is not written (MISSING if
    not); `default` makes the default (None: it is required). `plain` is the type of values that stay as they are."""

    name: str
    encode: Convert
    decode: Convert
    default: Callable[[], Any] | None
    empty: Any
    plain: type | None = None


def make_writer(tag: str, fields: Sequence[FieldRule]) -> Callable[[Any], dict[str, Any]]:
    """A function that makes an object of a value; the value's `extra` is not its business."""
    lines = ["def write(value):", f"    data = {{'type': {tag!r}}}"]
    known: dict[str, Any] = {"INFINITE": float("inf")}
    for i, field in enumerate(fields):
        known[f"encode{i}"], known[f"empty{i}"] = field.encode, field.empty
        lines.append(f"    v = value.{field.name}")
        indent = "    "
        if field.empty is None:
            lines.append("    if v is not None:")
        elif field.empty is not MISSING:
            lines.append(f"    if v is not empty{i} and v != empty{i}:")
        if field.empty is not MISSING:
            indent = "        "
        lines.append(f"{indent}data[{field.name!r}] = {_converted(f'encode{i}', field.plain)}")
    return _made("write", [*lines, "    return data"], known)


def make_reader(cls: type, fields: Sequence[FieldRule], order: Sequence[str]) -> Callable[[dict[str, Any]], Any]:
    """A function that makes an instance of an object. `order` are the class's parameters; among them may be `extra`,
    which takes what no field is named."""
    known: dict[str, Any] = {"INFINITE": float("inf"), "MISSING": MISSING, "Misfit": Misfit, "cls": cls}
    lines = ["def read(data):", "    get = data.get", "    there = 1"]
    for i, field in enumerate(fields):
        known[f"decode{i}"], known[f"default{i}"] = field.decode, field.default
        lines += [f"    v = get({field.name!r}, MISSING)", "    if v is MISSING:"]
        lines.append("        raise Misfit('missing')" if field.default is None else f"        f{i} = default{i}()")
        lines += ["    else:", "        there += 1", f"        f{i} = {_converted(f'decode{i}', field.plain)}"]
    if "extra" in order:
        lines.append("    extra = nothing if len(data) == there else rest(data)")
        known["nothing"] = no_extra()
        known["rest"] = partial(_rest, frozenset({"type", *(field.name for field in fields)}))
    names = {field.name: f"f{i}" for i, field in enumerate(fields)}
    arguments = ", ".join(f"{name}={names.get(name, name)}" for name in order)
    return _made("read", [*lines, f"    return cls({arguments})"], known)


def _rest(reserved: frozenset[str], data: dict[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in data.items() if key not in reserved}


def _converted(convert: str, plain: type | None) -> str:
    return f"v if {_PLAIN[plain].format('v')} else {convert}(v)" if plain in _PLAIN else f"{convert}(v)"


def _made(name: str, lines: Sequence[str], known: dict[str, Any]) -> Any:
    exec("\n".join(lines), known)
    return known[name]
