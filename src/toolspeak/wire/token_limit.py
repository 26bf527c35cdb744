"""The most tokens that a request allows a model's turn, whatever the API calls it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from toolspeak.data.messages import JSON

_NAMES = (
    "max_completion_tokens",  # OpenAI; it goes before the older name where both are given
    "max_tokens",  # Anthropic, Mistral and every server that speaks OpenAI's Chat Completions
    "max_output_tokens",  # OpenAI Responses
    "maxOutputTokens",  # Gemini
    "num_predict",  # Ollama
    "n_predict",  # llama.cpp's server
)

_PLACES = ("generationConfig", "options")
"""Fields in which Gemini and Ollama take it."""


def token_limit(asked: Mapping[str, JSON]) -> int | None:
    """The limit that a request's body, or its options, ask for; None if they ask for none (so do 0 and less)."""
    for fields in (asked, *(asked.get(place) for place in _PLACES)):
        if not isinstance(fields, Mapping):
            continue
        known = cast("Mapping[str, JSON]", fields)
        for name in _NAMES:
            limit = known.get(name)
            if type(limit) is int and limit > 0:
                return limit
    return None
