"""Gemini's generateContent API, both roles. Sans-IO.

`POST /v1beta/models/{model}:generateContent`, and `:streamGenerateContent?alt=sse` for a stream, each event of which
is a whole response with the next parts. Source: the Gemini API reference (v1beta) and the types of its published
Python SDK (google-genai 3.4). Unlike other APIs: calls are not streamed, and often have no id; the finish reason is
STOP even with calls; a malformed call is a finish reason, MALFORMED_FUNCTION_CALL; `candidatesTokenCount` does not
include tokens of reasoning; any part may have a `thoughtSignature`.
"""

from __future__ import annotations

from toolspeak.wire.base import WireFormat
from toolspeak.wire.gemini.common import NAME
from toolspeak.wire.gemini.request_reader import decode_request
from toolspeak.wire.gemini.request_writer import encode_request
from toolspeak.wire.gemini.response_reader import GeminiDecoder, decode_response
from toolspeak.wire.gemini.response_writer import GeminiEncoder, encode_error, encode_response

GEMINI = WireFormat(
    NAME, encode_request, decode_response, GeminiDecoder, decode_request, encode_response, GeminiEncoder, encode_error
)
