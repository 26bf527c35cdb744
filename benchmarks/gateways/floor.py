"""The minimal gateway: decodes each server-sent event and encodes it again. `python floor.py UPSTREAM_URL`.

Uses the gateway's server library, HTTP client and JSON library, with the same settings. Prints its port.
"""

from __future__ import annotations

import socket
import sys

import httpx2
import uvicorn
from pydantic_core import from_json, to_json

HEAD = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}


class Proxy:
    """A plain ASGI application, like the gateway."""

    def __init__(self, upstream: str) -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx2.AsyncClient(base_url=upstream, limits=limits, timeout=None, trust_env=False)

    async def __call__(self, scope, receive, send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        content = to_json(from_json(body))
        headers = {"content-type": "application/json"}
        async with self._client.stream("POST", "/v1/chat/completions", content=content, headers=headers) as response:
            await send(HEAD)
            async for event in httpx2.EventSource(response):
                data = event.data
                piece = b"data: [DONE]\n\n" if data == "[DONE]" else b"data: " + to_json(from_json(data)) + b"\n\n"
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


if __name__ == "__main__":
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(4096)
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(Proxy(sys.argv[1]), http="httptools", ws="none", lifespan="off", access_log=False)
    config.log_level = "error"
    uvicorn.Server(config).run(sockets=[listening])
