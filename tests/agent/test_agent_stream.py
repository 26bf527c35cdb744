"""Watching a run: everything is seen, in order, and a slow reader makes the model wait."""

import asyncio

import pytest
from agent_helpers import DIALECTS, TOOLS, OpenProvider, WatchedJournal, adding, an_agent, calling, texts

from toolspeak import Agent, Limits, Message, ProviderError, RunContext, RunError, tool
from toolspeak.agent import fold, result_of
from toolspeak.data.deltas import (
    CallCompleted,
    CallMalformed,
    CallStarted,
    ReasoningDelta,
    TextDelta,
    ToolProgress,
    TurnEnded,
)
from toolspeak.data.events import (
    ModelAnswered,
    ModelAsked,
    Record,
    RunFinished,
    RunPaused,
    ToolFinished,
    UserMessageQueued,
)
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn


def watch(agent, task="go"):
    async def main():
        return [item async for item in agent.stream(task)]

    return asyncio.run(main())


def join_texts(items, kind):
    return "".join(item.text for item in items if isinstance(item, kind))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("chunk", [1, 5, None])
def test_records_come_in_the_journals_order_and_deltas_join(dialect, chunk):
    journal = WatchedJournal()
    answer = "It is 3, as < of & shows. " * 40
    turns = [ScriptedTurn("Adding. " + adding(1, 2, dialect), reasoning="Hm, hm."), answer]
    items = watch(an_agent(ScriptedProvider(turns, chunk=chunk), journal=journal, dialect=dialect))
    assert [item for item in items if isinstance(item, Record)] == journal.records
    assert join_texts(items, ReasoningDelta) == "Hm, hm."
    assert join_texts(items, TextDelta).removeprefix("Adding. ").strip() == answer.strip()
    assert [item.arguments for item in items if isinstance(item, CallCompleted)] == [{"a": 1, "b": 2}]
    assert not any(isinstance(item, TurnEnded) for item in items)
    assert items[-1].event.answer == answer.strip()
    assert fold(journal.records).answer == answer.strip()


def test_a_turns_deltas_stand_between_its_question_and_its_answer():
    items = watch(an_agent([adding(1, 2), "3"]))
    names = [type(item.event if isinstance(item, Record) else item).__name__ for item in items]
    request_index, answer_index = names.index("ModelAsked"), names.index("ModelAnswered")
    assert {"CallStarted", "CallCompleted", "BatchEnded"} <= set(names[request_index:answer_index])
    assert names[-1] == "RunFinished"


def ids_by_index(items):
    """For each turn: the ids of its calls as the deltas have them, in the order of the calls."""
    turns = []
    for item in items:
        if isinstance(item, Record) and isinstance(item.event, ModelAsked):
            turns.append({})
        elif isinstance(item, CallStarted | CallCompleted | CallMalformed):
            assert turns[-1].setdefault(item.index, item.call_id) == item.call_id
    return [[turn[index] for index in sorted(turn)] for turn in turns]


