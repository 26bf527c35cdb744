"""The driver of a run that is one call: the call of an MCP client. There is no model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import cast

from toolspeak.agent.drivers.base import DriverContext, TurnRequest
from toolspeak.data.deltas import ArgumentsDelta, BatchEnded, CallCompleted, CallStarted, Delta, TextDelta, TurnEnded
from toolspeak.data.messages import JSON, JsonPart, Message, TextPart

END = "The call has ended."
"""The answer of such a run. The result of its call is what counts."""


def task_of_call(tool: str, arguments: Mapping[str, JSON]) -> Message:
    """The task of a run that is this call."""
    call: JSON = {"name": tool, "arguments": dict(arguments)}
    return Message("user", (TextPart(f"call of {tool}"), JsonPart(call)))


class OneCallDriver:
    """Implements `Driver`: the first turn is the call that the task holds, the turn after its result ends the run."""

    name = "mcp:call"
    starts_early = False

    def prompt(self, request: TurnRequest) -> str:
        return request.instructions

    def open(self, run: DriverContext) -> OneCallConversation:
        return OneCallConversation()

    async def aclose(self) -> None:
        """There is nothing to close."""


class OneCallConversation:
    """The turns of one run of `OneCallDriver`."""

    async def turn(self, request: TurnRequest) -> AsyncIterator[Delta]:
        if any(message.role == "tool" for message in request.messages):
            yield TextDelta(END)
            yield TurnEnded("stop")
            return
        task = next(message for message in request.messages if message.role == "user")
        call = next(cast("Mapping[str, JSON]", part.value) for part in task.parts if isinstance(part, JsonPart))
        name, arguments = cast("str", call["name"]), cast("Mapping[str, JSON]", call["arguments"])
        yield CallStarted(0, name)
        yield ArgumentsDelta(0, json.dumps(arguments, ensure_ascii=False))
        yield CallCompleted(0, name, arguments)
        yield BatchEnded((0,), ok=True)
        yield TurnEnded("tool_calls")

    async def aclose(self) -> None:
        """There is nothing to close."""
