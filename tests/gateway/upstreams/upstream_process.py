"""A model server as its own process: `python upstream_process.py PORT NAME BEGUN`.

The first BEGUN requests get the first half of an answer at once, the others not a byte, until `GET /release` says that
all go on. Each request is a line on standard output, once it has been read and begun; the port is the first line.
"""

from __future__ import annotations

import asyncio
import socket
import sys

from loopback_server import STREAM_HEAD, Exchange, event, http_chunks, says, serve, whole


async def main(port: int, name: str, stream_count: int) -> None:
    go_on = asyncio.Event()
    count = 0

    async def answer(exchange: Exchange) -> None:
        nonlocal count
        if exchange.request_line.startswith("GET"):
            if "/release" in exchange.request_line:
                go_on.set()
            await whole("200 OK", b'{"data": []}')(exchange)
            return
        count += 1
        first = [http_chunks([event(says(f"{name}: one, "))])]
        head = STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n"
        if count <= stream_count:
            await exchange.send(head, *first)
            head, first = b"", []
        print(count, flush=True)
        await go_on.wait()
        await exchange.send(head, *first, http_chunks([event(says("two.", "stop")), event("[DONE]")]), b"0\r\n\r\n")

    async with serve(answer, sock=socket.create_server(("127.0.0.1", port), backlog=256)) as server:
        print(server.port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
