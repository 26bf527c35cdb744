"""`Agent.as_tool`: an agent as a tool of another one."""

from __future__ import annotations

import asyncio

import pytest
from agent_helpers import WatchedJournal

from toolspeak import Agent, Effects, Limits, RunContext, tool
from toolspeak.data.messages import JsonPart
from toolspeak.errors import ToolDefinitionError
from toolspeak.testing import ScriptedCall, ScriptedProvider, ScriptedTurn


def calling(name: str, **arguments) -> ScriptedTurn:
    return ScriptedTurn("", calls=[ScriptedCall(name, arguments)])


def asking(name: str) -> ScriptedProvider:
    return ScriptedProvider([calling(name, task="Do it."), "Good."], follow=True, tools=True)


def helper(*turns, **options) -> Agent:
    return Agent(ScriptedProvider(turns, follow=True, tools=True), name="the helper", description="Helps.", **options)


def test_an_agent_is_a_tool_of_another():
    helper_tool = helper("Done.").as_tool()
    assert (helper_tool.name, helper_tool.spec.description) == ("the_helper", "Helps.")
    assert list(helper_tool.spec.properties) == ["task"]
    result = Agent(asking("the_helper"), [helper_tool]).run_sync("Go.")
    assert (result.answer, result.steps[0].executions[0].result.text) == ("Good.", "Done.")


def test_name_and_options_are_the_callers_to_give():
    helper_tool = helper("Done.").as_tool(name="ask", description="Asks.", timeout=3, read_only=True)
    assert (
        helper_tool.name,
        helper_tool.spec.description,
        helper_tool.timeout,
        helper_tool.spec.effects.read_only,
    ) == ("ask", "Asks.", 3, True)
    with pytest.raises(ToolDefinitionError, match="the agent 'agent' has no description"):
        Agent(ScriptedProvider([])).as_tool()


def test_an_answer_of_a_type_is_its_value():
    helper_tool = helper('{"a": 1}', output=dict[str, int]).as_tool()
    result = Agent(asking("the_helper"), [helper_tool]).run_sync("Go.")
    assert result.steps[0].executions[0].result.content == (JsonPart({"a": 1}),)


def test_an_agent_without_an_answer_fails_its_call():
    helper_tool = helper("", "", limits=Limits(steps=3)).as_tool()
    text = Agent(asking("the_helper"), [helper_tool]).run_sync("Go.").steps[0].executions[0].result.text
    assert "the helper gave no answer: the model's replies were empty" in text


def test_the_tool_touches_what_the_agents_tools_may_touch():
    @tool(effects=Effects(reads={"a"}), external=True)
    def look() -> None: ...

    @tool(effects=Effects(writes={"b"}, destructive=False))
    def put() -> None: ...

    @tool
    def mystery() -> None: ...

    assert helper().as_tool().spec.effects == Effects(idempotent=True, destructive=False)
    together = Effects(reads={"a"}, writes={"b"}, external=True, idempotent=True, destructive=False)
    assert helper(tools=[look, put]).as_tool().spec.effects == together
    assert not helper(tools=[look, mystery]).as_tool().spec.effects.declared
    assert helper(tools=[mystery]).as_tool(effects=Effects()).spec.effects == Effects()


def test_deps_are_those_of_the_run():
    @tool(read_only=True)
    def rows(ctx: RunContext[list]) -> int:
        "Counts."
        return len(ctx.deps)

    inner = helper(calling("rows"), lambda messages: messages[-1].results[0].text, tools=[rows])
    outer = Agent(asking("the_helper"), [inner.as_tool()], deps_type=list)
    assert inner.as_tool().deps == "list"
    assert outer.run_sync("Go.", deps=[1, 2]).steps[0].executions[0].result.text == "2"


def test_a_question_of_the_agent_pauses_the_run_and_resumes_both():
    log = []

    @tool(effects=Effects(writes={"b"}))
    def put() -> str:
        "Puts."
        log.append("put")
        return "put"

    async def work():
        journal = WatchedJournal()
        inner = helper(calling("put"), "Done.", tools=[put])
        outer = Agent(asking("the_helper"), [inner.as_tool(effects=Effects())], journal=journal)
        paused_run = await outer.run("Go.")
        assert (paused_run.status, log) == ("awaiting_approval", [])
        assert paused_run.requests[0].call.name == "put"
        result = await outer.resume(paused_run.run_id, {paused_run.waiting[0]: True})
        assert (result.answer, log) == ("Good.", ["put"])
        assert len({record.run_id for record in journal.records}) == 2

    asyncio.run(work())


def test_the_question_says_which_tools_leave_open_what_the_agent_touches():
    @tool(effects=lambda item: Effects(reads={f"stock:{item}"}))
    def stock(item: str) -> int:
        "Counts pieces."
        return 3

    @tool
    def phone(number: str) -> str:
        "Calls somebody."
        return "busy"

    def questions(*tools):
        clerk = Agent(ScriptedProvider(["Three."]), tools, name="clerk", description="Counts.")
        provider = ScriptedProvider([ScriptedTurn("", calls=[ScriptedCall("clerk", {"task": "Count."})]), "Three."])
        return Agent(provider, [clerk.as_tool()]).run_sync("How many?").requests

    (question,) = questions(stock, phone)
    assert "arguments decide what they touch: stock; @tool(effects_bound=…)" in question.preview
    assert "do not declare what they touch: phone;" in question.preview

    @tool(effects=lambda item: Effects(reads={f"stock:{item}"}), effects_bound=Effects(reads={"stock:"}))
    def count_pieces(item: str) -> int:
        "Counts pieces."
        return 3

    assert questions(count_pieces) == ()
