"""What is recorded, when, and with which stamp; and what happens when it cannot be."""

import asyncio
import gc
import itertools

import pytest
from agent_helpers import TOOLS, WatchedJournal, adding, an_agent, calling, play
from api_servers import APIS, Status, reach

from toolspeak import Agent, Execution, ProviderError, RunError, tool
from toolspeak.data.events import (
    ApprovalDecided,
    ApprovalRequested,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Record,
    RetryScheduled,
    RunFinished,
    ToolFinished,
    ToolStarted,
    UserMessageQueued,
)
from toolspeak.data.messages import Message, Usage
from toolspeak.execute import Decision
from toolspeak.journal.memory_journal import MemoryJournal
from toolspeak.providers.scripted_provider import ScriptedProvider, ScriptedTurn

STAMPS = {"principal": "user:7", "traceparent": "00-4bf92f35-00f067aa-01", "parent_run_id": "parent"}


def test_the_records_of_a_run_with_one_batch():
    _, journal, _ = play([adding(1, 2), "3"])
    assert journal.kinds == [
        "RunStarted", "ModelAsked", "ModelAnswered", "ToolStarted", "ToolFinished", "ModelAsked", "ModelAnswered",
        "RunFinished",
    ]  # fmt: skip
    assert [record.step for record in journal.records] == [0, 1, 1, 1, 1, 2, 2, 2]


def test_every_record_carries_the_whole_stamp():
    ticks = itertools.count(1000)
    journal = WatchedJournal()
    both = calling("cogency-json", ("add", {"a": 1, "b": 2}), ("note", {"path": "x"}))
    agent = an_agent([both, "ok"], journal=journal, clock=lambda: next(ticks), name="helper", approve=None)

    async def main():
        paused_run = await agent.run("do it", **STAMPS)
        assert paused_run.status == "awaiting_approval"
        return await agent.resume(paused_run, {"call_1_1": True})

    result = asyncio.run(main())
    assert result.answer == "ok"
    for number, record in enumerate(journal.records):
        assert record.run_id == result.run_id
        assert (record.seq, record.time, record.agent) == (number, 1000 + number, "helper")
        assert {name: getattr(record, name) for name in STAMPS} == STAMPS, record
        match record.event:
            case ToolStarted() | ApprovalRequested() | ApprovalDecided() as event:
                assert record.call_id == event.call_id
            case ToolFinished(tool_result):
                assert record.call_id == tool_result.call_id
            case _:
                assert record.call_id is None
    steps = [record.step for record in journal.records]
    assert steps == sorted(steps)
    assert set(steps) == {0, 1, 2}


def test_facts_are_durable_before_what_follows_from_them():
    journal = WatchedJournal()
    snapshots = []

    @tool(read_only=True)
    def look() -> str:
        "Looks into the journal."
        snapshots.append(journal.kinds)
        return "seen"

    def answer(messages):
        snapshots.append(journal.kinds)
        return "done"

    agent = an_agent(
        [calling("cogency-json", ("look", {}), tools=TOOLS), answer],
        [look],
        journal=journal,
        execution=Execution(early_start=False),
    )
    asyncio.run(agent.run("look"))
    assert snapshots[0] == ["RunStarted", "ModelAsked", "ModelAnswered", "ToolStarted"]
    assert snapshots[1][-2:] == ["ToolFinished", "ModelAsked"]


@pytest.mark.parametrize(
    ("kind", "tool_runs", "model_turns"),
    [
        ("RunStarted", 0, 0),
        ("ModelAsked", 0, 0),
        ("ModelAnswered", 0, 1),
        ("ToolStarted", 0, 1),
        ("ToolFinished", 1, 1),
        ("RunFinished", 1, 2),
    ],
)
@pytest.mark.parametrize("way", ["run", "stream", "iterate"])
def test_a_journal_that_fails_stops_the_run_before_the_effect(kind, tool_runs, model_turns, way):
    ran = []

    @tool(read_only=True)
    def effect() -> str:
        "Has an effect."
        ran.append(1)
        return "done"

    def look(record):
        if type(record.event).__name__ == kind:
            raise OSError("the disk is full")

    journal = WatchedJournal(look)
    provider = ScriptedProvider([calling("cogency-json", ("effect", {})), "ok"])
    agent = Agent(provider, [effect], journal=journal, execution=Execution(early_start=False))

    async def main():
        if way == "run":
            await agent.run("go")
        else:
            async for _ in getattr(agent, way)("go"):
                pass

    with pytest.raises(OSError, match="the disk is full"):
        asyncio.run(main())
    assert (len(ran), len(provider.requests)) == (tool_runs, model_turns)
    assert kind not in journal.kinds


