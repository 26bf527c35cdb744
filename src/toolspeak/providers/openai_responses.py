"""OpenAI and servers that speak its Responses API (vLLM, LM Studio, llama.cpp, Ollama, …)."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace

import httpx2

from toolspeak.data.deltas import ArgumentsDelta, Delta, ReasoningDelta, TextDelta
from toolspeak.errors import ProviderError, UnknownProvider, UsageError
from toolspeak.providers.capabilities import Capabilities
from toolspeak.providers.http import DRAIN_SECONDS, SILENCE_SECONDS, HttpApi, Reply, decode_json
from toolspeak.providers.openai import OPENAI_URL
from toolspeak.wire.base import Earlier, ModelRequest
from toolspeak.wire.openai_responses import OPENAI_RESPONSES

_DONE = "[DONE]"  # not the API's own: what some compatible servers end a stream with

_REASONING = re.compile(r"(?:^|/)(?:o\d|gpt-oss|codex|gpt-(?:[5-9]|\d\d)(?!.*-chat))", re.IGNORECASE)
"""OpenAI's models that reason, by name: only they take `include` of encrypted reasoning, the others answer 400."""

_FORGOTTEN = re.compile(r"previous[ _]response", re.IGNORECASE)
"""`previous_response_not_found`: "Previous response with id '…' not found.", "Invalid `previous_response_id`." and what
an organisation without data retention is told."""


class OpenAIResponsesProvider:
    """A model behind `{base_url}/responses`; a `Provider`.

    Without `base_url` it is OpenAI's own. Without `api_key` none is sent. `timeout` is in seconds: how long the
    server may say nothing (None: for ever). `options` go into every request (`reasoning`, …); a request's own come
    before them. Models of OpenAI that reason are asked for their reasoning in encrypted form, so that it can go back
    to them without being stored. Makes no connection before the first turn.

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
    ) -> None:
        base_url, api_key = (base_url or "").strip(), (api_key or "").strip()
        if not base_url and not api_key:
            raise UnknownProvider(
                f"the model {model!r} needs an API: neither OPENAI_API_KEY nor OPENAI_BASE_URL is set. For OpenAI "
                "itself set OPENAI_API_KEY; for a server of your own set OPENAI_BASE_URL to its address."
            )
        if not all("!" <= character <= "~" for character in api_key):
            raise UsageError("the API key holds characters that no key has (white space or beyond ASCII)")
        self._model = model
        self._reasons = _REASONING.search(model) is not None
        include = {"include": ["reasoning.encrypted_content"]} if self._reasons else {}
        self._options = {**include, **(options or {})}
        self._api = HttpApi(
            base_url or OPENAI_URL,
            headers={"authorization": f"Bearer {api_key}"} if api_key else {},
            secrets=(api_key,),
            silence=timeout,
        )

    @classmethod
    def from_env(cls, model: str, environ: Mapping[str, str]) -> OpenAIResponsesProvider:
        """With OPENAI_API_KEY and OPENAI_BASE_URL of `environ`; an empty one counts as not set."""
        return cls(model, base_url=environ.get("OPENAI_BASE_URL"), api_key=environ.get("OPENAI_API_KEY"))

    @property
    def name(self) -> str:
        return f"openai-responses:{self._model}"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(tools=True, output=True, tool_choice=True, reasoning=True, resume=True)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        """See `Provider.stream`. A server that answers with plain JSON is read as well.

        Where the server does not keep the turn that the request names as `earlier`, the error's code is `forgotten`.
        """
        request = replace(request, options={**self._options, **request.options})
        try:
            async with aclosing(self._turn(request)) as deltas:
                async for delta in deltas:
                    yield delta
        except ProviderError as error:
            if error.code == "forgotten" or request.earlier is None or not _forgot(error, request.earlier):
                raise
            raise ProviderError(str(error), status=error.status, code="forgotten") from error

    async def aclose(self) -> None:
        """Closes the connections; no turn can be asked for afterwards."""
        await self._api.aclose()

    async def _turn(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        body = OPENAI_RESPONSES.encode_request(request, model=self._model, stream=True)
        async with self._api.post("responses", body) as reply:
            if reply.content_type == "application/json":
                for delta in OPENAI_RESPONSES.decode_response(await reply.json(), model=self._model):
                    yield delta
            elif reply.content_type == "text/event-stream":
                async with aclosing(self._streamed(reply)) as deltas:
                    async for delta in deltas:
                        yield delta
            else:
                raise ProviderError(
                    f"{self._api.address} answered with {reply.content_type or 'an unnamed type'!r} instead of an "
                    "event stream or JSON. Check the base URL: it mostly ends in /v1.",
                    code="ill_formed",
                )

    async def _streamed(self, reply: Reply) -> AsyncGenerator[Delta]:
        decoder = OPENAI_RESPONSES.decoder(model=self._model)
        async with aclosing(reply.events(last=_DONE)) as events:
            async for event in events:
                for delta in decoder.feed(decode_json(event, "an event")):
                    if isinstance(delta, TextDelta | ReasoningDelta | ArgumentsDelta):
                        reply.received += len(delta.text)
                    yield delta
                if decoder.finished:
                    # The turn is whole. Only a response that was read to its end leaves a connection for the next.
                    with contextlib.suppress(TimeoutError, httpx2.HTTPError):
                        async with asyncio.timeout(DRAIN_SECONDS):
                            async for _ in events:
                                pass
                    break
        if not decoder.finished:
            raise self._api.dropped(reply)
        for delta in decoder.close():
            yield delta


def _forgot(error: ProviderError, earlier: Earlier) -> bool:
    """Whether a refusal is about the turn that the server was to keep: servers have no common code for it, and vLLM
    only says "Response with id '…' not found."."""
    told = str(error)
    return error.status in (None, 400, 404) and (earlier.response_id in told or _FORGOTTEN.search(told) is not None)
