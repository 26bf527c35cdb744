"""Anthropic's Messages API, both roles. Sans-IO.

Source: Anthropic's API reference, "Messages" (API version 2026-10-21), and the types of its Python SDK 2.12.
"""

from __future__ import annotations

from toolspeak.wire.anthropic.common import NAME
from toolspeak.wire.anthropic.request_reader import decode_request
from toolspeak.wire.anthropic.request_writer import encode_request
from toolspeak.wire.anthropic.response_reader import AnthropicDecoder, decode_response
from toolspeak.wire.anthropic.response_writer import AnthropicEncoder, encode_error, encode_response
from toolspeak.wire.base import WireFormat

ANTHROPIC = WireFormat(
    NAME,
    encode_request,
    decode_response,
    AnthropicDecoder,
    decode_request,
    encode_response,
    AnthropicEncoder,
    encode_error,
)