def test_an_empty_journal_that_is_false_is_used_all_the_same():
    class EmptyJournal(WatchedJournal):
        def __len__(self):
            return len(self.records)

    journal = EmptyJournal()
    play(["ok"], journal=journal)
    assert journal.kinds[-1] == "RunFinished"


def test_runs_without_a_journal_of_the_callers_leave_no_records_behind_in_the_agent():
    agent = an_agent([calling("cogency-json", ("note", {"path": "x"})), "ok"], approve=None)

    async def main():
        paused_run = await agent.run("go")
        return await agent.resume(paused_run, {"call_1_0": True})

    before = records_alive()
    assert asyncio.run(main()).answer == "ok"
    assert records_alive() == before


def records_alive():
    gc.collect()
    return sum(isinstance(thing, Record) for thing in gc.get_objects())


@pytest.mark.parametrize("way", ["run", "iterate", "stream"])
@pytest.mark.parametrize("text", ["", "The answer", adding(1, 2)[:-3]])
def test_a_model_api_that_fails_is_recorded_and_raised(way, text):
    journal = WatchedJournal()
    agent = an_agent([ScriptedTurn(text, error=ProviderError("overloaded", status=529))], journal=journal)
    states = []

    async def main():
        if way == "run":
            await agent.run("go")
        else:
            async for item in getattr(agent, way)("go"):
                states.append(item)  # noqa: PERF401 - kept when the loop raises

    with pytest.raises(ProviderError, match="overloaded") as raised_error:
        asyncio.run(main())
    assert raised_error.value.status == 529
    partial = ["ModelTextReceived"] if text else []
    assert journal.kinds == ["RunStarted", "ModelAsked", *partial, "ModelFailed", "RunFinished"]
    assert journal.all(ModelFailed) == [ModelFailed("overloaded", 529)]
    assert journal.events[-1] == RunFinished("failed", "", "model_error")
    if way == "iterate":
        assert states[-1].status == "failed"
    if way == "stream":
        assert states[-1].event == journal.events[-1]


def test_each_request_that_a_provider_sends_again_is_recorded_with_its_wait():
    journal = WatchedJournal()

    async def main():
        refusals = [Status("503 Service Unavailable"), Status("429 Too Many Requests", ("retry-after: 2",))]
        async with reach(APIS["openai"], *refusals, "Hi.") as endpoint:
            await Agent(endpoint.provider, journal=journal).run("Hello")
            return endpoint.clock.sleeps

    waits = asyncio.run(main())
    retries = journal.all(RetryScheduled)
    assert [(each.attempt, each.status, each.by, each.call_id) for each in retries] == [
        (1, 503, "", None), (2, 429, "", None),
    ]  # fmt: skip
    assert [each.seconds for each in retries] == waits
    assert retries[1].seconds >= 2
    assert journal.kinds == ["RunStarted", "ModelAsked", *["RetryScheduled"] * 2, "ModelAnswered", "RunFinished"]


def test_a_failure_after_a_batch_keeps_what_was_done():
    journal = WatchedJournal()
    agent = an_agent([adding(1, 2), ScriptedTurn("", error=ProviderError("down"))], journal=journal)
    run = agent.start("go")
    with pytest.raises(ProviderError):
        asyncio.run(run.finish())
    assert run.state.status == "failed"
    assert [message.role for message in run.state.messages] == ["user", "assistant", "tool"]


def test_digests_change_with_the_tools_and_the_instructions_and_with_nothing_else():
    def digests(tools, instructions):
        _, journal, _ = play([adding(1, 2), "3"], tools, instructions=instructions)
        events = journal.all(ModelAsked)
        assert len({(event.tools_digest, event.instructions_digest) for event in events}) == 1
        return events[0].tools_digest, events[0].instructions_digest

    tools, prompt = digests(TOOLS, "")
    assert digests(TOOLS, "") == (tools, prompt)
    assert digests(TOOLS, "Be kind.")[0] == tools
    assert digests(TOOLS, "Be kind.")[1] != prompt
    assert digests([TOOLS.get("add")], "")[0] != tools


