"""Requests that clients wrote for an API themselves, and the parts of its answers as they came."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping, Sequence
from contextvars import ContextVar
from typing import Protocol, cast

from pydantic_core import to_json

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.wire.base import ModelRequest
from toolspeak.wire.request_encoding import without_lone_surrogates

_OPENS = ("message_start", "ping", "response.created", "response.in_progress", "response.queued")


@quick()
class Relayed:
    """A part of an answer as it came: an event with its bytes, or the `whole` answer; `data` is its JSON object (None
    for what is none, as a comment), `deltas` what it says. The last one has no bytes, and the deltas of the turn's
    end."""

    raw: bytes
    data: dict[str, JSON] | None
    deltas: Sequence[Delta]
    whole: bool = False


class Relaying(Protocol):
    """A turn that is asked as its client wrote it, with these `headers`."""

    headers: Mapping[str, str]

    def body(self, request: ModelRequest) -> Mapping[str, JSON] | None:
        """What the client wrote; None if the request says something else."""
        ...

    def hear(self, part: Relayed) -> Awaitable[None] | None:
        """Gets each part of the answer before its deltas are given. What it returns is awaited."""
        ...


RELAYING: ContextVar[Relaying | None] = ContextVar("toolspeak_relaying", default=None)
"""How the turns that are asked from here on are asked, where their client speaks the provider's API."""


def opens(data: Mapping[str, JSON]) -> bool:
    """Whether an event says nothing of the answer yet: until something has left, the request may be sent again."""
    choices = data.get("choices")
    if not isinstance(choices, list):
        return data.get("type") in _OPENS
    rows = [cast("dict[str, JSON]", row) for row in cast("list[JSON]", choices) if isinstance(row, dict)]
    deltas = [cast("dict[str, JSON]", row["delta"]) for row in rows if isinstance(row.get("delta"), dict)]
    return not any(value for delta in deltas for name, value in delta.items() if name != "role")


def json_bytes(value: JSON | Mapping[str, JSON]) -> bytes:
    """JSON in UTF-8. A lone surrogate, which it cannot carry, is written as U+FFFD."""
    try:
        return to_json(value)
    except ValueError:  # a lone surrogate, or nested deeper than pydantic_core goes
        return json.dumps(without_lone_surrogates(value), separators=(",", ":")).encode()


def as_object(data: JSON) -> dict[str, JSON] | None:
    return cast("dict[str, JSON]", data) if isinstance(data, dict) else None
