"""What fails: upstreams, at any point of their answer, and clients that send nonsense, read slowly or leave."""

from __future__ import annotations

import asyncio
import json
import logging
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback_server import (
    STREAM_HEAD,
    Exchange,
    Server,
    event,
    hang_up,
    http_chunks,
    says,
    serve,
    until_client_leaves,
    whole,
)
from serving import ENDPOINTS, PATIENCE, TOOLS, at, call_text, events, in_turn, pieces, read, run_gateway, texts

from sweeps import fewer
from toolspeak.data.messages import Message, ToolCall
from toolspeak.gateway.admission import Admission
from toolspeak.gateway.settings.api_keys import digest, unnamed_key
from toolspeak.gateway.settings.gateway_settings import Bounds
from toolspeak.gateway.settings.upstream_settings import Upstream
from toolspeak.providers.http_settings import Timeouts
from toolspeak.wire.base import ModelRequest

QUESTION = Message.user("How is it?")
REQUEST = ModelRequest([QUESTION], TOOLS)
CALLS = [("weather", {"city": "Grüß 😀"}), ("clock", {"zone": "UTC"})]
HEAD = STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n"
CHAT = "/v1/chat/completions"


def body(path: str = CHAT, *, stream: bool = True, request: ModelRequest = REQUEST, model: str = "m") -> dict:
    return ENDPOINTS[path].encode_request(request, model=model, stream=stream)


def error_message(path: str, response) -> str:
    """The message of an error, in the endpoint's format."""
    error_body = response.json()
    assert error_body.get("type", "error") == "error"
    return error_body["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/messages/batches", "/v1/assistants"])
def test_the_error_of_a_missing_endpoint_lists_the_endpoints(path: str):
    async def run() -> None:
        async with run_gateway(Upstream(url="http://127.0.0.1:9/v1")) as gateway:
            response = await gateway.client.post(path, json={})
            assert response.status_code == 404
            assert "/v1/chat/completions" in error_message(path, response)
            assert ("type" in response.json()) == path.startswith("/v1/messages")

    asyncio.run(run())


def test_the_details_of_an_error_are_for_programs():
    async def run() -> None:
        async with run_gateway(Upstream(url="http://127.0.0.1:9/v1", dialect="hermes")) as gateway:
            request = {**body("/v1/messages", stream=False), "thread": {"type": "create"}}
            response = await gateway.client.post("/v1/messages", json=request)
            assert response.status_code == 400
            assert response.json()["error"]["details"]["error_code"] == "thread_unsupported_request"

    asyncio.run(run())


UPSTREAM_ERRORS = [
    (401, {"message": "Incorrect API key sk-upstream-secret-1"}, 502, "operator"),
    (402, {"message": "no credit"}, 502, "operator"),
    (404, {"message": "no such model"}, 404, "model"),
    (400, {"message": "This model's maximum context length is 10 tokens"}, 400, "context"),
    (400, {"message": "bad temperature"}, 400, "refuses"),
    (429, {"message": "slow down"}, 429, "wait"),
    (503, {"message": "overloaded"}, 503, "try again"),
    (500, {"message": "oops"}, 503, "try again"),
]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(("status", "error", "expected", "word"), UPSTREAM_ERRORS)
def test_an_upstreams_error_as_the_client_reads_it(status, error, expected, word, path, stream, monkeypatch, caplog):
    monkeypatch.setenv("UPSTREAM_KEY", "sk-upstream-secret-1")
    answer = whole(f"{status} X", json.dumps({"error": error}).encode(), "application/json", "retry-after: 90")

    async def run():
        async with (
            serve(answer) as server,
            run_gateway(at(server, dialect="hermes", key_variable="UPSTREAM_KEY")) as gateway,
        ):
            with caplog.at_level("INFO", "toolspeak.gateway"):
                response = await gateway.client.post(path, json=body(path, stream=stream))
            assert server.exchanges[0].headers["authorization"] == "Bearer sk-upstream-secret-1"
            return response

    response = asyncio.run(run())
    assert response.status_code == expected
    assert word in error_message(path, response).lower()
    assert "secret" not in response.text
    (fields,) = [record.fields for record in caplog.records if record.getMessage() == "request"]
    assert word in fields["error"].lower()
    assert "secret" not in str(fields)
    assert response.headers["x-request-id"]
    assert ("retry-after" in response.headers) == (expected in (429, 503))
    if path != "/v1/messages" and word == "context":
        assert response.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.over_a_second
