"""One answer of a model, streamed or whole, in the client's format."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from toolspeak.data.deltas import Delta, TurnEnded
from toolspeak.data.messages import JSON
from toolspeak.errors import ToolspeakError
from toolspeak.gateway.asked import turn_of
from toolspeak.gateway.config import Settings
from toolspeak.gateway.estimate import prompt_size
from toolspeak.gateway.failures import Failure, failure_of, own_failure, with_code
from toolspeak.gateway.gate import Note
from toolspeak.gateway.hosted_tools import HostedTools
from toolspeak.gateway.http import Headers, Receive, Send, send_whole
from toolspeak.gateway.memory import Keeping, ResponseMemory
from toolspeak.gateway.routing import Route, Routes
from toolspeak.gateway.server_tools import Running, ServerTools
from toolspeak.gateway.sse import event, json_bytes, noted, with_notes
from toolspeak.gateway.streaming import EventStream, watched
from toolspeak.gateway.tool_loop import with_tools
from toolspeak.gateway.turn import Put, Report, play
from toolspeak.wire.base import WireFormat, WireRequest

WARNING_HEADER = b"x-toolspeak-warning"
"""Where an answer in one piece tells its notes, by their codes."""

_PREFIXES = {"openai-chat": "chatcmpl-", "openai-responses": "resp_", "anthropic": "msg_"}


@dataclass(slots=True)
class Answering:
    """What is needed for an answer, and what is known of it: `status`, `first_byte` (seconds), `chunks`, the
    `failure` that ended its stream, and `said`: what left, where the log is to hold it. `route` is the last that was
    asked, `failed` are the upstreams that did not answer, with the errors' codes.
    `prefix` stands for what the request begins with."""

    wire: WireFormat
    asked: WireRequest
    routes: Routes
    settings: Settings
    receive: Receive
    send: Send
    id: str
    headers: Headers
    tools: tuple[ServerTools, Running] | None = None
    hosted: HostedTools | None = None
    report: Report = field(default_factory=Report)
    status: int = 0
    first_byte: float | None = None
    chunks: int = 0
    failure: Failure | None = None
    said: list[Delta] | None = None
    memory: ResponseMemory | None = None
    keeping: Keeping | None = None
    prefix: Callable[[], str] = str
    route: Route = field(init=False)
    failed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def __post_init__(self) -> None:
        self.route = self.routes.routes[0]

    def facts(self) -> dict[str, object]:
        """For the log."""
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
            "answer": self._told(),
            **(self.tools[1].facts() if self.tools is not None else {}),
        }

    def _told(self) -> str | None:
        """What was said, as one answer of the client's API."""
        if not self.said or (self.failure is not None and self.failure.code == "gateway_failed"):
            return None
        ended = [] if isinstance(self.said[-1], TurnEnded) else [TurnEnded("error")]
        return json_bytes(
            self.wire.encode_response([*self.said, *ended], model=self.asked.model, response_id=self.id, created=0)
        ).decode()


async def answer(answering: Answering) -> None:
    """Raises ToolspeakError for what fails before the answer has begun, ClientGone if nobody is there any more."""
    # 80 random bits: a call's id is made of it, and OpenAI takes ids of 40 characters.
    response_id = _PREFIXES[answering.wire.name] + secrets.token_hex(10)
    if answering.keeping is not None:
        response_id = answering.keeping.response_id
    if answering.asked.stream:
        await _stream(answering, response_id)
    else:
        await _whole(answering, response_id)


async def _keep(answering: Answering, response: dict[str, JSON]) -> None:
    """Stores a response that is whole; where that fails it says so."""
    if answering.memory is None or answering.keeping is None:
        return
    notes = await answering.memory.keep(answering.keeping, response)
    if notes:
        response["store"] = False
        answering.report.notes += notes


async def _play(answering: Answering, put: Put) -> None:
    """The model's turn; with server-side tools, its turns."""
    asked = answering.asked
    size = partial(prompt_size, asked) if asked.usage_wanted else None
    if answering.tools is None:
        await _turn(answering, asked, put, answering.report, size)
        return
    asked, loop = await with_tools(answering.tools[0], asked, answering.tools[1], answering.hosted)
    await loop.play(partial(_turn, answering), asked, put, answering.report, size)


