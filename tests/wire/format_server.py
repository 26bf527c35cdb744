"""A server on the loopback interface that plays turns in a wire format's server role, for the vendors' own clients."""

from __future__ import annotations

import json
from typing import Any

from loopback_server import STREAM_HEAD, Exchange, http_chunks
from wire_strategies import sse

from toolspeak.data.deltas import Delta
from toolspeak.errors import FormatError
from toolspeak.wire.base import StreamFrame, WireFormat, WireRequest


class FormatServer:
    """Answers each request with the next turn; `requests` are the requests as our server role reads them.

    `break_off`: a streamed turn ends behind its first delta with an error of status `failure`.
    """

    wire: WireFormat
    head = STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n"
    failure = 503

    def __init__(self, *turns: list[Delta], break_off: bool = False) -> None:
        self.turns = list(turns)
        self.requests: list[WireRequest] = []
        self.break_off = break_off

    def read(self, exchange: Exchange) -> WireRequest:
        return self.wire.decode_request(exchange.json)

    def write(self, frames: list[StreamFrame]) -> bytes:
        return sse(frames)

    async def __call__(self, exchange: Exchange) -> None:
        try:
            request = self.read(exchange)
        except FormatError as error:
            await self._json(exchange, "400 Bad Request", self.wire.encode_error(str(error), 400))
            return
        self.requests.append(request)
        turn = self.turns.pop(0)
        if not request.stream:
            answer = self.wire.encode_response(turn, model=request.model, response_id="r1", created_at=1)
            await self._json(exchange, "200 OK", answer)
            return
        encoder = self.wire.encoder(request, response_id="r1", created_at=1)
        if self.break_off:
            frames = [*encoder.feed(turn[0]), *encoder.fail("the model broke off", self.failure)]
        else:
            frames = [frame for delta in turn for frame in encoder.feed(delta)]
        stream = self.write(frames)
        pieces = [stream[at : at + 11] for at in range(0, len(stream), 11)]
        await exchange.send(self.head, http_chunks(pieces), b"0\r\n\r\n")

    async def _json(self, exchange: Exchange, status: str, body: Any) -> None:
        content = json.dumps(body).encode()
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        await exchange.send(head.encode(), content)
