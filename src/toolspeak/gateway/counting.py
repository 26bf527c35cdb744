"""How many tokens a request has, asked of the upstream or estimated: Anthropic's `count_tokens`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolspeak.data.messages import JSON
from toolspeak.gateway.asked import turn_of
from toolspeak.gateway.estimate import request_size, tokens_of
from toolspeak.gateway.gate import Note
from toolspeak.gateway.routing import Route
from toolspeak.providers.api import ApiProvider
from toolspeak.wire.base import WireRequest

_ESTIMATED = Note("usage_estimated", "the upstream counts no tokens before it is asked: the number is an estimate")


@dataclass(frozen=True, slots=True)
class Counted:
    tokens: int
    notes: Sequence[Note] = ()

    @property
    def body(self) -> JSON:
        """As the API answers."""
        return {"input_tokens": self.tokens}


async def counted(asked: WireRequest, route: Route, asked_format: str) -> Counted:
    """What the upstream would read, tools that a dialect writes into the prompt included. Raises ProviderError,
    UsageError."""
    driver, turn, _ = turn_of(asked, route, asked_format)
    request = driver.asked(turn)
    provider = route.provider
    tokens = await provider.count_tokens(request) if isinstance(provider, ApiProvider) else None
    return Counted(tokens_of(request_size(request)), (_ESTIMATED,)) if tokens is None else Counted(tokens)
