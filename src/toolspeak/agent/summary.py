"""Asking the model for a summary of the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import cast

from toolspeak.agent.cassettes.recording import TurnCutOff
from toolspeak.agent.drivers.base import NO_RUN, Driver, TurnRequest
from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.history import Plan, to_summarise, tokens_of
from toolspeak.data.deltas import Delta
from toolspeak.data.events import HistoryCompacted
from toolspeak.data.messages import Message, ToolChoice, Usage
from toolspeak.data.prices import cost
from toolspeak.dialects import TurnCollector
from toolspeak.errors import ProviderError

LEFT_OUT = "(It could not be summarised, and is left out. Ask, or look again, for what you need of it.)"
"""Stands in place of a summary if the model did not write one."""

_SECONDS = 120.0
_TASK = (
    "This conversation is about to be shortened: everything before this message will be replaced by a summary that you"
    " write now. Write down all that is needed to go on: what the user wants, word for word where it matters; what was"
    " done and decided; what was found out (names, paths, numbers, errors); what failed; and what is still to be done."
    " Do not call a tool and do not go on with the task. Answer with the summary alone."
)


async def compact(plan: Plan, settings: RunSettings, request: TurnRequest, seconds: float | None) -> HistoryCompacted:
    """Carries out a plan for the request's messages. Asks the model for a summary if the plan needs one. `seconds`: how
    long that may take; None for the usual limit."""
    summary, usage, price, window = "", Usage(), 0.0, settings.window
    if plan.upto:
        summary = LEFT_OUT
        if window is not None and window.summarise:
            old = replace(request, messages=to_summarise(request.messages, plan, window))
            summary, usage = await summarise(settings.driver, old, seconds)
            summary = settings.secrets.hide_text(summary)
            price = cost(usage, settings.driver.name, settings.prices)
    after = plan.tokens_after + tokens_of(Message.user(summary))
    return HistoryCompacted(plan.cleared, plan.upto, plan.pinned, summary, plan.tokens_before, after, usage, price)


async def summarise(driver: Driver, request: TurnRequest, seconds: float | None) -> tuple[str, Usage]:
    """The model's summary of the request's messages, and its usage; `LEFT_OUT` if the model fails or takes too long."""
    summary_request = replace(request, messages=[*request.messages, Message.user(_TASK)], choice=ToolChoice("none"))
    collector = TurnCollector(lambda index: f"summary_{index}")
    try:
        async with (
            asyncio.timeout(_SECONDS if seconds is None else min(_SECONDS, seconds)),
            aclosing(driver.open(NO_RUN)) as conversation,
            aclosing(cast("AsyncGenerator[Delta]", conversation.turn(summary_request))) as stream,
        ):
            async for delta in stream:
                collector.add(delta)
    except (ProviderError, TimeoutError, TurnCutOff):
        return LEFT_OUT, Usage()
    turn = collector.turn()
    return turn.message.text.strip() or LEFT_OUT, turn.usage