def test_an_upstream_that_is_unreachable_or_silent():
    async def run():
        async with serve(hang_up()) as server:
            dead_url = server.base_url
        quiet = until_client_leaves(lambda: silent)
        async with (
            serve(quiet) as silent,
            run_gateway(
                Upstream(("gone",), url=dead_url, timeouts=Timeouts(PATIENCE, PATIENCE, PATIENCE)),
                Upstream(("quiet",), url=silent.base_url, timeouts=Timeouts(PATIENCE, 0.05, PATIENCE)),
            ) as gateway,
        ):
            gateway.client.headers["x-request-id"] = "mine-1"
            first = await gateway.client.post(CHAT, json=body(model="gone"))
            second = await gateway.client.post(CHAT, json=body(model="quiet"))
            third = await gateway.client.post(CHAT, json=body(model="other"))
            ready = await gateway.client.get("/readyz")
            return first, second, third, ready

    first, second, third, ready = asyncio.run(run())
    assert (first.status_code, second.status_code, third.status_code) == (502, 504, 404)
    assert "start the server" in error_message(CHAT, first).lower()
    assert "quiet" in error_message(CHAT, third)
    assert first.headers["x-request-id"] == "mine-1"
    assert (ready.status_code, ready.json()) == (
        503,
        {"status": "upstream unreachable", "unreachable": ["gone", "quiet"]},
    )


WHOLE = b"".join(texts(*pieces("Let me look. " + call_text("hermes", *CALLS), 5)))


@pytest.mark.parametrize("path", ENDPOINTS)
def test_an_answer_that_breaks_off_anywhere_is_reported_as_broken(path: str):
    """The break is at each of many places. Nothing after it may say that the answer is whole."""
    ends = WHOLE.index(b'"finish_reason": "stop"')

    async def run():
        cuts = [cut for cut in range(0, ends, 131) for _ in range(2)]
        answers = [hang_up(HEAD, http_chunks([WHOLE[:cut]])) for cut in cuts]
        async with serve(*answers) as server, run_gateway(at(server, dialect="hermes", retries=0)) as gateway:
            for cut in cuts[::2]:
                for stream in (True, False):
                    response = await gateway.client.post(path, json=body(path, stream=stream))
                    if response.status_code == 200:
                        assert stream
                        last = events(response.text)[-1]
                        assert "[DONE]" not in response.text
                        assert last.get("error") or last["response"]["status"] == "failed", cut
                    else:
                        assert response.status_code == 502
                        assert "dropped" in error_message(path, response)

    asyncio.run(run())


@pytest.mark.parametrize(
    "broken_event",
    [
        b"data: {\n\n",
        b'data: {"choices": 7}\n\n',
        b'data: {"error": {"message": "CUDA out of memory"}}\n\n',
        b"data: [1]\n\n",
    ],
)
@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_stream_that_turns_into_nonsense(path: str, broken_event: bytes):
    async def run():
        frames = [event(says("Let me ")), broken_event, *texts("x")]
        async with serve(in_turn(frames)) as server, run_gateway(at(server, dialect="hermes")) as gateway:
            return await gateway.client.post(path, json=body(path))

    response = asyncio.run(run())
    stream_events = events(response.text)
    assert response.status_code == 200
    assert "Let me" in response.text
    assert stream_events[-1].get("error") or stream_events[-1]["response"]["error"]
    assert "[DONE]" not in response.text


