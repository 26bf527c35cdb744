"""Requests without tools whose upstream speaks the client's API: they and their answers pass unchanged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import cast

from toolspeak.data.deltas import Delta, TurnEnded
from toolspeak.data.messages import JSON
from toolspeak.errors import FormatError
from toolspeak.gateway.http.asgi import EventStream, Fields, event, send_whole, watched
from toolspeak.gateway.http.error_responses import Failure, with_code
from toolspeak.gateway.responses.answer_context import Answering, stream_answer
from toolspeak.gateway.settings.gateway_settings import Bounds
from toolspeak.gateway.upstreams.routing import Route
from toolspeak.providers.api import ApiProvider
from toolspeak.providers.http_client import json_bytes
from toolspeak.providers.relayed import Relayed
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.base import Frame, ModelRequest, WireFormat, WireRequest
from toolspeak.wire.json_validation import invalid_field, optional_flag, require_name, require_object
from toolspeak.wire.openai_chat import OPENAI_CHAT
from toolspeak.wire.openai_responses import OPENAI_RESPONSES

_PASSING_HEADERS = (b"anthropic-beta", b"anthropic-version", b"openai-beta")
"""Headers of a client that an upstream reads: they decide which fields the body may have."""

_TOOL_FIELDS: Mapping[str, Sequence[str]] = {
    OPENAI_CHAT.name: ("tools", "functions"),
    OPENAI_RESPONSES.name: ("tools", "previous_response_id", "conversation", "prompt", "background"),
    ANTHROPIC.name: ("tools", "mcp_servers", "thread"),
}
"""Fields of requests that the gateway handles itself: tools, and references to what the body does not hold."""

_MESSAGES: Mapping[str, str] = {
    OPENAI_CHAT.name: "messages",
    OPENAI_RESPONSES.name: "input",
    ANTHROPIC.name: "messages",
}

_OF_TOOLS = ("_call", "_output", "tool_use", "tool_result", "_request", "_response")
"""The endings of the types of items and blocks for calls and results."""


def is_relayed(fields: Fields, wire: WireFormat, route: Route) -> bool:
    """Whether a request goes to its upstream unchanged: client and upstream speak the same API, and the request has
    nothing to do with tools, or asks for several answers, which the gateway does not repair."""
    if route.wire != wire.name or not isinstance(route.provider, ApiProvider):
        return False
    wanted = fields.get("n")
    if wire is OPENAI_CHAT and not route.is_text and isinstance(wanted, int) and wanted > 1:
        return True
    if any(fields.get(name) for name in _TOOL_FIELDS[wire.name]):
        return False
    messages_field = fields.get(_MESSAGES[wire.name])
    messages = cast("list[JSON]", messages_field) if isinstance(messages_field, list) else []
    return not any(map(_uses_tools, messages)) and not _leaves_thoughts_open(messages)


def _leaves_thoughts_open(messages: Sequence[JSON]) -> bool:
    """Whether a turn ends with reasoning. APIs refuse that, so the gateway has to repair the conversation."""
    is_open = False
    for fields in (cast("Fields", message) for message in messages if isinstance(message, Mapping)):
        if is_open and fields.get("role") not in (None, "assistant"):
            return True
        is_open = fields.get("type") == "reasoning"
        content = fields.get("content")
        if fields.get("role") == "assistant" and isinstance(content, list) and content:
            last = cast("list[JSON]", content)[-1]
            if isinstance(last, Mapping) and cast("Fields", last).get("type") in ("thinking", "redacted_thinking"):
                return True
    return is_open


def _uses_tools(message: JSON) -> bool:
    """Whether a message, or an item of the Responses API, holds a call or a result."""
    if not isinstance(message, Mapping):
        return False
    fields = cast("Mapping[str, JSON]", message)
    if fields.get("role") in ("tool", "function") or fields.get("tool_calls") or fields.get("function_call"):
        return True
    kind, content = fields.get("type"), fields.get("content")
    if isinstance(kind, str) and kind.endswith(_OF_TOOLS):
        return True
    return (
        fields.get("role") is not None
        and isinstance(content, list)
        and any(map(_uses_tools, cast("list[JSON]", content)))
    )


def checked_fields(fields: Fields, wire: WireFormat, bounds: Bounds) -> WireRequest:
    """The fields of a relayed request that the gateway reads. The upstream checks the others. Raises Failure,
    FormatError."""
    name = _MESSAGES[wire.name]
    messages_field = fields.get(name)
    if isinstance(messages_field, list):
        messages = cast("list[JSON]", messages_field)
        if len(messages) > bounds.messages:
            raise Failure(
                413, f"{name}: {len(messages)} are more than {bounds.messages}; send fewer", "request_too_large"
            )
        for i, message in enumerate(messages):
            item = require_object(message, f"{name}[{i}]")
            if wire.name != OPENAI_RESPONSES.name:
                require_name(item.get("role"), f"{name}[{i}].role")
    elif wire.name != OPENAI_RESPONSES.name or not isinstance(messages_field, str):
        raise invalid_field(name, "a list of messages", messages_field)
    stream = fields.get("stream")
    optional_flag(stream, "stream")
    options = fields.get("stream_options")
    usage = cast("Fields", options).get("include_usage") if isinstance(options, Mapping) else None
    wanted = wire.name != OPENAI_CHAT.name or not stream or usage is True
    return WireRequest(ModelRequest(()), cast("str", fields["model"]), stream is True, wanted)


def passing_headers(headers: Sequence[tuple[bytes, bytes]]) -> Mapping[str, str]:
    """The headers of a client that its upstream reads."""
    return {name.decode(): value.decode() for name, value in headers if name in _PASSING_HEADERS and value.isascii()}


@dataclass(slots=True)
class RelayedAnswer:
    """One relayed answer: how each part leaves, and what the log needs."""

    answering: Answering
    model: str | None
    """The client's name for the model, if the upstream's is another one."""
    deltas: list[Delta] | None = None
    response_id: str = ""
    sequence: int | None = None
    is_numbered: bool = field(init=False)
    """Whether the API numbers its events and has the answer's id in the first one. Only Responses does."""

    def __post_init__(self) -> None:
        self.is_numbered = self.answering.wire is OPENAI_RESPONSES

    def leaves(self, part: Relayed) -> bytes:
        """A part of a stream, as the client gets it."""
        fields = part.data
        if fields is None:
            return part.raw
        if self.is_numbered:
            self.follow(fields)
        if (
            fields.get("usage") is not None
            and fields.get("choices") == []
            and not self.answering.wire_request.usage_wanted
        ):
            return b""  # the gateway asked for it, and not the client
        named = fields if self.model is None else with_model(fields, self.model)
        return part.raw if named is fields else with_data(part.raw, named)

    def whole(self, part: Relayed) -> bytes:
        """A whole answer, as the client gets it."""
        if part.data is None:
            return part.raw
        named = self.named(part.data)
        return part.raw if named is part.data else json_bytes(named)

    def named(self, fields: dict[str, JSON]) -> dict[str, JSON]:
        """An event or an answer with the client's name for the model."""
        return fields if self.model is None else with_model(fields, self.model)

    def numbered(self, frame: Frame) -> Frame:
        """A frame with the number after that of the last event, if the API numbers events."""
        name, data = frame
        if self.sequence is None or not isinstance(data, dict):
            return frame
        self.sequence += 1
        return name, {**cast("dict[str, JSON]", data), "sequence_number": self.sequence}

    def note(self, part: Relayed) -> None:
        """Stores what the log and the metrics need of a part."""
        if self.deltas is not None:
            self.deltas.extend(part.deltas)
        if part.deltas and part.deltas[-1].__class__ is TurnEnded:
            self.answering.report.end = cast("TurnEnded", part.deltas[-1])

    def failed(self, failure: Failure) -> bytes:
        """The end of a stream that broke off."""
        answering = self.answering
        encoder = answering.wire.encoder(
            answering.wire_request, response_id=self.response_id or answering.id, created=int(time.time())
        )
        frames = encoder.fail(failure.message, failure.status)[-1:]  # what begins an answer has left
        numbered = map(self.numbered, frames)
        return b"".join([event((name, with_code(data, failure))) for name, data in numbered])

    def follow(self, fields: dict[str, JSON]) -> None:
        """Stores an event's number and the answer's id, if the API numbers events."""
        if not self.is_numbered:
            return
        number = fields.get("sequence_number")
        if isinstance(number, int):
            self.sequence = number
        if not self.response_id and isinstance(response := fields.get("response"), dict):
            self.response_id = str(cast("dict[str, JSON]", response).get("id", ""))