async def _turn(
    answering: Answering,
    asked: WireRequest,
    put: Put,
    report: Report,
    size: Callable[[], int] | None,
    *,
    hold_calls: bool = False,
) -> None:
    """One turn, of the first upstream that answers. `hold_calls`: they leave whole, whatever is configured.

    Where the client gets all at once, nothing leaves before the turn is over, so that another upstream can be asked
    until then.
    """
    before, has_left = replace(report, notes=[*report.notes]), False
    held: list[Delta] = []

    async def leave(deltas: Sequence[Delta]) -> None:
        nonlocal has_left
        has_left = True
        await put(deltas)

    async def hold(deltas: Sequence[Delta]) -> None:
        held.extend(deltas)

    async def ask(route: Route, begun: Callable[[], None]) -> None:
        answering.route = route
        report.back_to(before)
        held.clear()
        driver, request, rules = turn_of(asked, route, answering.wire.name)
        rules = replace(rules, hold_calls=rules.hold_calls or hold_calls)
        await play(driver, request, rules, leave if asked.stream else hold, report, size, begun)

    await answering.routes.serve(ask, answering.prefix, lambda: has_left, answering.failed)
    if held:
        await put(held)


async def _stream(answering: Answering, response_id: str) -> None:
    asked, settings = answering.asked, answering.settings
    stream = EventStream(answering.send, answering.headers)
    encoder = answering.wire.encoder(asked, response_id=response_id, created=int(time.time()))
    feed, write, report = encoder.feed, stream.write, answering.report
    begun = asyncio.get_running_loop().time()

    said = answering.said = [] if settings.log_content else None

    async def put(deltas: Sequence[Delta]) -> None:
        if said is not None:
            said.extend(deltas)
        if len(deltas) == 1 and deltas[0].__class__ is not TurnEnded:
            frames = feed(deltas[0])
            if len(frames) == 1:
                await write(event(frames[0]))
                return
        else:
            frames = [frame for delta in deltas for frame in feed(delta)]
            if deltas and deltas[-1].__class__ is TurnEnded:
                if answering.keeping is not None:
                    await _keep(answering, frames[-1][1]["response"])
                frames = noted(frames, report.notes)
        if frames:
            await write(b"".join([event(frame) for frame in frames]))

    async def work() -> None:
        try:
            await _play(answering, put)
        except Exception as error:
            if stream.begun is None or stream.failed:
                raise
            failure = failure_of(error) if isinstance(error, ToolspeakError) else own_failure(error, answering.id)
            answering.failure = failure
            frames = encoder.fail(failure.message, failure.status)
            await write(b"".join([event((name, with_code(data, failure))) for name, data in frames]))
        await stream.end()

    try:
        await watched(work(), answering.receive, stream, settings.ping_seconds, settings.stall_seconds)
    finally:
        stream.close()
        answering.chunks = stream.chunks
        if stream.begun is not None:
            answering.status, answering.first_byte = 200, stream.begun - begun


async def _whole(answering: Answering, response_id: str) -> None:
    asked, report = answering.asked, answering.report
    deltas: list[Delta] = []

    async def put(more: Sequence[Delta]) -> None:
        deltas.extend(more)

    begun = asyncio.get_running_loop().time()
    settings = answering.settings
    await watched(_play(answering, put), answering.receive, None, settings.ping_seconds, settings.stall_seconds)
    answering.said = deltas if settings.log_content else None
    body = answering.wire.encode_response(
        deltas, model=asked.model, response_id=response_id, created=int(time.time()), asked=asked
    )
    if answering.keeping is not None:
        await _keep(answering, body)
    headers = [*answering.headers, *warning_header(report.notes)]
    answering.status, answering.first_byte = 200, asyncio.get_running_loop().time() - begun
    await send_whole(answering.send, 200, json_bytes(with_notes(body, report.notes)), headers, b"application/json")


def warning_header(notes: Sequence[Note]) -> Headers:
    """The header of an answer in one piece that has notes."""
    codes = dict.fromkeys(note.code for note in notes)
    return [(WARNING_HEADER, ", ".join(codes).encode())] if codes else []
