"""Ollama, by its own API (`/api/chat`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from types import MappingProxyType

import httpx2

from toolspeak.data.deltas import ArgumentsDelta, Delta, ReasoningDelta, TextDelta
from toolspeak.data.messages import JSON
from toolspeak.errors import ProviderError, UsageError
from toolspeak.providers.capabilities import Capabilities
from toolspeak.providers.http import SILENCE_SECONDS, HttpApi, Reply, decode_json
from toolspeak.wire.base import ModelRequest
from toolspeak.wire.ollama import OLLAMA

DEFAULT_PORT = 11434

NOTHING_CUT: Mapping[str, JSON] = MappingProxyType({"truncate": False, "shift": False})
"""Options of every request: a conversation longer than the context is an error instead of being cut at its beginning.

Servers too old to know them cut without a word."""


class OllamaProvider:
    """A model behind `{host}/api/chat`; a `Provider`.

    `host` is written as Ollama's own OLLAMA_HOST: an address, `host:port`, or either alone. `api_key` is for
    ollama.com. `timeout` is in seconds: how long the server may say nothing, loading the model included (None: for
    ever). `options` go into every request (`num_ctx`, `temperature`, `think`, `keep_alive`, …); a request's own come
    before them. Makes no connection before the first turn.

    A conversation that does not fit into the context is refused (`NOTHING_CUT`); `options={"truncate": True}` has it
    cut. Raises UsageError for a host or a key that cannot be.
    """

    def __init__(
        self,
        model: str,
        *,
        host: str | None = None,
        api_key: str | None = None,
        timeout: float | None = SILENCE_SECONDS,
        options: Mapping[str, object] | None = None,
    ) -> None:
        api_key = (api_key or "").strip()
        if not all("!" <= character <= "~" for character in api_key):
            raise UsageError("the API key holds characters that no key has (white space or beyond ASCII)")
        self._model = model
        self._options = {**NOTHING_CUT, **(options or {})}
        self._api = HttpApi(
            host_url(host or ""),
            headers={"authorization": f"Bearer {api_key}"} if api_key else {},
            secrets=(api_key,),
            silence=timeout,
        )

    @classmethod
    def from_env(cls, model: str, environ: Mapping[str, str]) -> OllamaProvider:
        """With OLLAMA_HOST and OLLAMA_API_KEY of `environ`; an empty one counts as not set."""
        return cls(model, host=environ.get("OLLAMA_HOST"), api_key=environ.get("OLLAMA_API_KEY"))

    @property
    def name(self) -> str:
        return f"ollama:{self._model}"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(tools=True, output=True, reasoning=True)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        """See `Provider.stream`. A server that answers with plain JSON is read as well."""
        request = replace(request, options={**self._options, **request.options})
        body = OLLAMA.encode_request(request, model=self._model, stream=True)
        try:
            async with self._api.post("api/chat", body) as reply:
                if reply.content_type == "application/json":
                    for delta in OLLAMA.decode_response(await reply.json(), model=self._model):
                        yield delta
                elif reply.content_type == "application/x-ndjson":
                    async with aclosing(self._streamed(reply)) as deltas:
                        async for delta in deltas:
                            yield delta
                else:
                    raise ProviderError(
                        f"{self._api.address} answered with {reply.content_type or 'an unnamed type'!r} instead of "
                        "lines of JSON. Check OLLAMA_HOST."
                    )
        except ProviderError as error:
            raise self._explained(error) from error.__cause__

    async def aclose(self) -> None:
        """Closes the connections; no turn can be asked for afterwards."""
        await self._api.aclose()

    async def _streamed(self, reply: Reply) -> AsyncGenerator[Delta]:
        decoder = OLLAMA.decoder(model=self._model)
        try:
            async with aclosing(reply.lines()) as lines:
                async for line in lines:
                    for delta in decoder.feed(decode_json(line, "a line")):
                        if isinstance(delta, TextDelta | ReasoningDelta | ArgumentsDelta):
                            reply.received += len(delta.text)
                        yield delta
        except httpx2.HTTPError:
            if not decoder.finished:
                raise
        if not decoder.finished:
            raise self._api.dropped(reply)
        for delta in decoder.close():
            yield delta

    def _explained(self, error: ProviderError) -> ProviderError:
        """The error with what to do about it, where only Ollama has the remedy."""
        told = str(error)
        if error.status == 404:
            told = (
                f"{self._api.address} has no model {self._model!r} (HTTP 404). Fetch it: ollama pull {self._model}. "
                "If `ollama list` shows it, check OLLAMA_HOST."
            )
        elif "does not support tools" in told:
            told = f"{told} Let it write its calls as text instead: choose a dialect."
        return error if told == str(error) else ProviderError(told, status=error.status, retryable=error.retryable)


def host_url(host: str) -> str:
    """The base URL of what OLLAMA_HOST holds, read as Ollama's own clients read it (ollama 0.6, `_parse_host`).

    Nothing is `http://127.0.0.1:11434`; a scheme alone brings its own port; what a server listens on everywhere with
    (0.0.0.0) is reached on this machine.
    """
    host = host.strip().rstrip("/")
    scheme, mark, rest = host.partition("://")
    if not mark:
        scheme, rest = "http", host
    place, slash, path = rest.partition("/")
    name, colon, port = place.rpartition(":") if not place.endswith("]") else (place, "", "")
    if not colon:
        name, port = place, ("443" if scheme == "https" else "80") if mark else str(DEFAULT_PORT)
    name = "127.0.0.1" if name in ("", "0.0.0.0") else name
    return f"{scheme}://{name}:{port or DEFAULT_PORT}{slash}{path}"
