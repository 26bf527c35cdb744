"""Faults of the gateway's own, and what its log holds of an answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from typing import Any

import pytest
from loopback_server import event, hang_up, says, serve
from serving import ENDPOINTS, TOOLS, at, call_text, events, in_turn, pieces, run_gateway, texts

from toolspeak.agent.drivers.native import NativeDriver
from toolspeak.agent.drivers.text import TextDriver
from toolspeak.data.deltas import Delta, TextDelta
from toolspeak.data.messages import Message, ToolChoice
from toolspeak.dialects import get_dialect
from toolspeak.gateway.app import Gateway
from toolspeak.gateway.settings.gateway_settings import Settings
from toolspeak.gateway.settings.upstream_settings import Upstream
from toolspeak.gateway.upstreams.load_balancing import Pool
from toolspeak.gateway.upstreams.routing import Route, Routes
from toolspeak.providers.capabilities import Capabilities
from toolspeak.wire.base import ModelRequest

REQUEST = ModelRequest([Message.system("Be brief."), Message.user("How is it?")], TOOLS, ToolChoice("auto"))
PATHS = pytest.mark.parametrize("path", ENDPOINTS)
STREAMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


class FaultyProvider:
    """One with a bug: it fails as nothing of ours is meant to, after so many pieces of text."""

    name = "faulty:m"
    capabilities = Capabilities()

    def __init__(self, delta_count: int) -> None:
        self._delta_count = delta_count

    async def stream(self, _request: ModelRequest) -> AsyncGenerator[Delta]:
        for _ in range(self._delta_count):
            yield TextDelta("Let me look. ")
        raise LookupError("insides")

    async def aclose(self) -> None:
        pass


async def _no_problem(_number: int) -> str:
    return ""


class OneRoute:
    names = ("m",)

    def __init__(self, route: Route) -> None:
        self._route = route

    @contextmanager
    def routes(self, _model: str, _allows: object) -> Generator[Routes]:
        yield Routes(Pool("m", ["u"], "round_robin", 0, 5.0, _no_problem), [self._route])

    async def aclose(self) -> None:
        pass


def faulty(path: str, delta_count: int, *, stream: bool) -> tuple[int, str, bool, str]:
    """The status, what was sent, whether it was ended, and the metrics."""
    provider = FaultyProvider(delta_count)
    driver = TextDriver(provider, get_dialect("hermes"))
    route = Route(
        Upstream(dialect="hermes"), provider, driver, NativeDriver(provider, leaks=None), "openai-chat", False
    )
    content = json.dumps(ENDPOINTS[path].encode_request(REQUEST, model="m", stream=stream)).encode()
    messages: list[dict[str, Any]] = []

    async def run() -> str:
        gateway = Gateway(Settings((Upstream(url="http://127.0.0.1:9/v1"),)), {})
        gateway.current.router = OneRoute(route)  # pyright: ignore[reportAttributeAccessIssue]
        incoming = iter([{"type": "http.request", "body": content, "more_body": False}])

        async def receive() -> Any:
            return next(incoming, None) or await asyncio.Event().wait()

        async def send(message: dict[str, Any]) -> None:
            messages.append(message)

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"x-request-id", b"mine-1")]
        await gateway({"type": "http", "method": "POST", "path": path, "headers": headers}, receive, send)
        return gateway.metrics.text().decode()

    metrics = asyncio.run(run())
    text = b"".join(message.get("body", b"") for message in messages[1:]).decode()
    return messages[0]["status"], text, not messages[-1].get("more_body"), metrics


@PATHS
def test_a_fault_in_the_midst_of_a_stream_is_told_and_ends_it(path: str, caplog: pytest.LogCaptureFixture):
    status, text, has_ended, metrics = faulty(path, 2, stream=True)
    assert (status, has_ended) == (200, True)
    assert "Let me look." in text
    last = events(text)[-1]
    assert "mine-1" in json.dumps(last.get("error") or last["response"]["error"])
    assert "[DONE]" not in text
    assert "insides" not in text
    (record,) = [record for record in caplog.records if record.getMessage() == "failed"]
    assert record.fields == {"id": "mine-1"}
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], LookupError)
    assert f'toolspeak_broken_streams_total{{code="gateway_failed",endpoint="{path}",model="m"}} 1.0' in metrics


@PATHS
@pytest.mark.parametrize(("delta_count", "stream"), [(0, True), (0, False), (2, False)])
def test_a_fault_before_the_answer_has_begun_has_a_status(path: str, delta_count: int, stream: bool):
    status, text, _, metrics = faulty(path, delta_count, stream=stream)
    assert status == 500
    assert "mine-1" in json.loads(text)["error"]["message"]
    assert "insides" not in text
    assert 'status="500"' in metrics


def test_a_stream_that_its_upstream_breaks_off_is_counted_by_why():
    async def run() -> str:
        broken_answer = hang_up(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", event(says("Let me ")))
        async with serve(broken_answer) as server, run_gateway(at(server, dialect="hermes")) as gateway:
            path = "/v1/chat/completions"
            await gateway.client.post(path, json=ENDPOINTS[path].encode_request(REQUEST, model="m", stream=True))
            return (await gateway.client.get("/metrics")).text

    assert 'toolspeak_broken_streams_total{code="upstream_connection",' in asyncio.run(run())


# --- the log -----------------------------------------------------------------------------------------------------


@STREAMS
@PATHS
@pytest.mark.parametrize("shown", [True, False])
def test_the_log_holds_the_answer_if_it_is_to(path: str, stream: bool, shown: bool, caplog: pytest.LogCaptureFixture):
    text = "Let me look. " + call_text("hermes", ("weather", {"city": "Genoa"}))

    async def run() -> None:
        upstream = serve(in_turn(texts(*pieces(text))))
        async with upstream as server, run_gateway(at(server, dialect="hermes"), log_content=shown) as gateway:
            await gateway.ask(path, REQUEST, stream=stream)

    with caplog.at_level("INFO", "toolspeak.gateway"):
        asyncio.run(run())
    (fields,) = [record.fields for record in caplog.records if record.getMessage() == "request"]
    assert ("answer" in fields, "Genoa" in str(fields)) == (shown, shown)
    if shown:
        answer = json.dumps(json.loads(fields["answer"]))
        assert "Let me look." in answer
        assert "Genoa" in answer


def test_the_log_holds_what_was_said_until_a_stream_broke(caplog: pytest.LogCaptureFixture):
    broken_answer = hang_up(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", event(says("Let me ")))

    async def run() -> None:
        async with (
            serve(broken_answer) as server,
            run_gateway(at(server, dialect="hermes"), log_content=True) as gateway,
        ):
            for path, wire in ENDPOINTS.items():
                await gateway.client.post(path, json=wire.encode_request(REQUEST, model="m", stream=True))
            bad = await gateway.client.post(
                "/v1/messages", content=b"{oops", headers={"content-type": "application/json"}
            )
            assert bad.status_code == 400

    with caplog.at_level("INFO", "toolspeak.gateway"):
        asyncio.run(run())
    *cut_requests, bad = [record.fields for record in caplog.records if record.getMessage() == "request"]
    assert len(cut_requests) == len(ENDPOINTS)
    assert all("Let me" in fields["answer"] and fields["code"] == "upstream_connection" for fields in cut_requests)
    assert (bad["request"], "answer" in bad) == ("{oops", False)


# --- what an answer repeats --------------------------------------------------------------------------------------


@STREAMS
def test_a_response_repeats_what_was_asked(stream: bool):
    path = "/v1/responses"
    model_request = ModelRequest(
        REQUEST.messages, TOOLS, ToolChoice("none"), parallel=False, options={"metadata": {"a": "b"}}
    )

    async def run() -> Any:
        async with serve(in_turn(texts("Fine."))) as server, run_gateway(at(server, dialect="hermes")) as gateway:
            body = ENDPOINTS[path].encode_request(model_request, model="m", stream=stream)
            response = await gateway.client.post(path, json=body)
            return body, events(response.text)[-1]["response"] if stream else response.json()

    body, response = asyncio.run(run())
    field_names = ("tools", "tool_choice", "instructions", "metadata", "parallel_tool_calls", "model")
    assert {name: response[name] for name in field_names} == {name: body[name] for name in field_names}
    assert response["output"][0]["content"][0]["text"] == "Fine."