def known_as(route: Route, model: str) -> str | None:
    """The client's name for a model, if the upstream's is another one."""
    return model if route.upstream.model and route.upstream.model != model else None


async def relay(answering: Answering, fields: Fields, headers: Mapping[str, str]) -> None:
    """Sends the request on and its answer back. Raises ToolspeakError for a failure before the answer begins,
    ClientGone if the client leaves."""
    answering.report.attempts = 1
    send = _stream if answering.wire_request.stream else _whole
    await send(answering, fields, headers)


def _of_route(answering: Answering, route: Route) -> tuple[RelayedAnswer, ApiProvider]:
    """The answer and the provider of one attempt."""
    provider = route.provider
    assert isinstance(provider, ApiProvider)
    answering.route = route
    model = known_as(route, answering.wire_request.model)
    relayed = RelayedAnswer(answering, model, [] if answering.settings.log_content else None)
    answering.sent_deltas = relayed.deltas
    return relayed, provider


async def _stream(answering: Answering, fields: Fields, headers: Mapping[str, str]) -> None:
    stream = EventStream(answering.send, answering.headers)
    relayed = RelayedAnswer(answering, None)

    async def ask(route: Route, on_answer: Callable[[], None]) -> None:
        nonlocal relayed
        relayed, provider = _of_route(answering, route)
        async with aclosing(provider.relay(fields, headers)) as pieces:
            async for parts in pieces:
                on_answer()
                if parts[0].whole:
                    relayed.note(parts[0])
                    leaving = b"".join(map(event, _as_stream(answering, fields, parts[0].deltas)))
                else:
                    for part in parts:
                        relayed.note(part)
                    leaving = b"".join(map(relayed.leaves, parts))
                if leaving:
                    await stream.write(leaving, len(parts))

    async def work() -> None:
        await answering.routes.serve(ask, answering.prefix, lambda: stream.has_left, answering.failed)
        await answering.account.settled()

    async def fail(failure: Failure) -> None:
        await stream.write(relayed.failed(failure))

    await stream_answer(answering, stream, work(), fail)


