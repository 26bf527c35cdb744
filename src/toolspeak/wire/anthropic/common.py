"""What both roles of Anthropic's Messages API share. Sans-IO."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Mapping

from toolspeak.data.messages import JSON, FinishReason

NAME = "anthropic"
"""The format's name, and the `provider` of its opaque data."""

ContentBlock = dict[str, JSON]

PDF, PLAIN_TEXT = "application/pdf", "text/plain"

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_ID_CHARACTERS = 40  # the most characters of an original id in a changed one; the API's own ids have about 30
INVALID_IN_NAME = re.compile(r"[^a-zA-Z0-9_-]")
"""Characters that ids and tool names cannot have."""

STOP_REASONS: Mapping[str, FinishReason] = {
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "pause_turn": "pause",
    "refusal": "refusal",
    "stop_sequence": "stop",
    "model_context_window_exceeded": "length",
}
"""The finish reason for each `stop_reason`; any other is `error`. Answers use the first `stop_reason` of a finish
reason."""

ERROR_TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""The `type` in an error's body, by HTTP status."""

TOOL_FIELDS = ("strict", "input_examples", "eager_input_streaming", "defer_loading", "allowed_callers")
"""Fields of a tool that `ToolSpec.extra` holds."""


def valid_id(preferred_id: str, ids: Container[str]) -> str:
    """An id that the API accepts and that is not in `ids`: `preferred` itself, if possible."""
    valid = preferred_id if _ID.fullmatch(preferred_id) else _replacement(preferred_id)
    while valid in ids:
        valid = _replacement(valid)
    return valid


def _replacement(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{INVALID_IN_NAME.sub('_', text)[:_ID_CHARACTERS]}_{digest}"
