"""The state of one answer: its request, its routes, and the facts for the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolspeak.data.deltas import Delta, TurnEnded
from toolspeak.data.messages import Usage
from toolspeak.gateway.http.asgi import EVENTS, EventStream, Fields, Headers, Receive, Send, watched
from toolspeak.gateway.http.error_responses import Failure, failure_of, stopped
from toolspeak.gateway.observability.metrics import Metrics
from toolspeak.gateway.server_tools.hosted_tools import HostedTools
from toolspeak.gateway.server_tools.tool_servers import Running, ServerTools
from toolspeak.gateway.settings.gateway_settings import Settings
from toolspeak.gateway.stored.response_memory import Keeping, ResponseMemory
from toolspeak.gateway.turns.turn_attempts import BYTES_PER_TOKEN, TurnReport, estimated
from toolspeak.gateway.upstreams.routing import Route, Routes
from toolspeak.gateway.usage.accounts import Account
from toolspeak.providers.http_client import json_bytes
from toolspeak.wire.base import WireFormat, WireRequest


@dataclass(slots=True)
class Answering:
    """One answer: its request and routes, and its facts for the log."""

    wire: WireFormat
    wire_request: WireRequest
    routes: Routes
    settings: Settings
    receive: Receive
    send: Send
    id: str
    headers: Headers
    account: Account
    is_stopped: Callable[[], bool] = lambda: False
    """Whether a cancellation comes from the gateway's own stop."""
    tools: tuple[ServerTools, Running] | None = None
    hosted: HostedTools | None = None
    report: TurnReport = field(default_factory=TurnReport)
    status: int = 0
    first_byte: float | None = None
    """Seconds until the answer began."""
    chunks: int = 0
    failure: Failure | None = None
    """The error that ended the stream."""
    sent_deltas: list[Delta] | None = None
    """The deltas that the client got, if the log holds contents."""
    memory: ResponseMemory | None = None
    keeping: Keeping | None = None
    prefix: str = ""
    """A digest of the beginning of the conversation, for sticky routing."""
    came: tuple[Fields, Mapping[str, str]] | None = None
    """The request as the client wrote it, with the headers that pass; None if it may not pass unchanged."""
    route: Route = field(init=False)
    """The upstream of the last attempt."""
    failed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The upstreams that failed before, each with its error code."""

    def __post_init__(self) -> None:
        self.route = self.routes.routes[0]

    def facts(self) -> dict[str, object]:
        """Fields of the request's line in the log."""
        report, usage = self.report, self.report.end.usage
        return {
            "upstream": self.route.provider.name,
            "at": self.routes.label(self.route),
            "failed": [{"at": label, "code": code} for label, code in self.failed] or None,
            "dialect": self.route.dialect,
            "finish": report.end.finish if self.status == 200 else None,
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
            **(self.tools[1].facts() if self.tools is not None else {}),
        }

    def count(self, metrics: Metrics, endpoint: str, model: str) -> None:
        """Adds the answer to the metrics."""
        metrics.chunks.labels(endpoint, model).inc(self.chunks)
        if self.first_byte is not None:
            metrics.first_byte.labels(endpoint, model).observe(self.first_byte)
        if self.failure is not None:
            metrics.broken.labels(endpoint, model, self.failure.code).inc()
        metrics.count_turn(model, self.route.dialect, self.report)

    def relayed_usage(self, size: int, failed: bool) -> Usage:
        """The usage of a relayed answer to a request of so many bytes: the server's count, else an estimate with a
        token a chunk."""
        usage = self.report.end.usage
        if usage.total is not None or (failed and not self.status):
            return usage
        return estimated(usage, size, self.chunks * BYTES_PER_TOKEN)

    def _content(self) -> str | None:
        """The client's answer as a whole answer of its API; None if the log holds no contents."""
        if not self.sent_deltas or (self.failure is not None and self.failure.code == "gateway_failed"):
            return None
        ended = [] if isinstance(self.sent_deltas[-1], TurnEnded) else [TurnEnded("error")]
        return json_bytes(
            self.wire.encode_response(
                [*self.sent_deltas, *ended], model=self.wire_request.model, response_id=self.id, created=0
            )
        ).decode()


async def stream_answer(
    answering: Answering,
    stream: EventStream,
    work: Coroutine[Any, Any, None],
    fail: Callable[[Failure], Awaitable[None]],
) -> None:
    """Runs `work`, which writes the stream, and notes the facts of the answer however it ends.

    `fail` writes the end of a stream that breaks off. Raises what `work` raises before the stream begins, ClientGone
    if the client has left.
    """
    settings, asked_at = answering.settings, asyncio.get_running_loop().time()

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
                failure = stopped()
            else:
                failure = failure_of(error, answering.id)
            answering.failure, answering.status, answering.chunks = failure, 200, stream.chunks
            await answering.account.settled(failed=True)
            if stream.kind != EVENTS:
                return  # without an end: only the closed connection says that bytes are missing
            await fail(failure)
        if stream.began_at is not None:
            await stream.end()

    try:
        await watched(to_the_end(), answering.receive, stream, settings.ping_seconds, settings.stall_seconds)
    finally:
        stream.close()
        answering.chunks = stream.chunks
        if stream.began_at is not None:
            answering.status, answering.first_byte = 200, stream.began_at - asked_at
