"""The contract of a provider: the transport to one model API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import TextMessage


@dataclass(frozen=True, slots=True)
class TextRequest:
    """One turn asked of a model whose calls are text. `options` go into the request body as they are
    (`temperature`, `max_tokens`, …)."""

    messages: Sequence[TextMessage]
    options: dict[str, object] = field(default_factory=dict[str, object])


class Provider(Protocol):
    """Frozen settings and a connection pool; one object serves any number of concurrent turns."""

    @property
    def name(self) -> str:
        """`provider:model`, as a user writes it."""
        ...

    @property
    def tool_role(self) -> bool:
        """Whether the server takes messages of role `tool` that carry no call id (many insist on one)."""
        ...

    def stream_text(self, request: TextRequest) -> AsyncIterator[Delta]:
        """The turn as it comes: `TextDelta` (the model's raw text, calls and all), `ReasoningDelta` where the
        API keeps reasoning apart, and exactly one `TurnEnded` at the end.

        Closing the iterator closes the connection. Raises ProviderError.
        """
        ...

    async def aclose(self) -> None:
        """Closes the connections; the provider cannot be used afterwards."""
        ...
