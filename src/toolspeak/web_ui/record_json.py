"""Records as the API writes them: JSON in which long texts and lists are cut, so no page of them is large. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from toolspeak.data.codec import dump
from toolspeak.data.events import Record
from toolspeak.data.messages import JSON, Message
from toolspeak.web_ui.api_values import CutText, MessageItem, RecordItem

MOST_TEXT = 16_384
"""The most characters of a text that is not cut; of a longer one its first half is written."""

MOST_ENTRIES = 500
"""The most entries of a list or an object."""

MOST_JSON = 400_000
"""The most bytes of an event's JSON. Of a larger event nothing but its place is written."""

_SHORT = 2 * MOST_ENTRIES  # bytes of JSON in which there is neither a text nor a list to cut


def json_of(value: object) -> bytes:
    """A value as JSON. msgspec refuses a lone surrogate, which json escapes."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value)).encode()


def record_item(record: Record) -> RecordItem:
    """The record as the API writes it."""
    event = cast("dict[str, Any]", dump(record)["event"])
    kind = cast("str", event.pop("type", ""))
    cuts: list[CutText] = []
    content = event if len(json_of(event)) <= _SHORT else _bound(_cut(event, (), cuts), cuts)
    return RecordItem(
        record.seq,
        record.step,
        record.time,
        kind,
        content,
        agent=record.agent,
        call_id=record.call_id,
        principal=record.principal,
        cut=tuple(cuts),
    )


def message_item(message: Message) -> MessageItem:
    """A message as the API writes it."""
    cuts: list[CutText] = []
    parts = _bound(_cut(dump(message)["parts"], (), cuts), cuts)
    return MessageItem(message.role, parts, tuple(cuts))


def value_at(record: Record, place: Sequence[str | int]) -> JSON:
    """The value at a place of the record's event. Raises LookupError if there is none."""
    value: Any = dump(record)["event"]
    for key in place:
        if isinstance(value, dict if isinstance(key, str) else list):
            value = cast("Any", value)[key]
        else:
            raise LookupError(key)
    return value


def text_at(record: Record, place: Sequence[str | int]) -> str:
    """The text at a place of the record's event; of another value its JSON. Raises LookupError if there is none."""
    value = value_at(record, place)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


def _cut(value: JSON, place: tuple[str | int, ...], cuts: list[CutText]) -> JSON:
    if isinstance(value, str):
        if len(value) <= MOST_TEXT:
            return value
        cuts.append(CutText(place, len(value)))
        return value[: MOST_TEXT // 2]
    if isinstance(value, dict):
        entries = cast("dict[str, JSON]", value)
        if len(entries) > MOST_ENTRIES:
            cuts.append(CutText(place, len(entries)))
        return {key: _cut(entries[key], (*place, key), cuts) for key in [*entries][:MOST_ENTRIES]}
    if isinstance(value, list):
        items = cast("list[JSON]", value)
        if len(items) > MOST_ENTRIES:
            cuts.append(CutText(place, len(items)))
        return [_cut(item, (*place, number), cuts) for number, item in enumerate(items[:MOST_ENTRIES])]
    return value


def _bound(content: JSON, cuts: list[CutText]) -> JSON:
    """The content, or nothing if it is still too large."""
    size = len(json_of(content))
    if size <= MOST_JSON:
        return content
    cuts[:] = [CutText((), size)]
    return {} if isinstance(content, dict) else []
