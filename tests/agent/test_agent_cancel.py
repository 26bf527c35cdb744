"""Cancelling stops everything at once: the model's stream, the tools, the processes, the tasks."""

import asyncio
import os
import threading
from contextlib import aclosing

import pytest
from agent_helpers import TOOLS, OpenProvider, WatchedJournal, adding, an_agent, calling

from toolspeak import Agent, RunContext, tool
from toolspeak.data.deltas import TextDelta
from toolspeak.data.events import ToolFinished
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.tools.builtin import workspace_tools

WAYS = ("run", "finish", "states", "iterate", "stream")
HOWS = ("cancel", "timeout")


async def drive(agent, way):
    if way == "run":
        return await agent.run("go")
    if way == "finish":
        return await agent.start("go").finish()
    items = agent.start("go").states() if way == "states" else getattr(agent, way)("go")
    async with aclosing(items):
        async for _ in items:
            pass
    return None


async def interrupt(agent, way, how, when):
    """Drives a run until `when` is over, cancels it, and checks that nothing of it is left."""
    if how == "cancel":
        task = asyncio.create_task(drive(agent, way))
        await when
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        with pytest.raises(TimeoutError):
            await drive_until(agent, way, when)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def drive_until(agent, way, when):
    async def expire():
        await when
        scope.reschedule(asyncio.get_running_loop().time())

    async with asyncio.timeout(None) as scope:
        task = asyncio.create_task(expire())
        try:
            await drive(agent, way)
        finally:
            await task


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pieces", [(), ("Let me",), ("", adding(1, 2)[:-5])])
def test_while_the_model_is_streaming(way, how, pieces):
    async def main():
        provider, journal = OpenProvider(*pieces), WatchedJournal()
        agent = Agent(provider, TOOLS, journal=journal)
        await interrupt(agent, way, how, provider.all_sent.wait())
        assert provider.closed
        assert journal.kinds == ["RunStarted", "ModelAsked", *["ModelTextReceived"] * bool(pieces)]

    asyncio.run(main())


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("way", WAYS)
def test_while_an_asynchronous_tool_is_running(way, how):
    async def main():
        entry, endings, journal = asyncio.Event(), [], WatchedJournal()

        @tool(read_only=True)
        async def hang() -> str:
            "Never returns."
            entry.set()
            try:
                await asyncio.Event().wait()
            finally:
                endings.append("hang")
            return "never"

        provider = ScriptedProvider([calling("cogency-json", ("hang", {}))])
        await interrupt(Agent(provider, [hang], journal=journal), way, how, entry.wait())
        assert endings == ["hang"]
        assert len(provider.requests) == 1
        assert journal.all(ToolFinished) == []

    asyncio.run(main())


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("way", WAYS)
def test_a_synchronous_tool_is_orphaned_and_told(way, how):
    release, answers = threading.Event(), []
    tool_end = threading.Event()

    async def main():
        loop, entry, journal = asyncio.get_running_loop(), asyncio.Event(), WatchedJournal()

        @tool(read_only=True)
        def block(ctx: RunContext) -> str:
            "Blocks its thread."
            loop.call_soon_threadsafe(entry.set)
            release.wait(120)
            answers.append(ctx.is_cancelled())
            tool_end.set()
            return "late"

        agent = an_agent([calling("cogency-json", ("block", {}))], [block], journal=journal)
        await interrupt(agent, way, how, entry.wait())
        assert not tool_end.is_set()
        assert journal.kinds[-1] == "ToolStarted"

    asyncio.run(main())
    release.set()
    assert tool_end.wait(120)
    assert answers == [True]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("way", WAYS)
def test_while_somebody_is_asked_for_approval(way, how):
    async def main():
        question, endings, journal = asyncio.Event(), [], WatchedJournal()

        async def approve(request):
            question.set()
            try:
                await asyncio.Event().wait()
            finally:
                endings.append("approve")

        agent = an_agent([calling("cogency-json", ("note", {"path": "x"}))], approve=approve, journal=journal)
        await interrupt(agent, way, how, question.wait())
        assert endings == ["approve"]
        assert journal.kinds[-1] == "ApprovalRequested"

    asyncio.run(main())


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("way", ["run", "stream"])
def test_a_shell_command_ends_with_its_run(way, how, tmp_path):
    fifo = tmp_path / "ready"
    os.mkfifo(fifo)
    pids = []

    async def main():
        async def wait_for_start():
            pids.append(int(await asyncio.to_thread(fifo.read_text)))

        command = {"command": "echo $$ > ready; exec sleep 1000"}
        tools = workspace_tools(tmp_path)
        agent = an_agent([calling("cogency-json", ("shell", command), tools=tools)], tools)
        await interrupt(agent, way, how, wait_for_start())

    asyncio.run(main())
    (pid,) = pids
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_run_that_is_cancelled_between_two_steps_does_nothing_more():
    async def main():
        provider = ScriptedProvider([adding(1, 2), "3"])
        agent = Agent(provider, TOOLS)
        async with aclosing(agent.iterate("go")) as states:
            async for state in states:
                assert state.step == 1
                break
        assert len(provider.requests) == 1
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


@pytest.mark.parametrize("what", ["delta", "record", "late"])
def test_leaving_a_stream_early_stops_the_model_and_the_tasks(what):
    async def main():
        provider = OpenProvider(*(f"{n} " for n in range(1000)))
        async with aclosing(Agent(provider, TOOLS).stream("go")) as items:
            async for item in items:
                if what == "record" or (isinstance(item, TextDelta) and (what == "delta" or item.text == "999 ")):
                    break
        assert provider.closed or not provider.requests
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_leaving_a_stream_early_stops_a_running_tool():
    endings = []

    @tool(read_only=True)
    async def hang() -> str:
        "Never returns."
        try:
            await asyncio.Event().wait()
        finally:
            endings.append("hang")
        return "never"

    async def main():
        agent = an_agent([calling("cogency-json", ("hang", {}))], [hang])
        async with aclosing(agent.stream("go")) as items:
            async for item in items:
                if type(getattr(item, "event", None)).__name__ == "ToolStarted":
                    break
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert endings in (["hang"], [])  # it had not been entered yet, or it was ended


def test_a_stream_left_when_the_run_has_failed_already_complains_about_nothing():
    async def main():
        complaints = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        journal = WatchedJournal()
        async with aclosing(an_agent([], journal=journal).stream("go")) as items:
            async for _ in items:
                (run,) = asyncio.all_tasks() - {asyncio.current_task()}
                await asyncio.wait([run])
                assert journal.kinds[-1] == "RunFinished"
                break
        return complaints

    assert asyncio.run(main()) == []


@pytest.mark.parametrize("way", ["states", "iterate", "stream"])
def test_leaving_without_closing_leaves_nothing_once_the_loop_has_turned(way):
    """A plain `break` without `aclosing`: asyncio closes the generator when it is dropped."""

    async def main():
        provider = ScriptedProvider([adding(1, 2), "3"])
        agent = Agent(provider, TOOLS)
        async for _ in agent.start("go").states() if way == "states" else getattr(agent, way)("go"):
            break
        return provider

    assert len(asyncio.run(main()).requests) <= 1