@pytest.mark.over_a_second
@given(st.lists(st.integers(1, len(WHOLE) - 1), max_size=12, unique=True), st.sampled_from(sorted(ENDPOINTS)))
@settings(max_examples=fewer(25))
def test_however_the_upstream_is_cut_the_client_reads_the_same(cuts: list[int], path: str):
    places = [0, *sorted(cuts), len(WHOLE)]
    pieces = [WHOLE[a:b] for a, b in pairwise(places)]

    async def run():
        async with serve(in_turn(pieces)) as server, run_gateway(at(server, dialect="hermes")) as gateway:
            response = await gateway.client.post(path, json=body(path))
            return read(ENDPOINTS[path], response.text, stream=True)

    turn = asyncio.run(run())
    assert [(call.name, call.arguments) for call in turn.calls if isinstance(call, ToolCall)] == CALLS
    assert turn.text.strip() == "Let me look."
    assert turn.finish == "tool_calls"


# --- clients -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_client_that_leaves_closes_the_upstreams_stream(stream: bool):
    async def run() -> None:
        servers: list[Server] = []
        beginning = [HEAD, http_chunks([event(says("Let me look."))])]
        answer = until_client_leaves(lambda: servers[0], *beginning)
        async with serve(answer) as server, run_gateway(at(server, dialect="hermes")) as gateway:
            servers.append(server)
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(raw(body(stream=stream)))
            if stream:
                await reader.readuntil(b"look.")
            else:
                await wait_until_stable(lambda: len(server.exchanges))
            writer.close()
            await server.client_gone.wait()
            metrics = await metric_value(
                gateway, 'toolspeak_clients_gone_total{endpoint="/v1/chat/completions",model="(other)"}'
            )
            assert metrics == 1

    asyncio.run(run())


def raw(fields: dict, *headers: bytes) -> bytes:
    content = json.dumps(fields).encode()
    head = [b"POST /v1/chat/completions HTTP/1.1", b"host: 127.0.0.1", b"content-type: application/json", *headers]
    return b"\r\n".join([*head, b"content-length: %d" % len(content), b"", content])


async def wait_until_stable(progress) -> None:
    """Waits until a number is above 0 and no longer changes."""
    last = -1
    while progress() != last or not last:
        last = progress()
        await asyncio.sleep(0.2)


async def metric_value(gateway, series: str) -> float:
    while True:
        text = (await gateway.client.get("/metrics")).text
        lines = [line for line in text.splitlines() if line.startswith(series)]
        if lines:
            return float(lines[0].rpartition(" ")[2])
        await asyncio.sleep(0.01)


@pytest.mark.over_a_second
def test_a_slow_client_slows_the_upstream_down():
    """The upstream offers 64 MiB to a client that reads nothing. They stay there until the client reads."""
    piece, count = "x" * 65536, 1024
    counter = [0]

    async def answer(exchange: Exchange) -> None:
        await exchange.send(HEAD)
        for _ in range(count):
            await exchange.send(http_chunks([event(says(piece))]))
            counter[0] += 1
        await exchange.send(http_chunks(texts("")), b"0\r\n\r\n")

    async def run() -> int:
        async with (
            serve(answer) as server,
            run_gateway(at(server, dialect="hermes")) as gateway,
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=65536)
            writer.write(raw(body(), b"connection: close"))
            await wait_until_stable(lambda: counter[0])
            assert counter[0] < count // 2
            read_bytes = 0
            while data := await reader.read(1 << 20):
                read_bytes += len(data)
            writer.close()
            return read_bytes

    assert asyncio.run(run()) > 65536 * count
    assert counter[0] == count


def test_a_client_that_stops_reading_is_dropped():
    async def run() -> None:
        servers: list[Server] = []

        async def answer(exchange: Exchange) -> None:
            await exchange.send(HEAD)
            try:
                while True:
                    await exchange.send(http_chunks([event(says("x" * 65536))]))
            finally:
                servers[0].client_gone.set()

        many = {"ping_seconds": 0.05, "stall_seconds": 0.2}
        async with serve(answer) as server, run_gateway(at(server, dialect="hermes"), **many) as gateway:
            servers.append(server)
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=1024)
            writer.write(raw(body()))
            await server.client_gone.wait()
            writer.close()
            assert reader.at_eof() is False

    asyncio.run(run())


