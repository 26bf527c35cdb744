"""The contract of a provider: the transport to one model API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from toolspeak.data.deltas import Delta
from toolspeak.providers.capabilities import Capabilities
from toolspeak.wire.base import ModelRequest


class Provider(Protocol):
    """Frozen settings and a connection pool; one object serves any number of concurrent turns."""

    @property
    def name(self) -> str:
        """`provider:model`, as a user writes it."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What the API and the model behind it can do."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """The turn as it comes: `TextDelta` (the model's raw text: calls and all, if the request named no tools),
        `ReasoningDelta` where the API keeps reasoning apart, native calls as `CallStarted`, `ArgumentsDelta`,
        `CallCompleted` and `BatchEnded`, and exactly one `TurnEnded` at the end.

        Closing the iterator closes the connection. Raises ProviderError.
        """
        ...

    async def aclose(self) -> None:
        """Closes the connections; the provider cannot be used afterwards."""
        ...
