"""One HTTP request to the gateway and its answer, each with its facts for the log."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from toolspeak.data.deltas import ArgumentsDelta, Delta, ReasoningDelta, TextDelta, TurnEnded
from toolspeak.data.messages import JSON, Usage
from toolspeak.gateway.http.asgi import (
    EVENTS,
    EventStream,
    Fields,
    Headers,
    Receive,
    Scope,
    Send,
    header,
    run_while_connected,
    send_whole,
)
from toolspeak.gateway.http.error_responses import Failure, failure_of, gateway_stopped
from toolspeak.gateway.observability import Metrics, RequestTrace
from toolspeak.gateway.running_streams import RunningStream
from toolspeak.gateway.server_tools.hosted_tools import HostedTools
from toolspeak.gateway.server_tools.tool_search import ClientSearch
from toolspeak.gateway.server_tools.tool_servers import Running, ServerTools
from toolspeak.gateway.settings.api_keys import Key
from toolspeak.gateway.settings.gateway_settings import ANY_ORIGIN
from toolspeak.gateway.settings_generation import SettingsGeneration
from toolspeak.gateway.stored.response_memory import ResponseMemory, ResponseStorage
from toolspeak.gateway.turns.turn_report import BYTES_PER_TOKEN, TurnReport, with_estimates
from toolspeak.gateway.upstreams.routing import Route, Routes
from toolspeak.gateway.usage.accounts import Account
from toolspeak.providers.http_client import json_bytes
from toolspeak.wire.base import WireFormat, WireRequest
from toolspeak.wire.openai_chat import OPENAI_CHAT

CHARACTERS_PER_TOKEN = 4
"""The usual rule of thumb, for what no server has counted yet."""

_LIMITS = [
    *(f"x-ratelimit-{word}-{name}" for name in ("requests", "tokens") for word in ("limit", "remaining", "reset")),
    *(
        f"anthropic-ratelimit-{name}-{word}"
        for name in ("requests", "tokens")
        for word in ("limit", "remaining", "reset")
    ),
]
_EXPOSED_HEADERS = ", ".join(
    ["x-request-id", "x-toolspeak-warning", "x-should-retry", "retry-after", *_LIMITS]
).encode()


@dataclass(slots=True)
class Request:
    """One request, with its facts for the log."""

    scope: Scope
    receive: Receive
    send: Send
    id: str
    began_at: float
    """`time.perf_counter()` at its arrival."""
    current: SettingsGeneration
    """The settings and routes that answer it."""
    wire: WireFormat = OPENAI_CHAT
    model: str = ""
    stream: bool = False
    status: int = 0
    key: Key | None = None
    account: Account | None = None
    ran_tools: bool = False
    size: int = 0
    """Bytes of the body."""
    fields: Fields = field(default_factory=dict[str, JSON])
    """The JSON of the body, once it is read."""
    keeping: ResponseStorage | None = None
    """How its response is stored, if it is."""
    runs: bool = False
    """Whether it is answered in the background."""
    arrived_at: float = field(default_factory=time.time)
    """Unix time of its arrival."""
    facts: dict[str, object] = field(default_factory=dict[str, object])
    trace: RequestTrace | None = None

    @property
    def path(self) -> str:
        """The path, without a slash at its end, which some clients write."""
        path: str = self.scope["path"]
        return path[:-1] if path.endswith("/") and path != "/" else path

    @property
    def owner(self) -> str:
        """The owner of the responses that the client may name: its key."""
        return "" if self.key is None else self.key.name

    def allows(self, model: str) -> bool:
        """Whether the client may use and list a model."""
        return self.key is None or self.key.allows(model)

    def begin_tools(self) -> tuple[ServerTools, Running] | None:
        """The server-side tools for this request; None without any."""
        tools = self.current.tools
        return None if tools is None else (tools, tools.begin(self.id, log_content=self.current.settings.log_content))

    @property
    def headers(self) -> Headers:
        limits = self.account.headers if self.account is not None else []
        return [(b"x-request-id", self.id.encode()), *cors_headers(self.scope, self.current.settings.cors), *limits]

    def log_fields(self, seconds: float) -> Mapping[str, JSON]:
        """The fields of the request's line in the log."""
        client = self.scope.get("client")
        return {
            "id": self.id,
            "pid": os.getpid(),
            "endpoint": self.path,
            "model": self.model or None,
            "stream": self.stream,
            "status": self.status,
            "seconds": round(seconds, 4),
            "client": client[0] if client else None,
            "key": self.key.name if self.key else None,
            **self.facts,
        }

    async def respond(
        self,
        status: int,
        body: bytes,
        headers: Sequence[tuple[bytes, bytes]] = (),
        content_type: bytes = b"application/json",
    ) -> None:
        self.status = status
        await send_whole(self.send, status, body, [*self.headers, *headers], content_type)


def cors_headers(scope: Scope, origins: Sequence[str]) -> Headers:
    """The headers that say which page may read an answer; none if no origin is configured."""
    if not origins:
        return []
    origin = header(scope, b"origin")
    if not is_allowed(origin, origins):
        return [(b"vary", b"origin")]
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _EXPOSED_HEADERS),
        (b"vary", b"origin"),
    ]


def is_allowed(origin: str, origins: Sequence[str]) -> bool:
    """Whether pages of an origin may call the gateway."""
    return bool(origin) and (origin in origins or ANY_ORIGIN in origins)


