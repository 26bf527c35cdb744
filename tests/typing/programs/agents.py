# pyright: strict
"""An agent knows the type of its answers, and of what its tools are given."""

from typing import assert_type

from pydantic import BaseModel

from toolspeak import Agent, Output, Run, RunContext, RunResult, Session, SqliteJournal, Toolset, tool
from toolspeak.agent import StreamedOutput, result_of, stream_output, stream_text


class Town(BaseModel):
    name: str


class Database:
    pass


@tool(read_only=True)
def people(town: str, ctx: RunContext[Database]) -> int:
    """The people of a town."""
    return len(town)


plain = Agent("openai:qwen3")
town_agent = Agent("openai:qwen3", [people], output=Town, deps_type=Database)
of_list = Agent("openai:qwen3", output=list[int])
in_words = Agent("openai:qwen3", output=Output(Town, mode="prompted"))
either = Agent("openai:qwen3", output=Output[int | Town](int | Town))


async def run() -> None:
    assert_type(await plain.run("Which town?"), RunResult[None])
    result = await town_agent.run("Which town?", deps=Database())
    assert_type(result, RunResult[Town])
    assert_type(result.output, Town)
    assert_type((await of_list.run("Which numbers?")).output, list[int])
    assert_type((await in_words.run("Which town?")).output, Town)
    assert_type((await either.run("Which?")).output, int | Town)
    waiting = await town_agent.resume(result, {"call_1_0": True}, deps=Database())
    assert_type(waiting.output, Town)
    session = Session(town_agent)
    assert_type((await session.run("Which town?", deps=Database())).output, Town)


async def stream() -> None:
    async for text in plain.stream_text("Which town?", accumulated=True):
        assert_type(text, str)
    async for town in town_agent.stream_output("Which town?", deps=Database()):
        assert_type(town, StreamedOutput[Town])
        assert_type(town.value, Town)
    async for numbers in Session(of_list).stream_output("Which numbers?", when_open="close"):
        assert_type(numbers.value, list[int])


async def drive() -> None:
    run = town_agent.start("Which town?", deps=Database())
    assert_type(run, Run[Town])
    async for item in stream_output(run):
        assert_type(item.value, Town)
    assert_type(result_of(run), RunResult[Town])
    assert_type(await town_agent.finish(run), RunResult[Town])
    assert_type(plain.start("Which town?"), Run[None])
    assert_type(await Session(town_agent).start("Which town?", deps=Database()), Run[Town])
    assert_type(town_agent.reopen("run", deps=Database()), Run[Town])
    assert_type(result_of(plain.reopen("run", {"call_1_0": True})).output, None)
    await show_any(run)
    await show_any(plain.start("Which town?"))
    await show_model(run)
    await plain.resume(await plain.run("Which town?"))
    await may_do_without.resume("run")
    assert_type(await of_list.resume("run"), RunResult[list[int]])


async def show_any(run: Run[object]) -> str:
    async for _ in stream_text(run):
        pass
    return str(result_of(run).output)


async def show_model(run: Run[BaseModel]) -> str:
    return (result_of(run)).output.model_dump_json()


def in_another_function(agent: Agent[Database, Town]) -> Town:
    return agent.run_sync("Which town?", deps=Database()).output


def any_agent(agent: Agent) -> str:
    return agent.run_sync("Which town?").answer


in_another_function(town_agent)
explicit = Agent[Database, Town]("openai:qwen3", [people], output=Town, journal=SqliteJournal("runs.db"))
in_another_function(explicit)


def greeting(ctx: RunContext[Database]) -> str:
    return f"You are on step {ctx.state.step if ctx.state else 0}."


async def slow_greeting(ctx: RunContext[Database]) -> str:
    return greeting(ctx)


def number(ctx: RunContext[Database]) -> int:
    return 3


class Account:
    pass


@tool(read_only=True)
def balance(ctx: RunContext[Account]) -> int:
    """The money on an account."""
    return 0


@tool(read_only=True)
def convert(currency: str, digits: int, ctx: RunContext[Account]) -> float:
    """The money in another currency."""
    return 0.0


