"""A model server that sends fixed text as OpenAI's chat stream: `python upstream.py`.

Prints its port. The model `400x50` answers with 400 pieces of text, 50 of them per second (0: as fast as the client
reads). Each piece contains its number and the time at which it was sent (`time.monotonic_ns`, one clock for all
processes). The first piece is sent immediately, the second at a random moment of the pause. Otherwise, streams that
began together would write in step for ever, and a client that was late once would read hundreds of pieces at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
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


MODEL = re.compile(rb'"model": ?"(\d+)x(\d+)"')


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if head.startswith(b"get"):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % len(MODELS))
            writer.write(b"connection: close\r\n\r\n" + MODELS)
            await writer.drain()
            return
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
        match = MODEL.search(await reader.readexactly(length))
        assert match is not None, "the benchmark asks for models of this form"
        chunks, per_second = int(match[1]), int(match[2])
        pause = 1 / per_second if per_second else 0.0
        writer.write(HEAD)
        start = time.monotonic() + random.random() * pause
        for number in range(chunks):
            wait = start + number * pause - time.monotonic() if number else 0
            if wait > 0:
                await asyncio.sleep(wait)
            writer.write((FRAME % f"{number}@{time.monotonic_ns()} ").encode())
            await writer.drain()
        writer.write(END)
        await writer.drain()
    writer.close()


async def main() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
