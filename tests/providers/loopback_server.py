"""A real HTTP/1.1 server on the loopback interface that writes exactly the bytes a test gives it."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Answer = Callable[["Exchange"], Awaitable[None]]


@dataclass
class Exchange:
    """One request, and the means to answer it."""

    request_line: str
    headers: dict[str, str]
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()


@dataclass
class Server:
    """`client_gone` is set when the client has closed a connection that was still being answered."""

    port: int = 0
    connections: int = 0
    exchanges: list[Exchange] = field(default_factory=list[Exchange])
    client_gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@asynccontextmanager
async def serve(
    *answers: Answer, sock: socket.socket | None = None, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[Server]:
    """Gives the answers in turn, the last one for ever; a connection serves any number of requests.

    Listens on a free port, or on `sock`, which it closes at the end; over TLS, if `tls` says with what certificate.
    """
    server_record = Server()
    handlers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_record.connections += 1
        # asyncio does it only for sockets it made itself; without it every piece waits 40 ms for an acknowledgement.
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = asyncio.current_task()
        assert task is not None
        handlers[task] = writer
        try:
            while (exchange := await _read_request(reader, writer)) is not None and not writer.is_closing():
                server_record.exchanges.append(exchange)
                await answers[min(len(server_record.exchanges), len(answers)) - 1](exchange)
        except ConnectionError:
            pass
        finally:
            writer.close()
            del handlers[task]

    if sock is None:
        sock = socket.create_server(("127.0.0.1", 0))
    listener = await asyncio.start_server(handle, sock=sock, ssl=tls)
    server_record.port = listener.sockets[0].getsockname()[1]
    try:
        yield server_record
    finally:
        listener.close()
        for writer in handlers.values():
            writer.close()
        await asyncio.gather(*handlers)
        await listener.wait_closed()


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    request_line, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Exchange(request_line, headers, body, reader, writer)


def whole(status: str, body: bytes, content_type: str = "application/json", *headers: str) -> Answer:
    """A response of known length."""
    head = [f"HTTP/1.1 {status}", f"content-type: {content_type}", f"content-length: {len(body)}", *headers]

    async def answer(exchange: Exchange) -> None:
        await exchange.send("\r\n".join(head).encode() + b"\r\n\r\n" + body)

    return answer


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"


def http_chunks(pieces: Iterable[bytes]) -> bytes:
    """Each piece as one chunk of HTTP's own: the client sees them apart, however TCP carries them."""
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece)


def stream(*pieces: bytes) -> Answer:
    """A complete event stream; the connection stays open for the next request."""

    async def answer(exchange: Exchange) -> None:
        await exchange.send(STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n", http_chunks(pieces), b"0\r\n\r\n")

    return answer


def hang_up(*pieces: bytes) -> Answer:
    """These bytes, and the connection is closed."""

    async def answer(exchange: Exchange) -> None:
        await exchange.send(*pieces)
        exchange.writer.close()

    return answer


def until_client_leaves(server_of: Callable[[], Server], *pieces: bytes) -> Answer:
    """These bytes, and then nothing more until the client closes the connection."""

    async def answer(exchange: Exchange) -> None:
        await exchange.send(*pieces)
        assert await exchange.reader.read() == b""
        server_of().client_gone.set()

    return answer


def tunnel(port: int) -> Answer:
    """What a proxy does with CONNECT: passes bytes on to `port` of this machine, whatever host was asked for."""

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def answer(exchange: Exchange) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await exchange.send(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(pass_on(exchange.reader, writer), pass_on(reader, exchange.writer), return_exceptions=True)

    return answer


def event(data: Any, end: bytes = b"\n\n") -> bytes:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return b"data: " + text.encode() + end


def says(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"model": "m-1", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}
