"""Several upstreams of one model: which one gets a request, and what happens to requests when one fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from loopback_server import STREAM_HEAD, Answer, Exchange, Server, event, hang_up, http_chunks, says, serve, whole
from serving import ENDPOINTS, PATIENCE, TOOLS, Gateway, at, call_text, events, pieces, run_gateway, texts

from toolspeak.data.deltas import ArgumentsDelta, CallStarted, TextDelta, TurnEnded
from toolspeak.data.messages import Message
from toolspeak.errors import ConfigurationError
from toolspeak.gateway.http.asgi import event as sse_event
from toolspeak.gateway.settings.gateway_settings import read_config
from toolspeak.gateway.settings.upstream_settings import Upstream
from toolspeak.providers.http_settings import Timeouts
from toolspeak.wire.base import ModelRequest, WireRequest

CHAT = "/v1/chat/completions"
HEAD = STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n"
PLAIN = ModelRequest([Message.user("How is it?")])
WITH_TOOLS = ModelRequest([Message.user("How is it?")], TOOLS)
STREAMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
PATHS = pytest.mark.parametrize("path", ENDPOINTS)
each_request = pytest.mark.parametrize("model_request", [PLAIN, WITH_TOOLS], ids=["relayed", "with tools"])


def answers(*turn: bytes) -> Answer:
    """Answers every request with the same turn, and lists models."""

    async def answer(exchange: Exchange) -> None:
        if exchange.request_line.startswith("GET"):
            await whole("200 OK", b'{"data": [{"id": "m"}]}')(exchange)
        else:
            await exchange.send(HEAD, http_chunks(turn), b"0\r\n\r\n")

    return answer


def error(status: int, message: str = "no", *headers: str) -> Answer:
    return whole(f"{status} X", json.dumps({"error": {"message": message}}).encode(), "application/json", *headers)


def asked_models(server: Server) -> list[Exchange]:
    return [exchange for exchange in server.exchanges if exchange.request_line.startswith("POST")]


def two(
    first: Answer,
    second: Answer,
    use: Callable[[Gateway, Server, Server], Awaitable[Any]],
    *,
    rows: Callable[[Server, Server], list[Upstream]] = lambda a, b: [at(a), at(b)],
    **settings: Any,
) -> Any:
    """The result of `use` with a gateway whose model has two upstreams."""

    async def run() -> Any:
        async with serve(first) as a, serve(second) as b, run_gateway(*rows(a, b), **settings) as gateway:
            return await use(gateway, a, b)

    return asyncio.run(run())


def test_upstreams_take_turns():
    async def use(gateway: Gateway, a: Server, b: Server) -> None:
        for _ in range(4):
            await gateway.ask(CHAT, WITH_TOOLS, stream=True)
        assert (len(a.exchanges), len(b.exchanges)) == (2, 2)

    two(answers(*texts("a")), answers(*texts("b")), use)


FAILURES: dict[str, Answer] = {
    "500": error(500),
    "503": error(503),
    "429": error(429, "slow down", "retry-after: 90"),
    "401": error(401, "wrong key"),
    "402": error(402, "no credit"),
    "404": error(404, "no such model"),
    "a page": whole("200 OK", b"<html>", "text/html"),
    "dropped": hang_up(),
    "dropped in the head": hang_up(STREAM_HEAD),
    "dropped before the first event": hang_up(HEAD),
}


@STREAMS
@PATHS
@each_request
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_before_the_first_byte_sends_the_request_to_the_next_upstream(
    failure, model_request, path, stream, caplog
):
    async def use(gateway: Gateway, a: Server, b: Server) -> None:
        for _ in range(2):  # either upstream may be the first
            turn, _ = await gateway.ask(path, model_request, stream=stream)
            assert turn.message.text == "Fine."
        assert len(asked_models(b)) == 2

    kinds = {"/v1/messages": "anthropic", "/v1/responses": "openai-responses"}

    def rows(a: Server, b: Server) -> list[Upstream]:
        return [at(a, provider=kinds.get(path, "openai"), key_variable="KEY"), at(b, dialect="hermes")]

    with pytest.MonkeyPatch.context() as monkeypatch, caplog.at_level("INFO", "toolspeak.gateway"):
        monkeypatch.setenv("KEY", "a-key-0123456789")
        two(FAILURES[failure], answers(*texts("Fine.")), use, rows=rows)
    lines = [record.fields for record in caplog.records if record.getMessage() == "request"]
    assert [line["status"] for line in lines] == [200, 200]
    (failed_upstreams,) = [line["failed"] for line in lines if "failed" in line]
    assert len(failed_upstreams) == 1


@STREAMS
@each_request
def test_a_failure_caused_by_the_request_sends_it_to_no_other_upstream(model_request, stream):
    async def use(gateway: Gateway, a: Server, b: Server) -> None:
        response = await gateway.client.post(
            CHAT, json=ENDPOINTS[CHAT].encode_request(model_request, model="m", stream=stream)
        )
        assert response.status_code == 400
        assert not b.exchanges

    two(error(400, "bad temperature"), answers(*texts("Fine.")), use)


@each_request
def test_after_the_first_byte_a_stream_ends_in_an_error(model_request):
    async def break_off(exchange: Exchange) -> None:
        await exchange.send(HEAD, http_chunks([event(says("One, "))]))
        exchange.writer.close()

    async def use(gateway: Gateway, a: Server, b: Server) -> None:
        response = await gateway.client.post(
            CHAT, json=ENDPOINTS[CHAT].encode_request(model_request, model="m", stream=True)
        )
        stream_events = events(response.text)
        assert "One, " in response.text
        assert "dropped" in stream_events[-1]["error"]["message"]
        assert "[DONE]" not in stream_events
        assert not b.exchanges

    two(break_off, answers(*texts("Fine.")), use)


@each_request
def test_a_whole_answer_is_requested_again_until_it_is_complete(model_request):
    """Nothing has reached the client, so the gateway drops what broke off."""

    async def break_off(exchange: Exchange) -> None:
        await exchange.send(HEAD, http_chunks([event(says("One, "))]))
        exchange.writer.close()

    async def use(gateway: Gateway, a: Server, b: Server) -> None:
        turn, _ = await gateway.ask(CHAT, model_request, stream=False)
        assert turn.message.text == "Fine."
        assert len(a.exchanges) == len(b.exchanges) == 1

    two(break_off, answers(*texts("Fine.")), use)


def test_each_upstream_gets_the_request_in_its_own_form():
    """Model, dialect, options and key differ. The client reads the same answer."""
    call = ("weather", {"city": "Bern"})

    async def use(gateway: Gateway, a: Server, b: Server) -> None:
        turn, response = await gateway.ask(CHAT, WITH_TOOLS, stream=True)
        assert [(each.name, getattr(each, "arguments", None)) for each in turn.calls] == [call]
        assert '"model":"m"' in response.text.replace(" ", "")
        first, second = a.exchanges[0].json, b.exchanges[0].json
        assert (first["model"], second["model"]) == ("one", "two")
        assert "tools" in first
        assert "tools" not in second
        assert "weather" in json.dumps(second["messages"])
        assert a.exchanges[0].headers["authorization"] == "Bearer the-first-0123456"
        assert "authorization" not in b.exchanges[0].headers
        assert ("top_k" in first, second.get("top_k")) == (False, 3)

    def rows(a: Server, b: Server) -> list[Upstream]:
        return [
            at(a, model="one", dialect="native", key_variable="FIRST"),
            at(b, model="two", dialect="hermes", options={"top_k": 3}),
        ]

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("FIRST", "the-first-0123456")
        two(error(503), answers(*texts(*pieces(call_text("hermes", call)))), use, rows=rows)


@each_request
def test_after_all_upstreams_failed_they_are_tried_again_after_a_pause(model_request):
    """This happens as often as `retries` says. The client reads the failure that allows it to retry."""
    failures = [error(500)]

    async def mends(exchange: Exchange) -> None:
        await (failures.pop() if failures else answers(*texts("Fine.")))(exchange)

    async def use(gateway: Gateway, a: Server, b: Server) -> tuple[int, int]:
        turn, _ = await gateway.ask(CHAT, model_request, stream=True)
        assert turn.message.text == "Fine."
        return len(a.exchanges), len(b.exchanges)

    def rows(a: Server, b: Server) -> list[Upstream]:
        return [at(a, retries=1), at(b, retries=1)]

    assert two(mends, error(404), use, rows=rows) == (2, 1)


@pytest.mark.parametrize(
    ("first", "second", "status", "wait"),
    [
        (error(401), error(429, "later", "retry-after: 40"), 429, "40"),
        (error(429, "later", "retry-after: 40"), error(429, "later", "retry-after: 30"), 429, "30"),
        (error(404), hang_up(), 502, None),
        (error(404), error(404), 404, None),
        (error(503, "busy", "retry-after: 7"), error(400, "bad"), 400, None),
    ],
)
def test_the_error_if_no_upstream_answers(first, second, status, wait):
    async def use(gateway: Gateway, a: Server, b: Server) -> None:
        response = await gateway.client.post(CHAT, json=ENDPOINTS[CHAT].encode_request(PLAIN, model="m", stream=True))
        assert (response.status_code, response.headers.get("retry-after")) == (status, wait)
        assert "127.0.0.1" not in response.text

    two(first, second, use)


def test_an_upstream_that_keeps_failing_is_set_aside_and_comes_back(caplog):
    """After some failures in a row, no request tries it until it answers a probe and one trial."""
    is_broken = [True]

    async def sometimes(exchange: Exchange) -> None:
        if is_broken[0]:
            await error(500)(exchange)
        else:
            await answers(*texts("a"))(exchange)

    async def use(gateway: Gateway, a: Server, b: Server) -> None:
        async def says() -> str:
            return (await gateway.ask(CHAT, WITH_TOOLS, stream=True))[0].message.text

        async def state() -> str:
            text = (await gateway.client.get("/metrics")).text
            port = next(
                line for line in text.splitlines() if line.startswith("toolspeak_upstream_up") and f":{a.port}" in line
            )
            return port.rpartition(" ")[2]

        assert await state() == "1.0"
        while await state() == "1.0":
            assert await says() == "b"
        assert len(asked_models(a)) == 3
        is_broken[0] = False
        names: list[str] = []
        while await state() == "0.0":
            names.append(await says())
        assert set(names[:-1]) <= {"b"}
        assert {await says(), await says()} == {"a", "b"}
        metrics = (await gateway.client.get("/metrics")).text
        assert (
            f'toolspeak_upstream_failures_total{{code="overloaded",model="*",upstream="127.0.0.1:{a.port}"}} 3.0'
            in metrics
        )
        assert f'toolspeak_upstream_requests_total{{model="*",upstream="127.0.0.1:{a.port}"}}' in metrics

    with caplog.at_level("INFO", "toolspeak.gateway"):
        two(sometimes, answers(*texts("b")), use, aside_seconds=0.05)
    messages = [record.getMessage() for record in caplog.records if record.getMessage().startswith("upstream_")]
    assert messages[0] == "upstream_aside"
    assert messages[-1] == "upstream_back"


def test_an_upstream_that_asks_to_wait_gets_no_requests_meanwhile():
    async def use(gateway: Gateway, a: Server, b: Server) -> None:
        for _ in range(6):
            turn, _ = await gateway.ask(CHAT, WITH_TOOLS, stream=True)
            assert turn.message.text == "b"
        assert len(a.exchanges) == 1

    two(error(429, "later", "retry-after: 30"), answers(*texts("b")), use)


def test_upstreams_that_are_set_aside_are_tried_if_no_other_is_left():
    states = {"a": True, "b": True}

    def either(name: str) -> Answer:
        async def answer(exchange: Exchange) -> None:
            await (error(500) if states[name] else answers(*texts(name)))(exchange)

        return answer

    async def use(gateway: Gateway, a: Server, b: Server) -> None:
        body = ENDPOINTS[CHAT].encode_request(WITH_TOOLS, model="m", stream=True)
        for _ in range(8):
            assert (await gateway.client.post(CHAT, json=body)).status_code == 503
        states["b"] = False
        turn, _ = await gateway.ask(CHAT, WITH_TOOLS, stream=True)
        assert turn.message.text == "b"

    two(either("a"), either("b"), use, aside_seconds=3600.0)


def test_conversations_with_the_same_beginning_stay_with_one_upstream():
    """Another gateway chooses the same upstream. If an upstream is lost, only its conversations move."""

    def conversation(number: int, more: int = 0) -> dict[str, Any]:
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"Question {number}."}]
        for i in range(more):
            messages += [{"role": "assistant", "content": f"{i}."}, {"role": "user", "content": f"And {i}?"}]
        return {"model": "m", "messages": messages, "tools": [{"type": "function", "function": {"name": "clock"}}]}

    async def run() -> None:
        async with AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(serve(answers(*texts(f"s{i}")))) for i in range(3)]
            rows = [at(server, policy="sticky", dialect="hermes") for server in servers]

            async def ask(gateway: Gateway, body: dict[str, Any]) -> str:
                return (await gateway.client.post(CHAT, json=body)).json()["choices"][0]["message"]["content"]

            async with run_gateway(*rows) as gateway, run_gateway(*rows) as other:
                homes = [await ask(gateway, conversation(number)) for number in range(30)]
                assert set(homes) == {"s0", "s1", "s2"}
                for number, home in enumerate(homes):
                    assert await ask(other, conversation(number, more=1 + number % 3)) == home
            async with run_gateway(*rows[1:]) as gateway:
                for number, home in enumerate(homes):
                    now = await ask(gateway, conversation(number))
                    assert now == home or home == "s0"

    asyncio.run(run())


def test_the_gateway_is_ready_while_some_model_has_an_upstream_and_names_the_models_that_have_none():
    async def run() -> None:
        async with serve(hang_up()) as server:
            dead_url = server.base_url
        async with serve(answers()) as server:
            missing = Upstream(("m",), url=dead_url, timeouts=Timeouts(PATIENCE, PATIENCE, PATIENCE))
            async with run_gateway(missing, at(server, names=("m",))) as gateway:
                assert (await gateway.client.get("/readyz")).json() == {"status": "ready"}
            async with run_gateway(missing, at(server, names=("m",)), Upstream(("n", "o*"), url=dead_url)) as gateway:
                ready = await gateway.client.get("/readyz")
                assert (ready.status_code, ready.json()) == (200, {"status": "ready", "unreachable": ["n", "o*"]})
            async with run_gateway(missing) as gateway:
                assert (await gateway.client.get("/readyz")).status_code == 503

    asyncio.run(run())


def test_the_next_upstream_counts_tokens_if_one_fails():
    async def count(exchange: Exchange) -> None:
        await whole("200 OK", b'{"input_tokens": 7}')(exchange)

    async def use(gateway: Gateway, a: Server, b: Server) -> None:
        body = ENDPOINTS["/v1/messages"].encode_request(WITH_TOOLS, model="m", stream=False)
        response = await gateway.client.post("/v1/messages/count_tokens", json=body)
        assert response.json() == {"input_tokens": 7}

    def rows(a: Server, b: Server) -> list[Upstream]:
        return [at(each, provider="anthropic", key_variable="KEY") for each in (a, b)]

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("KEY", "a-key-0123456789")
        two(error(503), count, use, rows=rows)


@each_request
def test_the_next_upstream_takes_over_from_a_silent_one_even_after_pings(model_request):
    """A ping is not a byte of the answer."""

    async def silent(exchange: Exchange) -> None:
        await exchange.send(HEAD)
        await exchange.reader.read()

    async def use(gateway: Gateway, a: Server, b: Server) -> None:
        body = ENDPOINTS[CHAT].encode_request(model_request, model="m", stream=True)
        response = await gateway.client.post(CHAT, json=body)
        assert response.status_code == 200
        assert ": ping" in response.text
        assert "Fine." in response.text
        assert events(response.text)[-1] == "[DONE]"
        assert "error" not in response.text

    def rows(a: Server, b: Server) -> list[Upstream]:
        return [at(a, timeouts=Timeouts(PATIENCE, 0.2, PATIENCE)), at(b)]

    two(silent, answers(*texts("Fine.")), use, rows=rows, ping_seconds=0.02)


def test_a_trial_whose_client_leaves_is_followed_by_another():
    mode, arrival = ["broken"], asyncio.Event()

    async def model(exchange: Exchange) -> None:
        if exchange.request_line.startswith("GET") or mode[0] == "fine":
            await answers(*texts("a"))(exchange)
        elif mode[0] == "broken":
            await error(500)(exchange)
        else:
            arrival.set()
            await exchange.reader.read()

    async def use(gateway: Gateway, a: Server, b: Server) -> None:
        async def says() -> str:
            return (await gateway.ask(CHAT, WITH_TOOLS, stream=True))[0].message.text

        for _ in range(6):
            assert await says() == "b"
        mode[0] = "hangs"
        while not arrival.is_set():
            trial = asyncio.create_task(says())
            await asyncio.wait([trial, asyncio.create_task(arrival.wait())], return_when=asyncio.FIRST_COMPLETED)
        trial.cancel()
        await asyncio.gather(trial, return_exceptions=True)
        mode[0] = "fine"
        while await says() != "a":
            pass

    two(model, answers(*texts("b")), use, aside_seconds=0.02)


EMBEDDINGS = {"data": [{"embedding": [1]}], "usage": {"prompt_tokens": 1, "total_tokens": 1}}


@pytest.mark.parametrize("failure", ["503", "404", "429", "dropped", "a page"])
@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/completions", "/v1/audio/transcriptions"])
def test_other_endpoints_go_to_the_next_upstream_too(failure: str, path: str):
    async def use(gateway: Gateway, a: Server, b: Server) -> None:
        if path.endswith("transcriptions"):
            fields = {"data": {"model": "m"}, "files": {"file": ("a.wav", b"RIFF")}}
        else:
            fields = {"json": {"model": "m", "input": "x"}}
        response = await gateway.client.post(path, **fields)
        assert (response.status_code, response.json()) == (200, EMBEDDINGS)
        assert len(a.exchanges) == len(b.exchanges) == 1

    two(FAILURES[failure], whole("200 OK", json.dumps(EMBEDDINGS).encode()), use)


def test_an_upstream_of_another_api_is_not_asked_for_other_endpoints():
    async def use(gateway: Gateway, a: Server, b: Server) -> None:
        for _ in range(2):
            assert (await gateway.client.post("/v1/embeddings", json={"model": "m", "input": "x"})).status_code == 200
        assert not a.exchanges

    def rows(a: Server, b: Server) -> list[Upstream]:
        return [at(a, provider="anthropic", key_variable="KEY"), at(b)]

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("KEY", "a-key-0123456789")
        two(error(500), whole("200 OK", json.dumps(EMBEDDINGS).encode()), use, rows=rows)


def test_a_configuration_lists_upstreams(tmp_path: Path):
    path = tmp_path / "gateway.toml"
    path.write_text(
        """
        [[model]]
        name = "coder"
        dialect = "qwen3-coder"
        policy = "sticky"
        upstreams = ["http://10.0.0.5:8000/v1", { upstream = "vllm:other", url = "http://10.0.0.6/v1", repair = 1 }]

        [[model]]
        name = "chat"
        retries = 1
        [[model.upstreams]]
        upstream = "http://10.0.0.5:8000/v1"
        [[model.upstreams]]
        upstream = "openai:gpt-5"
        dialect = "native"
        """
    )
    shared_fields = {"names": ("coder",), "dialect": "qwen3-coder", "policy": "sticky"}
    assert read_config(path).upstreams == (
        Upstream(**shared_fields, url="http://10.0.0.5:8000/v1"),
        Upstream(**shared_fields, provider="vllm", model="other", url="http://10.0.0.6/v1", repair=1),
        Upstream(("chat",), url="http://10.0.0.5:8000/v1", retries=1),
        Upstream(("chat",), model="gpt-5", dialect="native", retries=1),
    )


def test_a_single_upstream_may_have_a_policy(tmp_path: Path):
    path = tmp_path / "gateway.toml"
    path.write_text('[[model]]\nname = "m"\nupstream = "http://h/v1"\npolicy = "sticky"\n')
    (upstream,) = read_config(path).upstreams
    assert upstream.policy == "sticky"


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("upstreams = []", r"model\[0\]\.upstreams: write a list"),
        ('upstreams = "http://h/v1"', r"model\[0\]\.upstreams: write a list"),
        ("upstreams = [7]", r"model\[0\]\.upstreams\[0\]: expected an address"),
        ('upstream = "http://h/v1"\nupstreams = ["http://g/v1"]', "not both"),
        ('upstream = "http://h/v1"\ndialect = "hermess"', r"toml: model\[0\]\.dialect: There is no dialect 'hermess'"),
        (
            'upstreams = ["http://h/v1"]\npolicy = "stick"',
            r"toml: model\[0\]\.policy: there is no 'stick'\. Did you mean 'sticky'",
        ),
        (
            'upstreams = [{ upstream = "http://h/v1", repair = 9 }]\ndialect = "hermes"',
            r"toml: model\[0\]\.upstreams\[0\]\.repair: expected 0",
        ),
        ('upstreams = [{ upstream = "http://h/v1", name = "n" }]', r"model\[0\]\.upstreams\[0\]\.name: unknown key"),
        ('upstreams = ["http://h/v1", "htp://g"]', r"model\[0\]\.upstreams\[1\]\.upstream: the upstream 'htp://g'"),
        ('upstream = "http://h/v1"\n[[model]]\nname = "m"\nupstream = "http://g/v1"', "list both as `upstreams`"),
    ],
)
def test_errors_in_a_list_of_upstreams_are_reported(row: str, problem: str, tmp_path: Path):
    path = tmp_path / "gateway.toml"
    path.write_text(f'[[model]]\nname = "m"\n{row}\n')
    with pytest.raises(ConfigurationError, match=problem):
        read_config(path)


def test_keys_in_addresses_are_shown_nowhere(caplog):
    def rows(a: Server, b: Server) -> list[Upstream]:
        return [at(each, url=each.base_url.replace("//", "//me:secret@")) for each in (a, b)]

    async def use(gateway: Gateway, a: Server, b: Server) -> None:
        await gateway.ask(CHAT, WITH_TOOLS, stream=True)
        metrics = (await gateway.client.get("/metrics")).text
        assert f'upstream="127.0.0.1:{a.port}"' in metrics
        assert "secret" not in metrics

    with caplog.at_level("INFO", "toolspeak.gateway"):
        two(error(503), answers(*texts("Fine.")), use, rows=rows)
    assert "secret" not in str([record.__dict__ for record in caplog.records])


@PATHS
def test_after_the_head_of_a_relayed_answer_no_other_upstream_is_tried(path):
    """The gateway holds back a native call, but the events before the call have already left."""
    wire = ENDPOINTS[path]
    encoder = wire.encoder(WireRequest(WITH_TOOLS, "m", stream=True), response_id="r1", created_at=1)
    deltas = [CallStarted(0, "weather", "c1"), ArgumentsDelta(0, '{"city":')]
    frames = [frame for delta in deltas for frame in encoder.feed(delta)]

    async def break_off(exchange: Exchange) -> None:
        await exchange.send(HEAD, http_chunks([b"".join(sse_event(frame) for frame in frames)]))
        exchange.writer.close()

    async def use(gateway: Gateway, a: Server, b: Server) -> None:
        body = wire.encode_request(WITH_TOOLS, model="m", stream=True)
        response = await gateway.client.post(path, json=body)
        stream_events = events(response.text)
        heads = [
            data
            for data in stream_events
            if data != "[DONE]" and data.get("type") in ("message_start", "response.created")
        ]
        assert len(heads) == (path != CHAT)
        if b.exchanges:  # then nothing of the first answer has left
            assert "r1" not in response.text
        else:
            assert "dropped" in json.dumps(stream_events[-1])

    def rows(a: Server, b: Server) -> list[Upstream]:
        kind = {"/v1/messages": "anthropic", "/v1/responses": "openai-responses"}.get(path, "openai")
        native: Any = {"provider": kind, "key_variable": "KEY", "dialect": "native", "hold_calls": True}
        return [at(a, **native), at(b, **native)]

    async def second(exchange: Exchange) -> None:
        own = wire.encoder(WireRequest(WITH_TOOLS, "m", stream=True), response_id="r2", created_at=1)
        frames = [frame for delta in (TextDelta("Fine."), TurnEnded("stop")) for frame in own.feed(delta)]
        await exchange.send(HEAD, http_chunks([b"".join(map(sse_event, frames))]), b"0\r\n\r\n")

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("KEY", "a-key-0123456789")
        two(break_off, second, use, rows=rows)
