"""Services and servers with OpenAI's Chat Completions API: their addresses, and how they deviate from OpenAI's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

from toolspeak.data.messages import JSON, no_extra
from toolspeak.data.values import quick
from toolspeak.errors import UnknownProvider
from toolspeak.providers.families import capabilities_of
from toolspeak.providers.openai import OpenAIProvider
from toolspeak.wire.base import WireFormat
from toolspeak.wire.openai_chat import OPENAI_CHAT, openai_chat


@quick()
class Compatible:
    """A service or server with OpenAI's Chat Completions API; `NAME:MODEL` is a model there."""

    name: str
    base_url: str
    key_variable: str
    """The environment variable of its key."""
    source: str
    """The address of its documentation."""
    needs_key: bool = False
    """Whether it refuses requests without a key."""
    chat: WireFormat = OPENAI_CHAT
    options: Mapping[str, JSON] = field(default_factory=no_extra)
    """Fields of every request's body."""

    @property
    def url_variable(self) -> str:
        """The environment variable that replaces `base_url`."""
        return f"{self.name.upper()}_BASE_URL"

    def provider(self, model: str, environ: Mapping[str, str], **settings: Any) -> OpenAIProvider:
        """A provider for a model there, with the key and the address in `environ`. `settings` replace the service's
        own, except that `options` are merged. Raises UnknownProvider if a key is missing."""
        key = environ.get(self.key_variable, "").strip()
        if self.needs_key and not key:
            raise UnknownProvider(
                f"'{self.name}:{model}' needs a key: {self.key_variable} is not set. For a model of that name on a "
                f"server of your own set OPENAI_BASE_URL and write 'openai:{self.name}:{model}'."
            )
        own: dict[str, Any] = {"capabilities": capabilities_of(self.name, model), **settings}
        own["options"] = {**self.options, **(own.get("options") or {})}
        return OpenAIProvider(
            model,
            base_url=environ.get(self.url_variable, "").strip() or self.base_url,
            api_key=key,
            name=self.name,
            chat=self.chat,
            **own,
        )


OPENROUTER = Compatible(
    "openrouter",
    "https://openrouter.ai/api/v1",
    "OPENROUTER_API_KEY",
    "https://openrouter.ai/docs/quickstart",
    needs_key=True,
)
GROQ = Compatible(
    "groq",
    "https://api.groq.com/openai/v1",
    "GROQ_API_KEY",
    "https://console.groq.com/docs/openai",
    needs_key=True,
)
MISTRAL = Compatible(
    "mistral",
    "https://api.mistral.ai/v1",
    "MISTRAL_API_KEY",
    "https://docs.mistral.ai/api",
    needs_key=True,
    chat=openai_chat(short_ids=True),
    # Mistral refuses unknown fields, and always sends the usage.
    options=MappingProxyType({"stream_options": None}),
)
DEEPSEEK = Compatible(
    "deepseek",
    "https://api.deepseek.com",
    "DEEPSEEK_API_KEY",
    "https://api-docs.deepseek.com",
    needs_key=True,
    chat=openai_chat(keep_reasoning=True),
)
TOGETHER = Compatible(
    "together",
    "https://api.together.xyz/v1",
    "TOGETHER_API_KEY",
    "https://docs.together.ai/docs/openai-api-compatibility",
    needs_key=True,
)
VLLM = Compatible(
    "vllm",
    "http://127.0.0.1:8000/v1",
    "VLLM_API_KEY",
    "https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",
)
SGLANG = Compatible(
    "sglang",
    "http://127.0.0.1:30000/v1",
    "SGLANG_API_KEY",
    "https://docs.sglang.ai/basic_usage/openai_api.html",
)
LLAMACPP = Compatible(
    "llamacpp",
    "http://127.0.0.1:8080/v1",
    "LLAMA_API_KEY",
    "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
)
LMSTUDIO = Compatible(
    "lmstudio",
    "http://127.0.0.1:1234/v1",
    "LM_API_TOKEN",
    "https://lmstudio.ai/docs/developer/openai-compat",
)

COMPATIBLE: Mapping[str, Compatible] = {
    each.name: each for each in (OPENROUTER, GROQ, MISTRAL, DEEPSEEK, TOGETHER, VLLM, SGLANG, LLAMACPP, LMSTUDIO)
}
"""All of them by name. Each has its own line in `providers.PROVIDERS`."""
