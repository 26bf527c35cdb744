"""A loopback server that streams one answer as OpenAI's Chat Completions, as fast as the client reads.

    python benchmarks/loops/server.py

Its port is the first line that it prints. It answers a request to `/KIND/COUNT/chat/completions` with COUNT pieces of
text or of the arguments of one call. After the call has its result, it answers `done`. It stops at the end of its
standard input.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any

from worker import CLOSING, OPENING, PIECE

PACKET = 4096
"""Bytes per write: a reader that keeps up gets about twenty chunks at once."""


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    head = {"id": "chatcmpl-0123456789abcdef", "object": "chat.completion.chunk", "created": 1700000000, "model": "m"}
    return b"data: " + json.dumps({**head, "choices": [choice]}, separators=(",", ":")).encode() + b"\n\n"


def arguments(text: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}


def answer(kind: str, count: int) -> bytes:
    if kind == "text":
        chunks = [chunk({"role": "assistant", "content": ""}), chunk({"content": PIECE}) * count, chunk({}, "stop")]
    elif kind == "done":
        chunks = [chunk({"role": "assistant", "content": "done"}), chunk({}, "stop")]
    else:
        call = {"index": 0, "id": "c0", "type": "function", "function": {"name": "put", "arguments": ""}}
        chunks = [
            chunk({"role": "assistant", "content": None, "tool_calls": [call]}),
            chunk(arguments(OPENING)),
            chunk(arguments(PIECE)) * count,
            chunk(arguments(CLOSING)),
            chunk({}, "tool_calls"),
        ]
    return b"".join([*chunks, b"data: [DONE]\n\n"])


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    body = await reader.readexactly(int(length[1]) if length else 0)
    _, kind, count, *_ = head.split()[1].decode().split("/")
    reply = answer("done" if b'"role":"tool"' in body else kind, int(count))
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
    for at in range(0, len(reply), PACKET):
        writer.write(reply[at : at + PACKET])
        await writer.drain()
    writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
