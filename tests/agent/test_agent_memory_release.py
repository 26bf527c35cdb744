"""A run that is over is freed at once, with what it said and read: nothing of it waits for the garbage collector."""

import asyncio
import gc
import weakref
from contextlib import aclosing, contextmanager

import pytest
from agent_helpers import calling

from toolspeak import Agent, RunContext, tool
from toolspeak.agent import RunInterceptor, StepInterceptor
from toolspeak.data.messages import Message, ToolCall
from toolspeak.dialects import get_dialect
from toolspeak.dialects.readers.body import Body
from toolspeak.execute import Interceptor
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.tools import Toolset

NATIVE = ScriptedTurn("", calls=[ScriptedCall("add", {"a": 1, "b": 2})])


@contextmanager
def without_the_collector():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# Asynchronous: a thread may not have let go yet of what a synchronous tool was given when the run is over.
@tool(read_only=True)
async def add(a: int, b: int) -> int:
    "Adds two numbers."
    return a + b


@tool(read_only=True)
async def notes(text: str, context: RunContext) -> int:
    "Counts, and remembers."
    context.memory["texts"] = [*context.memory.get("texts", ()), text]
    context.progress("counting")
    return len(text)


class Call(Interceptor):
    pass


class Step(StepInterceptor):
    pass


class Whole(RunInterceptor):
    pass


async def finish(run):
    return (await run.finish()).answer


async def step_through(run):
    async with aclosing(run.states()) as states:
        return [state async for state in states][-1].answer


async def stream_through(run):
    async with aclosing(run.stream()) as items:
        return [item async for item in items][-1].event.answer


@pytest.mark.parametrize("drive", [finish, step_through, stream_through])
@pytest.mark.parametrize("interceptors", [(), (Call(), Step(), Whole())], ids=["plain", "intercepted"])
@pytest.mark.parametrize("turn", [NATIVE, calling("cogency-json", ("add", {"a": 1, "b": 2}))], ids=["native", "text"])
def test_a_run_that_is_over_is_freed_at_once(drive, interceptors, turn):
    text = calling("cogency-json", ("notes", {"text": "abc"}), tools=Toolset([notes]))
    agent = Agent(ScriptedProvider([turn, text, "done"]), [add, notes], interceptors=interceptors)

    async def one():
        run = agent.start("go")
        assert await drive(run) == "done"
        return weakref.ref(run), weakref.ref(run.journal)

    async def scene():
        references = await one()
        await asyncio.sleep(0)  # what has ended is still on its way through the event loop
        return references

    with without_the_collector():
        run, journal = asyncio.run(scene())
        assert run() is None
        assert journal() is None


@pytest.mark.parametrize(
    "name", ["hermes", "qwen3-coder", "deepseek-v3", "glm45", "llama4-pythonic", "minimax-m3", "dots"]
)
def test_the_text_of_a_block_is_freed_with_its_turn(name):
    dialect, tools = get_dialect(name), Toolset([notes]).specs
    call = ToolCall("c", "notes", {"text": "a <b> c " * 1000})
    text = dialect.render([Message("assistant", (call,))], tools)[-1].text
    with without_the_collector():
        before = {id(each) for each in gc.get_objects() if isinstance(each, Body)}
        parser = dialect.parser(tools)
        assert [*parser.feed(text), *parser.close("stop")]
        del parser
        assert not [each for each in gc.get_objects() if isinstance(each, Body) and id(each) not in before]
