"""What both roles of OpenAI Chat Completions share. Sans-IO."""

from __future__ import annotations

NAME = "openai-chat"

REASONING_FIELDS = ("reasoning_content", "reasoning")
