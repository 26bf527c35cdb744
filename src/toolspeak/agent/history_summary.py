"""The summary that a model writes of a history that is made shorter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import cast

from toolspeak.agent.cassettes.recording import TurnCutOff
from toolspeak.agent.drivers.base import NO_RUN, Driver, TurnRequest
from toolspeak.agent.state.history import Plan, Window, to_summarise
from toolspeak.data.deltas import Delta
from toolspeak.data.messages import Message, Usage
from toolspeak.data.values import evolve
from toolspeak.dialects import TurnCollector
from toolspeak.errors import ProviderError

LEFT_OUT = (
    "Earlier messages could not be summarised and were removed. Ask, or use the tools again, if you need something from"
    " them."
)
"""Replaces the summary if the model did not write one, and the run has to go on."""

_SUMMARY_SECONDS = 120.0
_TRIES = 4
"""How often a summary is asked for, each time of half as many tokens."""

SUMMARY_TASK = (
    "This conversation is about to be shortened: everything before this message will be replaced by a summary that you"
    " write now. Write down all that is needed to continue: what the user wants, word for word if it matters; what was"
    " done and decided; what was found out (names, paths, numbers, errors); what failed; and what is still to be done."
    " Do not call a tool and do not continue the task. Answer with the summary alone."
)


class NoSummary(ProviderError):
    """The model answered, and there is no summary: it wrote none, it took too long, or it cannot read the messages."""


async def summary_of(
    driver: Driver,
    request: TurnRequest,
    history: Sequence[Message],
    plan: Plan,
    window: Window,
    seconds: float | None,
) -> tuple[str, Usage]:
    """The summary that the model writes of the plan's messages, and its usage. If they are too many for the model, it
    gets the newest of them, without long results.

    `request`: as of a turn; its messages do not count. Raises NoSummary if the model writes none or takes longer than
    `seconds` (None: than the usual limit), and ProviderError if its API fails.
    """
    deadline = asyncio.get_running_loop().time() + (
        _SUMMARY_SECONDS if seconds is None else min(_SUMMARY_SECONDS, seconds)
    )
    tries_left = _TRIES
    while True:
        messages = [*to_summarise(history, plan, window), Message.user(SUMMARY_TASK)]
        collector = TurnCollector(lambda index: f"summary_{index}")
        tries_left -= 1
        try:
            async with (
                asyncio.timeout_at(deadline),
                aclosing(driver.open(NO_RUN)) as conversation,
                aclosing(
                    cast("AsyncGenerator[Delta]", conversation.turn(replace(request, messages=messages)))
                ) as stream,
            ):
                async for delta in stream:
                    collector.add(delta)
            break
        except TimeoutError as error:
            raise NoSummary("the model took too long") from error
        except TurnCutOff as error:
            raise NoSummary("the model's turn was cut off") from error
        except ProviderError as error:
            if error.code != "context_length":
                raise
            if not tries_left:
                raise NoSummary(str(error), status=error.status, code=error.code) from error
            window = evolve(window, tokens=max(1, min(window.tokens, plan.tokens_before) // 2))
    turn = collector.turn()
    summary = turn.message.text.strip()
    if not summary:
        raise NoSummary("the model wrote no summary")
    return summary, turn.usage
