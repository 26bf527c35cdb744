"""A JSON value made shorter, and JSON still: what is left out is said where it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import cast

from toolspeak.data.messages import JSON

_TEXT = json.JSONEncoder(ensure_ascii=False).encode
_LEAST = 8  # characters of a text; below that nothing of the value could be recognised


def json_text(value: JSON) -> str:
    """A JSON value as the text whose bytes are counted."""
    return _TEXT(value)


def shorten_json(value: JSON, max_bytes: int) -> JSON | None:
    """The value in at most `max_bytes` of JSON text (UTF-8), None if it cannot be done.

    Long arrays and objects keep their beginning (arrays their end too), long texts their beginning and end, each with
    a text that counts what is missing. The same room is tried for all of them, less and less of it.
    """
    room = max_bytes
    while room >= _LEAST:
        short = _shorten(value, room)
        if len(json_text(short).encode("utf-8", "surrogatepass")) <= max_bytes:
            return short
        room = room * 2 // 3
    return None


def _shorten(value: JSON, room: int) -> JSON:
    if isinstance(value, str):
        return _shorten_text(value, room)
    members = max(2, room // 4)
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, JSON]", value)
        short = {key: _shorten(entries[key], room) for key in islice(entries, members)}
        if len(entries) > members:
            short["…"] = f"{len(entries) - members} more members left out"
        return short
    if isinstance(value, list | tuple):
        items = cast("list[JSON]", value)
        if len(items) <= members:
            return [_shorten(item, room) for item in items]
        head, tail = (members + 1) // 2, members // 2
        return [
            *(_shorten(item, room) for item in items[:head]),
            f"… {len(items) - members} items left out …",
            *(_shorten(item, room) for item in items[-tail:]),
        ]
    return value


def _shorten_text(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    half = room // 2
    return f"{text[:half]} … {len(text) - 2 * half} characters left out … {text[-half:]}"
