"""Anthropic, and servers that speak its Messages API."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace

import httpx2

from toolspeak.data.deltas import Delta, ReasoningDelta, TextDelta
from toolspeak.errors import ProviderError, UnknownProvider, UsageError
from toolspeak.providers.capabilities import Capabilities
from toolspeak.providers.http import DRAIN_SECONDS, SILENCE_SECONDS, HttpApi, Reply, decode_json
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.base import ModelRequest

ANTHROPIC_URL = "https://api.anthropic.com"

API_VERSION = "2026-10-21"
"""The header `anthropic-version`: the newest (Anthropic, "Versions", and what its Python SDK 2.12 sends). It refuses
`temperature`, `top_p` and `top_k`, which 2023-06-01, the one before, takes."""

_DONE = "[DONE]"  # not of the API: what some servers end every event stream with


class AnthropicProvider:
    """A model behind `{base_url}/v1/messages`; a `Provider`.

    Without `base_url` it is Anthropic's own; one that ends in /v1 is taken too. Without `api_key` none is sent.
    `timeout` is in seconds: how long the server may say nothing (None: for ever). `options` go into every request
    (`max_tokens`, `thinking`, …); a request's own come before them. `version` is the API's. Makes no connection before
    the first turn.

    Raises UnknownProvider if there is neither base URL nor key, UsageError for a base URL or a key that cannot be.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float | None = SILENCE_SECONDS,
        options: Mapping[str, object] | None = None,
        version: str = API_VERSION,
    ) -> None:
        base_url, api_key = (base_url or "").strip(), (api_key or "").strip()
        if not base_url and not api_key:
            raise UnknownProvider(
                f"the model {model!r} needs an API key: set ANTHROPIC_API_KEY; or, for a server of your own that "
                "speaks Anthropic's API, its address: ANTHROPIC_BASE_URL"
            )
        if not all("!" <= character <= "~" for character in api_key):
            raise UsageError("the API key holds characters that no key has (white space or beyond ASCII)")
        self._model = model
        self._options = dict(options or {})
        headers = {"anthropic-version": version}
        if api_key:
            headers["x-api-key"] = api_key
        self._api = HttpApi(base_url or ANTHROPIC_URL, headers=headers, secrets=(api_key,), silence=timeout)
        self._path = "messages" if httpx2.URL(self._api.address).path.rstrip("/").endswith("/v1") else "v1/messages"

    @classmethod
    def from_env(cls, model: str, environ: Mapping[str, str]) -> AnthropicProvider:
        """With ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL of `environ`; an empty one counts as not set."""
        return cls(model, base_url=environ.get("ANTHROPIC_BASE_URL"), api_key=environ.get("ANTHROPIC_API_KEY"))

    @property
    def name(self) -> str:
        return f"anthropic:{self._model}"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(tools=True, output=True, reasoning=True, tool_choice=True, cache_markers=True)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        """See `Provider.stream`. A server that answers with plain JSON is read as well."""
        request = replace(request, options={**self._options, **request.options})
        body = ANTHROPIC.encode_request(request, model=self._model, stream=True)
        async with self._api.post(self._path, body) as reply:
            if reply.content_type == "application/json":
                for delta in ANTHROPIC.decode_response(await reply.json(), model=self._model):
                    yield delta
            elif reply.content_type == "text/event-stream":
                async with aclosing(self._streamed(reply)) as deltas:
                    async for delta in deltas:
                        yield delta
            else:
                raise ProviderError(
                    f"{self._api.address} answered with {reply.content_type or 'an unnamed type'!r} instead of an "
                    "event stream or JSON. Check the base URL: /v1/messages is put behind it."
                )

    async def aclose(self) -> None:
        """Closes the connections; no turn can be asked for afterwards."""
        await self._api.aclose()

    async def _streamed(self, reply: Reply) -> AsyncGenerator[Delta]:
        decoder = ANTHROPIC.decoder(model=self._model)
        try:
            async with aclosing(reply.events(last=_DONE)) as events:
                async for event in events:
                    for delta in decoder.feed(decode_json(event, "an event")):
                        if isinstance(delta, TextDelta | ReasoningDelta):
                            reply.received += len(delta.text)
                        yield delta
                    if decoder.stopped:
                        await _drain(events)
                        break
        except httpx2.HTTPError:
            # With the stop reason the answer is whole: only its last event may be missing.
            if not decoder.finished:
                raise
        if not decoder.finished:
            raise self._api.dropped(reply)
        for delta in decoder.close():
            yield delta


async def _drain(events: AsyncGenerator[str]) -> None:
    """Reads to the end, which is near: only then can the next turn use the connection."""
    with contextlib.suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in events:
                pass
