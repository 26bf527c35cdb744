"""Agents as tools of another agent, with one total of usage, one limit and one list of approvals.

python examples/sub_agents.py
MODEL=ollama:qwen3:8b python examples/sub_agents.py
"""

import asyncio
import os
from pathlib import Path

from toolspeak import Agent, Effects, RunContext, tool

SCRIPTS = Path(__file__).parent / "scripts"


def model(name: str) -> str:
    return os.environ.get("MODEL", f"scripted:{SCRIPTS}/sub_agents_{name}.json")


@tool(read_only=True)
def stock(item: str) -> int:
    """How many of an item are in stock."""
    return {"apples": 3, "pears": 0}.get(item, 0)


@tool(effects=Effects(writes=frozenset({"orders"}), external=True))
def order(item: str, amount: int) -> str:
    """Orders an amount of an item."""
    return f"ordered {amount} {item}"


clerk = Agent(model("clerk"), [stock], name="clerk", instructions="You know what is in stock.")
buyer = Agent(model("buyer"), [order], name="buyer", instructions="You order what is asked for.")


@tool(read_only=True)
async def ask_clerk(question: str, ctx: RunContext) -> str:
    """Asks the clerk what is in stock."""
    return (await clerk.run(question, parent_run_id=ctx.run_id, principal=ctx.principal)).answer


@tool(read_only=True)
async def ask_buyer(task: str, ctx: RunContext) -> str:
    """Asks the buyer to order something."""
    return (await buyer.run(task, parent_run_id=ctx.run_id, principal=ctx.principal)).answer


async def main() -> None:
    manager = Agent(model("manager"), [ask_clerk, ask_buyer], name="manager")
    result = await manager.run("Make sure that we have ten pears.")
    while result.requests:  # includes the buyer's requests
        decisions: dict[str, bool] = {}
        for request in result.requests:
            print(f"{request.reason}: {request.call.name}({dict(request.call.arguments)})")
            decisions[request.call_id] = (await asyncio.to_thread(input, "Allow? [y/N] ")).strip().lower() == "y"
        result = await manager.resume(result, decisions)
    print(result)


if __name__ == "__main__":
    asyncio.run(main())
