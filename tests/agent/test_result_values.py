"""A program gets what a tool returned whole, however much of it the model reads."""

import asyncio
import json

import pytest
from agent_helpers import WatchedJournal, an_agent, calling, play, texts

from toolspeak import Agent, ConfigurationError, Execution, SqliteJournal, ToolResult, tool
from toolspeak.data.messages import ImagePart, JsonPart, TextPart
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.tools import Toolset
from toolspeak.tools.builtin.read_result import read_result_tool

ROWS = [{"id": number, "name": f"name {number}"} for number in range(3_000)]


@tool(read_only=True)
def rows() -> list:
    "All rows."
    return ROWS


@tool(read_only=True)
def page() -> str:
    "A long page."
    return "word " * 10_000


TOOLS = Toolset([rows, page])
TURNS = [calling("cogency-json", ("rows", {}), ("page", {}), tools=TOOLS), "done"]


def test_the_value_is_whole_where_the_models_copy_was_shortened():
    result, journal, provider = play(TURNS, TOOLS)
    for_rows, for_page = result.steps[0].executions
    assert for_rows.value == ROWS
    assert for_page.value == "word " * 10_000
    assert "truncated_bytes" in for_rows.result.extra
    assert len(texts(provider.requests[1])[-1]) < 40_000
    assert all(len(each.text) < 20_000 for each in journal.results())


def test_how_much_the_model_gets_is_the_agents_to_say():
    result, _, provider = play(TURNS, TOOLS, execution=Execution(max_result_bytes=1_000))
    assert len(texts(provider.requests[1])[-1]) < 3_000
    assert result.steps[0].executions[0].value == ROWS
    result, _, _ = play(TURNS, TOOLS, execution=Execution(max_result_bytes=1_000_000))
    assert json.loads(result.messages[2].results[0].text) == ROWS
    with pytest.raises(ConfigurationError, match="max_result_bytes"):
        Agent(ScriptedProvider([]), execution=Execution(max_result_bytes=-1))


def test_another_process_gets_the_whole_of_what_the_model_may_page_through(tmp_path):
    tools = Toolset([*TOOLS, read_result_tool()])

    @tool
    def put() -> str:
        "Puts."
        return "put"

    async def both():
        provider = ScriptedProvider([TURNS[0], calling("cogency-json", ("put", {}), tools=Toolset([put])), "done"])
        with_put = Toolset([*tools, put])
        journal = SqliteJournal(tmp_path / "j.db")
        waiting = await an_agent(provider, with_put, journal=journal, approve=None).run("x")
        assert waiting.status == "awaiting_approval"
        await journal.aclose()
        journal = SqliteJournal(tmp_path / "j.db")
        decisions = dict.fromkeys(waiting.waiting, True)
        result = await an_agent(provider, with_put, journal=journal).resume(waiting.run_id, decisions)
        await journal.aclose()
        return result

    result = asyncio.run(both())
    assert result.status == "answered"
    assert [each.value for each in result.steps[0].executions] == [ROWS, "word " * 10_000]
    assert [each.name for step in result.steps for each in step.executions] == ["rows", "page", "put"]


def test_the_text_of_a_json_result_is_its_json():
    assert ToolResult("c", "f", "success", (JsonPart({"é": [1, None]}),)).text == '{"é": [1, null]}'
    assert (
        ToolResult("c", "f", "success", (JsonPart(1), TextPart("a"), TextPart("b"), JsonPart("x"))).text == '1\nab\n"x"'
    )
    assert ToolResult("c", "f", "success", (ImagePart("image/png", b""),)).text == ""


def test_steps_say_what_the_model_read_and_wrote_and_what_came_of_it():
    result, _, provider = play(TURNS, TOOLS, task="All of them?")
    first, last = result.steps
    assert (first.number, last.number) == (1, 2)
    assert [message.role for message in first.input] == ["user"]
    assert first.input[0].text == "All of them?"
    assert [call.name for call in first.message.calls] == ["rows", "page"]
    assert [message.role for message in first.output] == ["assistant", "tool"]
    assert [*last.input, *last.output] == [*result.messages]
    assert (last.message.text, last.executions, last.finish) == ("done", (), "stop")
    assert first.started_at <= first.executions[0].started_at <= first.executions[0].completed_at <= first.completed_at
    assert first.executions[0].id == f"{result.run_id}:{first.message.calls[0].id}"
    assert len(provider.requests) == len(result.steps)


def test_the_steps_of_a_run_that_pauses_and_goes_on():
    @tool
    def put(key: str) -> str:
        "Puts."
        return key

    tools = Toolset([put])
    provider = ScriptedProvider([calling("cogency-json", ("put", {"key": "a"}), tools=tools), "done"])
    agent = an_agent(provider, tools, approve=None, journal=WatchedJournal())
    waiting = agent.run_sync("x")
    assert [(len(step.message.calls), len(step.executions)) for step in waiting.steps] == [(1, 0)]
    for result in (asyncio.run(agent.resume(waiting, dict.fromkeys(waiting.waiting, True))),):
        assert [[each.value for each in step.executions] for step in result.steps] == [["a"], []]
