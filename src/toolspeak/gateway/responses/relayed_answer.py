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
from toolspeak.gateway.client_request import AnswerContext, stream_answer
from toolspeak.gateway.http.asgi import EventStream, Fields, event, run_while_connected, send_whole
from toolspeak.gateway.http.error_responses import Failure, with_code
from toolspeak.gateway.upstreams.routing import Route
from toolspeak.providers.api import ApiProvider
from toolspeak.providers.http_client import json_bytes
from toolspeak.providers.request_relay import RelayedPart
from toolspeak.wire.base import ModelRequest, StreamFrame, WireRequest
from toolspeak.wire.openai_responses import OPENAI_RESPONSES


@dataclass(slots=True)
class RelayedAnswer:
    """One relayed answer: how each part leaves, and what the log needs."""

    answering: AnswerContext
    model: str | None
    """The client's name for the model, if the upstream's is another one."""
    deltas: list[Delta] | None = None
    response_id: str = ""
    sequence: int | None = None
    is_numbered: bool = field(init=False)
    """Whether the API numbers its events and has the answer's id in the first one. Only Responses does."""

    def __post_init__(self) -> None:
        self.is_numbered = self.answering.request.wire is OPENAI_RESPONSES

    def leaves(self, part: RelayedPart) -> bytes:
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
            return b""  # the gateway requested it, and not the client
        client_fields = fields if self.model is None else with_model(fields, self.model)
        return part.raw if client_fields is fields else with_data(part.raw, client_fields)

    def whole(self, part: RelayedPart) -> bytes:
        """A whole answer, as the client gets it."""
        if part.data is None:
            return part.raw
        client_fields = self.with_client_model(part.data)
        return part.raw if client_fields is part.data else json_bytes(client_fields)

    def with_client_model(self, fields: dict[str, JSON]) -> dict[str, JSON]:
        """An event or an answer with the client's name for the model."""
        return fields if self.model is None else with_model(fields, self.model)

    def number_frame(self, frame: StreamFrame) -> StreamFrame:
        """A frame with the number after that of the last event, if the API numbers events."""
        name, data = frame
        if self.sequence is None or not isinstance(data, dict):
            return frame
        self.sequence += 1
        return name, {**cast("dict[str, JSON]", data), "sequence_number": self.sequence}

    def note(self, part: RelayedPart) -> None:
        """Stores what the log and the metrics need of a part."""
        self.answering.count_written(part.deltas)
        if self.deltas is not None:
            self.deltas.extend(part.deltas)
        if part.deltas and part.deltas[-1].__class__ is TurnEnded:
            self.answering.report.end = cast("TurnEnded", part.deltas[-1])

    def failure_events(self, failure: Failure) -> bytes:
        """The end of a stream that broke off."""
        answering = self.answering
        encoder = answering.request.wire.encoder(
            answering.wire_request, response_id=self.response_id or answering.request.id, created_at=int(time.time())
        )
        frames = encoder.fail(failure.message, failure.status)[-1:]  # what begins an answer has left
        last_frames = map(self.number_frame, frames)
        return b"".join([event((name, with_code(data, failure))) for name, data in last_frames])

    def follow(self, fields: dict[str, JSON]) -> None:
        """Stores an event's number and the answer's id, if the API numbers events."""
        if not self.is_numbered:
            return
        number_frame = fields.get("sequence_number")
        if isinstance(number_frame, int):
            self.sequence = number_frame
        if not self.response_id and isinstance(response := fields.get("response"), dict):
            self.response_id = str(cast("dict[str, JSON]", response).get("id", ""))


def client_model_name(route: Route, model: str) -> str | None:
    """The client's name for a model, if the upstream's is another one."""
    return model if route.upstream.model and route.upstream.model != model else None


async def relay(answering: AnswerContext, fields: Fields, headers: Mapping[str, str]) -> None:
    """Sends the request on and its answer back. Raises ToolspeakError for a failure before the answer begins,
    ClientGone if the client leaves."""
    answering.report.attempts = 1
    send = _stream if answering.wire_request.stream else _whole
    await send(answering, fields, headers)


