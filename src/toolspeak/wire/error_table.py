"""What a server's error means, in a body or inside a stream: one table for all APIs.

It follows what the vendors document (OpenAI, "Error codes"; Anthropic, "Errors"; Google, "Troubleshooting" and
google/rpc/error_details.proto; OpenRouter, DeepSeek and Groq likewise) and what llama.cpp, vLLM and Ollama
answer in practice; the services themselves were not called. The kind of an error comes from its fields, else from its
message, else from the HTTP status.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.errors import ProviderError, ProviderErrorCode
from toolspeak.wire.json_conversion import describe, excerpt

_Table = tuple[tuple[re.Pattern[str], ProviderErrorCode], ...]


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_BY_FIELD: Final[_Table] = (
    # PerDay: the limit that Gemini names in a QuotaFailure. Its RESOURCE_EXHAUSTED also stands for limits per minute.
    (_words("insufficient_(quota|balance|credits|funds)|billing|usage_limit|per_?day"), "quota"),
    (_words("context_length|exceed_context|context_window"), "context_length"),
    (_words("content_filter|content_policy|responsibleai|moderation|invalid_prompt"), "content_filter"),
    (_words("rate_limit|resource_exhausted|too_many_requests|capacity_exceeded|throttl"), "rate_limit"),
    (_words("api_key|authentication|unauthenticated|permission"), "authentication"),
    (_words("model_not_found|deployment_?not_?found"), "not_found"),
)
"""Words in `type`, `code`, `status` or a reason that mean one kind of error, with any HTTP status."""

_GENERAL_FIELD: Final[_Table] = (
    (_words("overloaded|unavailable|server_?error|internal|api_error|timeout|deadline"), "overloaded"),
    (_words("not_?found"), "not_found"),
    (_words("invalid|bad_?request|failed_precondition|too_large"), "bad_request"),
)
"""Words that servers also use for other kinds of errors (Ollama calls every error `api_error`). They count only without
a status."""

_MessageTable = tuple[tuple[frozenset[int | None], re.Pattern[str], ProviderErrorCode], ...]

_BY_MESSAGE: Final[_MessageTable] = (
    (
        frozenset({400, 413, 422, 500, None}),
        _words(
            r"context.?(length|window|size)|maximum context|too many tokens|prompt is too long"
            r"|input token count .*exceeds|longer than the .*context"
        ),
        "context_length",
    ),
    (frozenset({429, None}), _words(r"per.?(second|minute|hour)\b|\b(rpm|tpm|rps)\b"), "rate_limit"),
    (
        frozenset({400, 403, 429, None}),
        _words(
            r"credit balance|insufficient (balance|credits|funds|quota)|current quota|usage limit|out of credits"
            r"|requires more credits|plan and billing"
        ),
        "quota",
    ),
    (frozenset({429}), _words("quota"), "quota"),
    (
        frozenset({400, 403, None}),
        _words(r"content (management|filtering|moderation|policy)|safety system|was flagged|requires moderation"),
        "content_filter",
    ),
    (frozenset({400, None}), _words(r"(invalid|incorrect|missing|expired) api.?key|api.?key (not|is|expired|required)"),
     "authentication"),
    # llama.cpp answers 500 to tools without --jinja; Ollama and others, to tools for a model without native calls.
    (frozenset({500}), _words(r"\btools?\b.*(--jinja|not support|unsupported)|not support.*\btools?\b"), "bad_request"),
    (frozenset({None}), _words("rate.?limit|too many requests"), "rate_limit"),
    (frozenset({None}), _words("overloaded|unavailable|server busy|at capacity|try again later"), "overloaded"),
    # Ollama's streams hold only a text; this one if the model's process has died.
    (frozenset({None}), _words("while running the model|unexpected EOF|runner .*(terminated|crashed|stopped)"),
     "overloaded"),
)  # fmt: skip
"""Words in the message, and the statuses with which they count (None is an error in a stream)."""

_BY_STATUS: Final[Mapping[int, ProviderErrorCode]] = {
    400: "bad_request",
    401: "authentication",
    402: "quota",
    403: "authentication",
    404: "not_found",
    405: "not_found",
    408: "connection",
    409: "overloaded",
    410: "not_found",
    413: "bad_request",
    422: "bad_request",
    425: "overloaded",
    429: "rate_limit",
    501: "bad_request",
}

RETRYABLE: Final[frozenset[ProviderErrorCode]] = frozenset({"rate_limit", "overloaded", "connection"})
"""The kinds of errors after which the same request may succeed later."""

REMEDIES: Final[Mapping[ProviderErrorCode, str]] = {
    "authentication": "Check the API key: it is missing or wrong, or may not use this model.",
    "quota": "The quota of the account is used up: see its billing page.",
    "rate_limit": "Too many requests: wait and try again.",
    "overloaded": "The server failed or is overloaded: try again; if it fails again, read the server's log.",
    "connection": "Try again.",
    "context_length": (
        "The conversation is longer than the model's context: shorten it, or start the server with a larger "
        "one (llama.cpp -c, vLLM --max-model-len, Ollama OLLAMA_CONTEXT_LENGTH)."
    ),
    "content_filter": "The service refuses the content of the conversation: change it, or use another model.",
    "not_found": "Check the model's name, and that the base URL is the API's (it usually ends in /v1).",
    "bad_request": "The server refuses the request; the model or server may not know one of its options.",
    "forgotten": "Send the whole conversation: the server does not keep it.",
    "ill_formed": "Check the base URL: this is not the API's answer.",
    "other": "The server's own log may say more.",
}

_REMEDIES_BY_STATUS: Final[Mapping[int, str]] = {
    401: "The API key is missing or wrong.",
    402: "The account has no credit left.",
    403: "The API key may not use this model or this address.",
    405: "Check the base URL: it usually ends in /v1.",
    408: "The server waited too long for the request; try again.",
    413: "The request is too large for the server: shorten the conversation or cap results lower.",
    501: "The server does not support this request: check the base URL, and omit options that it may not know.",
}
"""The remedies for statuses that are more specific than their codes."""

_TOO_LARGE = _words("request too large")
_TOO_LARGE_REMEDY = "This request alone exceeds the account's limit: shorten the conversation, or get a higher limit."
"""For OpenAI's 429 and Groq's 413 to a request with more tokens than the limit per minute: waiting does not help."""

_WAIT = re.compile(r"try again in (?:(\d+)m)?(\d+(?:\.\d+)?)(ms|s)", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)s")


@quick()
class ErrorReport:
    """A server's error."""

    code: ProviderErrorCode
    retryable: bool
    remedy: str
    message: str
    """One short line."""
    retry_after: float | None
    """In seconds."""
    unread: str | None
    """The model's text, if the server could not parse the call in it."""


