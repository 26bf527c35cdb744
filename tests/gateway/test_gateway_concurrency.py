"""Many requests at once: the one that came first is sent first, and none waits for another's network."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

from loopback_server import Exchange, serve, stream
from serving import PATIENCE, at, run_gateway, texts

from toolspeak.gateway.admission import STARTING
from toolspeak.gateway.settings.upstream_settings import Upstream
from toolspeak.providers.http_settings import Timeouts

MANY = 10 * STARTING


def chat_request(model: str) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": "Hi"}]}


def test_a_server_that_takes_no_connection_holds_up_nobody_else():
    """A listening socket whose queue is full drops what comes: its clients wait as long as they may."""

    async def run() -> None:
        with ExitStack() as stack:
            address = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0)).getsockname()
            for each in [stack.enter_context(socket.socket()) for _ in range(4)]:
                each.setblocking(False)
                each.connect_ex(address)
            async with serve(stream(*texts("Hello."))) as server:
                nowhere = Upstream(
                    ("deaf",), url=f"http://127.0.0.1:{address[1]}/v1", timeouts=Timeouts(PATIENCE, PATIENCE, PATIENCE)
                )
                async with run_gateway(nowhere, at(server, names=("good",))) as gateway:
                    waiting = [
                        asyncio.create_task(gateway.client.post("/v1/chat/completions", json=chat_request("deaf")))
                        for _ in range(MANY)
                    ]
                    for _ in range(3):  # the last of them comes behind all others for certain
                        good = await gateway.client.post("/v1/chat/completions", json=chat_request("good"))
                        assert good.json()["choices"][0]["message"]["content"] == "Hello."
                    assert not any(task.done() for task in waiting)
                    for task in waiting:
                        task.cancel()
                    await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(run())


def test_all_of_many_requests_are_under_way_at_once():
    """A model that answers only when all have asked: what is sent frees the way before it is answered."""

    async def run() -> list[str]:
        everybody = asyncio.Event()
        exchanges: list[Exchange] = []

        async def answer(exchange: Exchange) -> None:
            exchanges.append(exchange)
            if len(exchanges) == MANY:
                everybody.set()
            await everybody.wait()
            await stream(*texts("Hello."))(exchange)

        async with serve(answer) as server, run_gateway(at(server)) as gateway:
            responses = await asyncio.gather(
                *(gateway.client.post("/v1/chat/completions", json=chat_request("m")) for _ in range(MANY))
            )
            return [each.json()["choices"][0]["message"]["content"] for each in responses]

    assert asyncio.run(run()) == ["Hello."] * MANY
