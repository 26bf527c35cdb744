"""OpenAI, and servers with its Chat Completions API (llama.cpp, vLLM, Ollama, LM Studio, …)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from toolspeak.providers.api import ApiProvider, Counting, Endpoint
from toolspeak.providers.capabilities import Capabilities
from toolspeak.providers.credentials import address_and_key, bearer
from toolspeak.providers.families import capabilities_of
from toolspeak.providers.http_settings import ConnectionOptions
from toolspeak.wire.base import WireFormat
from toolspeak.wire.openai_chat import OPENAI_CHAT

OPENAI_URL = "https://api.openai.com/v1"

LOCAL_SERVERS: Mapping[str, str] = {
    "Ollama": "http://127.0.0.1:11434/v1",
    "LM Studio": "http://127.0.0.1:1234/v1",
    "llama.cpp": "http://127.0.0.1:8080/v1",
    "vLLM": "http://127.0.0.1:8000/v1",
}
"""The default addresses of local servers."""

_LOCAL = "".join(f"\n  {name:10} OPENAI_BASE_URL={url}" for name, url in LOCAL_SERVERS.items())


class OpenAIProvider(ApiProvider):
    """A model at `{base_url}/chat/completions`, by default OpenAI's. Other parameters: see `ApiProvider`.

    `name`: the part before the model in the provider's name.
    `capabilities`: by default OpenAI's at its own address, and nothing at any other. There `is_unknown` is True, and
    an agent tests whether the server accepts tools.
    `chat`: the format, with a service's deviations from OpenAI's (`openai_chat`).

    Raises UnknownProvider without base URL and key, ConfigurationError for an invalid setting.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        options: Mapping[str, object] | None = None,
        name: str = "openai",
        capabilities: Capabilities | None = None,
        chat: WireFormat = OPENAI_CHAT,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        base_url, key = address_and_key(
            model,
            base_url,
            api_key,
            keys="OPENAI_API_KEY",
            address="OPENAI_BASE_URL",
            api="OpenAI's API",
            more=_LOCAL,
        )
        endpoint = Endpoint(
            base_url or OPENAI_URL,
            "chat/completions",
            chat,
            bearer(key),
            key,
            "Check the base URL: it usually ends in /v1.",
            done=True,
            counting=Counting("chat/completions/input_tokens"),  # llama.cpp's
        )
        self.is_unknown = capabilities is None and bool(base_url)
        model_capabilities = capabilities or (Capabilities() if base_url else capabilities_of("openai", model))
        super().__init__(name, model, endpoint, options=options, capabilities=model_capabilities, **connection)

    @classmethod
    def from_env(cls, model: str, environ: Mapping[str, str], **settings: Any) -> OpenAIProvider:
        """Reads OPENAI_API_KEY and OPENAI_BASE_URL from `environ`; an empty variable counts as unset."""
        return cls(model, base_url=environ.get("OPENAI_BASE_URL"), api_key=environ.get("OPENAI_API_KEY"), **settings)
