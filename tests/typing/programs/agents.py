# pyright: strict
"""An agent knows the type of its answers, and of what its tools are given."""

from typing import assert_type

from pydantic import BaseModel

from toolspeak import Agent, Output, RunContext, RunResult, Session, SqliteJournal, tool


class Town(BaseModel):
    name: str


class Database:
    pass


@tool(read_only=True)
def people(town: str, ctx: RunContext[Database]) -> int:
    """The people of a town."""
    return len(town)


plain = Agent("openai:qwen3", [people])
typed = Agent("openai:qwen3", [people], output=Town, deps_type=Database)
of_list = Agent("openai:qwen3", output=list[int])
in_words = Agent("openai:qwen3", output=Output(Town, mode="prompted"))
either = Agent("openai:qwen3", output=Output[int | Town](int | Town))


async def run() -> None:
    assert_type(await plain.run("Which town?"), RunResult[None])
    result = await typed.run("Which town?", deps=Database())
    assert_type(result, RunResult[Town])
    assert_type(result.output, Town)
    assert_type((await of_list.run("Which numbers?")).output, list[int])
    assert_type((await in_words.run("Which town?")).output, Town)
    assert_type((await either.run("Which?")).output, int | Town)
    waiting = await typed.resume(result, {"call_1_0": True}, deps=Database())
    assert_type(waiting.output, Town)
    session = Session(typed)
    assert_type((await session.run("Which town?", deps=Database())).output, Town)


async def stream() -> None:
    async for text in plain.stream_text("Which town?", accumulated=True):
        assert_type(text, str)
    async for town in typed.stream_output("Which town?", deps=Database()):
        assert_type(town, Town)
    async for numbers in Session(of_list).stream_output("Which numbers?", when_open="close"):
        assert_type(numbers, list[int])


def in_another_function(agent: Agent[Database, Town]) -> Town:
    return agent.run_sync("Which town?", deps=Database()).output


def any_agent(agent: Agent) -> str:
    return agent.run_sync("Which town?").answer


in_another_function(typed)
explicit = Agent[Database, Town]("openai:qwen3", [people], output=Town, journal=SqliteJournal("runs.db"))
in_another_function(explicit)


def greeting(ctx: RunContext[Database]) -> str:
    return f"You are on step {ctx.state.step if ctx.state else 0}."


async def slow_greeting(ctx: RunContext[Database]) -> str:
    return greeting(ctx)


def number(ctx: RunContext[Database]) -> int:
    return 3


greets = Agent("openai:qwen3", deps_type=Database, instructions=greeting)
greets_slowly = Agent("openai:qwen3", deps_type=Database, instructions=slow_greeting)
greets_in_line = Agent("openai:qwen3", instructions=lambda ctx: f"Your run is {ctx.state}.")
helper = Agent("openai:qwen3", name="helper", description="Helps.")
front = Agent("openai:qwen3", [helper.as_tool(timeout=60)], handoffs=[helper, "front"])
front_of_towns = Agent("openai:qwen3", output=Town, deps_type=Database, handoffs=[typed])


async def wrong() -> None:
    typed.stream_text("Which town?", deps=3)  # wrong
    plain.stream_text("Which town?", accumulated="yes")  # wrong
    Agent("openai:qwen3", output=Town, handoffs=[helper])  # wrong
    Agent("openai:qwen3", handoffs=helper)  # wrong
    helper.as_tool(effect=None)  # wrong
    Agent("openai:qwen3", instructions=number)  # wrong
    Agent("openai:qwen3", deps_type=Town, instructions=greeting)  # wrong
    await typed.run("Which town?", deps=3)  # wrong
    await plain.run("Which town?", deps=Database())  # wrong
    await typed.run("Which town?", dependencies=Database())  # wrong
    (await plain.run("Which town?")).output.name  # wrong
    (await typed.run("Which town?", deps=Database())).output.people  # wrong
    await typed.resume("run", {"call_1_0": "yes"})  # wrong
    in_another_function(plain)  # wrong
