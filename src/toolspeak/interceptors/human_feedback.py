"""What a person says about calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import Literal, TypeAlias
from weakref import WeakKeyDictionary

from toolspeak.data.messages import TextPart, ToolCall, ToolResult
from toolspeak.errors import ConfigurationError
from toolspeak.execute import ANSWERED_FROM, Answer, HookContext, Interceptor

AskPerson: TypeAlias = Callable[[ToolCall, ToolResult | None], Awaitable[str | None]]
"""Asks a person about a call, and its result if there is one. Returns what the person says, None for nothing."""


class HumanFeedback(Interceptor):
    """Asks a person about calls: for an answer instead of the result, or for what they say about it.

    - `ask`: gets the call, and the result if there is one. One question is asked at a time.
    - `when`: "instead" asks before the call, ahead of approval: what the person says is the result, and the tool does
      not run; with None it runs as usual. If the run pauses for an approval, it asks again when the run continues.
      "after" asks about the result: the model reads what the person says after it.
    - `tools`: the names of the tools; all without them.

    The person's time counts towards the run's time limit. Raises ConfigurationError for another `when`.
    """

    priority = 40

    def __init__(
        self, ask: AskPerson, *, when: Literal["instead", "after"] = "after", tools: Collection[str] = ()
    ) -> None:
        if when not in ("instead", "after"):
            raise ConfigurationError(f"when={when!r}: expected 'instead' or 'after'")
        self._ask = ask
        self._when = when
        self._tools = frozenset(tools)
        # A lock belongs to one event loop, an agent to none.
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    async def before(self, call: ToolCall, context: HookContext) -> ToolCall | Answer:
        """Returns the person's answer, or the call."""
        answer = await self._question(call, None) if self._when == "instead" else None
        return call if answer is None else Answer(answer)

    async def after(self, call: ToolCall, result: ToolResult, context: HookContext) -> ToolResult:
        """Returns the result with what the person says about it. A call that was kept from running, or answered from an
        earlier result, is no news to a person."""
        is_news = result.code not in ("blocked", "rejected", "skipped") and ANSWERED_FROM not in result.extra
        answer = await self._question(call, result) if self._when == "after" and is_news else None
        if answer is None:
            return result
        return replace(result, content=(*result.content, TextPart(f"\n[A person says about this: {answer}]")))

    async def _question(self, call: ToolCall, result: ToolResult | None) -> str | None:
        if self._tools and call.name not in self._tools:
            return None
        async with self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            return await self._ask(call, result)
