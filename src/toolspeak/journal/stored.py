"""How a record is stored: as one line of JSON, without what its row says already, and with large contents apart.

A string of more than `LARGE` bytes is taken out of the JSON and stored by its SHA-256, so equal strings are stored
once. JSON that is still larger is taken out as a whole. The row holds where each content belongs: `[[place, digest],
…]`, a place being the keys and indexes that lead to it.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias, cast
from zlib import crc32

from toolspeak.data.codec import dump_row, dump_text, load_record, load_row, load_text
from toolspeak.data.events import Record
from toolspeak.data.messages import JSON
from toolspeak.errors import FormatError

LARGE = 64 * 1024

Row: TypeAlias = tuple[int, str, str | None]
"""A record as it is read: its number, its JSON, and its places."""

_NO_BLOBS: Mapping[str, bytes] = {}


class Stored(NamedTuple):  # made for every record, three times as fast as a frozen dataclass
    """A record's row.

    - `text`: its JSON.
    - `places`: where contents were taken out, as JSON, or None.
    - `blobs`: these contents by digest.
    """

    text: str
    places: str | None
    blobs: Mapping[str, bytes]


def pack(record: Record) -> Stored:
    """Returns the row of a record. Raises FormatError for a record that cannot be stored."""
    text = dump_row(record)
    if len(text) <= LARGE:
        return Stored(text, None, _NO_BLOBS)
    data = load_text(text)
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


def sum_of(pos: int, text: str, places: str | None = None) -> int:
    """The checksum that is stored with a record. It includes the record's position, so a row in another place is
    noticed."""
    return crc32((text if places is None else text + places).encode(), (pos ^ (pos >> 32)) & 0xFFFFFFFF)


def unpack(rows: Sequence[Row], run_id: str, blob: Callable[[str], bytes]) -> list[Record]:
    """Returns the records of some rows. Raises FormatError, with its number, for one that cannot be read."""
    with _without_collection():
        return _unpacked(rows, run_id, blob)


@contextmanager
def _without_collection() -> Generator[None]:
    """Pauses the garbage collection while a page of records is made.

    Nothing of a page becomes garbage at once, and looking for it again and again takes as long as all the rest.
    """
    wanted = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if wanted:
            gc.enable()


def _unpacked(rows: Sequence[Row], run_id: str, blob: Callable[[str], bytes]) -> list[Record]:
    records: list[Record] = []
    for seq, text, places in rows:
        try:
            if places is None:
                records.append(load_row(text, run_id, seq))
            else:
                records.append(load_record(_filled(load_text(text), places, blob), run_id, seq))
        except (FormatError, LookupError, TypeError) as error:
            raise FormatError(f"record {seq} of run {run_id}: {error}") from error
    return records


def digests(places: str) -> set[str]:
    """The digests of the contents that were taken out of a record."""
    return {digest for _, digest in json.loads(places)}


def _without_large(value: JSON, place: list[Any], take: Callable[[str, list[Any]], None]) -> JSON:
    if isinstance(value, str):
        # A character is at most four bytes, so a much shorter string is not encoded for its length.
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


def _filled(data: JSON, places: str, blob: Callable[[str], bytes]) -> JSON:
    contents = [(place, blob(digest).decode("utf-8", "surrogatepass")) for place, digest in json.loads(places)]
    whole = [content for place, content in contents if not place]
    if whole:
        data = load_text(whole[0])
    for place, content in contents:
        if place:
            inner = data
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = content
    return data