@pytest.mark.parametrize("secrets", [{}, {"KEY": "hunter2"}])
@pytest.mark.parametrize("chunk", [1, None])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_deltas_of_a_call_have_the_id_of_its_records(dialect, chunk, secrets):
    script = [calling(dialect, ("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})), adding(5, 6, dialect), "Done."]
    items = watch(an_agent(ScriptedProvider(script, chunk=chunk), dialect=dialect, secrets=secrets))
    turns = [each.event for each in items if isinstance(each, Record) and isinstance(each.event, ModelAnswered)]
    recorded_ids = [sorted(call.id for call in (*turn.message.calls, *turn.ignored)) for turn in turns]
    assert ids_by_index(items) == recorded_ids == [["call_1_0", "call_1_1"], ["call_2_0"], []]


def test_a_malformed_call_and_the_calls_of_an_api_have_their_ids_too():
    bad_call = '<tool_call>{"name": "add", "arguments": {"a": 1,</tool_call>'
    items = watch(an_agent([bad_call, "Sorry."], dialect="hermes"))
    (malformed_call,) = (item for item in items if isinstance(item, CallMalformed))
    results = [item.event.result for item in items if isinstance(item, Record) and isinstance(item.event, ToolFinished)]
    assert [malformed_call.call_id] == [result.call_id for result in results]
    native = ScriptedTurn("", calls=[ScriptedCall("add", {"a": 1, "b": 2}), ScriptedCall("add", {"a": 3, "b": 4})])
    assert ids_by_index(watch(an_agent(ScriptedProvider([native, "4"])))) == [["call_1_0", "call_1_1"], []]


def test_a_record_is_seen_only_once_it_is_durable():
    journal = WatchedJournal()

    async def main():
        async for item in an_agent([adding(1, 2), "3"], journal=journal).stream("go"):
            if isinstance(item, Record):
                assert item in journal.records

    asyncio.run(main())


def test_a_slow_reader_makes_the_model_wait_and_loses_nothing():
    class Ends(OpenProvider):
        async def stream(self, request):
            async for delta in super().stream(request):
                yield delta
                if self.read == len(self.pieces):
                    yield TurnEnded("stop")
                    return

    provider = Ends(*(f"{n} " for n in range(10_000)))

    async def main():
        count, text = 0, ""
        async for item in Agent(provider).stream("go"):
            count += 1
            text += item.text if isinstance(item, TextDelta) else ""
            if count % 1000 == 1:
                for _ in range(1000):
                    await asyncio.sleep(0)
                assert provider.read <= count + 300, "the model ran ahead of its reader"
        return text

    assert asyncio.run(main()) == "".join(provider.pieces)
    assert provider.closed


def test_a_slow_reader_of_a_large_batch_loses_no_record():
    journal = WatchedJournal()
    batch = calling("cogency-json", *[("add", {"a": n, "b": 1}) for n in range(400)])

    async def main():
        records = []
        async for item in an_agent([batch, "ok"], journal=journal).stream("go"):
            await asyncio.sleep(0)
            records += [item] if isinstance(item, Record) else []
        return records

    assert asyncio.run(main()) == journal.records
    assert len(journal.records) > 800


def test_a_stream_ends_with_the_pause_when_the_run_waits():
    agent = an_agent([calling("cogency-json", ("note", {"path": "x"})), "ok"], approve=None)

    async def main():
        run = agent.start("go")
        items = [item async for item in run.stream()]
        assert isinstance(items[-1].event, RunPaused)
        more = agent.reopen(result_of(run), {"call_1_0": True})
        return [item async for item in more.stream()]

    items = asyncio.run(main())
    assert items[-1].event == RunFinished("answered", "ok", "answer")


def test_progress_of_tools_is_seen():
    @tool(read_only=True)
    def work(ctx: RunContext) -> str:
        "Works."
        ctx.progress("half")
        return "done"

    items = watch(an_agent([calling("cogency-json", ("work", {})), "ok"], [work]))
    assert ToolProgress("call_1_0", "half") in items


def test_the_state_of_each_step_and_the_last_one_again():
    async def main():
        return [state async for state in an_agent([adding(1, 2), adding(3, 4), "7"]).iterate("go")]

    states = asyncio.run(main())
    assert [(state.step, state.status) for state in states] == [
        (1, "running"), (2, "running"), (3, "running"), (3, "answered"),
    ]  # fmt: skip
    assert [len(state.messages) for state in states] == [3, 5, 6, 6]


def test_a_run_has_no_state_before_it_starts():
    with pytest.raises(RunError, match="has not started"):
        an_agent(["ok"]).start("go").state  # noqa: B018


# --- saying something while it runs ----------------------------------------------------------------------------


def test_what_is_said_is_read_at_the_next_step():
    async def main():
        provider, journal = ScriptedProvider([adding(1, 2), adding(3, 4), "done"]), WatchedJournal()

        @tool(name="add", read_only=True)
        async def add(a: int, b: int) -> int:
            "Adds."
            if a == 1:
                run.say("Please hurry.")
                run.say(Message.user("And be kind."))
            return a + b

        run = Agent(provider, [add], journal=journal).start("go")
        await run.finish()
        return provider, journal, run

    provider, journal, run = asyncio.run(main())
    assert "hurry" not in str(provider.requests[0])
    last = texts(provider.requests[1])[-1]
    assert last.index("</results>") < last.index("Please hurry.") < last.index("And be kind.")
    assert journal.all(UserMessageQueued)[0].message == Message.user("Please hurry.")
    assert [message.role for message in run.state.messages] == [
        "user", "assistant", "tool", "user", "user", "assistant", "tool", "assistant",
    ]  # fmt: skip


@pytest.mark.parametrize("moment", ["before", "during"])
def test_what_is_said_during_the_last_turn_is_answered_too(moment):
    async def main():
        def first(messages):
            if moment == "during":
                run.say("And 4?")
            return "3"

        provider = ScriptedProvider([first, "5"])
        run = Agent(provider, TOOLS).start("go")
        if moment == "before":
            run.say("And 4?")
        return await run.finish(), provider

    state, provider = asyncio.run(main())
    assert "And 4?" in texts(provider.requests[-1])[-1]
    assert state.answer == ("5" if moment == "during" else "3")


def test_what_is_said_after_the_end_is_refused():
    async def main():
        run = Agent(ScriptedProvider(["Bye."]), TOOLS).start("go")
        await run.finish()
        with pytest.raises(RunError, match="is answered; give `history` to a new run"):
            run.say("One more thing.")

    asyncio.run(main())


def test_a_provider_that_stops_without_an_end_is_a_failure_of_its_own():
    class Silent(ScriptedProvider):
        async def stream(self, request):
            yield TextDelta("Half an")

    with pytest.raises(ProviderError, match="without saying so"):
        Agent(Silent([]), TOOLS).run_sync("go")


def test_a_second_reader_is_refused_and_the_first_reads_on():
    async def main():
        run = Agent(ScriptedProvider(["Hello there."], chunk=2), TOOLS).start("go")
        first = run.stream()
        items = [await anext(first)]
        with pytest.raises(RunError, match="driven already"):
            await anext(run.stream())
        items += [item async for item in first]
        assert items[-1].event.answer == "Hello there."

    asyncio.run(main())


def test_a_provider_that_fails_hands_over_what_was_done():
    provider = ScriptedProvider([adding(1, 2), ScriptedTurn("", error=ProviderError("overloaded"))])
    with pytest.raises(ProviderError) as raised_error:
        Agent(provider, TOOLS).run_sync("go")
    result = raised_error.value.result
    assert (result.status, result.messages[2].results[0].structured) == ("failed", 3)


def test_what_is_said_too_late_is_there_for_the_next_run():
    async def main():
        run = Agent(ScriptedProvider([adding(1, 2), "It is 3."], chunk=1), TOOLS, limits=Limits(steps=1)).start("go")
        async for item in run.stream():
            if isinstance(item, TextDelta) and item.text == "I":
                run.say("And 4?")
        assert run.state.answer == "It is 3."
        assert run.state.messages[-1].text == "And 4?"

    asyncio.run(main())


def test_an_agent_closes_its_provider_in_either_world():
    closed_providers = []

    class Closing(ScriptedProvider):
        async def aclose(self):
            closed_providers.append(self.name)

    with Agent(Closing(["Hi."]), TOOLS) as agent:
        agent.run_sync("go")

    async def main():
        async with Agent(Closing(["Hi."]), TOOLS) as agent:
            await agent.run("go")

    asyncio.run(main())
    assert len(closed_providers) == 2
