# pyright: strict
"""Tools that a function of the run returns before each turn."""

from collections.abc import Sequence
from typing import assert_type

from toolspeak import Agent, RunContext, Tool, Toolset, tool
from toolspeak.tools import ToolFilter, TurnTools


class Database:
    pass


class Archive(Database):
    pass


@tool(read_only=True)
def people(town: str, ctx: RunContext[Database]) -> int:
    """The people of a town."""
    return len(town)


@tool(read_only=True)
def towns() -> int:
    """The number of towns."""
    return 3


def of_turn(ctx: RunContext[Database]) -> list[Tool]:
    return [people] if isinstance(ctx.deps, Archive) else []


async def slowly(ctx: RunContext[Database]) -> Toolset:
    return Toolset(of_turn(ctx))


def names(ctx: RunContext[Database]) -> Sequence[str]:
    return ["people"]


def selected(ctx: RunContext[Database], each: Tool) -> bool:
    return each.spec.effects.read_only


async def slowly_selected(ctx: RunContext[Database], each: Tool) -> bool:
    return selected(ctx, each)


assert_type(Agent("openai:qwen3", of_turn, deps_type=Database), Agent[Database, None])
assert_type(Agent("openai:qwen3", slowly, deps_type=Archive), Agent[Archive, None])
assert_type(Agent("openai:qwen3", lambda ctx: [people], deps_type=Database), Agent[Database, None])
turn_tools: TurnTools[Database] = of_turn
tool_filter = Toolset([people, towns]).filter_per_turn(selected)
assert_type(tool_filter, ToolFilter[Database])
agent = Agent("openai:qwen3", tool_filter, deps_type=Database)
agent_of_archives = Agent("openai:qwen3", tool_filter, deps_type=Archive)
slow = Agent("openai:qwen3", Toolset([people]).filter_per_turn(slowly_selected), deps_type=Database)
in_line = Agent("openai:qwen3", Toolset([towns]).filter_per_turn(lambda ctx, each: each.name != "towns"))


async def run() -> None:
    await agent.run("Which town?", deps=Archive())
    Agent("openai:qwen3", names, deps_type=Database)  # wrong
    Agent("openai:qwen3", of_turn, deps_type=str)  # wrong
    Agent("openai:qwen3", tool_filter, deps_type=str)  # wrong
    Toolset([people]).filter_per_turn(of_turn)  # wrong
    await agent.run("Which town?")  # wrong
