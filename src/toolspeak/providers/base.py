"""The contract of a provider: the transport to one model API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Protocol

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.errors import ProviderError
from toolspeak.providers.capabilities import Capabilities
from toolspeak.wire.base import ModelRequest, WireFormat

BODY_LISTENER: ContextVar[Callable[[bytes], None] | None] = ContextVar("toolspeak_body_listener", default=None)
"""A function that gets the body of every request for a turn that this context sends over HTTP."""

RETRY_RECORDER: ContextVar[Callable[[ProviderError, float, int], Awaitable[None]] | None] = ContextVar(
    "toolspeak_retry_recorder", default=None
)
"""A function that records that a request for a turn failed and is sent again: the error, the seconds until then, and
the number of the attempt from 1."""


@quick()
class BodyFormat:
    """How a provider makes the body of a request: the wire format, the model's name there, and the options of every
    request, over which a request's own go."""

    wire: WireFormat
    model: str
    options: Mapping[str, JSON]


class Provider(Protocol):
    """A model API's client: frozen settings and a connection pool, for any number of concurrent turns."""

    @property
    def name(self) -> str:
        """`provider:model`, as a user writes it."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What the API and the model can do."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Sends the request and streams the turn.

        `TextDelta` is the model's raw text, including its calls if the request has no tools. `ReasoningDelta` is
        reasoning that the API separates from the text. A native call is `CallStarted`, `ArgumentsDelta` and
        `CallCompleted`; `BatchEnded` follows the last one. Every turn ends with exactly one `TurnEnded`.

        Closing the iterator closes the connection. Raises ProviderError.
        """
        ...

    async def aclose(self) -> None:
        """Closes the connections. The provider cannot be used afterwards."""
        ...
