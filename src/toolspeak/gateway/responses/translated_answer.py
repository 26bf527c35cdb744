"""One answer of a model, streamed or whole, in the client's format. Asks the model again if a call is malformed or
missing."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, cast

from toolspeak.agent.drivers.base import NO_RUN, Driver, TurnRequest
from toolspeak.data.deltas import Delta, TextDelta, TurnEnded
from toolspeak.data.messages import JSON, MalformedCall, Message, TextPart, ToolResult, Usage, failure
from toolspeak.data.values import evolve
from toolspeak.dialects import ParsedTurn, TurnCollector
from toolspeak.errors import ToolspeakError
from toolspeak.gateway.client_request import AnswerContext, stream_answer
from toolspeak.gateway.http.asgi import (
    EventStream,
    Headers,
    add_notes,
    event,
    run_while_connected,
    send_whole,
    text_event,
    with_notes,
)
from toolspeak.gateway.http.error_responses import Failure, with_code
from toolspeak.gateway.requests.request_mapping import turn_of
from toolspeak.gateway.responses.native_relay import NativeRelay, native_relay
from toolspeak.gateway.server_tools.tool_loop import with_tools
from toolspeak.gateway.turns.turn_gate import Note, ReleaseRules, TurnGate
from toolspeak.gateway.turns.turn_report import SendDeltas, TurnReport, prompt_size, with_estimates
from toolspeak.gateway.upstreams.routing import Route
from toolspeak.providers.http_client import json_bytes
from toolspeak.providers.request_relay import RELAYING
from toolspeak.wire.base import WireRequest

WARNING_HEADER = b"x-toolspeak-warning"
"""The header that lists the codes of the notes of an answer that is no stream."""

_PREFIXES = {"openai-chat": "chatcmpl-", "openai-responses": "resp_", "anthropic": "msg_"}


async def answer(answering: AnswerContext) -> None:
    """Answers a request. Raises ToolspeakError for a failure before the answer begins, ClientGone if the client
    leaves."""
    # 80 random bits: a call's id is made of it, and OpenAI takes ids of 40 characters.
    request = answering.request
    response_id = _PREFIXES[request.wire.name] + secrets.token_hex(10)
    if request.keeping is not None:
        response_id = request.keeping.response_id
    if answering.wire_request.stream:
        await _stream(answering, response_id)
    else:
        await _whole(answering, response_id)


async def _keep(answering: AnswerContext, response: dict[str, JSON]) -> None:
    """Stores a complete response. If that fails, the response says that it is not stored."""
    keeping = answering.request.keeping
    if answering.memory is None or keeping is None:
        return
    notes = await answering.memory.keep(keeping, response)
    if notes:
        response["store"] = False
        answering.report.notes += notes


def _run_turns(
    answering: AnswerContext,
    put: SendDeltas,
    on_attempt: Callable[[Route], None],
    has_left: Callable[[], bool] = lambda: False,
) -> Coroutine[Any, Any, None]:
    """The model's turn, or its turns with server-side tools.

    `on_attempt` is called with the route of each attempt. `has_left`: whether part of the answer has left, also without
    `put`.
    """
    wire_request = answering.wire_request
    size = partial(prompt_size, wire_request)
    most_tools = answering.routes.most_tools
    if answering.tools is None and (most_tools is None or len(wire_request.request.tools) <= most_tools):
        return _turn(answering, wire_request, put, answering.report, size, on_attempt=on_attempt, has_left=has_left)

    async def with_server_tools() -> None:
        offering, loop = await with_tools(answering.tools, wire_request, answering.hosted_tools, most_tools)
        answering.search = loop.search
        offered_size = partial(prompt_size, offering)
        await loop.run_turns(partial(_turn, answering), offering, put, answering.report, offered_size)

    return with_server_tools()


async def _turn(
    answering: AnswerContext,
    wire_request: WireRequest,
    put: SendDeltas,
    report: TurnReport,
    size: Callable[[], int],
    *,
    hold_calls: bool = False,
    on_attempt: Callable[[Route], None] = lambda _: None,
    has_left: Callable[[], bool] = lambda: False,
) -> None:
    """Runs one turn at the first upstream that answers. `hold_calls`: calls leave whole, whatever the configuration.

    If the client wants no stream, nothing leaves before the turn is over: until then the next upstream can be tried.
    """
    is_put, is_only = False, len(answering.routes.pool.labels) == 1
    before = None if is_only else replace(report, notes=[*report.notes])
    deltas_held: list[Delta] = []

    async def leave(deltas: Sequence[Delta]) -> None:
        nonlocal is_put
        is_put = True
        await put(deltas)

    async def hold(deltas: Sequence[Delta]) -> None:
        deltas_held.extend(deltas)

    def ask(route: Route, on_answer: Callable[[], None]) -> Awaitable[None]:
        answering.route = route
        if before is not None:
            report.back_to(before)
        deltas_held.clear()
        on_attempt(route)
        driver, request, rules = turn_of(wire_request, route, answering.request.wire.name)
        if hold_calls:
            rules = evolve(rules, hold_calls=True)
        leaves = put if is_only else leave if wire_request.stream else hold
        return _ask_driver(driver, request, rules, leaves, report, size, wire_request.usage_wanted, on_answer)

    last = answering.route if answering.report.attempts else None
    await answering.routes.serve(ask, answering.prefix, lambda: is_put or has_left(), answering.failures, last)
    if deltas_held:
        await put(deltas_held)


async def _ask_driver(
    driver: Driver,
    request: TurnRequest,
    rules: ReleaseRules,
    put: SendDeltas,
    report: TurnReport,
    size: Callable[[], int],
    usage_wanted: bool,
    on_answer: Callable[[], None] | None = None,
) -> None:
    """Runs the turn with one driver through the gate, and asks again if a call is malformed or missing. Sends what
    leaves; `TurnEnded` comes last, with the usage of all attempts.

    `size` (bytes of the prompt) is for an estimate of tokens that the server does not count; the client gets the
    estimate if `usage_wanted`. Fills `report`. Calls `on_answer` at the model's first delta. Raises ProviderError,
    ConfigurationError.
    """
    total, has_estimate, conversation = Usage(), False, driver.open(NO_RUN)
    while True:
        gate = TurnGate(rules)
        report.attempts += 1
        # Only a turn that may be asked again is collected.
        collector = TurnCollector(_naming(report.attempts)) if rules.repairs or rules.required_call_retries else None
        stream = cast("AsyncGenerator[Delta]", conversation.turn(request))
        last: Sequence[Delta] = ()
        has_started = True
        try:
            async with aclosing(stream):
                async for delta in stream:
                    if on_answer is not None:
                        on_answer()
                        on_answer = None
                    if collector is not None:
                        collector.add(delta)
                    leaving = gate.feed(delta)
                    if delta.__class__ is TurnEnded:
                        last = leaving
                    elif leaving:
                        await put(leaving)
        except ToolspeakError:
            has_started = gate.size > 0
            raise
        finally:
            usage = gate.outcome.end.usage if gate.outcome else Usage()
            is_counted = usage.total is not None
            if not is_counted and has_started:
                usage = with_estimates(usage, size(), gate.size)
            report.usage = report.usage.plus(usage)
            report.notes += gate.notes
            report.calls += gate.calls
            report.malformed_calls += gate.malformed_calls
            report.forged_results += gate.forged_results
        outcome = gate.outcome
        assert outcome is not None, "a driver ends its turn"
        if is_counted or not usage_wanted:
            usage = outcome.end.usage
        else:
            has_estimate = True
        total = total.plus(usage)
        if outcome.again is None or collector is None:
            break
        turn = collector.turn()
        request = evolve(request, messages=[*request.messages, *_correction(turn, outcome.again, rules)])
        rules = evolve(
            rules,
            repairs=rules.repairs - (outcome.again == "malformed"),
            required_call_retries=rules.required_call_retries - (outcome.again == "no_call"),
        )
        report.notes.append(_again(outcome.again, turn))
    if has_estimate:
        report.notes.append(Note("usage_estimated", "the server did not count all tokens: the usage is an estimate"))
    report.end = evolve(outcome.end, usage=total)
    await put([*last[:-1], report.end])


def _naming(attempt: int) -> Callable[[int], str]:
    return lambda index: f"attempt{attempt}_{index}"


def _again(why: str, turn: ParsedTurn) -> Note:
    if why == "malformed":
        reason = next((call.reason for call in turn.calls if isinstance(call, MalformedCall)), "")
        return Note(
            "repaired_call", f"a call could not be read, so the gateway asked the model to write it again: {reason}"
        )
    return Note("asked_again", "the model did not call the required tool, so the gateway asked it again")


def _correction(turn: ParsedTurn, why: str, rules: ReleaseRules) -> list[Message]:
    """The messages that ask the model to repeat its turn: the turn, and what is wrong with it."""
    turn_messages = [turn.message] if turn.message.parts else []
    if turn.calls:
        results: list[ToolResult] = []
        for call in turn.calls:
            if isinstance(call, MalformedCall):
                results.append(failure(call, "malformed", call.reason))
            else:
                message = (
                    f"{call.name} did not run: another call of the same turn was malformed. Write all calls again."
                )
                if why == "no_call":
                    message = f"{call.name} did not run: {_demand(rules)}"
                results.append(failure(call, "skipped", message))
        return [*turn_messages, Message("tool", tuple(results))]
    return [*turn_messages, Message("user", (TextPart(f"That was no tool call. {_demand(rules)}"),))]


def _demand(rules: ReleaseRules) -> str:
    name = rules.choice.name
    return f"Call the tool {name!r} now." if name else "Call one of the tools now."


async def _stream(answering: AnswerContext, response_id: str) -> None:
    client, settings = answering.request, answering.request.current.settings
    stream = EventStream(client.send, client.headers)
    encoder = client.wire.encoder(answering.wire_request, response_id=response_id, created_at=int(time.time()))
    feed, write, report = encoder.feed, stream.write, answering.report

    native: NativeRelay | None = None

    def on_attempt(route: Route) -> None:
        nonlocal native
        native = None if route.is_text else native_relay(answering, route)
        if native is not None:
            native.begin(response_id, write)
        RELAYING.set(native)

    sent_deltas = answering.sent_deltas = [] if settings.log_content else None

    async def put(deltas: Sequence[Delta]) -> None:
        answering.count_written(deltas)
        if sent_deltas is not None:
            sent_deltas.extend(deltas)
        if deltas and deltas[-1].__class__ is TurnEnded:
            await answering.account.settle_and_wait()
        if native is not None:
            if leaving := native.put(deltas):
                await write(leaving)
            return
        if len(deltas) == 1 and deltas[0].__class__ is not TurnEnded:
            frames = feed(deltas[0])
            if len(frames) == 1:
                await write((text_event if deltas[0].__class__ is TextDelta else event)(frames[0]))
                return
        else:
            frames = [frame for delta in deltas for frame in feed(delta)]
            if deltas and deltas[-1].__class__ is TurnEnded:
                if client.keeping is not None:
                    await _keep(answering, frames[-1][1]["response"])
                frames = add_notes(frames, report.notes)
        if frames:
            await write(b"".join([event(frame) for frame in frames]))

    async def fail(failure: Failure) -> None:
        if native is not None:
            await write(native.failure_events(failure))
            return
        frames = encoder.fail(failure.message, failure.status)
        await write(b"".join([event((name, with_code(data, failure))) for name, data in frames]))

    await stream_answer(answering, stream, _run_turns(answering, put, on_attempt, lambda: stream.has_left), fail)


async def _whole(answering: AnswerContext, response_id: str) -> None:
    client, wire_request, report = answering.request, answering.wire_request, answering.report
    deltas: list[Delta] = []
    native: NativeRelay | None = None

    def on_attempt(route: Route) -> None:
        nonlocal native
        native = None if route.is_text else native_relay(answering, route)
        RELAYING.set(native)

    async def put(more: Sequence[Delta]) -> None:
        answering.count_written(more)
        deltas.extend(more)

    asked_at = asyncio.get_running_loop().time()
    settings = client.current.settings
    await run_while_connected(
        _run_turns(answering, put, on_attempt), client.receive, None, settings.ping_seconds, settings.stall_seconds
    )
    answering.sent_deltas = deltas if settings.log_content else None
    body = client.wire.encode_response(
        deltas, model=wire_request.model, response_id=response_id, created_at=int(time.time()), request=wire_request
    )
    if client.keeping is not None:
        await _keep(answering, body)
    headers = [*client.headers, *warning_header(report.notes)]
    client.status, answering.first_byte = 200, asyncio.get_running_loop().time() - asked_at
    await answering.account.settle_and_wait()
    content = json_bytes(with_notes(body, report.notes)) if native is None else native.whole(deltas, body)
    await send_whole(client.send, 200, content, headers, b"application/json")


def warning_header(notes: Sequence[Note]) -> Headers:
    """The header with the notes of a whole answer."""
    codes = dict.fromkeys(note.code for note in notes)
    return [(WARNING_HEADER, ", ".join(codes).encode())] if codes else []
