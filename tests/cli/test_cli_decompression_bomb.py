"""A model server whose reply unpacks to far more than it sends, without end."""

from __future__ import annotations

import asyncio
import os
import zlib
from pathlib import Path

from loopback_server import Exchange, event, says, serve, stream

from forked_commands import completed_text


def packed_without_end():
    """Events that say nothing, each piece some hundred times as long when it is unpacked."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    events = b'data: {"choices":[{"index":0,"delta":{"content":""}}]}\n\n' * 2000
    while True:
        yield packer.compress(events) + packer.flush(zlib.Z_SYNC_FLUSH)


async def bomb(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n\r\n")
    for piece in packed_without_end():
        await exchange.send(piece)


def test_the_limit_of_seconds_holds_while_a_reply_unpacks_without_end(tmp_path: Path):
    models = 0

    async def answer(exchange: Exchange) -> None:
        nonlocal models
        if not exchange.request_line.startswith("POST") or "messages" not in exchange.json:
            await exchange.send(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            return
        models += 1
        answers = stream(event(says("So far so good.", "stop")), event("[DONE]"))
        await (bomb if models == 1 else answers)(exchange)

    async def main():
        async with serve(answer) as server:
            env = {**os.environ, "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "none"}
            command = ["run", "go", "--model", "openai:some", "--dialect", "hermes", "--journal", "none"]
            # The server is in this process: it must go on meanwhile.
            return await asyncio.to_thread(
                completed_text, [*command, "--max-seconds", "0.5"], cwd=tmp_path, env=env, session=True
            )

    process = asyncio.run(main())
    assert "the limit of 0.5 seconds is reached: asking for a final answer" in process.stderr
    assert "So far so good." in process.stdout
    assert models == 2
