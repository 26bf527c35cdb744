"""The driver for a server that may or may not accept tools: it probes the server once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

from toolspeak.agent.drivers.base import NO_RUN, Conversation, Driver, DriverContext, TurnRequest
from toolspeak.agent.drivers.server_prompt import writes_tools
from toolspeak.data.deltas import Delta
from toolspeak.data.messages import ToolChoice
from toolspeak.providers.base import Provider


class ProbingDriver:
    """Implements `Driver` with one of two others: `native` where the server writes tools into its prompt, else `text`.

    The first turn with tools probes: two requests for one token, or two counts of tokens. A server that refuses tools,
    or does not say how long its prompts are, gets text. So does the turn of a probe that failed, and the next one
    probes again.
    """

    def __init__(self, provider: Provider, native: Driver, text: Driver) -> None:
        self.name = provider.name
        self.provider = provider
        self._native = native
        self._text = text
        self.choice: Driver | None = None
        """The driver that the probe chose; None before the first turn with tools, and while the server only fails."""
        self._probing = asyncio.Lock()

    @property
    def drivers(self) -> tuple[Driver, Driver]:
        """The two."""
        return self._native, self._text

    @property
    def starts_early(self) -> bool:
        return (self.choice or self._text).starts_early

    def prompt(self, request: TurnRequest) -> str:
        return (self.choice or self._text).prompt(request)

    def open(self, run: DriverContext = NO_RUN) -> ProbingConversation:
        return ProbingConversation(self, run)

    async def choose(self, request: TurnRequest) -> Driver:
        """The driver for a turn."""
        if self.choice is None and request.tools:
            async with self._probing:
                if self.choice is None:
                    writes = await writes_tools(self.provider, ToolChoice())
                    if writes is not None:
                        self.choice = self._native if writes else self._text
        return self.choice or self._text

    async def aclose(self) -> None:
        await self.provider.aclose()


class ProbingConversation:
    """A run's turns with a `ProbingDriver`."""

    def __init__(self, driver: ProbingDriver, run: DriverContext) -> None:
        self._driver = driver
        self._run = run
        self._choice: Driver | None = None
        self._inner: Conversation | None = None

    async def turn(self, request: TurnRequest) -> AsyncIterator[Delta]:
        driver = await self._driver.choose(request)
        if self._inner is None or driver is not self._choice:
            self._choice, self._inner = driver, driver.open(self._run)
        async with aclosing(cast("AsyncGenerator[Delta]", self._inner.turn(request))) as stream:
            async for delta in stream:
                yield delta

    async def aclose(self) -> None:
        if self._inner is not None:
            await self._inner.aclose()
