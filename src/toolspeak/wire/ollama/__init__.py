"""Ollama's own chat API, both roles. Sans-IO.

`POST /api/chat`; a stream is one JSON object per line, the last with `done`. Source: Ollama's API documentation and its
server's `api/types.go`. Unlike other APIs: calls are not streamed, their arguments are an object, and only recent
servers give them ids; the finish reason is `stop` even with calls; an error is a line with `error`; a prompt longer
than the context (`num_ctx`) loses its beginning without an error, unless the request has `truncate: false`.
"""

from __future__ import annotations

from toolspeak.wire.base import WireFormat
from toolspeak.wire.ollama.common import NAME
from toolspeak.wire.ollama.request_reader import decode_request
from toolspeak.wire.ollama.request_writer import encode_request
from toolspeak.wire.ollama.response_reader import OllamaDecoder, decode_response
from toolspeak.wire.ollama.response_writer import OllamaEncoder, encode_error, encode_response

OLLAMA = WireFormat(
    NAME, encode_request, decode_response, OllamaDecoder, decode_request, encode_response, OllamaEncoder, encode_error
)
