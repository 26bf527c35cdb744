"""Finds the token limit of a model's turn in a request, under each API's name for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from toolspeak.data.messages import JSON

_NAMES = (
    "max_completion_tokens",  # OpenAI; takes precedence over the older name
    "max_tokens",  # Anthropic, Mistral and every server with OpenAI's Chat Completions
    "max_output_tokens",  # OpenAI Responses
    "maxOutputTokens",  # Gemini
    "num_predict",  # Ollama
    "n_predict",  # llama.cpp's server
)

_PLACES = ("generationConfig", "options")
"""The fields that hold it in Gemini's and Ollama's requests."""


def token_limit(options: Mapping[str, JSON]) -> int | None:
    """The limit in a request's body or options; None without a limit above 0."""
    for fields in (options, *(options.get(place) for place in _PLACES)):
        if isinstance(fields, Mapping):
            for name in _NAMES:
                limit = cast("Mapping[str, JSON]", fields).get(name)
                if type(limit) is int and limit > 0:
                    return limit
    return None
