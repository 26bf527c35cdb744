"""Writes the values of `messages`, `tools`, `deltas` and `events` as JSON, and reads them.

The format, version 1 (our own; this file is its definition):

- a dataclass is an object with its class name under `"type"` and its fields under their names; the
  outermost object also has `"format": 1`. A field is left out when it has its default and that is empty (null,
  false, "", no items). Any other default is written, so that a later version may change it (a limit, say);
- tuples are arrays, frozensets sorted arrays, bytes base64 text (RFC 4648, section 4);
- a JSON-typed field holds its value as it is; an object in it is never read as a value of ours;
- unknown fields of a class go to its `extra` and are written back beside the known ones. A class
  without `extra` ignores them. So a later version may add fields without a new format version;
- an event of an unknown type becomes `UnknownEvent(kind, data)` and is written back as it was.

Text may hold NUL and lone surrogates: `dumps` escapes everything beyond ASCII, `dump_row` what UTF-8 cannot hold. A
high surrogate directly followed by a low one comes back as the one character that they encode, as everywhere in JSON.

msgspec writes and reads nearly all of it. It is laxer than the format where it writes: NaN becomes null, a set an
array. So its output is read back, and must be the same value. A value that is not the same, or that msgspec refuses
(`extra`, an unknown event, a lone surrogate), goes through the loops of `forms`. They define the format, and their
errors name the place.
"""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, NoReturn, cast

import msgspec

from toolspeak.data.checks import FieldMismatch, kind_of, quote, to_text
from toolspeak.data.events import Event, Record
from toolspeak.data.forms import ANY, CLASSES, FORMAT, codec_of
from toolspeak.data.messages import JSON, no_extra
from toolspeak.data.values import Unread
from toolspeak.errors import FormatError

READABLE = (1,)
"""The versions that `load` reads."""


def dump(value: Any) -> dict[str, JSON]:
    """`value` (an instance of one of `CLASSES`) as an object that `json.dumps` takes.

    The object shares nothing mutable with `value`. Raises FormatError, which names the place, for a value that is not
    of its field's type or is not JSON (NaN, a set, a key that is not a string). So all that is written can be read.
    """
    codec = codec_of(_stored_class(value))
    try:
        data = codec.encode(value)
        if "format" in data:
            raise FieldMismatch("a field named 'format' cannot be written at the outermost level")
    except (FieldMismatch, RecursionError) as error:
        raise _format_error(error, codec.tag) from error
    return {"format": FORMAT, **data}


def load(data: JSON) -> Any:
    """The value that `dump` wrote. JSON-typed fields share their objects with `data`.

    Raises FormatError for an unknown format version, an unknown shape, or a missing or ill-typed field.
    """
    return _load(data, finite=False)


def _load(data: JSON, *, finite: bool) -> Any:
    """`load`; `finite`: no number in the data is NaN or infinite."""
    if not isinstance(data, dict):
        raise FormatError(f"expected an object with 'format' and 'type', found {kind_of(data)}")
    bare = dict(cast("dict[str, JSON]", data))
    _check_version(bare)
    del bare["format"]
    tag = bare.get("type")
    try:
        value = msgspec.convert(bare, cast("Any", CLASSES[cast("str", tag)]))
        if finite or _has_plain_digits(value):
            return value
    except Exception:  # noqa: BLE001 - whatever it was, the loops say what and where
        pass
    try:
        # Only events may be of an unknown type, so an unknown type at the top is one.
        return ANY.decode(bare)
    except (FieldMismatch, RecursionError) as error:
        raise _format_error(error, tag if isinstance(tag, str) and tag in CLASSES else "value") from error


def dumps(value: Any) -> str:
    """`dump` as one line of ASCII text. Raises FormatError as `dump` does."""
    cls = _stored_class(value)
    try:
        return _HEAD + _encode_by_msgspec(value, _decoder(cls))[1:]
    except Exception:  # noqa: BLE001 - as above
        return dump_text(dump(value), cls.__name__)


def loads(text: str) -> Any:
    """The value that `dumps` wrote. Raises FormatError as `load` does, and for text that is not JSON."""
    if text.startswith(_HEAD):
        try:
            return _reader()("{" + text[len(_HEAD) :])
        except Exception:  # noqa: BLE001 - as above
            pass
    return _load(load_text(text), finite=True)


