"""Frames as server-sent events. Sans-IO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from toolspeak.data.messages import JSON
from toolspeak.gateway.turns.turn_filter import Note
from toolspeak.providers.relayed import json_bytes
from toolspeak.wire.base import Frame

PING = b": ping\n\n"
"""A comment, which every reader of event streams passes over (WHATWG HTML, 9.2.6)."""


def event(frame: Frame) -> bytes:
    """One frame as an event."""
    name, data = frame
    body = data.encode() if isinstance(data, str) else json_bytes(data)
    if name is None:
        return b"data: %b\n\n" % body
    return b"event: %b\ndata: %b\n\n" % (name.encode(), body)


def noted(frames: list[Frame], notes: Sequence[Note]) -> list[Frame]:
    """The last frames of an answer with its notes, in the field `toolspeak` of the one that says how it ended."""
    if not notes:
        return frames
    return [(name, with_notes(data, notes) if _tells_the_end(data) else data) for name, data in frames]


def with_notes(body: JSON, notes: Sequence[Note]) -> JSON:
    """An object with the notes in its field `toolspeak`, if there are any."""
    if not notes:
        return body
    told = {"warnings": [{"code": note.code, "message": note.message} for note in notes]}
    return {**cast("dict[str, Any]", body), "toolspeak": told}


def _tells_the_end(data: JSON) -> bool:
    if not isinstance(data, dict):
        return False
    fields = cast("dict[str, Any]", data)
    choices = fields.get("choices")
    if choices:
        return choices[0].get("finish_reason") is not None
    kind = fields.get("type")
    return kind in ("message_delta", "response.completed", "response.incomplete", "response.failed")
