"""The program in openai-agents with ten mistakes."""

from __future__ import annotations

from agents import Agent, RunContextWrapper, Runner, RunResult, function_tool
from model_openai_agents import MODEL
from shop import TASK, Report, Shop


class Bank:
    pass


@function_tool
def stock(ctx: RunContextWrapper[Shop], item: str) -> int:
    """Says how many pieces of an item the shop has."""
    return ctx.context.stok(item)  # wrong: no such method of the deps


@function_tool(needs_approval=True)
def order(ctx: RunContextWrapper[Shop], item: str, count: int) -> str:
    """Orders pieces of an item."""
    return ctx.context.order(count, item)  # wrong: the arguments are swapped


@function_tool(needs_approval="yes")  # wrong: an option of the tool
def balance(ctx: RunContextWrapper[Bank]) -> int:
    """Says how much money there is."""
    return 0


agent = Agent[Shop](name="shop", model=MODEL, tools=[stock, order], output_type=Report)
other = Agent[Shop](name="shop", model=MODEL, tools=[balance], output_type=Report)  # wrong: a tool with other deps


def store(result: RunResult, number: int) -> None:
    print(result.last_agent.name, number + 1)


async def main() -> None:
    result = await Runner.run(agent, TASK, context=Bank())  # wrong: other deps
    print(result.final_output.itm)  # wrong: no such field of the output
    store(result, result.final_output)  # wrong: a result of another type
    state = result.to_state()
    state.approve("call")  # wrong: an approval names an item of the interruptions
    await Runner.run(agent, TASK, context=Shop(), max_turn=3)  # wrong: no such option
    await Runner.run(agent, TASK)  # wrong: no deps
