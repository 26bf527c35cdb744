"""The program in toolspeak. With the argument `yes`, it approves the pending calls."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing

from model_toolspeak import MODEL
from shop import TASK, Report, Shop

from toolspeak import Agent, Effects, RunContext, SqliteJournal, tool


@tool(read_only=True)
def stock(item: str, ctx: RunContext[Shop]) -> int:
    """Says how many pieces of an item the shop has."""
    return ctx.deps.stock(item)


def was_ordered(item: str, count: int, ctx: RunContext[Shop]) -> bool:
    return ctx.deps.has_ordered(item, count)


@tool(effects=Effects(writes={"orders"}), verify=was_ordered)
def order(item: str, count: int, ctx: RunContext[Shop]) -> str:
    """Orders pieces of an item."""
    return ctx.deps.order(item, count)


async def main() -> None:
    async with aclosing(SqliteJournal("shop.db")) as journal:
        agent = Agent(MODEL, [stock, order], output=Report, deps_type=Shop, journal=journal)
        runs = await journal.runs(limit=1)
        result = await (agent.resume(runs[0].run_id, deps=Shop()) if runs else agent.run(TASK, deps=Shop()))
        if result.requests and "yes" in sys.argv:
            result = await agent.resume(result, {each.call_id: True for each in result.requests}, deps=Shop())
        print("waits for a yes" if result.requests else result.output)


asyncio.run(main())
