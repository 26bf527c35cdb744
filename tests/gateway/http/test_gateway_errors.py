"""What a client reads of an error and what the log has of it: codes in streams too, addresses in the log alone."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import httpx2
import pytest
from loopback_server import STREAM_HEAD, event, http_chunks, says, serve, whole
from serving import ENDPOINTS, at, events, in_turn, run_gateway, texts

from toolspeak.gateway.observability import JsonLines
from toolspeak.gateway.settings.api_keys import digest, unnamed_key
from toolspeak.gateway.settings.upstream_settings import Upstream

CHAT = "/v1/chat/completions"
PAGE = b"<!DOCTYPE html>\n<html><head><title>502 Bad 'Gateway'</title></head><body>nginx at 10.0.0.5</body></html>"
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}


def body_of(path: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "input": "Hi", **more} if path == "/v1/responses" else {**BODY, **more}


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_page_of_a_proxy_and_the_upstreams_address_are_in_the_log_alone(path: str, caplog: pytest.LogCaptureFixture):
    async def run() -> tuple[httpx2.Response, str]:
        async with (
            serve(whole("502 X", PAGE, "text/html")) as server,
            run_gateway(at(server, dialect="hermes")) as gateway,
        ):
            with caplog.at_level("INFO", "toolspeak.gateway"):
                return await gateway.client.post(path, json=body_of(path)), server.base_url

    response, address = asyncio.run(run())
    assert response.status_code in (502, 503)
    for secret in ("html", "nginx", address, "127.0.0.1"):
        assert secret not in response.text
    (fields,) = [record.__dict__["fields"] for record in caplog.records if record.getMessage() == "request"]
    assert address in fields["error"]
    assert "nginx" in fields["error"]


def test_an_upstream_that_is_not_there_keeps_its_address():
    async def run() -> httpx2.Response:
        async with run_gateway(Upstream(url="http://127.0.0.1:9/v1", dialect="hermes", retries=0)) as gateway:
            return await gateway.client.post(CHAT, json=BODY)

    response = asyncio.run(run())
    assert "127.0.0.1" not in response.text
    assert response.json()["error"]["code"] == "upstream_connection"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_no_unknown_model(status: int):
    answer = whole(f"{status} X", b"", "text/html", "location: http://10.0.0.5/login")

    async def run() -> httpx2.Response:
        async with serve(answer) as server, run_gateway(at(server, dialect="hermes")) as gateway:
            return await gateway.client.post(CHAT, json=BODY)

    response = asyncio.run(run())
    assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_ill_formed")
    assert "10.0.0.5" not in response.text


def test_an_error_in_a_stream_has_its_code():
    beginning = [event(says("Hel")), b'data: {"error": {"message": "out of memory", "code": 500}}\n\n']

    async def answer(exchange: Any) -> None:
        await exchange.send(STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n", http_chunks(beginning), b"0\r\n\r\n")

    async def run() -> list[Any]:
        async with serve(answer) as server, run_gateway(at(server, dialect="hermes")) as gateway:
            return events((await gateway.client.post(CHAT, json={**BODY, "stream": True})).text)

    sse_events = asyncio.run(run())
    assert "out of memory" in sse_events[-1]["error"]["message"]
    assert sse_events[-1]["error"]["code"] not in (None, "")


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("names", [["look", "look"], ["lo\nok"], ["look\x7f"], ["a\u2028b"]])
def test_tools_of_one_name_and_names_with_line_breaks_are_refused(path: str, names: list[str]):
    def tool_of(name: str) -> dict[str, Any]:
        if path == "/v1/messages":
            return {"name": name, "input_schema": {"type": "object"}}
        function = {"name": name, "parameters": {"type": "object"}}
        return (
            {"type": "function", **function} if path == "/v1/responses" else {"type": "function", "function": function}
        )

    async def run() -> tuple[httpx2.Response, int]:
        async with serve(in_turn(texts("Hi."))) as server, run_gateway(at(server, dialect="hermes")) as gateway:
            body = body_of(path, tools=[tool_of(name) for name in names])
            return await gateway.client.post(path, json=body), len(server.exchanges)

    response, times = asyncio.run(run())
    assert (response.status_code, times) == (400, 0)
    assert "tools: the name" in response.text


def test_a_key_that_is_refused_is_counted_wherever_it_is_sent():
    async def run() -> str:
        async with run_gateway(
            Upstream(url="http://127.0.0.1:9/v1"), keys=(unnamed_key(digest("right" * 5)),)
        ) as gateway:
            for path in ("/v1/models", "/v1/nothing"):
                refusal = await gateway.client.get(path, headers={"authorization": "Bearer wrong"})
                assert refusal.status_code == 401
            return (await gateway.client.get("/metrics", headers={"authorization": "Bearer " + "right" * 5})).text

    assert 'rejected_total{code="invalid_api_key"} 2.0' in asyncio.run(run())


def test_what_a_provider_logs_of_a_request_has_its_id(caplog: pytest.LogCaptureFixture):
    lines: list[dict[str, Any]] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(JsonLines().format(record)))

    handler = Lines()
    logger = logging.getLogger("toolspeak")
    logger.addHandler(handler)

    async def run() -> None:
        answers = iter([whole("503 X", b"{}", "application/json", "retry-after: 0")])
        ordinary = in_turn(texts("Hi."))

        async def answer(exchange: Any) -> None:
            await next(answers, ordinary)(exchange)

        async with serve(answer) as server, run_gateway(at(server, dialect="hermes", retries=1)) as gateway:
            response = await gateway.client.post(CHAT, json=BODY, headers={"x-request-id": "mine-7"})
            assert response.status_code == 200

    try:
        with caplog.at_level("INFO", "toolspeak"):
            asyncio.run(run())
    finally:
        logger.removeHandler(handler)
    (retry_line,) = [line for line in lines if line["event"] == "upstream_retry"]
    assert (retry_line["retry"], retry_line["retries"]) == (1, 1)
    assert "503" in retry_line["problem"]
    assert {line["id"] for line in lines} == {"mine-7"}