class _Row(msgspec.Struct, tag_field="format", tag=FORMAT, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A record without its `run_id` and `seq`."""

    type: Literal["Record"]
    event: Event
    step: int
    time: float
    agent: str
    call_id: str | None = None
    parent_run_id: str | None = None
    principal: str | None = None
    traceparent: str | None = None
    extra: Unread = cast("Any", no_extra())


def dump_row(record: Record) -> str:
    """As `dumps`, for a record without its `run_id` and `seq`, which are columns of its row.

    The row has text as it is, not escaped: a database stores UTF-8, and other scripts take half the bytes. A row
    whose text no UTF-8 can hold (a lone surrogate) is ASCII.
    """
    run_id: object = record.run_id
    seq: object = record.seq
    extra: Any = record.extra
    try:
        row = _Row(
            "Record",
            record.event,
            record.step,
            record.time,
            record.agent,
            record.call_id,
            record.parent_run_id,
            record.principal,
            record.traceparent,
            extra,
        )
        raw = _encode(row)
        if type(run_id) is str and type(seq) is int and _row_reader()(raw) == row:
            return _shallow(raw.decode())
    except Exception:  # noqa: BLE001 - as above
        pass
    data = dump(record)
    del data["run_id"], data["seq"]
    return dump_text(data, Record.__name__)


def load_row(row: str, run_id: str, seq: int) -> Record:
    """The record that `dump_row` wrote. Raises FormatError as `loads` does."""
    if row.startswith(_HEAD):
        try:
            values = _row_reader()(row)
            return Record(
                values.event,
                run_id,
                seq,
                values.step,
                values.time,
                values.agent,
                values.call_id,
                values.parent_run_id,
                values.principal,
                values.traceparent,
            )
        except Exception:  # noqa: BLE001 - as above
            pass
    return load_record(load_text(row), run_id, seq)


def load_record(data: JSON, run_id: str, seq: int) -> Record:
    """As `load_row`, for a row that `load_text` has read."""
    if not isinstance(data, dict):
        raise FormatError(f"expected an object, found {kind_of(data)}")
    return _load(cast("dict[str, JSON]", data) | {"run_id": run_id, "seq": seq}, finite=True)


_HEAD = f'{{"format":{FORMAT},'
_DEEPEST = 200
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ALIKE = bytes.maketrans(b"{}", b"[]")
_encode = msgspec.json.Encoder().encode


# Decoders are made at their first use: it takes some milliseconds.


@cache
def _reader() -> Callable[[str], Any]:
    return msgspec.json.Decoder(typing.Union[tuple(CLASSES.values())]).decode  # noqa: UP007 - made at run time


@cache
def _decoder(cls: type[Any]) -> Callable[[bytes], Any]:
    """The reader that checks what was just written."""
    return msgspec.json.Decoder(cls, float_hook=_plain_float).decode


@cache
def _row_reader() -> Callable[[str | bytes], _Row]:
    return msgspec.json.Decoder(_Row).decode


def _stored_class(value: Any) -> type[Any]:
    cls = cast("type[Any]", type(value))
    if CLASSES.get(cls.__name__) is not cls:
        raise FormatError(f"{cls.__name__} is not a value that can be stored; known: {', '.join(sorted(CLASSES))}")
    return cls


def _encode_by_msgspec(value: Any, decode: Callable[[bytes], Any]) -> str:
    """A value's JSON by msgspec; any exception if the loops might write something else."""
    if _has_plain_digits(value):
        raw = _encode(value)
        if raw.isascii() and b"\x7f" not in raw:
            if decode(raw) != value:
                raise FieldMismatch("is read back as another value")
            return _shallow(raw.decode())
    # Python's own writer escapes all but printable ASCII, and has other digits for very large and very small numbers.
    data = msgspec.to_builtins(value, str_keys=True)
    if msgspec.convert(data, cast("type[Any]", type(value))) != value:
        raise FieldMismatch("is read back as another value")
    return _shallow(to_text(data))


def _shallow(text: str) -> str:
    """The text. Raises Misfit if it is nested so deeply that a program deep in its own stack might fail to read it: the
    loops end long before msgspec does."""
    if len(text) <= 2 * _DEEPEST or text.count("{") + text.count("[") <= _DEEPEST:
        return text
    outside = "".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2])
    brackets = outside.encode().translate(_ALIKE, _NO_BRACKETS)
    for _ in range(_DEEPEST):
        if not brackets:
            return text
        brackets = brackets.replace(b"[]", b"")  # the innermost level
    if brackets:
        raise FieldMismatch("may be nested too deeply")
    return text


def _plain_float(digits: str) -> float:
    """The number. Raises ValueError if Python and msgspec write it in different digits."""
    number = float(digits)
    if repr(number) != digits:
        raise ValueError(digits)
    return number


def _has_plain_digits(value: Any) -> bool:
    """Whether msgspec and Python write all floats among a value's fields in the same digits. Raises Misfit for an
    integer in the place of a float, which is written as a float."""
    cls = value.__class__  # no `cast` of `type(value)`: this is called for every record
    for name in _fractions(cls):
        item: Any = getattr(value, name)
        kind = item.__class__
        if kind is float:
            if not 1e-4 <= item < 1e16:
                return False
        elif kind is int:
            raise FieldMismatch("an integer")
        elif item is not None and _fractions(kind) and not _has_plain_digits(item):
            return False
    return True


@cache
def _fractions(cls: type[Any]) -> tuple[str, ...]:
    """The fields of a class that hold floats, or values with such fields."""
    return tuple(name for name, hint in typing.get_type_hints(cls).items() if _has_fraction(hint))


def _has_fraction(hint: Any) -> bool:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(map(_has_fraction, typing.get_args(hint)))
    return hint is float or (hint in CLASSES.values() and bool(_fractions(hint)))


def dump_text(data: JSON, name: str = "value") -> str:
    """JSON as one line of ASCII text. Raises FormatError, which begins with `what`, if it cannot be written."""
    try:
        return to_text(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{name}: cannot be written as JSON: {error}") from error


def load_text(text: str) -> JSON:
    """Reads what `dump_text` wrote. Raises FormatError for text that is not JSON, or holds NaN or an infinite
    number."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON that can be read: {error}") from error


def _check_version(data: Mapping[str, JSON]) -> None:
    version = data.get("format")
    if type(version) is int and version in READABLE:
        return
    readable = ", ".join(map(str, READABLE))
    if "format" not in data:
        raise FormatError(f"no format version: expected a field 'format' with one of: {readable}")
    raise FormatError(
        f"format version {quote(version)} is unknown; this build of toolspeak reads: {readable}. "
        "Upgrade toolspeak to read what a later version wrote."
    )


def _format_error(error: FieldMismatch | RecursionError, root: str) -> FormatError:
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


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite_float)
