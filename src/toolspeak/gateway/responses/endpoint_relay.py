"""Endpoints that the gateway passes on to the server of the model that a request names: embeddings, reranking, audio, …

Requests and answers stay as they are, except for the model's name if the configuration has another one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import cast

from pydantic_core import from_json

from toolspeak.data.deltas import TurnEnded
from toolspeak.data.messages import JSON, Usage
from toolspeak.errors import FormatError, ProviderError
from toolspeak.gateway.client_request import AnswerContext, stream_answer
from toolspeak.gateway.http.asgi import EVENTS, EventStream, Fields, check_values, decode_body, event, send_whole
from toolspeak.gateway.http.error_responses import Failure, with_code
from toolspeak.gateway.http.multipart_forms import FORM, read_form
from toolspeak.gateway.responses.relayed_answer import client_model_name, with_data, with_model
from toolspeak.gateway.settings.gateway_settings import Bounds
from toolspeak.gateway.upstreams.routing import Route
from toolspeak.providers.api import ApiProvider
from toolspeak.providers.http_client import json_bytes
from toolspeak.providers.reply import Reply
from toolspeak.wire.error_table import reported_error
from toolspeak.wire.json_conversion import optional_flag, require_name, require_object

COMPLETIONS = "/v1/completions"

RELAY_PATHS: Mapping[str, str] = {
    COMPLETIONS: "completions",
    "/v1/embeddings": "embeddings",
    "/v1/moderations": "moderations",
    "/v1/images/generations": "images/generations",
    "/v1/audio/speech": "audio/speech",
    "/v1/audio/transcriptions": "audio/transcriptions",
    "/v1/audio/translations": "audio/translations",
    "/v1/rerank": "rerank",
    "/v1/score": "score",
    "/rerank": "/rerank",
    "/score": "/score",
    "/classify": "/classify",
    "/pooling": "/pooling",
    "/tokenize": "/tokenize",
    "/detokenize": "/detokenize",
    "/infill": "/infill",
}
"""The server's path for each path of a client: below the base URL, or with a leading / below the server's root.

