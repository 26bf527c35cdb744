"""The program in toolspeak with ten mistakes."""

from __future__ import annotations

from model_toolspeak import MODEL
from shop import TASK, Report, Shop

from toolspeak import Agent, Effects, Limits, RunContext, RunResult, tool


class Bank:
    pass


@tool(read_only=True)
def stock(item: str, ctx: RunContext[Shop]) -> int:
    """Says how many pieces of an item the shop has."""
    return ctx.deps.stok(item)  # wrong: no such method of the deps


@tool(effects=Effects(writes={"orders"}))
def order(item: str, count: int, ctx: RunContext[Shop]) -> str:
    """Orders pieces of an item."""
    return ctx.deps.order(count, item)  # wrong: the arguments are swapped


@tool(read_only="yes")  # wrong: an option of the tool
def balance(ctx: RunContext[Bank]) -> int:
    """Says how much money there is."""
    return 0


agent = Agent(MODEL, [stock, order], output=Report, deps_type=Shop)
other = Agent(MODEL, [balance], output=Report, deps_type=Shop)  # wrong: a tool with other deps


def store(result: RunResult[int]) -> None:
    print(result.output + 1)


async def main() -> None:
    result = await agent.run(TASK, deps=Bank())  # wrong: other deps
    print(result.output.itm)  # wrong: no such field of the output
    store(result)  # wrong: a result of another type
    await agent.resume(result, {"call": "yes"}, deps=Shop())  # wrong: a decision is a bool or a Decision
    await agent.run(TASK, deps=Shop(), limit=Limits(steps=3))  # wrong: no such option
    await agent.run(TASK)  # wrong: no deps
