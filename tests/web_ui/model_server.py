"""A model server as its own process: `python model_server.py [PORT]`. It prints its port.

A task of the user that begins with `hold` gets the beginning of an answer, which goes on once the server ends or the
client leaves; `bad` gets a call that cannot be read; any other gets words.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "providers"))

from loopback_server import STREAM_HEAD, Exchange, event, http_chunks, says, serve, whole

USAGE = {"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 12}}
CUT_CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": }}\n</tool_call>'


async def main(port: int) -> None:
    async def answer(exchange: Exchange) -> None:
        if exchange.request_line.startswith("GET"):
            await whole("200 OK", b'{"data": []}')(exchange)
            return
        body = exchange.body.decode()
        await exchange.send(STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n", http_chunks([event(says("I "))]))
        if '"hold' in body:
            await asyncio.Event().wait()
        text = CUT_CALL if '"bad' in body else "answer."
        await exchange.send(http_chunks([event(says(text, "stop")), event(USAGE), event("[DONE]")]), b"0\r\n\r\n")

    async with serve(answer, sock=socket.create_server(("127.0.0.1", port), backlog=256)) as server:
        print(server.port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
