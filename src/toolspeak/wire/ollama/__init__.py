"""Ollama's own chat API, both roles. Sans-IO.

`POST /api/chat`; a stream is one JSON object per line, the last with `done`. Source: Ollama's API documentation and its
server's `api/types.go`. Unlike other APIs: calls are not streamed, their arguments are an object, and only recent
servers give them ids; the finish reason is `stop` even with calls; an error is a line with `error`; a prompt longer
than the context (`num_ctx`) loses its beginning without an error, unless the request has `truncate: false`.
"""

from __future__ import annotations

from collections.abc import Iterable

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.wire.base import Decoder, Encoder, ModelRequest, WireRequest
from toolspeak.wire.ollama.common import NAME
from toolspeak.wire.ollama.request_reader import decode_request
from toolspeak.wire.ollama.request_writer import encode_request
from toolspeak.wire.ollama.response_reader import OllamaDecoder, decode_response
from toolspeak.wire.ollama.response_writer import OllamaEncoder, encode_error, encode_response


@quick()
class OllamaFormat:
    """A `WireFormat`.

    The API has no tool choice: leave out tools that must not be called. It does not enforce `required`. It has no field
    for `ModelRequest.parallel`, and needs none for `cache`.
    """

    name: str = NAME

    def encode_request(self, request: ModelRequest, *, model: str, stream: bool) -> dict[str, JSON]:
        return encode_request(request, model, stream)

    def decode_response(self, body: JSON, *, model: str | None = None) -> list[Delta]:
        return decode_response(body)

    def decoder(self, *, model: str | None = None) -> Decoder:
        """See `WireFormat`. The format has no opaque data: `model` is not used."""
        return OllamaDecoder()

    def decode_request(self, body: JSON) -> WireRequest:
        """See `WireFormat`. Without `stream` the client wants a stream. A result without an id belongs to the first
        call of its tool that has no result."""
        return decode_request(body)

    def encode_response(
        self, deltas: Iterable[Delta], *, model: str, response_id: str, created: int, request: WireRequest | None = None
    ) -> JSON:
        return encode_response(deltas, model, response_id, created)

    def encoder(self, request: WireRequest, *, response_id: str, created: int) -> Encoder:
        return OllamaEncoder(request.model, response_id, created)

    def encode_error(self, message: str, status: int) -> JSON:
        return encode_error(message)


OLLAMA = OllamaFormat()
