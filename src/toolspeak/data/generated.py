"""The fast writer and reader of one dataclass: straight code, made once from what the codec knows of its fields.

They do what the codec's loops over the fields do, without a loop, a name looked up or a call for what is text or a
number already, and write JSON's text without making objects of it first. (Every record is written by them, and a run of
100,000 is read back.) What does not fit makes them raise, whatever: the loops are then asked, and say what and where.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from functools import partial
from typing import Any

from toolspeak.data.checks import Convert, Misfit, number_text, object_text, string
from toolspeak.data.messages import no_extra
from toolspeak.data.values import quick

_PLAIN = {
    str: "type(v) is str",
    int: "type(v) is int",
    bool: "type(v) is bool",
    float: "type(v) is float and -INFINITE < v < INFINITE",
}
"""When a stored value is what is read, for the types most fields have."""

_TEXT = {
    str: "string(v)",
    int: "repr(v) if type(v) is int else misfit()",
    bool: "'true' if v is True else 'false' if v is False else misfit()",
    float: "repr(v) if type(v) is float and -INFINITE < v < INFINITE else number_text(v)",
}
"""Their JSON."""

_NAMES: Mapping[str, Any] = {
    "INFINITE": float("inf"),
    "MISSING": MISSING,
    "nothing": no_extra(),
    "number_text": number_text,
    "string": string,
}


@quick()
class Form:
    """How the values of one type are written and read.

    `encode` and `decode` convert to JSON values and back, and say what does not fit and where; `write` (to JSON's text)
    and `read` are the fast ones. So that they need not be called: `writers` and `readers` by class and by tag, for a
    dataclass; `many` if it is a tuple of such. `texts` are those of a literal's choices.
    """

    encode: Convert
    decode: Convert
    write: Callable[[Any], str]
    read: Convert
    writers: Mapping[type[Any], Callable[[Any], str]] | None = None
    readers: Mapping[str, Convert] | None = None
    many: bool = False
    texts: Mapping[Any, str] | None = None


@quick()
class FieldRule:
    """How a field is written and read. `default` is its default (MISSING: it is required), `empty` the same if it is an
    empty one, which is not written (MISSING if not). `plain` is the type of values that are stored as they are."""

    name: str
    form: Form
    default: Any
    empty: Any
    plain: type | None = None


def make_writer(
    tag: str, fields: Sequence[FieldRule], has_extra: bool, apart: Sequence[str], version: int | None
) -> Callable[[Any], str]:
    """A function that makes JSON's text of a value, without the fields `apart` (they are checked). `version` is that of
    the format, in front of the outermost object."""
    lines, known = ["def write(value):"], {**_NAMES, "misfit": _misfit}
    first = "" if version is None else f'"format":{version},'
    shape = f'{{{{{first}"type":"{tag}"'
    for i, field in enumerate(fields):
        form = field.form
        known |= {
            f"write{i}": form.write,
            f"writers{i}": form.writers,
            f"texts{i}": form.texts,
            f"empty{i}": field.empty,
        }
        text = _text(field, i)
        if field.empty is MISSING:
            shown = f'"{field.name}":{{t{i}}}'
            shape += "" if field.name in apart else f",{shown}"
        else:
            # Only None itself is None: a JSON value is not asked whether it equals it.
            left_out = "v is None" if field.empty is None else f"v is empty{i} or v == empty{i}"
            text = f"""'' if {left_out} else ',"{field.name}":' + ({text})"""
            shape += "" if field.name in apart else f"{{t{i}}}"
        lines += [f"    v = value.{field.name}", f"    t{i} = {text}"]
    if has_extra:
        known["extra_text"] = partial(_extra_text, _reserved(fields, version))
        lines.append("    extra = extra_text(value.extra) if value.extra else ''")
        shape += "{extra}"
    return _made("write", [*lines, f"    return f'{shape}}}}}'"], known)


def _text(field: FieldRule, i: int) -> str:
    form = field.form
    if field.plain is not None:
        return _TEXT[field.plain]
    if form.texts is not None:
        return f"texts{i}[v]"
    if form.writers is None:
        return f"write{i}(v)"
    if form.many:
        return f"'[' + ','.join([writers{i}[type(x)](x) for x in v]) + ']' if type(v) is tuple else misfit()"
    return f"writers{i}[type(v)](v)"


def make_reader(
    cls: type, fields: Sequence[FieldRule], order: Sequence[str], apart: Sequence[str], version: int | None
) -> Callable[..., Any]:
    """A function that makes an instance of an object, and of the fields `apart`, which follow the object. `order` are
    the class's fields; among them may be `extra`, which takes what no field is named. With a `version` the object is an
    outermost one, of that version and of this class."""
    known: dict[str, Any] = {**_NAMES, "misfit": _misfit, "cls": cls}
    lines = [f"def read({', '.join(['data', *apart])}):", "    get = data.get"]
    at = {name: f"f{i}" for i, name in enumerate(order)}
    required = [field for field in fields if field.default is MISSING and field.name not in apart]
    if version is None:
        lines.append(f"    there = {1 + len(required)}")
    else:
        lines.append(f"    there = {2 + len(required)}")
        lines.append("    v = data['format']")
        lines.append(f"    if v != {version} or type(v) is not int or data['type'] != {cls.__name__!r}: misfit()")
    for i, field in enumerate(fields):
        form = field.form
        known |= {
            f"read{i}": form.read,
            f"readers{i}": form.readers,
            f"texts{i}": form.texts,
            f"empty{i}": field.default,
        }
        read = f"{at[field.name]} = {_read(field, i)}"
        if field.name in apart:
            lines += [f"    v = {field.name}", f"    {read}"]
        elif field.default is MISSING:
            lines += [f"    v = data[{field.name!r}]", f"    {read}"]
        else:
            absent = "None" if field.default is None else "MISSING"
            lines += [f"    v = get({field.name!r}, {absent})", f"    if v is {absent}:"]
            lines += [f"        {at[field.name]} = empty{i}", "    else:", "        there += 1", f"        {read}"]
    if "extra" in order:
        known["rest"] = partial(_rest, _reserved(fields, version))
        lines.append(f"    {at['extra']} = nothing if len(data) == there else rest(data)")
    given = ", ".join(f"{name}={variable}" for name, variable in at.items())
    return _made("read", [*lines, f"    return cls({given})"], known)


def _read(field: FieldRule, i: int) -> str:
    form = field.form
    if field.plain is not None:
        return f"v if {_PLAIN[field.plain]} else read{i}(v)"
    if form.texts is not None:
        return f"v if v in texts{i} else misfit()"
    if form.readers is None:
        return f"read{i}(v)"
    if form.many:
        return f"tuple([readers{i}[x['type']](x) for x in v]) if type(v) is list else misfit()"
    return f"readers{i}[v['type']](v)"


def _reserved(fields: Sequence[FieldRule], version: int | None) -> frozenset[str]:
    return frozenset({"type", *([] if version is None else ["format"]), *(field.name for field in fields)})


def _rest(reserved: frozenset[str], data: dict[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in data.items() if key not in reserved}


def _extra_text(reserved: frozenset[str], extra: Any) -> str:
    return "," + object_text(extra)[1:-1] if reserved.isdisjoint(extra) else _misfit()


def _misfit() -> Any:
    raise Misfit("does not fit")


def _made(name: str, lines: Sequence[str], known: dict[str, Any]) -> Any:
    exec("\n".join(lines), known)
    return known[name]