def test_a_long_silence_is_filled_with_comments():
    async def run() -> str:
        go_on = asyncio.Event()

        async def answer(exchange: Exchange) -> None:
            await exchange.send(HEAD)
            await go_on.wait()
            await exchange.send(http_chunks(texts("Here I am.")), b"0\r\n\r\n")

        async with serve(answer) as server, run_gateway(at(server, dialect="hermes"), ping_seconds=0.02) as gateway:
            text = ""
            async with gateway.client.stream("POST", CHAT, json=body()) as response:
                async for piece in response.aiter_text():
                    text += piece
                    if text.count(": ping\n\n") >= 2:
                        go_on.set()
            return text

    text = asyncio.run(run())
    assert text.startswith(": ping\n\n")
    assert read(ENDPOINTS[CHAT], text, stream=True).text == "Here I am."


# --- requests ----------------------------------------------------------------------------------------------------

DEEP = b'{"model": "m", "messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
BAD_REQUESTS = [
    (b"", 400, "json"),
    (b"\xff\xfe", 400, "json"),
    (b'{"model": ', 400, "json"),
    (DEEP, 400, "deep"),
    (b'{"model": "m", "messages": [{"role": "user", "content": NaN}]}', 400, "json"),
    (b"[]", 400, "object"),
    (b'{"messages": []}', 400, ""),
    (b'{"model": "m"}', 400, ""),
    (b'{"model": "m", "messages": [{"role": 7, "content": "x"}], "input": 5, "max_tokens": "many"}', 400, ""),
    (b'{"model": "m", "messages": "' + b"x" * 5000 + b'"}', 413, "4096"),
]


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(("content", "status", "word"), BAD_REQUESTS, ids=[str(i) for i in range(len(BAD_REQUESTS))])
def test_a_request_that_cannot_be_answered(content: bytes, status: int, word: str, path: str):
    async def run():
        bounds = Bounds(body_bytes=4096 if status == 413 else 1 << 20)
        async with serve(in_turn(texts("Hi."))) as server, run_gateway(at(server), bounds=bounds) as gateway:
            response = await gateway.client.post(path, content=content, headers={"content-type": "application/json"})
            assert not server.exchanges
            return response

    response = asyncio.run(run())
    assert response.status_code == status
    assert word in error_message(path, response).lower()


def test_a_lone_surrogate_is_no_reason_to_refuse():
    content = json.dumps({"model": "m", "messages": [{"role": "user", "content": "half \ud83d"}]}).encode()

    async def run():
        async with serve(in_turn(texts("Hi."))) as server, run_gateway(at(server)) as gateway:
            response = await gateway.client.post(CHAT, content=content, headers={"content-type": "application/json"})
            return response, server.exchanges[0].json

    response, body = asyncio.run(run())
    assert response.status_code == 200
    assert body["messages"][0]["content"] == "half \ufffd"


def test_a_body_without_a_length_is_cut_off_too():
    async def run():
        async def many():
            for _ in range(100):
                yield b" " * 1000

        async with serve(in_turn()) as server, run_gateway(at(server), bounds=Bounds(body_bytes=4096)) as gateway:
            return await gateway.client.post(CHAT, content=many(), headers={"content-type": "application/json"})

    assert asyncio.run(run()).status_code == 413


@pytest.mark.parametrize("ended", [True, False])
def test_headers_have_a_size_limit(ended: bool):
    async def run() -> bytes:
        async with serve(in_turn()) as server, run_gateway(at(server), bounds=Bounds(header_bytes=2000)) as gateway:
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            endless = b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"y" * 100_000
            writer.write(endless + (b"\r\n\r\n" if ended else b""))
            answer = await reader.read()
            writer.close()
            return answer

    assert asyncio.run(run()).startswith(b"HTTP/1.1 431 ")


