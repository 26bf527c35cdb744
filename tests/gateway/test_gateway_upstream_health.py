"""What the gateway concludes from the failures of its upstreams, and where it says so."""

from __future__ import annotations

import asyncio

import pytest
from loopback_server import STREAM_HEAD, Answer, Exchange, Server, chunked, event, says, serve, whole
from serving import ENDPOINTS, TOOLS, Gateway, at, gateway, texts

from toolspeak.data.messages import Message
from toolspeak.wire.base import ModelRequest

CHAT = "/v1/chat/completions"
HEAD = STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n"
PLAIN = ModelRequest([Message.user("How is it?")])
WITH_TOOLS = ModelRequest([Message.user("How is it?")], TOOLS)
ASKED = pytest.mark.parametrize("asked", [PLAIN, WITH_TOOLS], ids=["relayed", "with tools"])


def answers(*turn: bytes) -> Answer:
    """The same turn for every request, and a list of models."""

    async def answer(exchange: Exchange) -> None:
        if exchange.request_line.startswith("GET"):
            await whole("200 OK", b'{"data": [{"id": "m"}]}')(exchange)
        else:
            await exchange.send(HEAD, chunked(turn), b"0\r\n\r\n")

    return answer


async def breaks(exchange: Exchange) -> None:
    """Lists its models, and drops the connection in the middle of each answer."""
    if exchange.request_line.startswith("GET"):
        await whole("200 OK", b'{"data": [{"id": "m"}]}')(exchange)
        return
    await exchange.send(HEAD, chunked([event(says("One, "))]))
    exchange.writer.close()


def posts(server: Server) -> int:
    return sum(exchange.request_line.startswith("POST") for exchange in server.exchanges)


async def stream(served: Gateway, asked: ModelRequest = PLAIN) -> str:
    body = ENDPOINTS[CHAT].encode_request(asked, model="m", stream=True)
    return (await served.client.post(CHAT, json=body)).text


async def metric(served: Gateway, beginning: str) -> float | None:
    """The value of the first series whose line begins so."""
    for line in (await served.client.get("/metrics")).text.splitlines():
        if line.startswith(beginning):
            return float(line.rpartition(" ")[2])
    return None


def up(server: Server) -> str:
    return f'toolspeak_upstream_up{{model="*",upstream="127.0.0.1:{server.port}"}}'


@ASKED
def test_an_upstream_that_breaks_every_stream_in_the_middle_is_put_aside(asked):
    async def run() -> None:
        async with (
            serve(breaks) as a,
            serve(answers(*texts("Fine."))) as b,
            gateway(at(a), at(b), aside_seconds=3600) as served,
        ):
            answered = [await stream(served, asked) for _ in range(24)]
            assert posts(a) == 3
            assert sum("Fine." in text for text in answered) == 21
            assert await metric(served, up(a)) == 0
            assert await metric(served, up(b)) == 1

    asyncio.run(run())


def test_after_a_trial_that_breaks_in_the_middle_one_failure_puts_it_aside_again():
    """The probe is answered, and so is the beginning of each stream."""

    async def run() -> None:
        async with (
            serve(breaks) as a,
            serve(answers(*texts("Fine."))) as b,
            gateway(at(a), at(b), aside_seconds=0.02) as served,
        ):
            while posts(a) < 6:  # three in a row, and three trials
                await stream(served)
            assert await metric(served, up(a)) == 0

    asyncio.run(run())
