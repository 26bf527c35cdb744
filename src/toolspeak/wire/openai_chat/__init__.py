"""OpenAI Chat Completions: the format, and requests as a client writes them. Sans-IO.

Source: the OpenAI API reference, "Chat Completions". Answers are read in `response_reader.py`, conversations
written and read in `request_writer.py`, the server role is in `response_writer.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.errors import ProviderError, UsageError
from toolspeak.wire.base import Constraint, ModelRequest, WireRequest
from toolspeak.wire.checks import check_request
from toolspeak.wire.openai_chat.request_writer import NAME, encode_messages
from toolspeak.wire.openai_chat.response_reader import ChunkDecoder
from toolspeak.wire.openai_chat.response_writer import ChunkEncoder, decode_request, encode_error, encode_response
from toolspeak.wire.reading import as_list, as_object, without_lone_surrogates
from toolspeak.wire.strict_schema import openai_form

_OWN_FIELDS = ("model", "messages", "tools")
_FIELDS_OF_THE_REQUEST = {"tool_choice": "choice", "parallel_tool_calls": "parallel"}


@quick()
class OpenAIChat:
    """The format; a `WireFormat`.

    `keep_reasoning`: the API wants the reasoning of a model's turns back (DeepSeek and Moonshot refuse calls without
    it; others refuse it, or pay for what they ignore). `short_ids`: ids of calls have nine letters or digits (Mistral).
    """

    keep_reasoning: bool = False
    short_ids: bool = False

    @property
    def name(self) -> str:
        return NAME

    def encode_request(self, request: ModelRequest, *, model: str, stream: bool) -> dict[str, JSON]:
        """See `WireFormat`. A lone surrogate, which UTF-8 cannot carry, is sent as U+FFFD."""
        _check_options(request)
        body: dict[str, JSON] = {
            "model": model,
            "messages": encode_messages(
                request.messages, model, short_ids=self.short_ids, keep_reasoning=self.keep_reasoning
            ),
            "stream": stream,
        }
        if stream:
            body["stream_options"] = {"include_usage": True}
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
            choice = request.choice
            if choice.mode == "specific":
                body["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
            elif choice.mode != "auto":
                body["tool_choice"] = choice.mode
            if request.parallel is not None:
                body["parallel_tool_calls"] = request.parallel
        if request.output is not None:
            output = openai_form(request.output)
            described = {"description": output.description} if output.description else {}
            schema = {"name": output.name, **described, "schema": output.schema, "strict": output.strict}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if request.constraint is not None:
            body.update(_constraint(request.constraint))
        body.update(request.options)
        return {name: without_lone_surrogates(value) for name, value in body.items() if value is not None}

    def decode_response(self, body: JSON, *, model: str | None = None) -> list[Delta]:
        """See `WireFormat`."""
        answer = as_object(body, "the response")
        choices = answer.get("choices")
        if isinstance(choices, list):
            answer = {**answer, "choices": [_message_as_delta(choice) for choice in cast("list[Any]", choices)]}
        decoder = self.decoder(model=model)
        deltas = decoder.feed(answer)
        if not choices:
            raise ProviderError(
                "the response has no choices: is this an OpenAI-compatible chat API?", code="ill_formed"
            )
        return deltas + decoder.close()

    def decoder(self, *, model: str | None = None) -> ChunkDecoder:
        """See `WireFormat`."""
        return ChunkDecoder(model, keep_reasoning=self.keep_reasoning)

    def decode_request(self, body: JSON) -> WireRequest:
        """See `WireFormat`."""
        return decode_request(body)

    def encode_response(
        self, deltas: Iterable[Delta], *, model: str, response_id: str, created: int, asked: WireRequest | None = None
    ) -> JSON:
        """See `WireFormat`."""
        return encode_response(deltas, model=model, response_id=response_id, created=created)

    def encoder(self, asked: WireRequest, *, response_id: str, created: int) -> ChunkEncoder:
        """See `WireFormat`."""
        return ChunkEncoder(asked.model, response_id=response_id, created=created, usage_wanted=asked.usage_wanted)

    def encode_error(self, message: str, status: int) -> JSON:
        """See `WireFormat`."""
        return encode_error(message, status)


OPENAI_CHAT = OpenAIChat()


def _check_options(request: ModelRequest) -> None:
    check_request(request, _OWN_FIELDS, format_name=NAME, grammars=True)
    for name, field in _FIELDS_OF_THE_REQUEST.items():
        if request.options.get(name) is not None:
            raise UsageError(f"the option {name!r} cannot be set: the request's own {field!r} says it")
    if request.output is not None and request.options.get("response_format") is not None:
        raise UsageError("the option 'response_format' cannot be set beside an output schema, which goes there")
    if request.constraint is not None:
        for name in ("grammar", "response_format"):
            if request.options.get(name) is not None:
                raise UsageError(f"the option {name!r} cannot be set beside a constraint, which goes there")


def _constraint(constraint: Constraint) -> dict[str, JSON]:
    """Where a grammar goes: llama.cpp's README of its server, vLLM's and SGLang's `StructuralTagResponseFormat`."""
    if constraint.target == "gbnf":
        return {"grammar": constraint.source}
    return {"response_format": json.loads(constraint.source)}


def _tool(tool: ToolSpec) -> JSON:
    function: dict[str, JSON] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = tool.parameters
    # vLLM holds a required or named call to its schema only with it.
    if isinstance(tool.extra.get("strict"), bool):
        function["strict"] = tool.extra["strict"]
    return {"type": "function", "function": function}


def _message_as_delta(choice: JSON) -> JSON:
    """A whole answer's choice as one chunk's: the same reader serves both."""
    if not isinstance(choice, dict):
        return choice
    known = cast("dict[str, JSON]", choice)
    message = known.get("message")
    if isinstance(message, dict):
        found = cast("dict[str, JSON]", message)
        calls = as_list(found.get("tool_calls"), "'tool_calls'")
        # Each is a call of its own, whatever ids and indexes say.
        numbered = [{**as_object(call, "a call"), "index": i} for i, call in enumerate(calls)]
        message = {**found, "tool_calls": numbered}
    return {**known, "delta": message}
