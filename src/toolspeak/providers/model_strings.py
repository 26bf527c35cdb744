"""Which provider a model string names. The provider's module is imported at its first use."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Protocol

from toolspeak.errors import UnknownProvider, suggest
from toolspeak.providers.base import Provider

PROVIDERS: Mapping[str, str] = {
    "anthropic": "toolspeak.providers.anthropic:AnthropicProvider.from_env",
    "gemini": "toolspeak.providers.gemini:GeminiProvider.from_env",
    "ollama": "toolspeak.providers.ollama:OllamaProvider.from_env",
    "openai": "toolspeak.providers.openai:OpenAIProvider.from_env",
    "openai-responses": "toolspeak.providers.openai_responses:OpenAIResponsesProvider.from_env",
    "scripted": "toolspeak.providers.scripted_provider:ScriptedProvider.from_env",
    "openrouter": "toolspeak.providers.compatible:OPENROUTER.provider",
    "groq": "toolspeak.providers.compatible:GROQ.provider",
    "mistral": "toolspeak.providers.compatible:MISTRAL.provider",
    "deepseek": "toolspeak.providers.compatible:DEEPSEEK.provider",
    "together": "toolspeak.providers.compatible:TOGETHER.provider",
    "vllm": "toolspeak.providers.compatible:VLLM.provider",
    "sglang": "toolspeak.providers.compatible:SGLANG.provider",
    "llamacpp": "toolspeak.providers.compatible:LLAMACPP.provider",
    "lmstudio": "toolspeak.providers.compatible:LMSTUDIO.provider",
}
"""The factory of each provider, as `module:attribute`. A factory takes (model, environ)."""

DEFAULT = "openai"


class NamedProvider(Protocol):
    """Makes the providers of a name: see `ConfiguredProvider`."""

    def provider(self, name: str, model: str, environ: Mapping[str, str], **settings: Any) -> Provider: ...


CONFIGURED_PROVIDERS: ContextVar[Mapping[str, NamedProvider]] = ContextVar(
    "toolspeak_configured_providers", default=MappingProxyType({})
)
"""The providers of the user's configuration by name, which come before those of `PROVIDERS`. A context has its own:
one process may serve several projects."""

_OTHER_NAMES: Mapping[str, str] = {
    "claude": "anthropic",
    "google": "gemini",
    "google-gla": "gemini",
    "google_genai": "gemini",
    "openai-chat": "openai",
    "mistralai": "mistral",
    "together_ai": "together",
    "hosted_vllm": "vllm",
}
"""Other libraries' names for a provider that do not resemble its name here."""

_OTHER_SERVICES = frozenset(
    ("azure", "bedrock", "cerebras", "cohere", "fireworks", "github", "huggingface", "moonshot", "nvidia", "perplexity",
     "vertex", "xai")
)  # fmt: skip
"""Services without their own provider. No model has one of these names."""


def get_provider(model: str, environ: Mapping[str, str], **settings: Any) -> Provider:
    """The provider for a model string: `openai:gpt-4o`, `groq:llama-3.3-70b`, `scripted:playbook.json`, or a bare
    model name.

    A bare name is a model of the provider `openai`. So is a name with a colon if its first half is not a provider
    (`qwen3:8b`, as Ollama names models). The providers of `CONFIGURED_PROVIDERS` come first.

    `settings` are the provider's other parameters (`options`, `capabilities`, `timeout`, …). Raises UnknownProvider if
    the first half clearly means a provider that does not exist, or if `environ` lacks a variable that the provider
    needs.
    """
    prefix, colon, rest = model.partition(":")
    named_provider = CONFIGURED_PROVIDERS.get().get(prefix) if colon else None
    if named_provider is not None and rest.strip():
        return named_provider.provider(prefix, rest, environ, **settings)
    if not colon or (named_provider is None and prefix not in PROVIDERS):
        if not model.strip():
            raise UnknownProvider("the model's name is empty; write for instance 'openai:gpt-4o' or 'qwen3:8b'")
        if colon:
            _refuse_other_providers(prefix)
        prefix, rest = DEFAULT, model
    if not rest.strip():
        raise UnknownProvider(
            f"{model!r} names no model: write {prefix}:<{'file' if prefix == 'scripted' else 'model'}>"
        )
    return provider_of_api(prefix, rest, environ, **settings)


def provider_of_api(api: str, model: str, environ: Mapping[str, str], **settings: Any) -> Provider:
    """The provider of a model over this API, a key of `PROVIDERS`. Raises as `get_provider`."""
    return _factory(PROVIDERS[api])(model, environ, **settings)


def _refuse_other_providers(prefix: str) -> None:
    name = prefix.lower()
    if name in ("http", "https"):
        raise UnknownProvider("an address is not a model: set OPENAI_BASE_URL to the address, and name the model")
    if name in _OTHER_NAMES:
        raise UnknownProvider(f"unknown provider {prefix!r}. Here it is {_OTHER_NAMES[name]!r}: write that instead.")
    if name in _OTHER_SERVICES:
        raise UnknownProvider(
            f"unknown provider {prefix!r}. If {prefix} has an OpenAI-compatible API, set OPENAI_BASE_URL to its "
            f"address and OPENAI_API_KEY to your key there, and write 'openai:MODEL'. "
            f"Known: {', '.join(sorted(PROVIDERS))}."
        )
    # 0.85 catches 'opnai' and 'OpenAI', and not the models 'openchat', 'llama3' and 'codellama'. 'deepseek-r1' is a
    # model too.
    names = {**PROVIDERS, **CONFIGURED_PROVIDERS.get()}
    close = [known_name for known_name in names if name == known_name or not name.startswith(known_name)]
    if difflib.get_close_matches(name, close, n=1, cutoff=0.85):
        raise UnknownProvider(f"unknown provider {suggest(prefix, names)}")


def _factory(place: str) -> Callable[..., Provider]:
    module, _, attribute = place.partition(":")
    return attrgetter(attribute)(importlib.import_module(module))
