"""OpenAI Responses (`POST /v1/responses`), both roles. Sans-IO.

Sources: the OpenAI API reference, "Responses", with the types of the `openai` package 3.54; the answers of compatible
servers (vLLM, LM Studio, llama.cpp, Ollama).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.wire.base import ModelRequest, WireRequest
from toolspeak.wire.openai_responses.common import NAME
from toolspeak.wire.openai_responses.request_reader import decode_request
from toolspeak.wire.openai_responses.request_writer import encode_request
from toolspeak.wire.openai_responses.response_reader import ResponseDecoder, decode_response
from toolspeak.wire.openai_responses.response_writer import ResponseEncoder, encode_error, encode_response


@quick()
class OpenAIResponsesFormat:
    """A `WireFormat`."""

    name: str = NAME

    def encode_request(self, request: ModelRequest, *, model: str, stream: bool) -> dict[str, JSON]:
        """See `WireFormat.encode_request`.

        The leading system message is sent as `instructions`, which a server never stores. The option `tools` holds
        tools that the API runs itself (`{"type": "web_search"}`); they follow the request's own. The option `text` is
        merged with the output's format. Without `keep` the request has `store: false`.
        """
        return encode_request(request, model=model, stream=stream)

    def decode_response(self, body: JSON, *, model: str | None = None) -> list[Delta]:
        return decode_response(body, model)

    def decoder(self, *, model: str | None = None) -> ResponseDecoder:
        return ResponseDecoder(model)

    def decode_request(self, body: JSON) -> WireRequest:
        return decode_request(body)

    def encode_response(
        self, deltas: Iterable[Delta], *, model: str, response_id: str, created: int, request: WireRequest | None = None
    ) -> JSON:
        fields = {"model": model} if request is None else _repeated_fields(request)
        specs = () if request is None else request.request.tools
        return encode_response(deltas, fields, specs, response_id=response_id, created=created)

    def encoder(self, request: WireRequest, *, response_id: str, created: int) -> ResponseEncoder:
        return ResponseEncoder(
            _repeated_fields(request), request.request.tools, response_id=response_id, created=created
        )

    def encode_error(self, message: str, status: int) -> JSON:
        return encode_error(message, status)


OPENAI_RESPONSES = OpenAIResponsesFormat()


def _repeated_fields(request: WireRequest) -> dict[str, JSON]:
    """The fields of the request that the answer repeats: all except the conversation."""
    instructions = [message for message in request.request.messages[:1] if message.role == "system"]
    model_request = replace(request.request, messages=instructions)
    fields = encode_request(model_request, model=request.model, stream=request.stream)
    return {**fields, "echoed": dict(request.echoed)}
