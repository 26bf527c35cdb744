"""What both roles of Anthropic's Messages API share. Sans-IO."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Mapping

from toolspeak.data.messages import (
    JSON,
    FinishReason,
)

NAME = "anthropic"
"""The format's name, and what its opaque data is marked with."""


PDF, PLAIN_TEXT = "application/pdf", "text/plain"


_ID = re.compile(r"[a-zA-Z0-9_-]+")


_ID_CHARACTERS = 40  # kept of an id that has to be changed; ids of the API's own have about 30


FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")


Block = dict[str, JSON]


STOP_REASONS: Mapping[str, FinishReason] = {
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "pause_turn": "pause",
    "refusal": "refusal",
    "stop_sequence": "stop",
    "model_context_window_exceeded": "length",
}
"""The API's `stop_reason` as ours, and back (the first one); any other is `error`."""


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
"""The HTTP status of an error and the `type` that its body has."""


TOOL_FIELDS = ("strict", "input_examples", "eager_input_streaming", "defer_loading", "allowed_callers")


def accepted_id(given: str, taken: Container[str]) -> str:
    """An id that the API takes and that is not among those taken: the one given, if it can be."""
    sent = given if _ID.fullmatch(given) else _changed(given)
    while sent in taken:
        sent = _changed(sent)
    return sent


def _changed(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{FOREIGN.sub('_', text)[:_ID_CHARACTERS]}_{digest}"
