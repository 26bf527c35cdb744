"""A uvicorn server in the event loop of a test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn


class PromptServer(uvicorn.Server):
    """Ends as soon as `stop` is set. uvicorn itself looks every 0.1 s whether it should end: most of a short test."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready, self.stop = asyncio.Event(), asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        self.ready.set()
        await self.stop.wait()


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
        config.timeout_keep_alive = 600  # no connection is closed under a client because the machine stood still
        server = PromptServer(config)
        task = asyncio.create_task(server.serve(sockets=[sock]))
        ready = asyncio.create_task(server.ready.wait())
        await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        try:
            assert server.started, "the application did not start: see what it logged"
            yield server, sock.getsockname()[1]
        finally:
            server.should_exit = True
            server.stop.set()
            await task
