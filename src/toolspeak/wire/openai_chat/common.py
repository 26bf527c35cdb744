"""What both roles of OpenAI Chat Completions share. Sans-IO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from toolspeak.data.messages import (
    JSON,
    Opaque,
)

NAME = "openai-chat"

REASONING_FIELDS = ("reasoning_content", "reasoning")


def opaque_fields(opaque: Opaque | None, model: str | None = None) -> Mapping[str, JSON]:
    """The opaque data of a part, if they are of this format, and of `model` unless it is None."""
    if opaque is None or opaque.provider != NAME or model not in (None, opaque.model):
        return {}
    data: JSON = opaque.data
    return cast("Mapping[str, JSON]", data) if isinstance(data, Mapping) else {}
