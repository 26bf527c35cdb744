"""The program in pydantic-ai with ten mistakes."""

from __future__ import annotations

from model_pydantic_ai import MODEL
from pydantic_ai import Agent, AgentRunResult, DeferredToolResults, RunContext, UsageLimits
from shop import TASK, Report, Shop


class Bank:
    pass


agent = Agent(MODEL, deps_type=Shop, output_type=Report)


@agent.tool
def stock(ctx: RunContext[Shop], item: str) -> int:
    """Says how many pieces of an item the shop has."""
    return ctx.deps.stok(item)  # wrong: no such method of the deps


@agent.tool(requires_approval=True)
def order(ctx: RunContext[Shop], item: str, count: int) -> str:
    """Orders pieces of an item."""
    return ctx.deps.order(count, item)  # wrong: the arguments are swapped


@agent.tool(requires_approval="yes")  # wrong: an option of the tool
def total(ctx: RunContext[Shop]) -> int:
    """Says how many orders there are."""
    return 0


def balance(ctx: RunContext[Bank]) -> int:
    """Says how much money there is."""
    return 0


other = Agent(MODEL, tools=[balance], output_type=Report, deps_type=Shop)  # wrong: a tool with other deps


def store(result: AgentRunResult[int]) -> None:
    print(result.output + 1)


async def main() -> None:
    result = await agent.run(TASK, deps=Bank())  # wrong: other deps
    print(result.output.itm)  # wrong: no such field of the output
    store(result)  # wrong: a result of another type
    approvals = DeferredToolResults(approvals={"call": "yes"})  # wrong: an approval is a bool or a decision
    await agent.run(TASK, deps=Shop(), deferred_tool_results=approvals)
    await agent.run(TASK, deps=Shop(), limit=UsageLimits(request_limit=3))  # wrong: no such option
    await agent.run(TASK)  # wrong: no deps
