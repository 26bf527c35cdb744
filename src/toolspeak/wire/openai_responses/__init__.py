"""OpenAI Responses (`POST /v1/responses`), both roles. Sans-IO.

Sources: the OpenAI API reference, "Responses", with the types of the `openai` package 3.54; the answers of compatible
servers (vLLM, LM Studio, llama.cpp, Ollama).
"""

from __future__ import annotations

from toolspeak.wire.base import WireFormat
from toolspeak.wire.openai_responses.common import NAME
from toolspeak.wire.openai_responses.request_reader import decode_request
from toolspeak.wire.openai_responses.request_writer import encode_request
from toolspeak.wire.openai_responses.response_reader import ResponseDecoder, decode_response
from toolspeak.wire.openai_responses.response_writer import ResponseEncoder, encode_error, encode_response

OPENAI_RESPONSES = WireFormat(
    NAME,
    encode_request,
    decode_response,
    ResponseDecoder,
    decode_request,
    encode_response,
    ResponseEncoder,
    encode_error,
)
