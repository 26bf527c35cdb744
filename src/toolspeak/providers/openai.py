"""OpenAI and every server that speaks its Chat Completions API (llama.cpp, vLLM, Ollama, LM Studio, …)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace

import httpx2

from toolspeak.data.deltas import ArgumentsDelta, Delta, ReasoningDelta, TextDelta
from toolspeak.errors import ProviderError, UnknownProvider, UsageError
from toolspeak.providers.capabilities import Capabilities
from toolspeak.providers.http import SILENCE_SECONDS, HttpApi, Reply, decode_json
from toolspeak.wire.base import ModelRequest
from toolspeak.wire.openai_chat import OPENAI_CHAT, OpenAIChat

OPENAI_URL = "https://api.openai.com/v1"

LOCAL_SERVERS: Mapping[str, str] = {
    "Ollama": "http://127.0.0.1:11434/v1",
    "LM Studio": "http://127.0.0.1:1234/v1",
    "llama.cpp": "http://127.0.0.1:8080/v1",
    "vLLM": "http://127.0.0.1:8000/v1",
}
"""Where local servers listen unless told otherwise."""

OPENAI_CAPABILITIES = Capabilities(tools=True, output=True, tool_choice=True)

_DONE = "[DONE]"


class OpenAIProvider:
    """A model behind `{base_url}/chat/completions`; a `Provider`.

    Without `base_url` it is OpenAI's own. Without `api_key` none is sent. `timeout` is in seconds: how long the
    server may say nothing (None: for ever). `options` go into every request (`temperature`, …); a request's own come
    before them. `name` stands before the model in the provider's name. `capabilities` are OpenAI's own at its address
    and, at any other, none until somebody says so; `chat` is the format with what a service wants otherwise. Makes no
    connection before the first turn.

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
        name: str = "openai",
        capabilities: Capabilities | None = None,
        chat: OpenAIChat = OPENAI_CHAT,
    ) -> None:
        base_url, api_key = (base_url or "").strip(), (api_key or "").strip()
        if not base_url and not api_key:
            raise UnknownProvider(_neither(model))
        if not all("!" <= character <= "~" for character in api_key):
            raise UsageError("the API key holds characters that no key has (white space or beyond ASCII)")
        self._model = model
        self._name = name
        self._chat = chat
        self._capabilities = capabilities or (Capabilities() if base_url else OPENAI_CAPABILITIES)
        self._options = dict(options or {})
        self._api = HttpApi(
            base_url or OPENAI_URL,
            headers={"authorization": f"Bearer {api_key}"} if api_key else {},
            secrets=(api_key,),
            silence=timeout,
        )

    @classmethod
    def from_env(cls, model: str, environ: Mapping[str, str]) -> OpenAIProvider:
        """With OPENAI_API_KEY and OPENAI_BASE_URL of `environ`; an empty one counts as not set."""
        return cls(model, base_url=environ.get("OPENAI_BASE_URL"), api_key=environ.get("OPENAI_API_KEY"))

    @property
    def name(self) -> str:
        return f"{self._name}:{self._model}"

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        """See `Provider.stream`. A server that answers with plain JSON is read as well."""
        request = replace(request, options={**self._options, **request.options})
        body = self._chat.encode_request(request, model=self._model, stream=True)
        async with self._api.post("chat/completions", body) as reply:
            if reply.content_type == "application/json":
                for delta in self._chat.decode_response(await reply.json(), model=self._model):
                    yield delta
            elif reply.content_type == "text/event-stream":
                async with aclosing(self._streamed(reply)) as deltas:
                    async for delta in deltas:
                        yield delta
            else:
                raise ProviderError(
                    f"{self._api.address} answered with {reply.content_type or 'an unnamed type'!r} instead of an "
                    "event stream or JSON. Check the base URL: it mostly ends in /v1."
                )

    async def aclose(self) -> None:
        """Closes the connections; no turn can be asked for afterwards."""
        await self._api.aclose()

    async def _streamed(self, reply: Reply) -> AsyncGenerator[Delta]:
        decoder = self._chat.decoder(model=self._model)
        try:
            async with aclosing(reply.events(last=_DONE)) as events:
                async for event in events:
                    for delta in decoder.feed(decode_json(event, "an event")):
                        if isinstance(delta, TextDelta | ReasoningDelta | ArgumentsDelta):
                            reply.received += len(delta.text)
                        yield delta
        except httpx2.HTTPError:
            # With the finish reason the answer is whole: only its usage may be missing.
            if not decoder.finished:
                raise
        if not (decoder.finished or reply.completed):
            raise self._api.dropped(reply)
        for delta in decoder.close():
            yield delta


def _neither(model: str) -> str:
    servers = "\n".join(f"  {name:10} OPENAI_BASE_URL={url}" for name, url in LOCAL_SERVERS.items())
    return (
        f"the model {model!r} needs an API: neither OPENAI_API_KEY nor OPENAI_BASE_URL is set.\n"
        f"For OpenAI itself set OPENAI_API_KEY. For a server of your own set its address (no key needed):\n{servers}"
    )
