"""The program in openai-agents. With the argument `yes`, it approves the pending calls."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from agents import Agent, RunConfig, RunContextWrapper, Runner, RunState, function_tool
from model_openai_agents import MODEL
from shop import TASK, Report, Shop

STATE = Path("state.json")


@function_tool
def stock(ctx: RunContextWrapper[Shop], item: str) -> int:
    """Says how many pieces of an item the shop has."""
    return ctx.context.stock(item)


@function_tool(needs_approval=True)
def order(ctx: RunContextWrapper[Shop], item: str, count: int) -> str:
    """Orders pieces of an item."""
    return ctx.context.order(item, count)


agent = Agent[Shop](name="shop", model=MODEL, tools=[stock, order], output_type=Report)


async def main() -> None:
    config = RunConfig(tracing_disabled=True)
    if not STATE.exists():
        result = await Runner.run(agent, TASK, context=Shop(), run_config=config)
    elif "yes" in sys.argv:
        context = RunContextWrapper(Shop())
        state = await RunState[Shop].from_string(agent, STATE.read_text("utf-8"), context_override=context)
        for interruption in state.get_interruptions():
            state.approve(interruption)
        result = await Runner.run(agent, state, run_config=config)
    else:
        print("waits for a yes")
        return
    if result.interruptions:
        STATE.write_text(result.to_state().to_string(context_serializer=lambda _: {}), "utf-8")
        print("waits for a yes")
    else:
        STATE.unlink(missing_ok=True)
        print(result.final_output_as(Report))


asyncio.run(main())
