"""OpenAI, and servers with its Responses API (vLLM, LM Studio, llama.cpp, Ollama, …)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Unpack

from toolspeak.errors import ProviderError
from toolspeak.providers.api import ApiProvider, Counting, Endpoint
from toolspeak.providers.capabilities import Capabilities
from toolspeak.providers.credentials import address_and_key, bearer
from toolspeak.providers.families import capabilities_of
from toolspeak.providers.http_settings import ConnectionOptions
from toolspeak.providers.openai import OPENAI_URL
from toolspeak.wire.base import Decoder, Earlier, ModelRequest
from toolspeak.wire.openai_responses import OPENAI_RESPONSES

_REASONING = re.compile(r"(?:^|/)(?:o\d|gpt-oss|codex|gpt-(?:[5-9]|\d\d)(?!.*-chat))", re.IGNORECASE)
"""The names of OpenAI's reasoning models: only these accept `include` of encrypted reasoning; the others answer 400."""

_UNKNOWN_RESPONSE = re.compile(r"previous[ _]response", re.IGNORECASE)
"""`previous_response_not_found`: "Previous response with id '…' not found.", "Invalid `previous_response_id`." and the
answer to an organisation without data retention."""

_COUNT_FIELDS = frozenset(
    ("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text", "truncation")
)
"""The fields that `input_tokens` accepts (API reference, "Get input token counts")."""


class OpenAIResponsesProvider(ApiProvider):
    """A model at `{base_url}/responses`, by default OpenAI's. Parameters: see `ApiProvider`.

    A request to a reasoning model of OpenAI's asks for encrypted reasoning: it can go back to the model without being
    stored at OpenAI. If the server does not keep a request's `earlier` turn, the error's code is `forgotten`.

    Raises UnknownProvider without base URL and key, ConfigurationError for an invalid setting.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        options: Mapping[str, object] | None = None,
        capabilities: Capabilities | None = None,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        base_url, key = address_and_key(
            model, base_url, api_key, keys="OPENAI_API_KEY", address="OPENAI_BASE_URL", api="OpenAI's Responses API"
        )
        include = {"include": ["reasoning.encrypted_content"]} if _REASONING.search(model) else {}
        endpoint = Endpoint(
            base_url or OPENAI_URL,
            "responses",
            OPENAI_RESPONSES,
            bearer(key),
            key,
            "Check the base URL: it usually ends in /v1.",
            counting=Counting("responses/input_tokens", _COUNT_FIELDS),
        )
        super().__init__(
            "openai-responses",
            model,
            endpoint,
            options={**include, **(options or {})},
            capabilities=capabilities or capabilities_of("openai-responses", model, own_server=bool(base_url)),
            **connection,
        )

    @classmethod
    def from_env(cls, model: str, environ: Mapping[str, str], **settings: Any) -> OpenAIResponsesProvider:
        """Reads OPENAI_API_KEY and OPENAI_BASE_URL from `environ`; an empty variable counts as unset."""
        return cls(model, base_url=environ.get("OPENAI_BASE_URL"), api_key=environ.get("OPENAI_API_KEY"), **settings)

    def _at_last_event(self, decoder: Decoder) -> bool:
        return decoder.finished

    def _refine_error(self, error: ProviderError, request: ModelRequest) -> ProviderError:
        if error.code == "forgotten" or request.earlier is None or not _forgot(error, request.earlier):
            return error
        return error.with_message(str(error), "forgotten")


def _forgot(error: ProviderError, earlier: Earlier) -> bool:
    """Whether the server refused because it lacks the earlier turn. Servers have no common code for that, and vLLM's
    whole message is "Response with id '…' not found."."""
    text = str(error)
    return error.status in (None, 400, 404) and (
        earlier.response_id in text or _UNKNOWN_RESPONSE.search(text) is not None
    )
