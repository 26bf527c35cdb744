"""Runs one turn of the model through the gate, and asks again if a call is malformed or missing."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from toolspeak.agent.drivers.base import NO_RUN, Driver, TurnRequest
from toolspeak.data.deltas import Delta, TurnEnded
from toolspeak.data.messages import (
    FilePart,
    ImagePart,
    MalformedCall,
    Message,
    TextMessage,
    TextPart,
    ToolResult,
    Usage,
    failure,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import changed
from toolspeak.dialects import ParsedTurn, TurnCollector
from toolspeak.errors import ToolspeakError
from toolspeak.gateway.turns.turn_gate import Note, ReleaseRules, TurnGate, text_size
from toolspeak.wire.base import ModelRequest, WireRequest

BYTES_PER_TOKEN = 4
"""Bytes of UTF-8. English has about four letters a token; scripts with two or three bytes a letter have fewer letters a
token. So bytes give a better estimate than characters."""

MEDIA_TOKENS = 1_600
"""Tokens of an image: the most that Anthropic's models count (API reference, "Vision"). A file counts the same."""


class Put(Protocol):
    """Sends deltas to the client, in order."""

    def __call__(self, deltas: Sequence[Delta], /) -> Awaitable[None]: ...


@dataclass(slots=True)
class TurnReport:
    """The result of a turn, for the client's notes, the log, the metrics and the key's account."""

    notes: list[Note] = field(default_factory=list[Note])
    attempts: int = 0
    """Requests to a model."""
    calls: int = 0
    malformed: int = 0
    forged: int = 0
    end: TurnEnded = TurnEnded("error")
    usage: Usage = Usage()
    """Tokens of all attempts, failed ones included; estimated where the server does not count."""

    def back_to(self, before: TurnReport) -> None:
        """Undoes an attempt that sent the client nothing, except for its count and its tokens."""
        self.notes[:] = before.notes
        self.calls, self.malformed, self.forged, self.end = before.calls, before.malformed, before.forged, before.end


async def run_turn(
    driver: Driver,
    request: TurnRequest,
    rules: ReleaseRules,
    put: Put,
    report: TurnReport,
    prompt_size: Callable[[], int],
    usage_wanted: bool,
    on_answer: Callable[[], None] | None = None,
) -> None:
    """Runs the turn and sends what leaves; `TurnEnded` comes last, with the usage of all attempts.

    `prompt_size` (bytes) is for an estimate of tokens that the server does not count; the client gets the estimate if
    `usage_wanted`. Fills `report`. Calls `on_answer` at the model's first delta. Raises ProviderError,
    ConfigurationError.
    """
    total, guessed, conversation = Usage(), False, driver.open(NO_RUN)
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
                usage = estimated(usage, prompt_size(), gate.size)
            report.usage = report.usage.plus(usage)
            report.notes += gate.notes
            report.calls += gate.calls
            report.malformed += gate.malformed
            report.forged += gate.forged
        outcome = gate.outcome
        assert outcome is not None, "a driver ends its turn"
        if is_counted or not usage_wanted:
            usage = outcome.end.usage
        else:
            guessed = True
        total = total.plus(usage)
        if outcome.again is None or collector is None:
            break
        turn = collector.turn()
        request = changed(request, messages=[*request.messages, *_correction(turn, outcome.again, rules)])
        rules = changed(
            rules,
            repairs=rules.repairs - (outcome.again == "malformed"),
            required_call_retries=rules.required_call_retries - (outcome.again == "no_call"),
        )
        report.notes.append(_again(outcome.again, turn))
    if guessed:
        report.notes.append(Note("usage_estimated", "the server did not count all tokens: the usage is an estimate"))
    report.end = changed(outcome.end, usage=total)
    await put([*last[:-1], report.end])


def estimated(usage: Usage, prompt: int, completion: int) -> Usage:
    """The usage with estimates of the counts that are missing: the stream was closed after the calls, or the server
    does not count. `prompt` and `completion` are bytes."""
    return changed(
        usage,
        input=tokens_of(prompt) if usage.input is None else usage.input,
        output=tokens_of(completion) if usage.output is None else usage.output,
    )


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


# --- estimates of tokens, for servers that do not count them ---------------------------------------------------------


def tokens_of(size: int) -> int:
    """An estimate of the tokens in so many bytes, rounded up."""
    return -(-size // BYTES_PER_TOKEN)


def message_size(message: Message | TextMessage) -> int:
    """About how many bytes of a message a model reads."""
    size = text_size(message.text)
    if isinstance(message, TextMessage):
        return size
    for call in message.calls:
        if isinstance(call, MalformedCall):
            size += text_size(call.raw)
        else:
            size += text_size(call.name) + _json_size(call.arguments)
    parts: list[Any] = [*message.parts]
    for result in message.results:
        size += text_size(result.text)
        parts += result.content
    media = sum(isinstance(part, ImagePart | FilePart) for part in parts)
    return size + media * MEDIA_TOKENS * BYTES_PER_TOKEN


def request_size(request: ModelRequest) -> int:
    """About how many bytes of a request a model reads."""
    output = 0 if request.output is None else _json_size(request.output.schema)
    return output + _tools_size(request.tools) + sum(map(message_size, request.messages))


def prompt_size(request: WireRequest) -> int:
    """About how many bytes a client's request has, without the prompt that a dialect adds."""
    return request_size(request.request)


def _tools_size(tools: Iterable[ToolSpec]) -> int:
    return sum(text_size(tool.name) + text_size(tool.description) + _json_size(tool.parameters) for tool in tools)


def _json_size(value: Mapping[str, Any]) -> int:
    return text_size(json.dumps(dict(value), ensure_ascii=False))