@tool(read_only=True)
def perhaps(ctx: RunContext[Database | None]) -> int:
    """The number of towns, without a database 0."""
    return 0


def count_people(town: str, database: Database) -> int:
    return len(town)


assert_type(Agent("openai:qwen3", [people, balance.name.upper, perhaps], deps_type=Database), Agent[Database, None])
assert_type(Agent("openai:qwen3", Toolset([people])), Agent[None, None])
may_do_without = Agent[Database | None]("openai:qwen3", [perhaps])
anything = Agent[object]("openai:qwen3")
greets = Agent("openai:qwen3", deps_type=Database, instructions=greeting)
greets_slowly = Agent("openai:qwen3", deps_type=Database, instructions=slow_greeting)
greets_in_line = Agent("openai:qwen3", instructions=lambda ctx: f"Your run is {ctx.state}.")
of_accounts = Agent("openai:qwen3", [balance], deps_type=Account)
helper = Agent("openai:qwen3", name="helper", description="Helps.")
front = Agent("openai:qwen3", [helper.as_tool(timeout=60)], handoffs=[helper, "front"])
front_of_towns = Agent("openai:qwen3", output=Town, deps_type=Database, handoffs=[town_agent])


async def wrong() -> None:
    town_agent.stream_text("Which town?", deps=3)  # wrong
    plain.stream_text("Which town?", accumulated="yes")  # wrong
    Agent("openai:qwen3", output=Town, handoffs=[helper])  # wrong
    Agent("openai:qwen3", handoffs=helper)  # wrong
    helper.as_tool(effect=None)  # wrong
    Agent("openai:qwen3", instructions=number)  # wrong
    Agent("openai:qwen3", deps_type=Town, instructions=greeting)  # wrong
    await town_agent.run("Which town?", deps=3)  # wrong
    await plain.run("Which town?", deps=Database())  # wrong
    await town_agent.run("Which town?")  # wrong
    town_agent.run_sync("Which town?", principal="ada")  # wrong
    town_agent.start("Which town?")  # wrong
    town_agent.stream("Which town?")  # wrong
    town_agent.iterate("Which town?")  # wrong
    town_agent.stream_text("Which town?", accumulated=True)  # wrong
    town_agent.stream_output("Which town?")  # wrong
    await Session(town_agent).run("Which town?", when_open="close")  # wrong
    await Session(town_agent).start("Which town?")  # wrong
    Session(town_agent).stream_text("Which town?")  # wrong
    Session(town_agent).stream_output("Which town?")  # wrong
    await may_do_without.run("Which town?")
    await may_do_without.run("Which town?", deps=Database())
    await anything.run("Which town?")
    Agent("openai:qwen3", deps_type=Database, handoffs=[anything])
    Agent("openai:qwen3", [balance], deps_type=Database)  # wrong for pyright
    Agent("openai:qwen3", Toolset([balance]), deps_type=Database)
    Agent("openai:qwen3", deps_type=Database, handoffs=[of_accounts])  # wrong
    Agent("openai:qwen3", [convert], deps_type=Database)  # wrong for pyright
    await town_agent.run("Which town?", dependencies=Database())  # wrong
    (await plain.run("Which town?")).output.name  # wrong
    (await town_agent.run("Which town?", deps=Database())).output.people  # wrong
    await town_agent.resume("run", {"call_1_0": "yes"}, deps=Database())  # wrong
    await town_agent.resume("run", {"call_1_0": True})  # wrong
    await town_agent.resume("run", deps=3)  # wrong
    await plain.resume("run", deps=Database())  # wrong
    await town_agent.resume(await of_list.run("Which numbers?"), deps=Database())  # wrong
    town_agent.reopen("run")  # wrong
    result_of(town_agent.start("Which town?", deps=Database())).output.people  # wrong
    await show_model(of_list.start("Which numbers?"))  # wrong
    await show_model(plain.start("Which town?"))  # wrong
    async for item in stream_output(town_agent.start("Which town?", deps=Database())):
        item.name  # wrong
        item.value.people  # wrong
    await of_list.finish(town_agent.start("Which town?", deps=Database()))  # wrong
    in_another_function(plain)  # wrong
