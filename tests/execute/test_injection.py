"""What a tool gets by the declared type of a parameter: the run's context, the call, the state."""

import asyncio

import pytest
from executor_helpers import a_call, results_of, run_batch

from toolspeak import Agent, RunContext, StateView, ToolCall, VerifiedResult, tool
from toolspeak.errors import ToolDefinitionError
from toolspeak.execute import CallsInDoubt
from toolspeak.providers.scripted_provider import ScriptedProvider


def test_the_call_and_the_state_are_injected_by_type_too():
    @tool(read_only=True)
    def who(call: ToolCall, word: str, run: "StateView | None", ctx: RunContext) -> list:
        return [call.id, call.arguments["word"], run.run_id, run is ctx.state]

    assert list(who.spec.properties) == ["word"]
    model = ScriptedProvider(['<execute>\n[{"name": "who", "args": {"word": "w"}}]\n</execute>', "Done."])
    result = asyncio.run(Agent(model, [who]).run("go"))
    (came,) = result.messages[2].results
    assert came.structured == [came.call_id, "w", result.run_id, True]


@pytest.mark.parametrize("name", ["call", "run"])
def test_what_is_injected_cannot_be_given_by_the_model_and_shadows_no_argument(name):
    @tool(read_only=True)
    async def who(word: str, call: ToolCall, run: StateView | None = None) -> str:
        return f"{word} {call.id} {run}"

    assert results_of([who], [a_call("who", "c", word="w")])[0].text == "w c None"
    smuggling_call = ToolCall("c", "who", {"word": "w", name: {"id": "x", "name": "y", "arguments": {}}})
    refusal = results_of([who], [smuggling_call])[0]
    assert refusal.code == "invalid_arguments"
    assert f"- {name}: unknown argument" in refusal.text


def test_an_argument_of_the_model_may_be_called_like_a_type_that_is_injected():
    @tool(read_only=True)
    async def dial(call: str, me: ToolCall) -> str:
        return f"{call} {me.id}"

    assert results_of([dial], [ToolCall("c", "dial", {"call": "ann"})])[0].text == "ann c"


def test_calls_that_run_at_once_each_get_their_own():
    @tool(read_only=True)
    async def who(call: ToolCall) -> str:
        await asyncio.sleep(0)
        return call.id

    calls = [a_call("who", f"c{number}") for number in range(20)]
    assert [result.text for result in results_of([who], calls)] == [call.id for call in calls]


def test_a_preview_and_a_verify_may_ask_for_the_call():
    def preview_word(word: str, call: ToolCall) -> str:
        return f"{call.name} {word}"

    def verify_word(call: ToolCall) -> VerifiedResult:
        return VerifiedResult(f"{call.id} has happened")

    @tool(preview=preview_word, verify=verify_word)
    async def write(word: str) -> str:
        return word

    call = a_call("write", "c", word="w")
    batch = asyncio.run(run_batch([write], [call], approver=None))
    assert batch.pending[0].preview == "write w"
    assert results_of([write], [call], doubtful_calls=CallsInDoubt({"c": None}))[0].text == "c has happened"


def test_two_parameters_that_want_the_same_are_refused():
    with pytest.raises(ToolDefinitionError, match=r"\['a', 'b'\] all want the run's call; keep one"):

        @tool
        def both(a: ToolCall, b: ToolCall) -> str:
            return ""