async def _whole(answering: Answering, fields: Fields, headers: Mapping[str, str]) -> None:
    begun_at = asyncio.get_running_loop().time()
    body = b""

    async def ask(route: Route, on_answer: Callable[[], None]) -> None:
        nonlocal body
        relayed, provider = _of_route(answering, route)
        deltas: list[Delta] = []
        async with aclosing(provider.relay(fields, headers)) as pieces:
            async for parts in pieces:
                on_answer()
                for part in parts:
                    relayed.note(part)
                    deltas += part.deltas
                if parts[0].whole:
                    body = relayed.whole(parts[0])
                    return
        body = json_bytes(_as_whole(answering, fields, deltas))

    settings = answering.settings
    working = answering.routes.serve(ask, answering.prefix, failed=answering.failed)
    await watched(working, answering.receive, None, settings.ping_seconds, settings.stall_seconds)
    answering.status, answering.first_byte = 200, asyncio.get_running_loop().time() - begun_at
    await answering.account.settled()
    await send_whole(answering.send, 200, body, answering.headers, b"application/json")


# --- upstreams that stream unasked, or do not stream -----------------------------------------------------------------


def _as_stream(answering: Answering, fields: Fields, deltas: Sequence[Delta]) -> list[Frame]:
    """A whole answer, as the stream that the client wants."""
    encoder = answering.wire.encoder(_read(answering, fields), response_id=answering.id, created=int(time.time()))
    return [frame for delta in deltas for frame in encoder.feed(delta)]


def _as_whole(answering: Answering, fields: Fields, deltas: Sequence[Delta]) -> JSON:
    """A streamed answer, as the whole answer that the client wants."""
    return answering.wire.encode_response(
        deltas,
        model=answering.wire_request.model,
        response_id=answering.id,
        created=int(time.time()),
        request=_read(answering, fields),
    )


def _read(answering: Answering, fields: Fields) -> WireRequest:
    """The decoded request; without messages and options if it cannot be decoded."""
    try:
        return answering.wire.decode_request(fields)
    except FormatError:
        return replace(answering.wire_request, request=ModelRequest((), options={}))


# --- the model's name ----------------------------------------------------------------------------------------------


def with_model(fields: dict[str, JSON], model: str) -> dict[str, JSON]:
    """An event or an answer with this name of the model, if it names one."""
    if isinstance(fields.get("model"), str):
        return {**fields, "model": model}
    for name in ("response", "message"):
        inner = fields.get(name)
        if isinstance(inner, dict) and isinstance(cast("dict[str, JSON]", inner).get("model"), str):
            return {**fields, name: {**cast("dict[str, JSON]", inner), "model": model}}
    return fields


def with_data(raw: bytes, fields: dict[str, JSON]) -> bytes:
    """An event with other data, and with its own name, id and comments."""
    lines = [line for line in raw.splitlines() if line and not line.startswith(b"data")]
    return b"\n".join([*lines, b"data: " + json_bytes(fields)]) + b"\n\n"
