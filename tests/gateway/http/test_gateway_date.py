"""`Date` of an answer."""

from __future__ import annotations

import asyncio
import time
from email.utils import parsedate_to_datetime

import pytest
from loopback_server import Exchange, serve
from serving import at, in_turn, run_gateway, texts

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize("stream", [True, False])
def test_it_is_the_time_of_the_answer_and_not_of_the_request(stream: bool):
    came: list[int] = []
    ordinary = in_turn(texts("Hi."))

    async def answer(exchange: Exchange) -> None:
        came.append(int(time.time()))
        await asyncio.sleep(came[0] + 1.1 - time.time())  # the next second has begun when the model answers
        await ordinary(exchange)

    async def run() -> list[str]:
        async with serve(answer) as server, run_gateway(at(server, dialect="hermes")) as gateway:
            body = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": "How is it?"}]}
            return (await gateway.client.post(CHAT, json=body)).headers.get_list("date")

    (date,) = asyncio.run(run())
    assert parsedate_to_datetime(date).timestamp() > came[0]
