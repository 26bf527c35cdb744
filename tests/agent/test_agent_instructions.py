"""Instructions that a function of the run returns before each turn."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from agent_helpers import WatchedJournal, add

from toolspeak import Agent, ConfigurationError, Output, RunContext, tool
from toolspeak.data.events import ModelAsked
from toolspeak.testing import ScriptedCall, ScriptedProvider, ScriptedTurn

ADDING = ScriptedTurn("", calls=[ScriptedCall("add", {"a": 1, "b": 2})])


def prompts(model: ScriptedProvider) -> list[str]:
    """The system prompts of the requests."""
    return [next((each.text for each in request.messages if each.role == "system"), "") for request in model.requests]


def test_a_function_is_called_before_each_turn():
    model = ScriptedProvider([ADDING, "3."], tools=True)
    agent = Agent(model, [add], instructions=lambda ctx: f"{ctx.deps}, after step {ctx.state.step}.", deps_type=str)
    result = agent.run_sync("Add.", deps="Ada")
    assert prompts(model) == ["Ada, after step 0.", "Ada, after step 1."]
    events = [each.event for each in result.run_records.records if isinstance(each.event, ModelAsked)]
    assert len({each.instructions_digest for each in events}) == 2
    assert [message.role for message in model.requests[1].messages] == ["system", "user", "assistant", "tool"]


@pytest.mark.parametrize("dialect", ["cogency-json", "hermes", "native"])
def test_an_async_function_in_any_dialect(dialect: str):
    async def instructions(ctx: RunContext) -> str:
        await asyncio.sleep(0)
        return f"Step {ctx.state.step}."

    model = ScriptedProvider(["Hello."], tools=dialect == "native")
    Agent(model, [add], dialect=dialect, instructions=instructions).run_sync("Hello?")
    assert "Step 0." in prompts(model)[0]


def test_instructions_for_the_answers_type_come_last():
    model = ScriptedProvider(['{"value": 3}'])
    agent = Agent(model, instructions=lambda _: "Be brief.", output=Output(int, mode="prompted"))
    assert agent.run_sync("What is 1 + 2?").output == 3
    assert prompts(model)[0].startswith("Be brief.\n\n")


def test_secrets_are_hidden():
    model = ScriptedProvider(["Hello."])
    Agent(model, instructions=lambda _: "The key is 12345.", secrets={"KEY": "12345"}).run_sync("Hello?")
    assert prompts(model) == ["The key is {{secret:KEY}}."]


def test_the_memory_of_the_tools_can_be_read_and_not_changed():
    @tool(read_only=True)
    def note(word: str, ctx: RunContext) -> str:
        "Notes."
        ctx.memory["word"] = word
        return "noted"

    def instructions(ctx: RunContext) -> str:
        word = ctx.memory.pop("word", "nothing")
        return f"You noted {word}."

    calls = [ScriptedTurn("", calls=[ScriptedCall("note", {"word": each})]) for each in ("pear", "fig")]
    model = ScriptedProvider([*calls, "Done."], tools=True)
    result = Agent(model, [note], instructions=instructions).run_sync("Go.")
    assert prompts(model) == ["You noted nothing.", "You noted pear.", "You noted fig."]
    assert result.memory["word"] == "fig"


def test_a_resumed_run_calls_the_function_anew():
    async def work():
        journal, model = WatchedJournal(), ScriptedProvider([ADDING, "3."], tools=True, follow=True)
        words = ["Hello.", "Welcome back."]

        @tool
        def add(a: int, b: int) -> int:
            "Adds."
            return a + b

        agent = Agent(model, [add], instructions=lambda _: words.pop(0), journal=journal)
        paused_run = await agent.run("Add.")
        assert (await agent.resume(paused_run.run_id, {paused_run.waiting[0]: True})).answer == "3."
        assert prompts(model) == ["Hello.", "Welcome back."]

    asyncio.run(work())


def test_an_error_of_the_function_leaves_a_run_that_can_be_resumed():
    async def work():
        journal, model, errors = WatchedJournal(), ScriptedProvider(["Hello."], follow=True), [LookupError("no town")]

        def instructions(_: RunContext) -> str:
            if errors:
                raise errors.pop()
            return "Be brief."

        agent = Agent(model, instructions=instructions, journal=journal)
        with suppress(LookupError):
            await agent.run("Hello?")
        assert (await agent.resume(journal.records[0].run_id)).answer == "Hello."

    asyncio.run(work())


def test_what_is_no_string_is_refused():
    with pytest.raises(ConfigurationError, match="the function must return a string, not a int"):
        Agent(ScriptedProvider([]), instructions=lambda _: 3).run_sync("Hello?")
    with pytest.raises(ConfigurationError, match="a string, or a function of the RunContext"):
        Agent(ScriptedProvider([]), instructions=3)
