"""OpenAI Chat Completions (`POST /v1/chat/completions`), both roles. Sans-IO.

Source: the OpenAI API reference, "Chat Completions".
"""

from __future__ import annotations

from collections.abc import Iterable

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.wire.base import ModelRequest, WireRequest
from toolspeak.wire.openai_chat.common import NAME
from toolspeak.wire.openai_chat.request_reader import decode_request
from toolspeak.wire.openai_chat.request_writer import encode_request
from toolspeak.wire.openai_chat.response_reader import ChunkDecoder, decode_response
from toolspeak.wire.openai_chat.response_writer import ChunkEncoder, encode_error, encode_response


@quick()
class OpenAIChatFormat:
    """A `WireFormat`."""

    keep_reasoning: bool = False
    """The API requires the reasoning of earlier turns. DeepSeek and Moonshot refuse calls without it; other APIs refuse
    it, or charge for it and ignore it."""
    short_ids: bool = False
    """Ids of calls have nine letters or digits (Mistral)."""

    @property
    def name(self) -> str:
        return NAME

    def encode_request(self, request: ModelRequest, *, model: str, stream: bool) -> dict[str, JSON]:
        """See `WireFormat`. A lone surrogate, which UTF-8 cannot encode, is sent as U+FFFD."""
        return encode_request(request, model, stream, short_ids=self.short_ids, keep_reasoning=self.keep_reasoning)

    def decode_response(self, body: JSON, *, model: str | None = None) -> list[Delta]:
        """See `WireFormat`."""
        return decode_response(body, model, keep_reasoning=self.keep_reasoning)

    def decoder(self, *, model: str | None = None) -> ChunkDecoder:
        """See `WireFormat`."""
        return ChunkDecoder(model, keep_reasoning=self.keep_reasoning)

    def decode_request(self, body: JSON) -> WireRequest:
        """See `WireFormat`."""
        return decode_request(body)

    def encode_response(
        self, deltas: Iterable[Delta], *, model: str, response_id: str, created: int, request: WireRequest | None = None
    ) -> JSON:
        """See `WireFormat`."""
        return encode_response(deltas, model=model, response_id=response_id, created=created)

    def encoder(self, request: WireRequest, *, response_id: str, created: int) -> ChunkEncoder:
        """See `WireFormat`."""
        return ChunkEncoder(request.model, response_id=response_id, created=created, usage_wanted=request.usage_wanted)

    def encode_error(self, message: str, status: int) -> JSON:
        """See `WireFormat`."""
        return encode_error(message, status)


OPENAI_CHAT = OpenAIChatFormat()
