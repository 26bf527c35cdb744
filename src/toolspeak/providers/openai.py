"""OpenAI and every server that speaks its Chat Completions API (llama.cpp, vLLM, Ollama, LM Studio, …)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from toolspeak.providers.api import ApiProvider, Counting, Endpoint, address_and_key, bearer
from toolspeak.providers.capabilities import Capabilities
from toolspeak.providers.families import capabilities_of
from toolspeak.providers.http_client import ConnectionOptions
from toolspeak.wire.openai_chat import OPENAI_CHAT, OpenAIChatFormat

OPENAI_URL = "https://api.openai.com/v1"

LOCAL_SERVERS: Mapping[str, str] = {
    "Ollama": "http://127.0.0.1:11434/v1",
    "LM Studio": "http://127.0.0.1:1234/v1",
    "llama.cpp": "http://127.0.0.1:8080/v1",
    "vLLM": "http://127.0.0.1:8000/v1",
}
"""Where local servers listen unless told otherwise."""

_LOCAL = "".join(f"\n  {name:10} OPENAI_BASE_URL={url}" for name, url in LOCAL_SERVERS.items())


class OpenAIProvider(ApiProvider):
    """A model behind `{base_url}/chat/completions`; a `Provider`.

    Without `base_url` it is OpenAI's own. Without `api_key` none is sent. `options` go into every request
    (`temperature`, …); a request's own come before them. `name` stands before the model in the provider's name.
    `capabilities` are OpenAI's own at its address and, at any other, none until somebody says so (`is_unknown`: an
    agent asks the server whether it takes tools); `chat` is the format with what a service wants otherwise.
    `connection` is `timeout`, `retries`, `ca_file` and `clock` (`ConnectionOptions`). Makes no connection before the
    first turn.

    Raises UnknownProvider if there is neither base URL nor key, ConfigurationError for a setting that cannot be.
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
        chat: OpenAIChatFormat = OPENAI_CHAT,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        base_url, key = address_and_key(
            model,
            base_url,
            api_key,
            keys="OPENAI_API_KEY",
            address="OPENAI_BASE_URL",
            speaks="OpenAI's API",
            more=_LOCAL,
        )
        endpoint = Endpoint(
            base_url or OPENAI_URL,
            "chat/completions",
            chat,
            bearer(key),
            key,
            "Check the base URL: it mostly ends in /v1.",
            done=True,
            counting=Counting("chat/completions/input_tokens"),  # llama.cpp's
        )
        self.is_unknown = capabilities is None and bool(base_url)
        known = capabilities or (Capabilities() if base_url else capabilities_of("openai", model))
        super().__init__(name, model, endpoint, options=options, capabilities=known, **connection)

    @classmethod
    def from_env(cls, model: str, environ: Mapping[str, str], **settings: Any) -> OpenAIProvider:
        """With OPENAI_API_KEY and OPENAI_BASE_URL of `environ`; an empty one counts as not set."""
        return cls(model, base_url=environ.get("OPENAI_BASE_URL"), api_key=environ.get("OPENAI_API_KEY"), **settings)
