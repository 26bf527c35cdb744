"""A uvicorn server in the event loop of a test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn


class Attentive(uvicorn.Server):
    """Ends when it is told to: uvicorn looks ten times a second whether it should, which is most of a short test."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        self.begun.set()
        await self.ended.wait()


@asynccontextmanager
async def serving(
    config: uvicorn.Config, port: int = 0, protocol: int = socket.IPPROTO_TCP
) -> AsyncGenerator[tuple[uvicorn.Server, int]]:
    """The server and its port on the loopback interface, once it serves.

    asyncio lets small writes wait for acknowledgements, 40 ms each, where the socket was made without `protocol`.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        sock.listen()
        server = Attentive(config)
        task = asyncio.create_task(server.serve(sockets=[sock]))
        begun = asyncio.create_task(server.begun.wait())
        await asyncio.wait((task, begun), return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        try:
            assert server.started, "the application did not start: see what it logged"
            yield server, sock.getsockname()[1]
        finally:
            server.should_exit = True
            server.ended.set()
            await task
