"""`count_tokens`: how long a request is, by the upstream's own count or by an estimate that says so."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from loopback_server import Answer, serve, whole
from serving import TOOLS, at, run_gateway

from toolspeak.data.messages import ImagePart, Message, TextPart
from toolspeak.gateway.settings.api_keys import digest, unnamed_key
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.base import ModelRequest

PATH = "/v1/messages/count_tokens"
QUESTION = Message.user("How is it in Zürich?")
REQUEST = ModelRequest([QUESTION], TOOLS)
NOT_THERE = whole("404 Not Found", b'{"error": {"message": "no such path"}}')


def body(request: ModelRequest = REQUEST) -> dict[str, Any]:
    """As clients send it: without `max_tokens` and `stream`."""
    fields = ANTHROPIC.encode_request(request, model="m", stream=False)
    return {name: value for name, value in fields.items() if name not in ("max_tokens", "stream")}


def counting(answer: Answer, *requests: dict[str, Any], **upstream: Any) -> tuple[list[Any], list[Any]]:
    """The responses, and what the upstream was asked."""

    async def run() -> tuple[list[Any], list[Any]]:
        async with serve(answer) as server, run_gateway(at(server, **upstream)) as gateway:
            responses = [await gateway.client.post(PATH, json=each) for each in requests]
            return responses, server.exchanges

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("provider", "path"),
    [
        ("anthropic", "/v1/messages/count_tokens"),
        ("openai-responses", "/v1/responses/input_tokens"),
        ("openai", "/v1/chat/completions/input_tokens"),
    ],
)
@pytest.mark.parametrize("dialect", ["native", "hermes"])
def test_an_upstream_that_counts_is_asked(provider: str, path: str, dialect: str):
    request = {**body(), "temperature": 0.5, "thinking": {"type": "disabled"}}
    answer = whole("200 OK", b'{"input_tokens": 1234}')
    (response,), (exchange,) = counting(answer, request, provider=provider, dialect=dialect)
    assert response.json() == {"input_tokens": 1234}
    assert "x-toolspeak-warning" not in response.headers
    assert exchange.request_line == f"POST {path} HTTP/1.1"
    text = json.dumps(exchange.json, ensure_ascii=False)
    assert "Zürich" in text
    assert "The weather of a place." in text
    assert ("tools" in exchange.json) == (dialect == "native")
    if provider == "anthropic":  # it refuses fields that it does not know
        assert not {"max_tokens", "stream", "temperature"} & set(exchange.json)
        assert exchange.json["thinking"] == {"type": "disabled"}


@pytest.mark.parametrize("provider", ["openai", "anthropic", "ollama", "gemini"])
def test_elsewhere_it_is_estimated_and_said_so(provider: str):
    many = ModelRequest([Message.user("word " * 4_000)])
    responses, exchanges = counting(NOT_THERE, body(many), body(many), provider=provider, dialect="hermes")
    for response in responses:
        assert response.status_code == 200
        assert 4_000 <= response.json()["input_tokens"] <= 6_000
        assert response.headers["x-toolspeak-warning"] == "usage_estimated"
        assert response.json()["toolspeak"]["warnings"][0]["code"] == "usage_estimated"
    assert len(exchanges) <= 1  # one that does not count is not asked again and again


def test_all_that_the_model_reads_is_in_the_estimate():
    requests = [
        ModelRequest([QUESTION]),
        ModelRequest([QUESTION], TOOLS),
        ModelRequest([QUESTION, Message("user", (TextPart("And this?"), ImagePart("image/png", b"\x89PNG")))]),
        ModelRequest([Message.user("日本語" * 100)]),
    ]
    responses, _ = counting(NOT_THERE, *map(body, requests), dialect="hermes")
    plain, tools, image, japanese = (response.json()["input_tokens"] for response in responses)
    assert tools > plain + 100  # with the words in which the dialect tells them
    assert image > plain + 1_500
    assert japanese >= 200


def test_what_is_wrong_is_told_as_anthropics_clients_read_it():
    async def run() -> list[Any]:
        overload = whole("429 Too Many Requests", b'{"error": {"message": "slow down"}}', "application/json")
        upstream = {"provider": "anthropic", "names": ("m",)}
        async with (
            serve(overload) as server,
            run_gateway(at(server, **upstream), keys=(unnamed_key(digest("k" * 20)),)) as gateway,
        ):
            key = {"x-api-key": "k" * 20}
            requests = [({}, body()), (key, {**body(), "model": "x"}), (key, {"model": "m"}), (key, body())]
            responses = [await gateway.client.post(PATH, json=each, headers=headers) for headers, each in requests]
            metrics = (await gateway.client.get("/metrics", headers=key)).text
            assert f'toolspeak_requests_total{{endpoint="{PATH}",model="m",status="429",stream="false"}} 1.0' in metrics
            return responses

    responses = asyncio.run(run())
    assert [response.status_code for response in responses] == [401, 404, 400, 429]
    kinds = [response.json()["error"]["type"] for response in responses]
    assert kinds == ["authentication_error", "not_found_error", "invalid_request_error", "rate_limit_error"]
