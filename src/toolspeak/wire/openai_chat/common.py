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
    """What a part brought with it: from this format, and from `model` if it is given."""
    if opaque is None or opaque.provider != NAME or model not in (None, opaque.model):
        return {}
    found: JSON = opaque.data
    return cast("Mapping[str, JSON]", found) if isinstance(found, Mapping) else {}
