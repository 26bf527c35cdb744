"""Results too long for the model: kept whole, and paged through by their handle."""

import asyncio
import json

import pytest

from toolspeak import Agent, SqliteJournal
from toolspeak.data.messages import Message, ToolCall
from toolspeak.dialects import get_dialect
from toolspeak.execute import BatchContext, Executor, Secrets, approve_all
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.tools import Toolset, tool
from toolspeak.tools.builtin import read_result_tool
from toolspeak.tools.stored_results import KEY

TEXT = "".join(f"line {number}: é😀\n" for number in range(5_000))


@tool(read_only=True)
async def text() -> str:
    return TEXT


@tool(read_only=True)
async def rows() -> dict[str, list[int]]:
    return {"rows": list(range(9_000))}


@tool(destructive=False)
async def note() -> str:
    return "noted"


TOOLS = Toolset([text, rows, note, read_result_tool()])


def calling(name, **arguments):
    return get_dialect("cogency-json").render([Message("assistant", (ToolCall("", name, arguments),))])[0].text


class Session:
    """One run; each call is a batch of its own."""

    def __init__(self, **options):
        self.executor = Executor(Toolset([text, rows, read_result_tool()]), **options)
        self.context = BatchContext("run")
        self.count = 0

    async def call(self, name, **arguments):
        self.count += 1

        async def emit(event):
            pass

        call = ToolCall(f"c{self.count}", name, arguments)
        batch = await self.executor.run([call], emit=emit, context=self.context, approver=approve_all)
        return batch.results[0]

    async def pages(self, handle):
        offset, whole = 0, ""
        while True:
            page = (await self.call("read_result", handle=handle, offset=offset)).text
            head, _, body = page.partition("\n")
            whole += body
            if "this is the end" in head:
                return whole
            offset = int(head.partition("offset=")[2].rstrip("]"))


@pytest.mark.parametrize(("name", "whole"), [("text", TEXT), ("rows", json.dumps({"rows": list(range(9_000))}))])
def test_a_long_result_names_a_handle_by_which_all_of_it_is_read(name, whole):
    async def main():
        session = Session()
        result = await session.call(name)
        assert result.extra["handle"] == "c1"
        assert 'read_result with handle="c1"' in result.text
        return await session.pages("c1")

    assert asyncio.run(main()) == whole


def test_a_place_is_found_by_its_text():
    async def main():
        session = Session()
        await session.call("text")
        excerpt = await session.call("read_result", handle="c1", find="line 3000:")
        again = await session.call("read_result", handle="c1", find="no such line")
        return excerpt.text.partition("\n")[2], again

    body, again = asyncio.run(main())
    assert body.startswith("line 3000: é😀\nline 3001")
    assert again.text == "'no such line' does not occur at or after character 0."


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"handle": "c9"}, "There is no result 'c9' (any more): make the call again. Kept are: c1."),
        ({"handle": "c1", "offset": -1}, "'offset' is -1: the result has characters 0 to"),
        ({"handle": "c1", "offset": 10**9}, "'offset' is 1000000000: the result has characters 0 to"),
    ],
)
def test_what_is_not_there_is_a_failure_that_says_what_is(arguments, problem):
    async def main():
        session = Session()
        await session.call("text")
        return await session.call("read_result", **arguments)

    result = asyncio.run(main())
    assert result.status == "failure"
    assert result.text.startswith(problem)


def test_a_resumed_run_in_another_process_reads_on(tmp_path):
    """The whole result is in the journal, once."""
    read = calling("read_result", handle="call_1_0", find="line 3000:")
    write = calling("note")

    async def main():
        journal = SqliteJournal(tmp_path / "toolspeak.db")
        turns = [calling("text"), write, read, "Found."]
        waiting = await Agent(ScriptedProvider(turns, follow=True), TOOLS, journal=journal).run("Find line 3000.")
        assert waiting.status == "awaiting_approval"
        await journal.aclose()
        journal = SqliteJournal(tmp_path / "toolspeak.db")
        agent = Agent(ScriptedProvider(turns, follow=True), TOOLS, journal=journal, approve="all")
        result = await agent.resume(waiting.run_id)
        await journal.aclose()
        return result

    result = asyncio.run(main())
    assert result.answer == "Found."
    assert "line 3000: é😀" in result.messages[-2].results[0].text


def test_no_secret_is_kept():
    async def main():
        session = Session(secrets=Secrets({"KEY": "line 2500"}))
        await session.call("text")
        return session.context.memory[KEY]["c1"]

    text = asyncio.run(main())
    assert "line 2500:" not in text
    assert "{{secret:KEY}}" in text


def test_without_the_tool_nothing_is_kept():
    async def main():
        context = BatchContext("run")

        async def emit(event):
            pass

        executor = Executor(Toolset([text]))
        call = ToolCall("c1", "text", {})
        batch = await executor.run([call], emit=emit, context=context, approver=approve_all)
        return batch.results[0], context.memory

    result, memory = asyncio.run(main())
    assert "handle" not in result.extra
    assert "call the tool again for a part of it" in result.text
    assert memory == {}
