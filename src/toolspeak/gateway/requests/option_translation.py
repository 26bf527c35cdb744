"""What a request asks besides messages and tools (`temperature`, `max_tokens`, …), from one API's words to another's.

Sources: the API references of each, as in `wire/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from toolspeak.data.messages import JSON

_WORDS: Mapping[str, Mapping[str, str]] = {
    "openai-chat": {
        "max_tokens": "max_tokens",
        "max_completion_tokens": "max_tokens",
        "temperature": "temperature",
        "top_p": "top_p",
        "top_k": "top_k",
        "stop": "stop",
        "seed": "seed",
        "presence_penalty": "presence_penalty",
        "frequency_penalty": "frequency_penalty",
    },
    "openai-responses": {"max_output_tokens": "max_tokens", "temperature": "temperature", "top_p": "top_p"},
    "anthropic": {
        "max_tokens": "max_tokens",
        "temperature": "temperature",
        "top_p": "top_p",
        "top_k": "top_k",
        "stop_sequences": "stop",
    },
    "gemini": {
        "maxOutputTokens": "max_tokens",
        "temperature": "temperature",
        "topP": "top_p",
        "topK": "top_k",
        "stopSequences": "stop",
        "seed": "seed",
        "presencePenalty": "presence_penalty",
        "frequencyPenalty": "frequency_penalty",
    },
    "ollama": {
        "num_predict": "max_tokens",
        "temperature": "temperature",
        "top_p": "top_p",
        "top_k": "top_k",
        "stop": "stop",
        "seed": "seed",
        "presence_penalty": "presence_penalty",
        "frequency_penalty": "frequency_penalty",
    },
}
"""Each API's fields, by the word they have in common."""

_REFUSED = {"anthropic": ("temperature", "top_p", "top_k")}
"""What an API answers 400 to (docs/models.md): left out when it comes from another API's request."""


def translated(options: Mapping[str, JSON], asked: str, upstream: str) -> Mapping[str, JSON]:
    """The options of a request in the format `asked`, for one in the format `upstream`.

    Within a format everything passes. Between two, what both have passes, and the rest is left out: a field that an API
    does not know is an error there.
    """
    if asked == upstream:
        return options
    words: dict[str, str] = {}
    for field, word in _WORDS[upstream].items():
        words.setdefault(word, field)
    out: dict[str, JSON] = {}
    for field, value in options.items():
        word = _WORDS[asked].get(field)
        if word is None or word not in words or word in _REFUSED.get(upstream, ()):
            continue
        out[words[word]] = [value] if word == "stop" and isinstance(value, str) else value
    effort = _effort(options, asked)
    if effort is not None and upstream == "openai-chat":
        out["reasoning_effort"] = effort
    elif effort is not None and upstream == "openai-responses":
        out["reasoning"] = {"effort": effort}
    return out


def _effort(options: Mapping[str, JSON], asked: str) -> JSON:
    if asked == "openai-chat":
        return options.get("reasoning_effort")
    told = options.get("reasoning") if asked == "openai-responses" else None
    return cast("Mapping[str, JSON]", told).get("effort") if isinstance(told, Mapping) else None