def test_only_a_valid_key_is_accepted():
    key = "k" * 20
    cases = [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": f"Basic {key}"}, 401),
        ({"authorization": f"Bearer {key}"}, 200),
        ({"authorization": f"bearer  {key}"}, 200),
        ({"x-api-key": key}, 200),
        ({"x-api-key": key + "x"}, 401),
    ]

    async def run():
        async with (
            serve(in_turn()) as server,
            run_gateway(at(server, names=("m",)), keys=(unnamed_key(digest(key)),)) as gateway,
        ):
            for headers, status in cases:
                for path in ("/v1/models", "/metrics"):
                    assert (await gateway.client.get(path, headers=headers)).status_code == status, headers
            assert (await gateway.client.get("/healthz")).status_code == 200
            refusal = await gateway.client.post("/v1/messages", json={})
            assert refusal.json()["error"]["type"] == "authentication_error"
            assert all(each.request_line.startswith("GET ") for each in server.exchanges)

    asyncio.run(run())


def test_a_web_page_cannot_ask_a_gateway_without_keys():
    async def run():
        async with serve(in_turn()) as server, run_gateway(at(server)) as gateway:
            rebound = await gateway.client.post(CHAT, json=body(), headers={"host": "evil.example:8080"})
            form = await gateway.client.post(CHAT, content=json.dumps(body()), headers={"content-type": "text/plain"})
            assert not server.exchanges
            return rebound.status_code, form.status_code

    assert asyncio.run(run()) == (403, 415)


def test_unknown_paths_and_methods():
    async def run():
        async with serve(in_turn()) as server, run_gateway(at(server)) as gateway:
            return [
                (await gateway.client.request(*each)).status_code
                for each in (("GET", "/"), ("GET", CHAT), ("POST", "/v1/models"), ("GET", "/v1/models/none"))
            ]

    assert asyncio.run(run()) == [404, 405, 405, 404]


def test_places_and_the_queue_are_bounded():
    async def run() -> None:
        go_on = asyncio.Event()

        async def answer(exchange: Exchange) -> None:
            await go_on.wait()
            await exchange.send(HEAD, http_chunks(texts("Hi.")), b"0\r\n\r\n")

        bounds = Bounds(streams=2, queue=2, queue_seconds=30)
        async with serve(answer) as server, run_gateway(at(server), bounds=bounds) as gateway:
            many = [asyncio.create_task(gateway.client.post(CHAT, json=body())) for _ in range(6)]
            finished_tasks, waiting = await asyncio.wait(many, return_when=asyncio.FIRST_COMPLETED)
            while len(finished_tasks) < 2:
                more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                finished_tasks |= more
            for task in finished_tasks:
                response = task.result()
                assert (response.status_code, response.headers["retry-after"]) == (429, "1")
            assert len(server.exchanges) <= 2
            go_on.set()
            assert [(await task).status_code for task in waiting] == [200] * 4
            assert (await gateway.client.post(CHAT, json=body())).status_code == 200

    asyncio.run(run())


def test_a_place_is_neither_lost_nor_given_twice_when_a_waiting_client_leaves():
    async def run():
        admission, order = Admission(Bounds(streams=1, queue=5, queue_seconds=30)), []

        async def stay(name):
            async with admission.place():
                order.append(name)
                await asyncio.Event().wait()

        async def turns():
            for _ in range(10):  # turns of the event loop: every task gets as far as it can
                await asyncio.sleep(0)

        async with admission.place():
            impatient, patient = asyncio.create_task(stay("impatient")), asyncio.create_task(stay("patient"))
            await turns()
            impatient.cancel()  # while the place is still in use
            await asyncio.wait([impatient])
            assert (admission.active, admission.queue_length) == (1, 1)
            late = asyncio.create_task(stay("late"))
            await turns()
        patient.cancel()  # the patient task already has the place and does not know it yet
        await turns()
        assert (admission.active, admission.queue_length, order) == (1, 0, ["late"])
        late.cancel()
        await asyncio.wait([late])
        await admission.wait_until_idle(20)
        assert admission.active == 0

    asyncio.run(run())


