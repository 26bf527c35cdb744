"""Anthropic's Messages API, both roles. Sans-IO.

Source: Anthropic's API reference, "Messages" (API version 2026-10-21), and the types of its Python SDK 2.12.
"""

from __future__ import annotations

from collections.abc import Iterable

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON
from toolspeak.wire.anthropic.common import NAME
from toolspeak.wire.anthropic.request_reader import decode_request
from toolspeak.wire.anthropic.request_writer import encode_request
from toolspeak.wire.anthropic.response_reader import AnthropicDecoder, decode_response
from toolspeak.wire.anthropic.response_writer import AnthropicEncoder, encode_error, encode_response
from toolspeak.wire.base import ModelRequest, WireRequest


class AnthropicFormat:
    """`POST /v1/messages`; a `WireFormat`."""

    @property
    def name(self) -> str:
        return NAME

    def encode_request(self, request: ModelRequest, *, model: str, stream: bool) -> dict[str, JSON]:
        """See `WireFormat`. `Earlier` changes nothing: this API stores no conversation. The option `tools` holds tools
        that the API runs itself (`{"type": "web_search_20260209", "name": "web_search"}`); they follow the request's
        own."""
        return encode_request(request, model, stream)

    def decode_response(self, body: JSON, *, model: str | None = None) -> list[Delta]:
        return decode_response(body, model)

    def decoder(self, *, model: str | None = None) -> AnthropicDecoder:
        return AnthropicDecoder(model)

    def decode_request(self, body: JSON) -> WireRequest:
        return decode_request(body)

    def encode_response(
        self, deltas: Iterable[Delta], *, model: str, response_id: str, created: int, request: WireRequest | None = None
    ) -> JSON:
        """See `WireFormat`. This API's answers hold no time, so `created` is not used."""
        return encode_response(deltas, model=model, response_id=response_id)

    def encoder(self, request: WireRequest, *, response_id: str, created: int) -> AnthropicEncoder:
        return AnthropicEncoder(request.model, response_id)

    def encode_error(self, message: str, status: int) -> JSON:
        return encode_error(message, status)


ANTHROPIC = AnthropicFormat()