def test_the_stream_is_closed_after_the_batch_and_the_usage_estimated():
    turn = ScriptedTurn(adding(1, 2) + " and the result will be 12345", usage=Usage(1000, 1000), chunk=1)
    result, journal, _ = play([turn, ScriptedTurn("3", usage=Usage(50, 5))])
    first, last = journal.all(ModelAnswered)
    assert (first.finish, first.usage_estimated) == ("closed_by_us", True)
    assert "12345" not in first.message.text
    assert 0 < first.usage.total < 1000
    assert (last.finish, last.usage, last.usage_estimated) == ("stop", Usage(50, 5), False)
    assert result.state.totals.estimated
    assert result.usage.total == first.usage.total + 55 == result.state.totals.tokens


def test_what_the_provider_sends_after_the_batch_is_never_read():
    class Counting(ScriptedProvider):
        read = ""
        closed: bool = False

        async def stream(self, request):
            try:
                async for delta in super().stream(request):
                    self.read += getattr(delta, "text", "")
                    yield delta
            finally:
                self.closed = True

    provider = Counting([ScriptedTurn(adding(1, 2) + "x" * 1000, chunk=1)])

    def look(record):
        assert provider.closed == isinstance(record.event, ModelAnswered) or record.seq > 2

    with pytest.raises(ProviderError):
        play(provider, journal=WatchedJournal(look))
    assert provider.read == adding(1, 2)
    assert provider.closed


def test_json_results_and_arguments_count_in_an_estimate():
    @tool(read_only=True)
    def table() -> dict[str, list[int]]:
        "A big table."
        return {"numbers": list(range(1000, 1500))}

    _, journal, _ = play([calling("cogency-json", ("table", {})), "ok"], [table])
    first, last = journal.all(ModelAnswered)
    assert last.usage.input - first.usage.input > 500 * 6 // 4 * 0.8


def test_a_run_is_driven_once():
    agent = an_agent(["ok", "again"])

    async def main():
        run = agent.start("go")
        await run.finish()
        return run, await run.finish()

    with pytest.raises(RunError, match="once"):
        asyncio.run(main())


def test_the_approver_is_recorded_by_name():
    async def approve(request):
        return Decision(True, "fine", by="Ann")

    _, journal, _ = play([calling("cogency-json", ("note", {"path": "x"})), "ok"], approve=approve)
    (decision,) = journal.all(ApprovalDecided)
    assert (decision.call_id, decision.approved, decision.reason, decision.by) == ("call_1_0", True, "fine", "Ann")


@pytest.mark.parametrize("late", ["while it waits", "just when it is its turn", "twice in a row"])
def test_what_is_recorded_at_the_same_time_is_recorded_in_order_and_cancelling_one_loses_no_other(late):
    class Slow(MemoryJournal):
        """Lets the first message wait; then `as_it_ends` is done in the moment before its record is."""

        def __init__(self):
            super().__init__()
            self.begun_writing, self.go_on = asyncio.Event(), asyncio.Event()
            self.as_it_ends = lambda: None

        async def append(self, record, lease=None):
            await super().append(record, lease)
            if isinstance(record.event, UserMessageQueued) and not self.begun_writing.is_set():
                self.begun_writing.set()
                await self.go_on.wait()
                asyncio.get_running_loop().call_soon(self.as_it_ends)

    journal = Slow()
    survivors = []

    @tool(read_only=True)
    async def talk() -> str:
        """Says things."""
        says = [asyncio.create_task(run.record(UserMessageQueued(Message.user(each)))) for each in "abcd"]
        await journal.begun_writing.wait()  # they begin in order: the others stand behind the first by now
        cancelled_tasks = says[1:3] if late == "twice in a row" else says[1:2]

        def cancel():
            for one in cancelled_tasks:
                one.cancel()

        if late == "while it waits":
            cancel()
        else:
            journal.as_it_ends = cancel
        journal.go_on.set()
        outcomes = await asyncio.gather(*says, return_exceptions=True)
        survivors.extend(each for each, came in zip("abcd", outcomes, strict=True) if came is None)
        await run.record(UserMessageQueued(Message.user("e")))
        return "said"

    run = Agent(ScriptedProvider([calling("cogency-json", ("talk", {})), "ok"]), [talk], journal=journal).start("go")
    state = asyncio.run(run.finish())
    records = asyncio.run(journal.read(run.run_id))
    assert survivors == (["a", "d"] if late == "twice in a row" else ["a", "c", "d"])
    texts = [each.event.message.text for each in records if isinstance(each.event, UserMessageQueued)]
    assert texts == [*survivors, "e"]
    assert [record.seq for record in records] == list(range(len(records)))
    assert state.answer == "ok"