def test_a_client_that_waits_too_long_reads_when_to_retry():
    async def run():
        go_on = asyncio.Event()

        async def answer(exchange: Exchange) -> None:
            await go_on.wait()
            await exchange.send(HEAD, http_chunks(texts("Hi.")), b"0\r\n\r\n")

        bounds = Bounds(streams=1, queue=5, queue_seconds=0.05)
        async with serve(answer) as server, run_gateway(at(server), bounds=bounds) as gateway:
            both = [asyncio.create_task(gateway.client.post(CHAT, json=body())) for _ in range(2)]
            (late,), _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            go_on.set()
            await asyncio.gather(*both)
            return late.result()

    late = asyncio.run(run())
    assert (late.status_code, late.headers["retry-after"]) == (503, "1")


def test_the_log_describes_a_request_without_its_content(caplog):
    caplog.set_level(logging.INFO, "toolspeak.gateway")

    async def run(**more):
        answer = in_turn(texts(*pieces(call_text("hermes", *CALLS), 4)))
        keys = (unnamed_key(digest("k" * 20)),)
        async with serve(answer) as server, run_gateway(at(server, dialect="hermes"), keys=keys, **more) as gateway:
            headers = {"authorization": f"Bearer {'k' * 20}"}
            response = await gateway.client.post(CHAT, json=body(), headers=headers)
            metrics = (await gateway.client.get("/metrics", headers=headers)).text
            return response, metrics

    response, metrics = asyncio.run(run())
    (fields,) = [record.fields for record in caplog.records if record.getMessage() == "request"]
    assert (fields["id"], fields["status"], fields["model"]) == (response.headers["x-request-id"], 200, "m")
    assert (fields["calls"], fields["input_tokens"], fields["output_tokens"], fields["dialect"]) == (
        2,
        30,
        12,
        "hermes",
    )
    assert fields["key"] == digest("k" * 20)[:8]
    assert fields["chunks"] > 10
    text = json.dumps(fields)
    assert "How is it" not in text
    assert "kkkk" not in text
    assert 'toolspeak_calls_total{dialect="hermes",model="(other)"} 2.0' in metrics
    assert 'toolspeak_tokens_total{kind="output",model="(other)"} 12.0' in metrics
    caplog.clear()
    asyncio.run(run(log_content=True))
    assert any(
        "How is it" in record.fields.get("request", "") for record in caplog.records if hasattr(record, "fields")
    )


@pytest.mark.parametrize(("status", "code"), [(429, 429), (503, 503)])
def test_a_wait_of_more_than_two_seconds_is_left_to_the_client(status: int, code: int):
    answer = whole(f"{status} X", b'{"error": {"message": "later"}}', "application/json", "retry-after: 3")

    async def run() -> None:
        async with serve(answer) as server, run_gateway(at(server, retries=2)) as gateway:
            response = await gateway.client.post(CHAT, json=body())
            assert (response.status_code, response.headers["retry-after"]) == (code, "3")
            assert len(server.exchanges) == 1

    asyncio.run(run())


def test_a_path_may_end_in_a_slash():
    async def run() -> None:
        async with serve(in_turn(texts("Fine."))) as server, run_gateway(at(server, names=("m",))) as gateway:
            for path in ("/health", "/healthz", "/health/", "/healthz/", "/metrics/", "/v1/models/", "/v1/models/m/"):
                assert (await gateway.client.get(path)).status_code == 200, path
            assert (await gateway.client.post(f"{CHAT}/", json=body())).text.endswith("data: [DONE]\n\n")
            assert (await gateway.client.get("/health//")).status_code == 404

    asyncio.run(run())
