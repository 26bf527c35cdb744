"""Anthropic, and servers with its Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from toolspeak.providers.api import ApiProvider, Counting, Endpoint
from toolspeak.providers.capabilities import Capabilities
from toolspeak.providers.credentials import address_and_key
from toolspeak.providers.families import capabilities_of
from toolspeak.providers.http_settings import ConnectionOptions
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.anthropic.response_reader import AnthropicDecoder
from toolspeak.wire.base import Decoder

ANTHROPIC_URL = "https://api.anthropic.com"

API_VERSION = "2026-10-21"
"""The header `anthropic-version`: the newest (Anthropic, "Versions"; its Python SDK 2.12 sends it). It refuses
`temperature`, `top_p` and `top_k`, which the version before, 2023-06-01, accepts."""

_COUNT_FIELDS = frozenset(
    ("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control", "speed")
)
"""The fields that `count_tokens` accepts (API reference, "Count tokens in a Message")."""


class AnthropicProvider(ApiProvider):
    """A model at `{base_url}/v1/messages`, by default Anthropic's. Other parameters: see `ApiProvider`.

    `base_url`: with or without /v1 at its end.
    `version`: the API's version, sent as a header.

    Raises UnknownProvider without base URL and key, ConfigurationError for an invalid setting.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        options: Mapping[str, object] | None = None,
        version: str = API_VERSION,
        capabilities: Capabilities | None = None,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        base_url, key = address_and_key(
            model, base_url, api_key, keys="ANTHROPIC_API_KEY", address="ANTHROPIC_BASE_URL", api="Anthropic's API"
        )
        headers = {"anthropic-version": version, **({"x-api-key": key} if key else {})}
        endpoint = Endpoint(
            base_url or ANTHROPIC_URL,
            "messages" if _ends_in_version(base_url) else "v1/messages",
            ANTHROPIC,
            headers,
            key,
            "Check the base URL: /v1/messages is appended to it.",
            counting=Counting(
                "messages/count_tokens" if _ends_in_version(base_url) else "v1/messages/count_tokens", _COUNT_FIELDS
            ),
            listing="models" if _ends_in_version(base_url) else "v1/models",
        )
        model_capabilities = capabilities or capabilities_of("anthropic", model, own_server=bool(base_url))
        super().__init__("anthropic", model, endpoint, options=options, capabilities=model_capabilities, **connection)

    @classmethod
    def from_env(cls, model: str, environ: Mapping[str, str], **settings: Any) -> AnthropicProvider:
        """Reads ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL from `environ`; an empty variable counts as unset."""
        url, key = environ.get("ANTHROPIC_BASE_URL"), environ.get("ANTHROPIC_API_KEY")
        return cls(model, base_url=url, api_key=key, **settings)

    def _at_last_event(self, decoder: Decoder) -> bool:
        return isinstance(decoder, AnthropicDecoder) and decoder.stopped


def _ends_in_version(base_url: str) -> bool:
    return base_url.partition("?")[0].partition("#")[0].rstrip("/").endswith("/v1")
