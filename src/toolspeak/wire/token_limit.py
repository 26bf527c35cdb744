"""The most tokens a request allows for a model's turn, under each API's name for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from toolspeak.data.messages import JSON

_NAMES = (
    "max_completion_tokens",  # OpenAI; it wins over the older name where both are set
    "max_tokens",  # Anthropic, Mistral and every server that speaks OpenAI's Chat Completions
    "max_output_tokens",  # OpenAI Responses
    "maxOutputTokens",  # Gemini
    "num_predict",  # Ollama
    "n_predict",  # llama.cpp's server
)

_PLACES = ("generationConfig", "options")
"""Fields in which Gemini and Ollama expect it."""


def token_limit(options: Mapping[str, JSON]) -> int | None:
    """The limit in a request's body or options; None if there is none, or one of 0 or less."""
    for fields in (options, *(options.get(place) for place in _PLACES)):
        if isinstance(fields, Mapping):
            for name in _NAMES:
                limit = cast("Mapping[str, JSON]", fields).get(name)
                if type(limit) is int and limit > 0:
                    return limit
    return None
