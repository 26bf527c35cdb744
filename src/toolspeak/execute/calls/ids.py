"""Ids: new ones, and those of calls made so that they can be relied on, one of its own for every call of a batch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from toolspeak.data.messages import MalformedCall, ToolCall


def new_id() -> str:
    """A name for a run or a session that no other has: 32 hexadecimal digits, by chance."""
    return os.urandom(16).hex()


def unique(calls: Sequence[ToolCall | MalformedCall]) -> Sequence[ToolCall | MalformedCall]:
    """The calls, those with a missing id or one used before with an id of their own.

    The first bearer of an id keeps it. The id a call came with stays beside the new one: as `provider_id` unless it
    has one, of a malformed call as `extra["provider_id"]`.
    """
    if len(calls) == 1 and calls[0].id:
        return calls
    used = {call.id for call in calls}
    if len(used) == len(calls) and "" not in used:
        return calls
    earlier, last = {""}, dict[str, int]()
    named: list[ToolCall | MalformedCall] = []
    for call in calls:
        if call.id in earlier:
            call = _renamed(call, _free(call.id or "call", used, last))
        used.add(call.id)
        earlier.add(call.id)
        named.append(call)
    return named


def key_of(run_id: str, call_id: str) -> str:
    """A call's idempotency key: the same when the same call is run again."""
    return f"{run_id}:{call_id}"


def _free(stem: str, used: set[str], last: dict[str, int]) -> str:
    """A name that is not taken; `last` keeps a batch of one id for all its calls from trying all numbers each time."""
    number = last.get(stem, 1) + 1
    while (name := f"{stem}#{number}") in used:
        number += 1
    last[stem] = number
    return name


def _renamed(call: ToolCall | MalformedCall, name: str) -> ToolCall | MalformedCall:
    own = call.id or None
    if isinstance(call, ToolCall):
        return replace(call, id=name, provider_id=call.provider_id or own)
    return replace(call, id=name, extra={**call.extra, "provider_id": own} if own else call.extra)
