"""The driver of a server of which nobody knows whether it takes tools: it is asked, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

from toolspeak.agent.drivers.driver import Driver, TurnRequest
from toolspeak.agent.drivers.server_prompt import writes_tools
from toolspeak.data.deltas import Delta
from toolspeak.data.messages import ToolChoice
from toolspeak.providers.base import Provider


class AskedDriver:
    """Implements `Driver` with one of two others: `native` where the server writes tools into its prompt, else `text`.

    The first turn with tools asks: two requests for one token, or two counts of tokens. A server that refuses tools, or
    does not say how long its prompts are, gets text.
    """

    def __init__(self, provider: Provider, native: Driver, text: Driver) -> None:
        self.name = provider.name
        self._provider = provider
        self._native = native
        self._text = text
        self._chosen: Driver | None = None
        self._asking = asyncio.Lock()

    @property
    def starts_early(self) -> bool:
        return (self._chosen or self._text).starts_early

    def prompt(self, request: TurnRequest) -> str:
        return (self._chosen or self._text).prompt(request)

    async def turn(self, request: TurnRequest) -> AsyncIterator[Delta]:
        driver = self._chosen or self._text
        if self._chosen is None and request.tools:
            async with self._asking:
                if self._chosen is None:
                    takes = await writes_tools(self._provider, ToolChoice())
                    self._chosen = self._native if takes else self._text
                driver = self._chosen
        async with aclosing(cast("AsyncGenerator[Delta]", driver.turn(request))) as stream:
            async for delta in stream:
                yield delta

    async def aclose(self) -> None:
        await self._provider.aclose()
