"""Which provider a model string names; its module is imported when it is asked for."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from toolspeak.errors import UnknownProvider, suggest
from toolspeak.providers.base import Provider

PROVIDERS: Mapping[str, str] = {
    "anthropic": "toolspeak.providers.anthropic:AnthropicProvider.from_env",
    "gemini": "toolspeak.providers.gemini:GeminiProvider.from_env",
    "ollama": "toolspeak.providers.ollama:OllamaProvider.from_env",
    "openai": "toolspeak.providers.openai:OpenAIProvider.from_env",
    "openai-responses": "toolspeak.providers.openai_responses:OpenAIResponsesProvider.from_env",
    "scripted": "toolspeak.providers.scripted:ScriptedProvider.from_env",
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
"""Provider name to the `module:attribute` that makes one from (model, environ)."""

DEFAULT = "openai"

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
"""What other libraries call a provider, where it does not resemble its name here."""

_ELSEWHERE = frozenset(
    ("azure", "bedrock", "cerebras", "cohere", "fireworks", "github", "huggingface", "moonshot", "nvidia", "perplexity",
     "vertex", "xai")
)  # fmt: skip
"""Services without a provider of their own; none is the name of a model."""


def get_provider(model: str, environ: Mapping[str, str], **settings: Any) -> Provider:
    """The provider of a model string: `openai:gpt-4o`, `groq:llama-3.3-70b`, `scripted:playbook.json`, or a bare model
    name.

    A bare name goes to the provider `openai`, and so does a name with a colon whose first half is no provider
    (`qwen3:8b`, as Ollama names models). `settings` are what the provider takes besides (`options`, `capabilities`,
    `timeout`, …), in place of its own. Raises UnknownProvider if the first half is clearly meant as a provider
    that does not exist, or if `environ` lacks what the provider needs.
    """
    prefix, colon, rest = model.partition(":")
    if not colon or prefix not in PROVIDERS:
        if not model.strip():
            raise UnknownProvider("no model was named; write for instance 'openai:gpt-4o' or 'qwen3:8b'")
        if colon:
            _refuse_other_providers(prefix)
        prefix, rest = DEFAULT, model
    if not rest.strip():
        raise UnknownProvider(
            f"{model!r} names no model: write {prefix}:<{'file' if prefix == 'scripted' else 'model'}>"
        )
    return _factory(PROVIDERS[prefix])(rest, environ, **settings)


def _refuse_other_providers(prefix: str) -> None:
    name = prefix.lower()
    if name in ("http", "https"):
        raise UnknownProvider("an address is not a model: set OPENAI_BASE_URL to it and name the model")
    if name in _OTHER_NAMES:
        raise UnknownProvider(
            f"unknown provider {prefix!r}. Here it is {_OTHER_NAMES[name]!r}: write that in its place."
        )
    if name in _ELSEWHERE:
        raise UnknownProvider(
            f"unknown provider {prefix!r}. Where {prefix} speaks OpenAI's API, set OPENAI_BASE_URL to its "
            f"address and OPENAI_API_KEY to your key there, and write 'openai:MODEL'. "
            f"Known: {', '.join(sorted(PROVIDERS))}."
        )
    # 0.85: catches 'opnai' and 'OpenAI', and leaves alone 'openchat', 'llama3' and 'codellama', which are models; so is
    # 'deepseek-r1'.
    close = [known for known in PROVIDERS if name == known or not name.startswith(known)]
    if difflib.get_close_matches(name, close, n=1, cutoff=0.85):
        raise UnknownProvider(f"unknown provider {suggest(prefix, PROVIDERS)}")


def _factory(place: str) -> Callable[..., Provider]:
    module, _, attribute = place.partition(":")
    return attrgetter(attribute)(importlib.import_module(module))