OpenAI's API reference; vLLM's `serve` (score, classify, pooling, tokenize, rerank as Jina's); llama.cpp's server
(infill, tokenize); text-embeddings-inference (rerank at the root).
"""

KINDS: Mapping[str, Sequence[str]] = {
    path: (FORM,) if path.startswith("/v1/audio/trans") else ("application/json",) for path in RELAY_PATHS
}
"""The content types of requests, by path."""

_FORMATS = ("openai-chat", "openai-responses")
_STREAM_END = b"[DONE]"
_LARGE_BYTES = 256 * 1024
_USAGE = re.compile(rb'"usage"\s*:\s*(\{[^{}]{0,400}(?:\{[^{}]{0,400}\}[^{}]{0,400}){0,4}\})')


@dataclass(frozen=True, slots=True)
class RelayRequest:
    """A request that the gateway forwards: its model (None if it names none), whether it wants a stream and the
    usage, and a function that gives its body for a model's name."""

    model: str | None
    stream: bool
    usage_wanted: bool
    content: Callable[[str], bytes]


def read_relay_request(path: str, content_type: str, body: bytes, bounds: Bounds) -> RelayRequest:
    """Reads the fields that the gateway needs. Raises Failure, FormatError."""
    request = _of_form(content_type, body) if FORM in KINDS[path] else _of_json(path, body, bounds)
    if request.model is None and not RELAY_PATHS[path].startswith("/"):
        raise FormatError("model: missing; the request has to name a model")
    if request.model is not None and len(request.model) > bounds.name_chars:
        raise Failure(
            400,
            f"model has {len(request.model)} characters; {bounds.name_chars} are allowed",
            "name_too_long",
        )
    return request


def _of_json(path: str, body: bytes, bounds: Bounds) -> RelayRequest:
    check_values(body, bounds.json_values)
    fields = require_object(decode_body(body, bounds.depth), "the request")
    model = None if fields.get("model") is None else require_name(fields["model"], "model")
    stream = optional_flag(fields.get("stream"), "stream") is True
    options = fields.get("stream_options")
    stream_options = cast("dict[str, JSON]", options) if isinstance(options, dict) else {}
    usage_is_wanted = stream_options.get("include_usage") is True or not stream or path != COMPLETIONS
    if not usage_is_wanted:
        fields = {**fields, "stream_options": {**stream_options, "include_usage": True}}

    def content(name: str) -> bytes:
        # Encoded again: if a name appears twice, a server may read the other value.
        return json_bytes(fields if model is None else {**fields, "model": name})

    return RelayRequest(model, stream, usage_is_wanted, content)


def _of_form(content_type: str, body: bytes) -> RelayRequest:
    form = read_form(content_type, body)
    model = form.text("model")
    stream = (form.text("stream") or "").strip().lower() in ("true", "1")
    return RelayRequest(None if model is None else require_name(model, "model"), stream, True, form.with_model)


async def pass_on(answering: AnswerContext, request: RelayRequest, path: str, content_type: str) -> None:
    """Forwards the request, and returns the answer: JSON whole, events and other bytes as they arrive. Raises
    ToolspeakError for a failure before the answer begins, ClientGone if the client leaves."""
    able = [route for route in answering.routes.routes if route.wire in _FORMATS]
    able = [route for route in able if isinstance(route.provider, ApiProvider)]
    if not able:
        raise Failure(
            404,
            f"{path} needs a server with OpenAI's API, and the server of {answering.wire_request.model!r} has another "
            f"one ({answering.route.wire}); name another model",
            "not_found",
        )
    answering.report.attempts = 1
    passing = _Passing(answering, request)
    routes = replace(answering.routes, routes=able)
    headers = {"content-type": content_type, "accept": "*/*"}
    asked_at = asyncio.get_running_loop().time()
    stream = EventStream(answering.request.send, answering.request.headers, EVENTS if request.stream else None)

    async def ask(route: Route, _on_answer: Callable[[], None]) -> None:
        nonlocal passing
        answering.route = route
        passing = _Passing(answering, request)
        if stream.began_at is None:
            stream.kind = EVENTS if request.stream else None
        provider = cast("ApiProvider", route.provider)
        async with provider.send(RELAY_PATHS[path], request.content, headers) as reply:
            await passing.read(reply, stream, path)

    async def work() -> None:
        await routes.serve(ask, answering.prefix, lambda: stream.has_left, answering.failures)
        await answering.account.settle_and_wait()

    async def fail(failure: Failure) -> None:
        body = with_code(answering.request.wire.encode_error(failure.message, failure.status), failure)
        await stream.write(event((None, body)))

    await stream_answer(answering, stream, work(), fail)
    if stream.began_at is None:
        answering.request.status, answering.first_byte = 200, asyncio.get_running_loop().time() - asked_at
        await send_whole(answering.request.send, 200, passing.body, answering.request.headers, passing.kind)


class _Passing:
    """One answer that is passed on. `body` and `kind` (the content type) are those of a whole answer."""

    def __init__(self, answering: AnswerContext, request: RelayRequest) -> None:
        self.body = b""
        self.kind = b"application/json"
        self._answering = answering
        self._request = request
        self._model = None if request.model is None else client_model_name(answering.route, request.model)
        """The name that the client knows the model by, if it is not the upstream's."""

    async def read(self, reply: Reply, stream: EventStream, path: str) -> None:
        """Reads the answer; events and other bytes leave as they come."""
        kind = reply.content_type or {"stream": EVENTS, "json": "application/json"}.get(await reply.kind(), "")
        if kind == EVENTS:
            stream.kind = EVENTS
            await self._events(reply, stream, path)
        elif kind == "text/html":
            raise ProviderError("the server answered with a page of HTML: check the base URL", code="ill_formed")
        elif kind == "application/json" or kind.endswith("+json"):
            self.kind = reply.content_header.encode("latin-1") or self.kind
            await self._whole(reply)
            if stream.began_at is not None or (self._request.stream and path == COMPLETIONS):
                await stream.write(event((None, self.body.decode("utf-8", "replace"))) + event((None, "[DONE]")))
        elif stream.began_at is not None:
            raise ProviderError(f"the server answered with {kind!r} and not with events", code="ill_formed")
        else:
            stream.kind = reply.content_header or "application/octet-stream"
            self.kind = stream.kind.encode("latin-1")
            async with aclosing(reply.pieces()) as pieces:
                async for piece in pieces:
                    await stream.write(piece)

    async def _whole(self, reply: Reply) -> None:
        self.body = await reply.whole()
        if len(self.body) >= _LARGE_BYTES and self._model is None:
            usage = [*_USAGE.finditer(self.body, len(self.body) - 4096)]
            self._note(_object(b'{"usage":%b}' % usage[-1][1]) if usage else None)
            return
        fields = await asyncio.to_thread(_object, self.body) if len(self.body) >= _LARGE_BYTES else _object(self.body)
        self._note(fields)
        if fields is not None and self._model is not None:
            self.body = json_bytes(with_model(fields, self._model))

    async def _events(self, reply: Reply, stream: EventStream, path: str) -> None:
        is_finished = False
        async with aclosing(reply.raw_events(_STREAM_END)) as pieces:
            async for piece in pieces:
                leaving: list[bytes] = []
                try:
                    for raw, data in piece:
                        fields = _object(data)
                        self._note(fields)
                        is_finished = is_finished or _finishes(fields)
                        leaving.append(self._leaves(raw, fields))
                finally:
                    if any(leaving):
                        await stream.write(b"".join(leaving), len(leaving))
        if path == COMPLETIONS and not is_finished and not reply.completed:
            raise ProviderError("the stream ended before the answer was whole: ask again", code="connection")

    def _leaves(self, raw: bytes, fields: dict[str, JSON] | None) -> bytes:
        if fields is None:
            return raw
        if not self._request.usage_wanted and fields.get("choices") == [] and fields.get("usage") is not None:
            return b""  # only the gateway requested the usage
        model_fields = fields if self._model is None else with_model(fields, self._model)
        return raw if model_fields is fields else with_data(raw, model_fields)

    def _note(self, fields: Fields | None) -> None:
        """Stores the server's usage, for the log and the metrics. Raises ProviderError for an error in a successful
        answer."""
        if fields is None:
            return
        error = fields.get("error")
        if error and (isinstance(error, dict) or len(fields) == 1):
            raise reported_error(error)
        self._answering.characters += sum(
            len(text) for row in _choices(fields) if isinstance(text := row.get("text"), str)
        )
        usage = fields.get("usage")
        if isinstance(usage, dict):
            counts = cast("dict[str, JSON]", usage)
            prompt = _count(counts, "prompt_tokens", "input_tokens", "total_tokens")
            completion = _count(counts, "completion_tokens", "output_tokens")
            self._answering.report.end = TurnEnded("stop", Usage(input=prompt, output=completion))


def _count(usage: Fields, *names: str) -> int | None:
    counts = [usage.get(name) for name in names]
    return next((count for count in counts if isinstance(count, int) and not isinstance(count, bool)), None)


def _finishes(fields: Fields | None) -> bool:
    """Whether a chunk of a completion has a finish reason."""
    return any(row.get("finish_reason") is not None for row in _choices(fields or {}))


def _choices(fields: Fields) -> list[Fields]:
    choices = fields.get("choices")
    rows = cast("list[JSON]", choices) if isinstance(choices, list) else []
    return [cast("Fields", row) for row in rows if isinstance(row, dict)]


def _object(data: bytes) -> dict[str, JSON] | None:
    """The JSON object in an answer or an event, or None."""
    try:
        value: JSON = from_json(data)
    except ValueError:
        return None
    return cast("dict[str, JSON]", value) if isinstance(value, dict) else None