def read_error(body: JSON, status: int | None = None) -> ErrorReport:
    """Reads an error's body or object. `status`: the HTTP status; None for an error inside a stream."""
    message = excerpt(_message(body))
    fields = " ".join(_fields(body, 0))
    code = _code(fields, message, status)
    retryable = code in RETRYABLE
    remedy = REMEDIES[code]
    if status is not None and code == _of_status(status):
        remedy = _REMEDIES_BY_STATUS.get(status, remedy)
    if code == "rate_limit" and _TOO_LARGE.search(message):
        retryable, remedy = False, _TOO_LARGE_REMEDY
    return ErrorReport(
        code, retryable, remedy, message, _retry_after(body, message) if retryable else None, _failed_generation(body)
    )


def reported_error(error: JSON, status: int | None = None) -> ProviderError:
    """The exception for an error inside a successful body or a stream. `status`: the API's HTTP status for such an
    error, which applies if the error does not name one."""
    own = cast("dict[str, JSON]", error).get("code") if isinstance(error, dict) else None
    if isinstance(own, int) and not isinstance(own, bool) and 400 <= own <= 599:
        status = own
    report = read_error(error, status)
    return ProviderError(
        f"the server reported an error: {_with_full_stop(report.message or describe(error))} {report.remedy}",
        status=status,
        retryable=report.retryable,
        code=report.code,
        retry_after=report.retry_after,
        unread=report.unread,
    )


