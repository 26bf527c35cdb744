"""Requests that clients wrote for the provider's API, and the unchanged parts of the API's answers."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from contextvars import ContextVar
from typing import Protocol, cast

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.wire.base import ModelRequest

_PREAMBLE = ("message_start", "ping", "response.created", "response.in_progress", "response.queued")


@quick()
class RelayedPart:
    """A part of an answer. The last part of a stream holds the deltas of the turn's end, and no bytes."""

    raw: bytes
    """The event, or the whole answer, as the server sent it."""
    data: dict[str, JSON] | None
    """Its JSON object; None if it is not an object (a comment)."""
    deltas: Sequence[Delta]
    whole: bool = False
    """The part is an answer that was not streamed."""


class Relaying(Protocol):
    """A turn that is sent as its client wrote it."""

    headers: Mapping[str, str]

    def body(self, request: ModelRequest) -> Mapping[str, JSON] | None:
        """The client's body; None if it does not match the request."""
        ...

    def hear(self, part: RelayedPart) -> Awaitable[None] | None:
        """Receives each part of the answer before its deltas leave the provider. The result, if any, is awaited."""
        ...


RELAYING: ContextVar[Relaying | None] = ContextVar("toolspeak_relaying", default=None)
"""The client's request for the turns of this context, if the client speaks the provider's API."""


def is_preamble(data: Mapping[str, JSON]) -> bool:
    """Whether an event comes before the first content. Until content has left, the request may be sent again."""
    choices = data.get("choices")
    if not isinstance(choices, list):
        return data.get("type") in _PREAMBLE
    rows = [cast("dict[str, JSON]", row) for row in cast("list[JSON]", choices) if isinstance(row, dict)]
    deltas = [cast("dict[str, JSON]", row["delta"]) for row in rows if isinstance(row.get("delta"), dict)]
    return not any(value for delta in deltas for name, value in delta.items() if name != "role")


def as_object(data: JSON) -> dict[str, JSON] | None:
    return cast("dict[str, JSON]", data) if isinstance(data, dict) else None
