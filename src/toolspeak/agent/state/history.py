"""The messages a run begins with, made fit for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from toolspeak.data.messages import (
    MalformedCall,
    Message,
    Part,
    ReasoningPart,
    ToolCall,
    ToolResult,
    failure,
)
from toolspeak.execute import Secrets
from toolspeak.execute.calls.result_limits import hide_part, hide_secrets

_CALL_ID = re.compile(r"call_(\d{1,9})_\d+")
_NO_RESULT = "this call has no result: the run ended before; it may have run or not"
_NOT_STARTED = "this call did not run: the conversation went on without it"
_UNKNOWN = "this call was started, and its outcome is unknown: its run was stopped before it had a result"


def call_id(turn: int, index: int) -> str:
    """The id of a turn's call; turns count on from those of the history."""
    return f"call_{turn}_{index}"


def turns_in(messages: Sequence[Message]) -> int:
    """The highest turn that a call id names: ids of later turns are free."""
    matches = (_CALL_ID.fullmatch(call.id) for message in messages for call in message.calls)
    return max((int(match[1]) for match in matches if match), default=0)


def paired(messages: Sequence[Message]) -> Iterator[Message]:
    """The same messages, with the results of a turn in the order of its calls: in text the order alone says which is
    whose. Calls without a result (their run was left or waits for approval) are given one.

    No model API takes a call without its result, and none may be made up: the outcome is unknown.
    """
    skip = False
    for i, message in enumerate(messages):
        if skip:
            skip = False
            continue
        yield message
        if not message.calls:
            continue
        following = messages[i + 1] if i + 1 < len(messages) else None
        results = following.results if following is not None else ()
        called = [call.id for call in message.calls]
        if [result.call_id for result in results] == called:
            continue
        skip = bool(results)
        there = {result.call_id: result for result in results}
        ordered = [there.get(c.id) or failure(c, "unknown_outcome", _NO_RESULT) for c in message.calls]
        yield Message("tool", (*ordered, *(result for result in results if result.call_id not in called)))


def unstarted_result(call: ToolCall | MalformedCall, *, started: bool) -> ToolResult:
    """The result of a call whose run is over before the call has one."""
    if isinstance(call, MalformedCall):
        return failure(call, "malformed", call.reason)
    return failure(call, "unknown_outcome", _UNKNOWN) if started else failure(call, "skipped", _NOT_STARTED)


def without_secrets(message: Message, secrets: Secrets) -> Message:
    """The message with placeholders for secrets."""
    return replace(message, parts=tuple(_hide(part, secrets) for part in message.parts)) if secrets else message


def hide_call(call: ToolCall, secrets: Secrets) -> ToolCall:
    """The call with placeholders for secrets in its name, its ids, its arguments and the text it was repaired from."""
    if not secrets:
        return call
    raw = None if call.repaired_from is None else secrets.hide_text(call.repaired_from)
    return replace(
        call,
        id=secrets.hide_name(call.id),
        name=secrets.hide_name(call.name),
        arguments=secrets.hide(call.arguments),
        provider_id=None if call.provider_id is None else secrets.hide_name(call.provider_id),
        repaired_from=raw,
    )


def _hide(part: Part, secrets: Secrets) -> Part:
    match part:
        case ReasoningPart(text):
            return replace(part, text=secrets.hide_text(text))
        case ToolCall():
            return hide_call(part, secrets)
        case MalformedCall(raw=raw, reason=reason, name=name):
            name = None if name is None else secrets.hide_name(name)
            return replace(part, raw=secrets.hide_text(raw), reason=secrets.hide_text(reason), name=name)
        case ToolResult():
            return hide_secrets(part, secrets)
        case _:
            return hide_part(part, secrets)
