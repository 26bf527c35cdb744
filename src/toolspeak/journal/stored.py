"""How a record is stored: one line of JSON without what its row says already, large contents apart.

A text of more than `LARGE` bytes is taken out of the JSON and stored by its SHA-256, so equal ones are stored once;
JSON that is still larger is taken out as a whole. The row keeps where each belongs: `[[place, digest], …]`, a place
being the keys and indexes that lead to it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from toolspeak.data.codec import dump, dump_text, load, load_text
from toolspeak.data.events import Record
from toolspeak.data.messages import JSON
from toolspeak.errors import FormatError

LARGE = 64 * 1024


@dataclass(frozen=True, slots=True)
class Stored:
    """A record's row: its JSON, what was taken out of it (`places`, JSON or None), and that by digest."""

    text: str
    places: str | None
    blobs: Mapping[str, bytes]


def pack(record: Record) -> Stored:
    """Raises FormatError for a record that cannot be stored."""
    data = dump(record)
    del data["run_id"], data["seq"]
    text = dump_text(data)
    if len(text) <= LARGE:
        return Stored(text, None, {})
    blobs: dict[str, bytes] = {}
    places: list[JSON] = []

    def take(content: str, place: list[Any]) -> None:
        stored = content.encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(stored).hexdigest()
        blobs[digest] = stored
        places.append([place, digest])

    text = dump_text(_without_large(data, [], take))
    if len(text) > LARGE:
        take(text, [])
        text = "null"
    return Stored(text, dump_text(places), blobs)


def unpack(text: str, run_id: str, seq: int, places: str | None, blob: Callable[[str], bytes]) -> Record:
    """The record of a row. Raises FormatError naming the record for one that cannot be read."""
    try:
        data = load_text(text) if places is None else _filled(text, places, blob)
        if not isinstance(data, dict):
            raise FormatError("expected an object")
        stamped = cast("dict[str, JSON]", data)
        stamped["run_id"], stamped["seq"] = run_id, seq
        return load(stamped)
    except (FormatError, LookupError, TypeError) as error:
        raise FormatError(f"record {seq} of run {run_id}: {error}") from error


def digests(places: str) -> set[str]:
    """The digests of what was taken out of a record."""
    return {digest for _, digest in json.loads(places)}


def _without_large(value: JSON, place: list[Any], take: Callable[[str, list[Any]], None]) -> JSON:
    if isinstance(value, str):
        # A character is at most four bytes: what is shorter by far is not encoded to be measured.
        if len(value) * 4 > LARGE and len(value.encode("utf-8", "surrogatepass")) > LARGE:
            take(value, place)
            return None
        return value
    if isinstance(value, dict):
        entries = cast("dict[str, JSON]", value).items()
        return {key: _without_large(item, [*place, key], take) for key, item in entries}
    if isinstance(value, list):
        return [_without_large(item, [*place, i], take) for i, item in enumerate(cast("list[JSON]", value))]
    return value


def _filled(text: str, places: str, blob: Callable[[str], bytes]) -> JSON:
    taken = [(place, blob(digest).decode("utf-8", "surrogatepass")) for place, digest in json.loads(places)]
    whole = [content for place, content in taken if not place]
    data = load_text(whole[0] if whole else text)
    for place, content in taken:
        if place:
            inner = data
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = content
    return data