def _of_route(answering: AnswerContext, route: Route) -> tuple[RelayedAnswer, ApiProvider]:
    """The answer and the provider of one attempt."""
    provider = route.provider
    assert isinstance(provider, ApiProvider)
    answering.route = route
    model = client_model_name(route, answering.wire_request.model)
    relayed_answer = RelayedAnswer(answering, model, [] if answering.request.current.settings.log_content else None)
    answering.sent_deltas = relayed_answer.deltas
    return relayed_answer, provider


async def _stream(answering: AnswerContext, fields: Fields, headers: Mapping[str, str]) -> None:
    stream = EventStream(answering.request.send, answering.request.headers)
    relayed_answer = RelayedAnswer(answering, None)

    async def ask(route: Route, on_answer: Callable[[], None]) -> None:
        nonlocal relayed_answer
        relayed_answer, provider = _of_route(answering, route)
        async with aclosing(provider.relay(fields, headers)) as pieces:
            async for parts in pieces:
                on_answer()
                if parts[0].whole:
                    relayed_answer.note(parts[0])
                    leaving = b"".join(map(event, _as_stream(answering, fields, parts[0].deltas)))
                else:
                    for part in parts:
                        relayed_answer.note(part)
                    leaving = b"".join(map(relayed_answer.leaves, parts))
                if leaving:
                    await stream.write(leaving, len(parts))

    async def work() -> None:
        await answering.routes.serve(ask, answering.prefix, lambda: stream.has_left, answering.failures)
        await answering.account.settle_and_wait()

    async def fail(failure: Failure) -> None:
        await stream.write(relayed_answer.failure_events(failure))

    await stream_answer(answering, stream, work(), fail)


async def _whole(answering: AnswerContext, fields: Fields, headers: Mapping[str, str]) -> None:
    client, asked_at = answering.request, asyncio.get_running_loop().time()
    body = b""

    async def ask(route: Route, on_answer: Callable[[], None]) -> None:
        nonlocal body
        relayed_answer, provider = _of_route(answering, route)
        deltas: list[Delta] = []
        async with aclosing(provider.relay(fields, headers)) as pieces:
            async for parts in pieces:
                on_answer()
                for part in parts:
                    relayed_answer.note(part)
                    deltas += part.deltas
                if parts[0].whole:
                    body = relayed_answer.whole(parts[0])
                    return
        body = json_bytes(_as_whole(answering, fields, deltas))

    settings = client.current.settings
    working = answering.routes.serve(ask, answering.prefix, failures=answering.failures)
    await run_while_connected(working, client.receive, None, settings.ping_seconds, settings.stall_seconds)
    client.status, answering.first_byte = 200, asyncio.get_running_loop().time() - asked_at
    await answering.account.settle_and_wait()
    await send_whole(client.send, 200, body, client.headers, b"application/json")


# --- upstreams that stream unasked, or do not stream -----------------------------------------------------------------


def _as_stream(answering: AnswerContext, fields: Fields, deltas: Sequence[Delta]) -> list[StreamFrame]:
    """A whole answer, as the stream that the client wants."""
    encoder = answering.request.wire.encoder(
        _read(answering, fields), response_id=answering.request.id, created_at=int(time.time())
    )
    return [frame for delta in deltas for frame in encoder.feed(delta)]


def _as_whole(answering: AnswerContext, fields: Fields, deltas: Sequence[Delta]) -> JSON:
    """A streamed answer, as the whole answer that the client wants."""
    return answering.request.wire.encode_response(
        deltas,
        model=answering.wire_request.model,
        response_id=answering.request.id,
        created_at=int(time.time()),
        request=_read(answering, fields),
    )


def _read(answering: AnswerContext, fields: Fields) -> WireRequest:
    """The decoded request; without messages and options if it cannot be decoded."""
    try:
        return answering.request.wire.decode_request(fields)
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
