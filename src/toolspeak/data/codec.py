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
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NoReturn, cast

from toolspeak.data.checks import Misfit, kind_of, quote, to_text
from toolspeak.data.events import Record
from toolspeak.data.forms import ANY, CLASSES, FORMAT, Codec, codec_of
from toolspeak.data.messages import JSON
from toolspeak.errors import FormatError

READABLE = (1,)
"""The versions `load` reads."""


def dump(value: Any) -> dict[str, JSON]:
    """`value` (an instance of one of `CLASSES`) as an object that `json.dumps` takes.

    The object shares nothing mutable with `value`. Raises FormatError naming the place if something in it is
    not of its field's type or no JSON (NaN, a set, a key that is no text), so what is written can be read.
    """
    codec = _codec(value)
    try:
        data = codec.encode(value)
        if "format" in data:
            raise Misfit("a field named 'format' cannot be written at the outermost level")
    except (Misfit, RecursionError) as error:
        raise _format_error(error, codec.tag) from error
    return {"format": FORMAT, **data}


def load(data: JSON) -> Any:
    """The value that `dump` wrote. JSON-typed fields share their objects with `data`.

    Raises FormatError for an unknown format version, an unknown shape, or a missing or ill-typed field.
    """
    if not isinstance(data, dict):
        raise FormatError(f"expected an object with 'format' and 'type', found {kind_of(data)}")
    stored = cast("dict[str, JSON]", data)
    _check_version(stored)
    bare = dict(stored)
    del bare["format"]
    try:
        return ANY.read(bare)
    except Exception:  # noqa: BLE001 - whatever it was, the loops say what and where
        return _load(bare)


def _load(bare: dict[str, JSON]) -> Any:
    """`load` by the loops over the fields, which have a name for everything that does not fit."""
    tag = bare.get("type")
    try:
        # Only events may be of an unknown type, so an unknown type at the top is one.
        return ANY.decode(bare)
    except (Misfit, RecursionError) as error:
        raise _format_error(error, tag if isinstance(tag, str) and tag in CLASSES else "value") from error


def dumps(value: Any) -> str:
    """`dump` as one line of ASCII text. Raises FormatError as `dump` does."""
    codec = _codec(value)
    try:
        return codec.dumps(value)
    except Exception:  # noqa: BLE001 - whatever it was, the loops say what and where
        return dump_text(dump(value), codec.tag)


def loads(text: str) -> Any:
    """The value that `dumps` wrote. Raises FormatError as `load` does, and for text that is no JSON."""
    return load(load_text(text))


def dump_row(record: Record) -> str:
    """`dumps` of a record without its `run_id` and `seq`, for a row that has both of its own."""
    try:
        return _row_writer()(record)
    except Exception:  # noqa: BLE001 - as above
        data = dump(record)
        del data["run_id"], data["seq"]
        return dump_text(data, Record.__name__)


def load_row(data: JSON, run_id: str, seq: int) -> Record:
    """The record that `dump_row` wrote, as `load_text` read it. Raises FormatError as `load` does."""
    try:
        return _row_reader()(data, run_id, seq)
    except Exception:  # noqa: BLE001 - as above
        if not isinstance(data, dict):
            raise FormatError("expected an object") from None
        return load(cast("dict[str, JSON]", data) | {"run_id": run_id, "seq": seq})


_ROW = ("run_id", "seq")


# Made when asked for: most programs keep their records in memory.


@cache
def _row_writer() -> Callable[[Record], str]:
    return codec_of(Record).writer(_ROW, FORMAT)


@cache
def _row_reader() -> Callable[[JSON, str, int], Record]:
    return codec_of(Record).reader(_ROW, FORMAT)


def _codec(value: Any) -> Codec:
    cls = cast("type[Any]", type(value))
    if CLASSES.get(cls.__name__) is not cls:
        raise FormatError(f"{cls.__name__} is not a value that can be stored; known: {', '.join(sorted(CLASSES))}")
    return codec_of(cls)


def dump_text(data: JSON, name: str = "value") -> str:
    """JSON as one line of ASCII text. Raises FormatError, with the name of what it is, if it cannot be written."""
    try:
        return to_text(data)
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


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite_float)
