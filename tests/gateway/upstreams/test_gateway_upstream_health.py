"""What the gateway concludes from the failures of its upstreams, and where it says so."""

from __future__ import annotations

import asyncio

import pytest
from loopback_server import STREAM_HEAD, Answer, Exchange, Server, event, http_chunks, says, serve, whole
from serving import ENDPOINTS, TOOLS, Gateway, at, run_gateway, texts

from toolspeak.data.messages import Message
from toolspeak.gateway.settings.api_keys import Key, digest
from toolspeak.wire.base import ModelRequest

CHAT = "/v1/chat/completions"
HEAD = STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n"
PLAIN = ModelRequest([Message.user("How is it?")])
WITH_TOOLS = ModelRequest([Message.user("How is it?")], TOOLS)
each_request = pytest.mark.parametrize("model_request", [PLAIN, WITH_TOOLS], ids=["relayed", "with tools"])


def answers(*turn: bytes) -> Answer:
    """The same turn for every request, and a list of models."""

    async def answer(exchange: Exchange) -> None:
        if exchange.request_line.startswith("GET"):
            await whole("200 OK", b'{"data": [{"id": "m"}]}')(exchange)
        else:
            await exchange.send(HEAD, http_chunks(turn), b"0\r\n\r\n")

    return answer


async def breaks(exchange: Exchange) -> None:
    """Lists its models, and drops the connection in the middle of each answer."""
    if exchange.request_line.startswith("GET"):
        await whole("200 OK", b'{"data": [{"id": "m"}]}')(exchange)
        return
    await exchange.send(HEAD, http_chunks([event(says("One, "))]))
    exchange.writer.close()


def posts(server: Server) -> int:
    return sum(exchange.request_line.startswith("POST") for exchange in server.exchanges)


async def stream(gateway: Gateway, model_request: ModelRequest = PLAIN) -> str:
    body = ENDPOINTS[CHAT].encode_request(model_request, model="m", stream=True)
    return (await gateway.client.post(CHAT, json=body)).text


async def metric(gateway: Gateway, beginning: str) -> float | None:
    """The value of the first series whose line begins so."""
    for line in (await gateway.client.get("/metrics")).text.splitlines():
        if line.startswith(beginning):
            return float(line.rpartition(" ")[2])
    return None


def up(server: Server) -> str:
    return f'toolspeak_upstream_up{{model="*",upstream="127.0.0.1:{server.port}"}}'


@each_request
def test_an_upstream_that_breaks_every_stream_in_the_middle_is_put_aside(model_request):
    async def run() -> None:
        async with (
            serve(breaks) as a,
            serve(answers(*texts("Fine."))) as b,
            run_gateway(at(a), at(b), aside_seconds=3600) as gateway,
        ):
            stream_texts = [await stream(gateway, model_request) for _ in range(24)]
            assert posts(a) == 3
            assert sum("Fine." in text for text in stream_texts) == 21
            assert await metric(gateway, up(a)) == 0
            assert await metric(gateway, up(b)) == 1

    asyncio.run(run())


def test_after_a_trial_that_breaks_in_the_middle_one_failure_puts_it_aside_again():
    """The probe is answered, and so is the beginning of each stream."""

    async def run() -> None:
        async with (
            serve(breaks) as a,
            serve(answers(*texts("Fine."))) as b,
            run_gateway(at(a), at(b), aside_seconds=0.02) as gateway,
        ):
            while posts(a) < 6:  # three in a row, and three trials
                await stream(gateway)
            assert await metric(gateway, up(a)) == 0

    asyncio.run(run())


@each_request
def test_log_and_metrics_follow_a_single_upstream_while_requests_still_go_there(model_request, caplog):
    is_broken = [True]

    async def sometimes(exchange: Exchange) -> None:
        await (breaks if is_broken[0] else answers(*texts("Fine.")))(exchange)

    async def run() -> None:
        async with serve(sometimes) as server, run_gateway(at(server)) as gateway:
            for failures in range(1, 6):
                await stream(gateway, model_request)
                assert await metric(gateway, up(server)) == (failures < 3)
            is_broken[0] = False
            assert "Fine." in await stream(gateway, model_request)
            assert await metric(gateway, up(server)) == 1

    with caplog.at_level("INFO", "toolspeak.gateway"):
        asyncio.run(run())
    lines = [record.fields for record in caplog.records if record.getMessage() == "upstream_aside"]
    assert [(line["model"], line.get("seconds")) for line in lines] == [("*", None)]
    assert sum(record.getMessage() == "upstream_back" for record in caplog.records) == 1


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
def test_an_upstream_that_refuses_the_key_of_the_gateway_is_not_ready(status: str):
    async def run() -> None:
        refuses = whole(status, b'{"error": {"message": "wrong key"}}')
        async with serve(refuses) as server, run_gateway(at(server, names=("m",))) as gateway:
            ready = await gateway.client.get("/readyz")
            assert (ready.status_code, ready.json()["unreachable"]) == (503, ["m"])
            assert "key" not in ready.text
            for _ in range(3):
                await stream(gateway)
            assert await metric(gateway, up(server).replace("*", "m")) == 0

    asyncio.run(run())


def test_counters_begin_at_0_for_what_is_known_beforehand():
    async def run() -> None:
        key = Key("bob", digest("a-key-of-bob-0123456789"), metrics=True)
        async with (
            serve(answers(*texts("Fine."))) as server,
            run_gateway(at(server, names=("m",), dialect="hermes"), keys=(key,)) as gateway,
        ):
            gateway.client.headers["authorization"] = "Bearer a-key-of-bob-0123456789"
            for beginning in (
                'toolspeak_malformed_calls_total{dialect="hermes",model="m"}',
                'toolspeak_notes_total{code="leaked_call",dialect="hermes",model="m"}',
                'toolspeak_clients_gone_total{endpoint="/v1/chat/completions",model="m"}',
                'toolspeak_broken_streams_total{code="upstream_connection",endpoint="/v1/messages",model="m"}',
                'toolspeak_rejected_total{code="invalid_api_key"}',
                'toolspeak_key_malformed_calls_total{key="bob"}',
                'toolspeak_key_tokens_total{key="bob",kind="input"}',
                'toolspeak_reloads_total{outcome="failed"}',
            ):
                assert await metric(gateway, beginning) == 0, beginning
            assert await metric(gateway, "toolspeak_config_last_reload_successful") == 1

    asyncio.run(run())
