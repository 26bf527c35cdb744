"""Google's Gemini, by its own API (`generateContent`)."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from urllib.parse import quote

import httpx2

from toolspeak.data.deltas import ArgumentsDelta, Delta, ReasoningDelta, TextDelta
from toolspeak.errors import ProviderError, UnknownProvider, UsageError
from toolspeak.providers.capabilities import Capabilities
from toolspeak.providers.http import SILENCE_SECONDS, HttpApi, Reply, decode_json
from toolspeak.wire.base import ModelRequest
from toolspeak.wire.gemini import GEMINI

GEMINI_URL = "https://generativelanguage.googleapis.com"
VERSION = "v1beta"

_VERSIONED = re.compile(r"/v\d\w*/?$")

# The API sends no such event: its stream ends with the response. Servers in front of it do.
_DONE = "[DONE]"


class GeminiProvider:
    """A model behind `{base_url}/v1beta/models/{model}:streamGenerateContent`; a `Provider`.

    Without `base_url` it is Google's own; one that ends in a version (`/v1beta`) keeps it. The key goes into a
    header, never into the address. `timeout` is in seconds: how long the server may say nothing (None: for ever).
    `options` go into every request (`temperature`, `thinkingConfig`, …); a request's own come before them. Makes no
    connection before the first turn.

    Raises UnknownProvider if there is neither key nor base URL, UsageError for a base URL or a key that cannot be.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float | None = SILENCE_SECONDS,
        options: Mapping[str, object] | None = None,
    ) -> None:
        base_url, api_key = (base_url or "").strip(), (api_key or "").strip()
        if not base_url and not api_key:
            raise UnknownProvider(
                f"the model {model!r} needs a key: set GEMINI_API_KEY (or GOOGLE_API_KEY), or GEMINI_BASE_URL for a "
                "server that speaks Gemini's API"
            )
        if not all("!" <= character <= "~" for character in api_key):
            raise UsageError("the API key holds characters that no key has (white space or beyond ASCII)")
        self._model = model
        self._options = dict(options or {})
        self._api = HttpApi(
            base_url or GEMINI_URL,
            headers={"x-goog-api-key": api_key} if api_key else {},
            secrets=(api_key,),
            silence=timeout,
        )
        collection = "" if "/" in model else "models/"
        version = "" if _VERSIONED.search(base_url.partition("?")[0]) else f"{VERSION}/"
        self._path = f"{version}{collection}{quote(model, safe='/@')}:streamGenerateContent"

    @classmethod
    def from_env(cls, model: str, environ: Mapping[str, str]) -> GeminiProvider:
        """With GEMINI_API_KEY, or else GOOGLE_API_KEY, and GEMINI_BASE_URL of `environ`; an empty one counts as not
        set."""
        key = environ.get("GEMINI_API_KEY", "").strip() or environ.get("GOOGLE_API_KEY")
        return cls(model, base_url=environ.get("GEMINI_BASE_URL"), api_key=key)

    @property
    def name(self) -> str:
        return f"gemini:{self._model}"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(tools=True, output=True, reasoning=True, tool_choice=True)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        """See `Provider.stream`. A server that answers with plain JSON is read as well."""
        request = replace(request, options={**self._options, **request.options})
        body = GEMINI.encode_request(request, model=self._model, stream=True)
        async with self._api.post(self._path, body, query={"alt": "sse"}) as reply:
            if reply.content_type == "application/json":
                for delta in GEMINI.decode_response(await reply.json(), model=self._model):
                    yield delta
            elif reply.content_type == "text/event-stream":
                async with aclosing(self._streamed(reply)) as deltas:
                    async for delta in deltas:
                        yield delta
            else:
                raise ProviderError(
                    f"{self._api.address} answered with {reply.content_type or 'an unnamed type'!r} instead of an "
                    "event stream or JSON. Check GEMINI_BASE_URL."
                )

    async def aclose(self) -> None:
        """Closes the connections; no turn can be asked for afterwards."""
        await self._api.aclose()

    async def _streamed(self, reply: Reply) -> AsyncGenerator[Delta]:
        decoder = GEMINI.decoder(model=self._model)
        try:
            async with aclosing(reply.events(last=_DONE)) as events:
                async for event in events:
                    for delta in decoder.feed(decode_json(event, "an event")):
                        if isinstance(delta, TextDelta | ReasoningDelta | ArgumentsDelta):
                            reply.received += len(delta.text)
                        yield delta
        except httpx2.HTTPError:
            # With the finish reason the answer is whole.
            if not decoder.finished:
                raise
        if not decoder.finished:
            raise self._api.dropped(reply)
        for delta in decoder.close():
            yield delta