# --- the answer ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class AnswerContext:
    """The answer to a request by the upstreams of its model, and its facts for the log."""

    request: Request
    wire_request: WireRequest
    routes: Routes
    is_stopped: Callable[[], bool]
    """Whether a cancellation comes from the gateway's own stop."""
    tools: tuple[ServerTools, Running] | None = None
    hosted_tools: HostedTools | None = None
    search: ClientSearch | None = None
    first_byte: float | None = None
    """Seconds until the answer began."""
    chunks: int = 0
    characters: int = 0
    """What the model has written so far: text, thoughts and arguments of calls."""
    failure: Failure | None = None
    """The error that ended the stream."""
    sent_deltas: list[Delta] | None = None
    """The deltas that the client got, if the log holds contents."""
    memory: ResponseMemory | None = None
    prefix: str = ""
    """A digest of the beginning of the conversation, for sticky routing."""
    native_request: tuple[Fields, Mapping[str, str]] | None = None
    """The request as the client wrote it, with the headers that pass; None if it may not pass unchanged."""
    route: Route = field(init=False)
    """The upstream of the last attempt."""
    failures: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The upstreams that failed before, each with its error code."""

    def __post_init__(self) -> None:
        self.route = self.routes.routes[0]

    @property
    def account(self) -> Account:
        account = self.request.account
        assert account is not None, "a request that has a place has one"
        return account

    @property
    def report(self) -> TurnReport:
        return self.account.report

    def count_written(self, deltas: Sequence[Delta]) -> None:
        """Counts what the model has written."""
        for delta in deltas:
            kind = delta.__class__
            if kind is TextDelta or kind is ArgumentsDelta or kind is ReasoningDelta:
                self.characters += len(cast("TextDelta", delta).text)

    def running(self) -> RunningStream:
        """How the request stands, while it is answered."""
        request, label = self.request, self.routes.pool.labels[self.route.number]
        tokens = -(-self.characters // CHARACTERS_PER_TOKEN)
        return RunningStream(
            request.id, request.model, label, request.owner, request.stream, request.arrived_at, tokens
        )

    def facts(self) -> dict[str, object]:
        """Fields of the request's line in the log."""
        report, usage = self.report, self.report.end.usage
        return {
            "upstream": self.route.provider.name,
            "at": self.routes.label(self.route),
            "failed": [{"at": label, "code": code} for label, code in self.failures] or None,
            "dialect": self.route.dialect,
            "finish": report.end.finish if self.request.status == 200 else None,
            "calls": report.calls or None,
            "attempts": report.attempts if report.attempts > 1 else None,
            "warnings": [note.code for note in report.notes] or None,
            "input_tokens": usage.input,
            "output_tokens": usage.output,
            "first_byte": None if self.first_byte is None else round(self.first_byte, 4),
            "chunks": self.chunks or None,
            "error": self.failure and self.failure.cause,
            "code": self.failure and self.failure.code,
            "answer": self._content(),
            "searches": (self.search and self.search.rounds) or None,
            **(self.tools[1].facts() if self.tools is not None else {}),
        }

    def count(self, metrics: Metrics, endpoint: str, model: str) -> None:
        """Adds the answer to the metrics."""
        metrics.chunks.labels(endpoint, model).inc(self.chunks)
        if self.first_byte is not None:
            metrics.first_byte.labels(endpoint, model).observe(self.first_byte)
        if self.failure is not None:
            metrics.broken_streams.labels(endpoint, model, self.failure.code).inc()
        metrics.count_turn(model, self.route.dialect, self.report)

    def relayed_usage(self, size: int, failed: bool) -> Usage:
        """The usage of a relayed answer to a request of so many bytes: the server's count, else an estimate with a
        token a chunk."""
        usage = self.report.end.usage
        if usage.total is not None or (failed and not self.request.status):
            return usage
        return with_estimates(usage, size, self.chunks * BYTES_PER_TOKEN)

    def _content(self) -> str | None:
        """The client's answer as a whole answer of its API; None if the log holds no contents."""
        if not self.sent_deltas or (self.failure is not None and self.failure.code == "gateway_failed"):
            return None
        missing_end = [] if isinstance(self.sent_deltas[-1], TurnEnded) else [TurnEnded("error")]
        return json_bytes(
            self.request.wire.encode_response(
                [*self.sent_deltas, *missing_end],
                model=self.wire_request.model,
                response_id=self.request.id,
                created_at=0,
            )
        ).decode()


async def stream_answer(
    answering: AnswerContext,
    stream: EventStream,
    work: Coroutine[Any, Any, None],
    fail: Callable[[Failure], Awaitable[None]],
) -> None:
    """Runs `work`, which writes the stream, and notes the facts of the answer however it ends.

    `fail` writes the end of a stream that breaks off. Raises what `work` raises before the stream begins, ClientGone
    if the client has left.
    """
    request, asked_at = answering.request, asyncio.get_running_loop().time()

    async def to_the_end() -> None:
        try:
            await work
        except (Exception, asyncio.CancelledError) as error:
            if stream.began_at is None or stream.failed:
                raise
            if isinstance(error, asyncio.CancelledError):
                task = asyncio.current_task()
                if task is None or not answering.is_stopped():
                    raise
                task.uncancel()
                failure = gateway_stopped()
            else:
                failure = failure_of(error, request.id)
            answering.failure, request.status, answering.chunks = failure, 200, stream.chunks
            await answering.account.settle_and_wait(failed=True)
            if stream.kind != EVENTS:
                return  # without an end: only the closed connection says that bytes are missing
            await fail(failure)
        if stream.began_at is not None:
            await stream.end()

    settings = request.current.settings
    try:
        await run_while_connected(to_the_end(), request.receive, stream, settings.ping_seconds, settings.stall_seconds)
    finally:
        stream.close()
        answering.chunks = stream.chunks
        if stream.began_at is not None:
            request.status, answering.first_byte = 200, stream.began_at - asked_at
