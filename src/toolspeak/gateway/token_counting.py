"""Counts the tokens of a request, at the upstream or by an estimate (Anthropic's `count_tokens`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolspeak.data.messages import JSON
from toolspeak.errors import ProviderError, ToolspeakError
from toolspeak.gateway.requests.request_mapping import turn_of
from toolspeak.gateway.turns.turn_gate import Note
from toolspeak.gateway.turns.turn_report import request_size, tokens_of
from toolspeak.gateway.upstreams.load_balancing import best_client_error
from toolspeak.gateway.upstreams.routing import Route, Routes
from toolspeak.gateway.upstreams.upstream_health import allows_failover
from toolspeak.providers.api import ApiProvider
from toolspeak.wire.base import WireRequest

_ESTIMATE_NOTE = Note(
    "usage_estimated", "the upstream does not count the tokens of requests: the number is an estimate"
)


@dataclass(frozen=True, slots=True)
class TokenCount:
    """A count of tokens; `route` leads to the upstream that counted."""

    tokens: int
    route: Route
    notes: Sequence[Note] = ()

    @property
    def body(self) -> JSON:
        """The answer in the API's format."""
        return {"input_tokens": self.tokens}


async def count_request_tokens(wire_request: WireRequest, routes: Routes, client_format: str) -> TokenCount:
    """Counts the tokens that an upstream would read, with the tools that a dialect writes into the prompt. Raises
    ProviderError, ConfigurationError."""
    errors: list[ToolspeakError] = []
    for route in routes.healthy_first():
        driver, turn, _ = turn_of(wire_request, route, client_format)
        request = driver.open().model_request(turn)
        provider = route.provider
        try:
            tokens = await provider.count_tokens(request) if isinstance(provider, ApiProvider) else None
        except ProviderError as error:
            if not allows_failover(error):
                raise
            errors.append(error)
            continue
        if tokens is None:
            return TokenCount(tokens_of(request_size(request)), route, (_ESTIMATE_NOTE,))
        return TokenCount(tokens, route)
    raise best_client_error(errors)
