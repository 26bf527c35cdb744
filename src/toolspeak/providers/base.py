"""The contract of a provider: the transport to one model API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from toolspeak.data.deltas import Delta
from toolspeak.providers.capabilities import Capabilities
from toolspeak.wire.base import ModelRequest


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