def _failed_generation(body: JSON) -> str | None:
    """Groq's `failed_generation`."""
    fields = cast("dict[str, JSON]", body) if isinstance(body, dict) else {}
    error = fields.get("error")
    fields = cast("dict[str, JSON]", error) if isinstance(error, dict) else fields
    text = fields.get("failed_generation") if fields.get("code") == "tool_use_failed" else None
    return text if isinstance(text, str) and text.strip() else None


def _with_full_stop(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def _code(fields: str, message: str, status: int | None) -> ProviderErrorCode:
    for pattern, code in _BY_FIELD:
        if pattern.search(fields):
            return code
    for statuses, pattern, code in _BY_MESSAGE:
        if status in statuses and pattern.search(message):
            return code
    if status is not None:
        return _of_status(status)
    for pattern, code in _GENERAL_FIELD:
        if pattern.search(fields):
            return code
    return "other"


def _of_status(status: int) -> ProviderErrorCode:
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status < 400:
        return "not_found"
    return "overloaded" if status >= 500 else "other"


def _message(body: JSON) -> str:
    """The error's text, in any of the forms that servers use; empty without one."""
    value: Any = body
    for _ in range(3):
        if isinstance(value, list) and value:  # Gemini, at its OpenAI-compatible address
            value = cast("list[Any]", value)[0]
        if not isinstance(value, dict):
            break
        fields = cast("dict[str, Any]", value)
        metadata = fields.get("metadata")
        raw = cast("dict[str, Any]", metadata).get("raw") if isinstance(metadata, dict) else None
        if isinstance(raw, str) and raw:  # OpenRouter: the message of the model's host
            return f"{fields.get('message')}: {raw}"
        value = fields.get("error") or fields.get("message") or fields.get("detail")
    return value if isinstance(value, str) else ""


_KIND_FIELDS = ("type", "code", "status", "reason", "quotaId")


def _fields(value: JSON, depth: int) -> list[str]:
    """The texts of the error's fields that name its kind, including its details."""
    if depth > 5:
        return []
    if isinstance(value, list):
        return [text for item in cast("list[JSON]", value)[:20] for text in _fields(item, depth + 1)]
    if not isinstance(value, dict):
        return []
    texts: list[str] = []
    for name, item in cast("dict[str, JSON]", value).items():
        if isinstance(item, str):
            if name in _KIND_FIELDS:
                texts.append(item[:100])
        elif name in ("error", "innererror", "details", "violations"):
            texts += _fields(item, depth + 1)
    return texts


def _retry_after(body: JSON, message: str) -> float | None:
    """The seconds to wait, from the error: google.rpc.RetryInfo, or OpenAI's and Groq's message."""
    if (delay := _retry_delay(body, 0)) is not None and (match := _DURATION.fullmatch(delay)):
        return float(match[1])
    if match := _WAIT.search(message):
        return int(match[1] or 0) * 60 + float(match[2]) / (1000 if match[3].lower() == "ms" else 1)
    return None


def _retry_delay(value: JSON, depth: int) -> str | None:
    if isinstance(value, list) and depth <= 5:
        delays = (_retry_delay(item, depth + 1) for item in cast("list[JSON]", value)[:20])
        return next((delay for delay in delays if delay is not None), None)
    if not isinstance(value, dict) or depth > 5:
        return None
    fields = cast("dict[str, JSON]", value)
    delay = fields.get("retryDelay")
    return delay if isinstance(delay, str) else _retry_delay(fields.get("error") or fields.get("details"), depth + 1)
