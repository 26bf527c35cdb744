"""OpenAI and servers that speak its Responses API (vLLM, LM Studio, llama.cpp, Ollama, …)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Unpack

from toolspeak.errors import ProviderError
from toolspeak.providers.api import ApiProvider, Counting, Endpoint, address_and_key, bearer
from toolspeak.providers.capabilities import Capabilities
from toolspeak.providers.families import capabilities_of
from toolspeak.providers.http_client import ConnectionOptions
from toolspeak.providers.openai import OPENAI_URL
from toolspeak.wire.base import Decoder, Earlier, ModelRequest
from toolspeak.wire.openai_responses import OPENAI_RESPONSES

_REASONING = re.compile(r"(?:^|/)(?:o\d|gpt-oss|codex|gpt-(?:[5-9]|\d\d)(?!.*-chat))", re.IGNORECASE)
"""OpenAI's models that reason, by name: only they take `include` of encrypted reasoning, the others answer 400."""

_FORGOTTEN = re.compile(r"previous[ _]response", re.IGNORECASE)
"""`previous_response_not_found`: "Previous response with id '…' not found.", "Invalid `previous_response_id`." and what
an organisation without data retention is told."""

_COUNTED = frozenset(
    ("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text", "truncation")
)
"""What `input_tokens` takes of a request (API reference, "Get input token counts")."""


class OpenAIResponsesProvider(ApiProvider):
    """A model behind `{base_url}/responses`; a `Provider`.

    Without `base_url` it is OpenAI's own. Without `api_key` none is sent. `options` go into every request
    (`reasoning`, …); a request's own come before them. Models of OpenAI that reason are asked for their reasoning in
    encrypted form, so that it can go back to them without being stored. `capabilities` in place of what is known of the
    model; `connection` is `timeout`, `retries`, `ca_file` and `clock` (`ConnectionOptions`). Makes no connection before
    the first turn.

    Where the server does not keep the turn that a request names as `earlier`, the error's code is `forgotten`.

    Raises UnknownProvider if there is neither base URL nor key, ConfigurationError for a setting that cannot be.
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
            model, base_url, api_key, keys="OPENAI_API_KEY", address="OPENAI_BASE_URL", speaks="OpenAI's Responses API"
        )
        include = {"include": ["reasoning.encrypted_content"]} if _REASONING.search(model) else {}
        endpoint = Endpoint(
            base_url or OPENAI_URL,
            "responses",
            OPENAI_RESPONSES,
            bearer(key),
            key,
            "Check the base URL: it mostly ends in /v1.",
            counting=Counting("responses/input_tokens", _COUNTED),
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
        """With OPENAI_API_KEY and OPENAI_BASE_URL of `environ`; an empty one counts as not set."""
        return cls(model, base_url=environ.get("OPENAI_BASE_URL"), api_key=environ.get("OPENAI_API_KEY"), **settings)

    def _over(self, decoder: Decoder) -> bool:
        return decoder.finished

    def _explained(self, error: ProviderError, request: ModelRequest) -> ProviderError:
        if error.code == "forgotten" or request.earlier is None or not _forgot(error, request.earlier):
            return error
        return error.with_message(str(error), "forgotten")


def _forgot(error: ProviderError, earlier: Earlier) -> bool:
    """Whether a refusal is about the turn that the server was to keep: servers have no common code for it, and vLLM
    only says "Response with id '…' not found."."""
    text = str(error)
    return error.status in (None, 400, 404) and (earlier.response_id in text or _FORGOTTEN.search(text) is not None)
