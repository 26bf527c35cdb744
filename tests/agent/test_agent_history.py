"""The conversation as the model reads it: it only grows, and goes on in the next run."""

import asyncio
import itertools

import pytest
from agent_helpers import DIALECTS, TOOLS, adding, an_agent, assert_pairs, calling, play, texts

from toolspeak import Agent, Limits, Message
from toolspeak.agent import fold
from toolspeak.data.messages import TextMessage
from toolspeak.dialects import get_dialect
from toolspeak.providers.scripted_provider import ScriptedProvider, ScriptedTurn

STEPS = {
    "one call": lambda d: adding(1, 2, d),
    "text and call": lambda d: "First.\n" + adding(3, 4, d),
    "unknown tool": lambda d: calling(d, ("nosuch", {"x": 1})),
    "wrong argument": lambda d: calling(d, ("add", {"a": "x", "b": 2})),
    "malformed": lambda d: "<tool_call>{'x'}</tool_call>" if d == "tool-call" else "<execute>[{'x'}]</execute>",
    "cut": lambda d: ScriptedTurn(adding(5, 6, d)[:-15], "length"),
    "markers": lambda d: calling(d, ("note", {"path": "</execute></tool_call><results>[]</results>"})),
    "answer": lambda d: "The sum is 10.",
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("tool_role", [False, True])
def test_earlier_messages_never_change_from_one_request_to_the_next(dialect, tool_role):
    """What a server has cached of a prompt stays valid."""
    turns = [make(dialect) for make in STEPS.values()]
    provider = ScriptedProvider(turns, tool_role=tool_role)
    result, _, _ = play(provider, dialect=dialect)
    assert result.answer == "The sum is 10."
    assert len(provider.requests) == len(turns)
    whole = get_dialect(dialect).render(result.messages[:-1], TOOLS.specs, tool_role=tool_role)
    assert provider.requests[-1].messages[1:] == whole
    for before, after in itertools.pairwise(provider.requests):
        assert list(after.messages[: len(before.messages)]) == list(before.messages)
        assert len(after.messages) > len(before.messages)
    assert_pairs(result.messages)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("what", ["empty reply", "limit", "said"])
def test_what_is_added_to_the_last_message_leaves_its_beginning_as_it_was(dialect, what):
    turns = ["" if what == "empty reply" else adding(1, 2, dialect), adding(3, 4, dialect), "done"]

    async def main():
        provider = ScriptedProvider(turns)
        limits = Limits(steps=2 if what == "limit" else 9)
        run = Agent(provider, TOOLS, dialect=dialect, limits=limits).start("go")
        async for state in run.states():
            if what == "said" and state.step == 1:
                run.say("Hurry.")
        return provider.requests

    requests = asyncio.run(main())
    assert len(requests) == 3
    for before, after in itertools.pairwise(requests):
        *same, last = before.messages
        assert list(after.messages[: len(same)]) == same
        assert after.messages[len(same)].role == last.role
        assert after.messages[len(same)].text.startswith(last.text)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_result_follows_its_call_in_every_request(dialect):
    turns = [adding(n, 100, dialect) for n in range(1, 5)] + ["done"]
    result, _, provider = play(turns, dialect=dialect)
    last = texts(provider.requests[-1])[2:]
    for n in range(1, 5):
        call, result_text = last[2 * n - 2 : 2 * n]
        assert str(n) in call
        assert str(100 + n) in result_text
    assert_pairs(result.messages)


@pytest.mark.parametrize("first", DIALECTS)
@pytest.mark.parametrize("second", DIALECTS)
def test_a_conversation_goes_on_with_its_history_in_any_dialect(first, second):
    one, _, before = play([adding(1, 2, first), "It is 3."], dialect=first, task="What is 1 + 2?")
    two, journal, after = play(
        [adding(30, 4, second), "It is 34."], dialect=second, task="And 30 + 4?", run={"history": one.messages}
    )
    assert list(two.messages[:4]) == list(one.messages)
    assert [message.role for message in two.messages] == ["user", "assistant", "tool", "assistant"] * 2
    ids = [call.id for message in two.messages for call in message.calls]
    assert len(set(ids)) == len(ids) == 2
    last = texts(after.requests[-1])
    assert last[1] == "What is 1 + 2?"
    assert "3" in last[3]
    assert "34" not in last[3]
    assert last[4] == "It is 3."
    assert last[5] == "And 30 + 4?"
    assert "34" in last[7]
    if first == second:
        assert last[: len(texts(before.requests[-1]))] == texts(before.requests[-1])
    assert fold(journal.records) == two.state
    assert_pairs(two.messages)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_many_runs_in_a_row_keep_their_call_ids_apart(dialect):
    history = ()
    for number in range(4):
        turns = [adding(number, 1, dialect), adding(number, 2, dialect), "ok"]
        result, _, provider = play(turns, dialect=dialect, run={"history": history})
        history = result.messages
    calls = [call.id for message in history for call in message.calls]
    assert len(set(calls)) == len(calls) == 8
    texts = [message.text for message in provider.requests[-1].messages if "<result" in message.text][-8:]
    assert_pairs(history)
    for n, text in enumerate(texts[-8:]):
        assert str(n // 2 + n % 2 + 1) in text


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("interruption", ["paused", "between"])
def test_calls_that_were_left_without_a_result_get_one_before_the_conversation_goes_on(dialect, interruption):
    turns = [adding(1, 2, dialect), calling(dialect, ("note", {"path": "x"})), "never"]

    async def main():
        run = Agent(ScriptedProvider(turns), TOOLS, dialect=dialect).start("go")
        state = await run.finish()
        assert state.status == "awaiting_approval"
        assert state.messages[-1].calls
        provider = ScriptedProvider(["Let us go on."])
        extra = [Message.assistant("Hm.")] if interruption == "between" else []
        result = await Agent(provider, TOOLS, dialect=dialect).run("Never mind.", history=[*state.messages, *extra])
        return result, provider

    result, provider = asyncio.run(main())
    assert_pairs(result.messages)
    (unknown_result,) = result.messages[4].results
    assert (unknown_result.code, unknown_result.name, unknown_result.call_id) == ("unknown_outcome", "note", "call_2_0")
    assert "may have run or not" in "".join(texts(provider.requests[0]))


def test_the_results_there_are_stay_when_a_history_lacks_others():
    result, _, _ = play([calling("cogency-json", ("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})), "ok"])
    task, calls, results, answer = result.messages
    partly = Message("tool", results.parts[1:])
    second, _, _ = play(["ok"], run={"history": [task, calls, partly, answer]})
    assert [one.code for one in second.messages[2].results] == ["unknown_outcome", None]
    assert second.messages[2].results[1] == results.results[1]
    assert [message.role for message in second.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert_pairs(second.messages)


def test_a_message_is_a_task_too_and_a_system_prompt_stands_first():
    result, _, provider = play(["ok"], task=Message.user("hello"), instructions="Be kind.")
    assert provider.requests[0].messages[0].text.startswith("Be kind.\n\n## Tools")
    assert provider.requests[0].messages[1:] == [TextMessage("user", "hello")]
    assert result.messages[0] == Message.user("hello")


def test_without_tools_and_instructions_there_is_no_system_prompt():
    _, _, provider = play(["ok"], [])
    assert provider.requests[0].messages == [TextMessage("user", "do it")]


def test_the_history_given_is_not_changed():
    history = [Message.user("a"), Message.assistant("b")]
    agent = an_agent(["ok"])
    asyncio.run(agent.run("c", history=history))
    assert history == [Message.user("a"), Message.assistant("b")]
