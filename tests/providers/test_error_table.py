"""What each API's errors mean: as it writes them, in a body with its status or inside a stream (status None)."""

# ruff: noqa: E501 - the table reads better with a row's words on one line

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from clocks import TestClock
from every_api import API_CASES, provider_of, streamed_text
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback_server import Answer, event, serve, stream, whole
from native import OLLAMA_API, ndjson

from toolspeak.errors import ProviderError
from toolspeak.wire.error_table import REMEDIES, RETRYABLE, read_error, reported_error


def openai(message: str, kind: str | None, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def anthropic(kind: str, message: str = "that is why") -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def google(code: int, status: str, message: str, *details: dict[str, Any]) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": status, "details": list(details)}}


def quota_failure(quota: str) -> dict[str, Any]:
    return {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaMetric": "generate_content_free_tier_requests", "quotaId": quota, "quotaValue": "10"}],
    }


RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "29.5s"}
QUOTA_MESSAGE = "You exceeded your current quota, please check your plan and billing details."
PER_MINUTE = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"
PER_DAY = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
WINDOW = "shorten it, or start the server with a larger one"

# provider, status, body, code, retryable, seconds to wait, a word of the remedy
TABLE: list[tuple[str, int | None, Any, str, bool, float | None, str]] = [
    # OpenAI
    ("openai", 401, openai("Incorrect API key provided: sk-abc.", "invalid_request_error", "invalid_api_key"),
     "authentication", False, None, "API key"),
    ("openai", 403, openai("Country, region, or territory not supported", "request_forbidden",
     "unsupported_country_region_territory"), "authentication", False, None, "may not use"),
    ("openai", 429, openai(QUOTA_MESSAGE, "insufficient_quota", "insufficient_quota"), "quota", False, None, "billing page"),
    ("openai", 429, openai("Rate limit reached for gpt-5 in organization org-1 on requests per min (RPM): Limit 3, "
     "Used 3, Requested 1. Please try again in 20s.", "requests", "rate_limit_exceeded"),
     "rate_limit", True, 20, "wait and try again"),
    ("openai", 429, openai("Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 43000.",
     "tokens", "rate_limit_exceeded"), "rate_limit", False, None, "shorten the conversation"),
    ("openai", 400, openai("This model's maximum context length is 128000 tokens. However, your messages resulted in "
     "150000 tokens.", "invalid_request_error", "context_length_exceeded"), "context_length", False, None, WINDOW),
    ("openai", 404, openai("The model `gpt-9` does not exist or you do not have access to it.", "invalid_request_error",
     "model_not_found"), "not_found", False, None, "model's name"),
    ("openai", 400, openai("Unsupported parameter: 'max_tokens'.", "invalid_request_error", "unsupported_parameter"),
     "bad_request", False, None, "one of its options"),
    ("openai", 400, openai("Your request was rejected as a result of our safety system.", "invalid_request_error",
     "content_policy_violation"), "content_filter", False, None, "change it"),
    ("openai", 503, openai("The engine is currently overloaded, please try again later", "server_error", None),
     "overloaded", True, None, "try again"),
    ("openai", None, openai("The server had an error processing your request.", "server_error", None), "overloaded",
     True, None, "try again"),
    ("openai", None, openai("slow down", "tokens", "rate_limit_exceeded"), "rate_limit", True, None, "wait"),
    ("openai-responses", 429, openai(QUOTA_MESSAGE, "insufficient_quota", "insufficient_quota"), "quota", False, None,
     "billing page"),
    ("openai-responses", None, {"type": "error", "code": "rate_limit_exceeded", "sequence_number": 1, "param": None,
     "message": "Rate limit reached for gpt-5. Please try again in 1m2.5s."}, "rate_limit", True, 62.5, "wait"),
    ("openai-responses", None, {"type": "response.failed", "response": {"id": "r", "status": "failed", "output": [],
     "error": {"code": "server_error", "message": "An error occurred."}}}, "overloaded", True, None, "try again"),
    ("openai-responses", None, {"type": "response.failed", "response": {"id": "r", "status": "failed", "output": [],
     "error": {"code": "context_length_exceeded", "message": "Your input exceeds the context window of this model."}}},
     "context_length", False, None, WINDOW),
    ("openai-responses", None, {"type": "response.failed", "response": {"id": "r", "status": "failed", "output": [],
     "error": {"code": "invalid_prompt", "message": "Invalid prompt: flagged as potentially violating our policy."}}},
     "content_filter", False, None, "change it"),
    # Anthropic
    ("anthropic", 400, anthropic("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
     "context_length", False, None, WINDOW),
    ("anthropic", 400, anthropic("invalid_request_error", "Your credit balance is too low to access the Anthropic API. "
     "Please go to Plans & Billing."), "quota", False, None, "billing page"),
    ("anthropic", 400, anthropic("invalid_request_error", "You have reached your specified API usage limits."),
     "quota", False, None, "billing page"),
    ("anthropic", 400, anthropic("invalid_request_error", "max_tokens: Field required"), "bad_request", False, None,
     "one of its options"),
    ("anthropic", 400, anthropic("invalid_request_error", "Output blocked by content filtering policy"),
     "content_filter", False, None, "change it"),
    ("anthropic", 401, anthropic("authentication_error", "invalid x-api-key"), "authentication", False, None, "API key"),
    ("anthropic", 402, anthropic("billing_error"), "quota", False, None, "no credit"),
    ("anthropic", 403, anthropic("permission_error"), "authentication", False, None, "may not use"),
    ("anthropic", 404, anthropic("not_found_error", "model: claude-9"), "not_found", False, None, "model's name"),
    ("anthropic", 413, anthropic("request_too_large", "Request exceeds the maximum size"), "bad_request", False, None,
     "shorten"),
    ("anthropic", 429, anthropic("rate_limit_error", "This request would exceed your organization's rate limit of "
     "50,000 input tokens per minute"), "rate_limit", True, None, "wait"),
    ("anthropic", 500, anthropic("api_error", "Internal server error"), "overloaded", True, None, "try again"),
    ("anthropic", 504, anthropic("timeout_error"), "overloaded", True, None, "try again"),
    ("anthropic", 529, anthropic("overloaded_error", "Overloaded"), "overloaded", True, None, "try again"),
    ("anthropic", None, anthropic("overloaded_error", "Overloaded"), "overloaded", True, None, "try again"),
    ("anthropic", None, anthropic("api_error", "Internal server error"), "overloaded", True, None, "try again"),
    ("anthropic", None, anthropic("invalid_request_error", "messages: at least one"), "bad_request", False, None,
     "one of its options"),
    # Gemini
    ("gemini", 429, google(429, "RESOURCE_EXHAUSTED", QUOTA_MESSAGE, quota_failure(PER_MINUTE), RETRY_INFO),
     "rate_limit", True, 29.5, "wait and try again. Retry-After: 29.5 seconds"),
    ("gemini", 429, google(429, "RESOURCE_EXHAUSTED", QUOTA_MESSAGE, quota_failure(PER_DAY), RETRY_INFO), "quota", False, None,
     "billing page"),
    ("gemini", 429, google(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."), "rate_limit",
     True, None, "wait"),
    ("gemini", None, google(429, "RESOURCE_EXHAUSTED", QUOTA_MESSAGE, RETRY_INFO), "rate_limit", True, 29.5, "wait"),
    ("gemini", 400, google(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.",
     {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}), "authentication", False, None,
     "API key"),
    ("gemini", 400, google(400, "INVALID_ARGUMENT", "The input token count (1200000) exceeds the maximum number of tokens "
     "allowed (1048576)."), "context_length", False, None, WINDOW),
    ("gemini", 400, google(400, "FAILED_PRECONDITION", "User location is not supported for the API use."), "bad_request",
     False, None, "refuses the request"),
    ("gemini", 403, google(403, "PERMISSION_DENIED", "Your API key was reported as leaked."), "authentication", False,
     None, "may not use"),
    ("gemini", 404, google(404, "NOT_FOUND", "models/gemini-9 is not found for API version v1beta"), "not_found", False,
     None, "model's name"),
    ("gemini", 500, google(500, "INTERNAL", "An internal error has occurred."), "overloaded", True, None, "try again"),
    ("gemini", 503, google(503, "UNAVAILABLE", "The model is overloaded. Please try again later."), "overloaded", True,
     None, "try again"),
    ("gemini", 504, google(504, "DEADLINE_EXCEEDED", "Deadline expired"), "overloaded", True, None, "try again"),
    ("gemini", None, google(503, "UNAVAILABLE", "The model is overloaded."), "overloaded", True, None, "try again"),
    # Ollama
    ("ollama", 404, {"error": "model 'm' not found"}, "not_found", False, None, "ollama pull"),
    ("ollama", 400, {"error": "registry.ollama.ai/library/m does not support tools"}, "bad_request", False, None,
     "Choose a dialect"),
    ("ollama", 400, {"error": "the prompt is longer than the context length currently available to the model"},
     "context_length", False, None, "OLLAMA_CONTEXT_LENGTH"),
    ("ollama", 401, {"error": "unauthorized"}, "authentication", False, None, "API key"),
    ("ollama", 503, {"error": "server busy, please try again. maximum pending requests exceeded"}, "overloaded", True,
     None, "try again"),
    ("ollama", 500, {"error": "llama runner process has terminated: exit status 2"}, "overloaded", True, None, "log"),
    ("ollama", None, {"error": "an error was encountered while running the model: unexpected EOF"}, "overloaded", True, None,
     "log"),
    # services and servers that speak OpenAI's Chat Completions
    ("openrouter", 402, {"error": {"code": 402, "message": "Insufficient credits. Add more using the website"}}, "quota",
     False, None, "credit"),
    ("openrouter", 403, {"error": {"code": 403, "message": "m requires moderation. Your input was flagged"}},
     "content_filter", False, None, "change it"),
    ("openrouter", 429, {"error": {"code": 429, "message": "Provider returned error", "metadata":
     {"raw": "m:free is temporarily rate-limited upstream", "provider_name": "P"}}}, "rate_limit", True, None,
     "rate-limited upstream"),
    ("openrouter", None, {"error": {"code": 502, "message": "Provider disconnected"}, "choices": []}, "overloaded", True,
     None, "try again"),
    ("groq", 413, openai("Request too large for model `m` in organization `o` on tokens per minute (TPM): Limit 6000, "
     "Requested 7200", "tokens", "rate_limit_exceeded"), "rate_limit", False, None, "shorten"),
    ("groq", 429, openai("Rate limit reached for model `m` on tokens per minute (TPM): Limit 6000, Used 5900. Please try "
     "again in 350ms.", "tokens", "rate_limit_exceeded"), "rate_limit", True, 0.35, "wait"),
    ("groq", 400, openai("Failed to call a function.", "invalid_request_error", "tool_use_failed"), "bad_request", False,
     None, "refuses the request"),
    ("mistral", 401, {"message": "Unauthorized", "request_id": "1"}, "authentication", False, None, "API key"),
    ("mistral", 422, {"object": "error", "message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "x"]}]},
     "type": "invalid_request_error", "code": None}, "bad_request", False, None, "one of its options"),
    ("mistral", 429, {"object": "error", "message": "Service tier capacity exceeded for this model.",
     "type": "service_tier_capacity_exceeded", "code": "3505"}, "rate_limit", True, None, "wait"),
    ("deepseek", 402, openai("Insufficient Balance", "unknown_error", "invalid_request_error"), "quota", False, None,
     "credit"),
    ("deepseek", 503, openai("Service is too busy.", "service_unavailable_error", None), "overloaded", True, None,
     "try again"),
    ("vllm", 400, {"object": "error", "message": "This model's maximum context length is 4096 tokens. However, you "
     "requested 5000 tokens.", "type": "BadRequestError", "param": None, "code": 400}, "context_length", False, None,
     "--max-model-len"),
    ("vllm", 404, {"error": {"message": "The model `x` does not exist.", "type": "NotFoundError", "code": 404}},
     "not_found", False, None, "model's name"),
    ("vllm", None, {"object": "error", "message": "boom", "type": "InternalServerError", "code": 500}, "overloaded", True,
     None, "try again"),
    ("llamacpp", 503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, "overloaded",
     True, None, "try again"),
    ("llamacpp", 400, {"error": {"code": 400, "message": "the request exceeds the available context size, try increasing "
     "it", "type": "exceed_context_size_error", "n_prompt_tokens": 9, "n_ctx": 4}}, "context_length", False, None,
     "llama.cpp -c"),
    ("llamacpp", 500, {"error": {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}},
     "bad_request", False, None, "refuses the request"),
    ("llamacpp", 401, {"error": {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}},
     "authentication", False, None, "API key"),
    ("lmstudio", None, {"error": "The model is loaded with context length of only 4096 tokens"}, "context_length", False,
     None, "shorten"),
]  # fmt: skip


def in_stream(provider: str, body: Any) -> Answer:
    if provider == "ollama":
        return OLLAMA_API.stream(ndjson(body))
    return stream(event(body))


def fail(provider: str, answer: Answer) -> ProviderError:
    async def run() -> None:
        async with serve(answer) as server:
            model = provider_of(provider, f"http://127.0.0.1:{server.port}", clock=TestClock(), retries=0)
            try:
                await streamed_text(model)
            finally:
                await model.aclose()

    with pytest.raises(ProviderError) as raised_error:
        asyncio.run(run())
    return raised_error.value


@pytest.mark.parametrize(
    ("provider", "status", "body", "code", "retryable", "wait", "remedy"),
    TABLE,
    ids=[f"{row[0]}-{row[1]}-{row[3]}" for row in TABLE],
)
def test_the_table(
    provider: str, status: int | None, body: Any, code: str, retryable: bool, wait: float | None, remedy: str
):
    answer = in_stream(provider, body) if status is None else whole(f"{status} X", json.dumps(body).encode())
    error = fail(provider, answer)
    assert (error.code, error.retryable, error.retry_after) == (code, retryable, wait), str(error)
    assert remedy in str(error)
    assert status is None or error.status == status
    assert retryable or "wait and try again" not in str(error)


def test_every_provider_is_in_the_table():
    assert {row[0] for row in TABLE} >= set(API_CASES)


@pytest.mark.parametrize("provider", API_CASES)
@pytest.mark.parametrize(("status", "code"), [(308, "ill_formed"), (418, "other"), (409, "overloaded")])
def test_a_status_without_a_body(provider: str, status: int, code: str):
    error = fail(provider, whole(f"{status} X", b"", "text/plain", "location: https://elsewhere.example"))
    assert error.code == code
    assert f"answered HTTP {status}. " in str(error)


@pytest.mark.parametrize("provider", API_CASES)
def test_an_answer_that_is_no_answer(provider: str):
    for answer in (whole("200 OK", b"{"), whole("200 OK", b"<p>", "text/html"), whole("200 OK", b"{}")):
        assert (fail(provider, answer).code, fail(provider, answer).retryable) == ("ill_formed", False)


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "detail", "details", "type", "code", "status", "metadata", "raw"])
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSONS, st.none() | st.integers(300, 599))
@settings(deadline=None)
def test_any_error_at_all_has_a_kind_and_a_remedy(body: Any, status: int | None):
    error = read_error(body, status)
    assert error.code in REMEDIES
    assert error.remedy
    assert error.retryable <= (error.code in RETRYABLE)
    assert error.message.isprintable()
    assert error.remedy in str(reported_error(body, status))


def test_a_body_nested_beyond_all_measure():
    body: Any = "x"
    for _ in range(500):
        body = {"error": body, "details": [body], "message": "m"}
    assert read_error(body, 500).code == "overloaded"
