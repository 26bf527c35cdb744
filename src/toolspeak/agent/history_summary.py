"""The summary that a model writes of a history that is made shorter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from toolspeak.agent.cassettes.recording import TurnCutOff
from toolspeak.agent.drivers.base import NO_RUN, Driver, TurnRequest
from toolspeak.data.deltas import Delta
from toolspeak.data.messages import Usage
from toolspeak.dialects import TurnCollector
from toolspeak.errors import ProviderError

LEFT_OUT = (
    "Earlier messages could not be summarised and were removed. Ask, or use the tools again, if you need something from"
    " them."
)
"""Replaces the summary if the model did not write one."""

_SUMMARY_SECONDS = 120.0
SUMMARY_TASK = (
    "This conversation is about to be shortened: everything before this message will be replaced by a summary that you"
    " write now. Write down all that is needed to continue: what the user wants, word for word if it matters; what was"
    " done and decided; what was found out (names, paths, numbers, errors); what failed; and what is still to be done."
    " Do not call a tool and do not continue the task. Answer with the summary alone."
)


async def summary_of(driver: Driver, request: TurnRequest, seconds: float | None) -> tuple[str, Usage]:
    """The summary that the model writes, and its usage; `LEFT_OUT` if the model fails or takes longer than `seconds`
    (None: than the usual limit)."""
    collector = TurnCollector(lambda index: f"summary_{index}")
    try:
        async with (
            asyncio.timeout(_SUMMARY_SECONDS if seconds is None else min(_SUMMARY_SECONDS, seconds)),
            aclosing(driver.open(NO_RUN)) as conversation,
            aclosing(cast("AsyncGenerator[Delta]", conversation.turn(request))) as stream,
        ):
            async for delta in stream:
                collector.add(delta)
    except (ProviderError, TimeoutError, TurnCutOff):
        return LEFT_OUT, Usage()
    turn = collector.turn()
    return turn.message.text.strip() or LEFT_OUT, turn.usage
