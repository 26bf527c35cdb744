"""A model server that speaks OpenAI's chat stream and thinks about nothing: `python upstream.py CHUNKS PER_SECOND`.

Prints its port. Each request is answered with CHUNKS pieces of text, PER_SECOND of them each second (0: as fast as they
are taken), and each piece says its number and when it was sent (`time.monotonic_ns`, one clock for all processes).
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\nconnection: close\r\n\r\n"
MODELS = b'{"object":"list","data":[{"id":"tiny","object":"model","created":0,"owned_by":"benchmark"}]}'
FRAME = (
    'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"tiny",'
    '"choices":[{"index":0,"delta":{"content":"%s"},"logprobs":null,"finish_reason":null}]}\n\n'
)
END = (
    b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"tiny",'
    b'"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}\n\n'
    b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"tiny",'
    b'"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":9,"total_tokens":18}}\n\ndata: [DONE]\n\n'
)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chunks: int, pause: float) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if head.startswith(b"get"):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % len(MODELS))
            writer.write(b"connection: close\r\n\r\n" + MODELS)
            await writer.drain()
            return
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
        await reader.readexactly(length)
        writer.write(HEAD)
        begun = time.monotonic()
        for number in range(chunks):
            wait = begun + number * pause - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            writer.write((FRAME % f"{number}@{time.monotonic_ns()} ").encode())
            await writer.drain()
        writer.write(END)
        await writer.drain()
    writer.close()


async def main(chunks: int, per_second: float) -> None:
    pause = 1 / per_second if per_second else 0.0
    server = await asyncio.start_server(lambda r, w: answer(r, w, chunks, pause), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
