"""The least a gateway can be: decodes each server-sent event and encodes it again. `python floor.py UPSTREAM_URL`.

The same server library, HTTP client and JSON library as the gateway's, with the same settings. Prints its port.
"""

from __future__ import annotations

import socket
import sys

import httpx2
import uvicorn
from pydantic_core import from_json, to_json
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route


def proxy(upstream: str) -> Starlette:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    client = httpx2.AsyncClient(base_url=upstream, limits=limits, timeout=None, trust_env=False)

    async def events(body: bytes):
        async with client.stream(
            "POST", "/v1/chat/completions", content=body, headers={"content-type": "application/json"}
        ) as response:
            async for message in httpx2.EventSource(response):
                data = message.data
                yield b"data: [DONE]\n\n" if data == "[DONE]" else b"data: " + to_json(from_json(data)) + b"\n\n"

    async def completions(request: Request) -> StreamingResponse:
        asked = from_json(await request.body())
        return StreamingResponse(events(to_json(asked)), media_type="text/event-stream")

    return Starlette(routes=[Route("/v1/chat/completions", completions, methods=["POST"])])


if __name__ == "__main__":
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(4096)
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(proxy(sys.argv[1]), http="httptools", ws="none", lifespan="off", access_log=False)
    config.log_level = "error"
    uvicorn.Server(config).run(sockets=[listening])
