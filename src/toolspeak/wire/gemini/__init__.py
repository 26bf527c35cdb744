"""Gemini's generateContent API, both roles. Sans-IO.

`POST /v1beta/models/{model}:generateContent`, and `:streamGenerateContent?alt=sse` for a stream, each event of which
is a whole response with the next parts. Source: the Gemini API reference (v1beta) and the types of its published
Python SDK (google-genai 3.4). Unlike other APIs: calls are not streamed, and often have no id; the finish reason is
STOP even with calls; a malformed call is a finish reason, MALFORMED_FUNCTION_CALL; `candidatesTokenCount` does not
include tokens of reasoning; any part may have a `thoughtSignature`.
"""

from __future__ import annotations

from collections.abc import Iterable

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.wire.base import Decoder, Encoder, ModelRequest, WireRequest
from toolspeak.wire.gemini.common import NAME
from toolspeak.wire.gemini.request_reader import decode_request, decode_request_at
from toolspeak.wire.gemini.request_writer import encode_request
from toolspeak.wire.gemini.response_reader import GeminiDecoder, decode_response
from toolspeak.wire.gemini.response_writer import GeminiEncoder, encode_error, encode_response


@quick()
class GeminiFormat:
    """A `WireFormat`. The API has no field for `ModelRequest.parallel`, and needs none for `cache`."""

    name: str = NAME

    def encode_request(self, request: ModelRequest, *, model: str, stream: bool) -> dict[str, JSON]:
        """See `WireFormat`. The path holds the model and `stream`: `/v1beta/models/{model}:generateContent` or
        `:streamGenerateContent?alt=sse`."""
        return encode_request(request, model)

    def decode_response(self, body: JSON, *, model: str | None = None) -> list[Delta]:
        return decode_response(body, model)

    def decoder(self, *, model: str | None = None) -> Decoder:
        return GeminiDecoder(model)

    def decode_request(self, body: JSON) -> WireRequest:
        """See `WireFormat`. `model` is empty unless the body names it, as in the API's batches; `stream` is False. Use
        `decode_request_at` if the path is known."""
        return decode_request(body)

    def decode_request_at(self, path: str, body: JSON) -> WireRequest:
        """Reads a request from its body and its path, which holds the model and whether to stream. Raises FormatError
        with the field."""
        return decode_request_at(path, body)

    def encode_response(
        self, deltas: Iterable[Delta], *, model: str, response_id: str, created: int, request: WireRequest | None = None
    ) -> JSON:
        """See `WireFormat`. This API's answers hold no time, so `created` is not used."""
        return encode_response(deltas, model, response_id)

    def encoder(self, request: WireRequest, *, response_id: str, created: int) -> Encoder:
        return GeminiEncoder(request.model, response_id)

    def encode_error(self, message: str, status: int) -> JSON:
        return encode_error(message, status)


GEMINI = GeminiFormat()
