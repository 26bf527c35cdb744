"""Every limit ends in a wrap-up answer: same prompt and tools, a note, no more calls."""

import asyncio
import itertools

import pytest
from agent_helpers import (
    DIALECTS,
    TOOLS,
    OpenProvider,
    WatchedJournal,
    add,
    adding,
    an_agent,
    assert_pairs,
    calling,
    play,
    texts,
)

from jumping_loop import loop_clock, run_jumping
from toolspeak import Agent, Execution, Limits, ToolChoice, tool
from toolspeak.data.deltas import TextDelta, TurnEnded
from toolspeak.data.events import LimitReached, ModelAnswered, ModelAsked, RunFinished, ToolStarted
from toolspeak.data.messages import Usage
from toolspeak.dialects import get_dialect
from toolspeak.execute import Decision
from toolspeak.providers.scripted_provider import ScriptedProvider, ScriptedTurn

NOTES = {
    "steps": "The limit of 2 steps is reached.",
    "calls": "The limit of 2 tool calls is reached.",
    "seconds": "The time limit of 2 seconds is reached.",
    "tokens": "The limit of 2 tokens is reached.",
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("limit", NOTES)
def test_a_limit_ends_in_a_wrap_up_answer(limit, dialect):
    ticks = itertools.count(0, 0.35)
    turns = [adding(n, n, dialect) for n in range(2)] if limit in ("steps", "calls") else [adding(1, 2, dialect)]
    result, journal, provider = play(
        [*turns, "As far as I came: 3."],
        dialect=dialect,
        instructions="Be brief.",
        limits=Limits(**{limit: 2}),
        clock=lambda: next(ticks),
    )
    if limit == "seconds":
        assert result.state.time > 2
    assert (result.status, result.answer, result.reason) == ("answered", "As far as I came: 3.", limit)
    (limit_event,) = journal.all(LimitReached)
    assert (limit_event.limit, limit_event.allowed) == (limit, 2)
    assert limit_event.used >= 2
    events = journal.all(ModelAsked)
    assert [event.choice.mode for event in events] == [*("auto" for _ in turns), "none"]
    assert len({(event.tools_digest, event.instructions_digest) for event in events}) == 1
    first, last = provider.requests[0], provider.requests[-1]
    assert first.messages[0] == last.messages[0]
    assert "Be brief." in first.messages[0].text
    assert "add" in first.messages[0].text
    assert NOTES[limit] in texts(last)[-1]
    assert NOTES[limit] in "".join(message.text for message in result.messages)
    assert_pairs(result.messages)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("text", "status"), [("I did one addition. ", "answered"), ("", "no_answer"), ("<think>hm</think>", "no_answer")]
)
def test_calls_in_the_wrap_up_are_kept_as_ignored_and_not_run(dialect, text, status):
    result, journal, _ = play(
        [adding(1, 2, dialect), text + adding(3, 4, dialect)], dialect=dialect, limits=Limits(steps=1)
    )
    assert (result.status, result.answer, result.reason) == (status, text.strip() * (status == "answered"), "steps")
    assert len(journal.all(ToolStarted)) == 1
    last = journal.all(ModelAnswered)[-1]
    assert [call.arguments for call in last.ignored] == [{"a": 3, "b": 4}]
    assert last.message.calls == ()
    assert [call.id for message in result.messages for call in message.calls] == ["call_1_0"]
    assert_pairs(result.messages)


def test_an_empty_or_malformed_wrap_up_is_no_answer_and_not_asked_for_again():
    for last in ("", "<execute>[{</execute>", ScriptedTurn("<execute>[", "length")):
        result, _, provider = play([adding(1, 2), last], limits=Limits(steps=1))
        assert (result.status, result.answer, result.reason) == ("no_answer", "", "steps")
        assert len(provider.requests) == 2
        assert_pairs(result.messages)


def test_a_limit_of_nothing_asks_for_the_wrap_up_at_once():
    for limits in (Limits(steps=0), Limits(seconds=0), Limits(tokens=0), Limits(calls=0)):
        result, journal, _ = play(["I could do nothing."], limits=limits)
        assert result.answer == "I could do nothing."
        assert journal.kinds[:3] == ["RunStarted", "LimitReached", "ModelAsked"]


def test_an_answer_at_the_limit_is_just_an_answer():
    result, journal, _ = play([adding(1, 2), "3"], limits=Limits(steps=2, calls=2))
    assert (result.answer, result.reason) == ("3", "answer")
    assert journal.all(LimitReached) == []


def test_the_rest_of_a_batch_beyond_the_call_limit_is_skipped():
    batch = calling("cogency-json", *[("add", {"a": n, "b": 0}) for n in range(4)])
    result, journal, provider = play([adding(9, 9), batch, "ok"], limits=Limits(calls=3))
    codes = [one.code for one in result.messages[4].results]
    assert codes == [None, None, "skipped", "skipped"]
    assert len(journal.all(ToolStarted)) == 3
    assert journal.all(LimitReached) == [LimitReached("calls", 5, 3)]
    assert "skipped" not in texts(provider.requests[2])[-1]
    assert texts(provider.requests[2])[-1].count('"failure"') == 2
    assert_pairs(result.messages)


@pytest.mark.parametrize(("usage", "steps"), [(Usage(60, 40), 1), (Usage(30, 20), 2), (Usage(10, 10), 5)])
def test_reported_tokens_count(usage, steps):
    turns = [(adding(n, n), usage) for n in range(steps)]
    result, journal, _ = play(Playback([*turns, ("ok", usage)]), limits=Limits(tokens=100))
    assert (result.answer, result.reason) == ("ok", "tokens")
    assert journal.all(LimitReached) == [LimitReached("tokens", 100, 100)]
    assert result.usage.total == 100 + usage.total
    assert not result.state.totals.estimated


class Playback:
    """A driver whose turns end with a usage although they hold calls, as native APIs do."""

    name, starts_early = "playback", True

    def __init__(self, turns):
        self.turns = iter(turns)

    def prompt(self, request):
        return ""

    def open(self, run):
        return self

    async def turn(self, request):
        text, usage = next(self.turns)
        for delta in get_dialect("cogency-json").parser(request.tools).feed(text):
            yield delta
        yield TurnEnded("tool_calls", usage)

    async def aclose(self):
        pass


def test_estimated_tokens_count_too():
    result, journal, _ = play([adding(n, n) for n in range(3)] + ["ok"], limits=Limits(tokens=1000))
    (limit_event,) = journal.all(LimitReached)
    assert limit_event.used >= 1000
    assert result.state.totals.estimated
    assert result.reason == "tokens"


# --- time: the loop's time jumps, so that nothing here waits ---------------------------------------------------


def test_a_hung_tool_is_cut_by_the_time_limit_and_the_model_wraps_up():
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
        agent = an_agent(
            [calling("cogency-json", ("add", {"a": 1, "b": 2}), ("hang", {}), tools=TOOLS), "Only the sum: 3."],
            [quick, hang],
            limits=Limits(seconds=10),
            clock=loop_clock,
            execution=Execution(tool_timeout=None),
        )
        return await agent.run("go")

    @tool(name="add", read_only=True)
    async def quick(a: int, b: int) -> int:
        "Adds, in the loop."
        return a + b

    result = run_jumping(main())
    assert endings == ["hang"]
    assert [one.code for one in result.messages[2].results] == [None, "timeout"]
    assert (result.answer, result.reason) == ("Only the sum: 3.", "seconds")
    assert 10 <= result.state.time - result.state.started_at < 11
    assert_pairs(result.messages)


@pytest.mark.parametrize("pieces", [(), ("Let me think",), (adding(1, 2)[:-4],)])
@pytest.mark.parametrize("clock", ["loop", "still"])
def test_a_model_that_hangs_is_cut_and_asked_to_wrap_up_once(pieces, clock):
    class HangsFirst(OpenProvider):
        async def stream(self, request):
            if self.requests:
                self.requests.append(request)
                yield TextDelta("Nothing done.")
                yield TurnEnded("stop")
            else:
                async for delta in super().stream(request):
                    yield delta

    async def main():
        journal, provider = WatchedJournal(), HangsFirst(*pieces)
        clocks = {"loop": loop_clock, "still": lambda: 1000.0}
        agent = Agent(provider, TOOLS, journal=journal, limits=Limits(seconds=10), clock=clocks[clock])
        return await agent.run("go"), journal, provider

    result, journal, provider = run_jumping(main())
    assert (result.answer, result.reason) == ("Nothing done.", "seconds")
    assert provider.closed
    assert [event.choice for event in journal.all(ModelAsked)] == [ToolChoice(), ToolChoice("none")]
    assert len(provider.requests) == 2
    assert journal.all(LimitReached)[0].used >= 10
    assert [message.role for message in result.messages] == ["user", "user", "assistant"]


def test_a_model_that_hangs_in_its_wrap_up_too_ends_the_run():
    async def main():
        journal, provider = WatchedJournal(), OpenProvider("partial")
        agent = Agent(provider, TOOLS, journal=journal, limits=Limits(seconds=10), clock=loop_clock)
        return await agent.run("go"), journal, provider

    result, journal, provider = run_jumping(main())
    assert (result.status, result.answer, result.reason) == ("no_answer", "", "seconds")
    assert journal.events[-1] == RunFinished("no_answer", "", "seconds")
    assert len(provider.requests) == 2
    assert result.state.time - result.state.started_at < 120


def test_a_tool_cut_by_the_limit_ends_the_run_even_if_the_clock_stands_still():
    @tool(read_only=True)
    async def hang() -> str:
        "Never returns."
        await asyncio.Event().wait()
        return "never"

    async def main():
        turns = [calling("cogency-json", ("hang", {})), "I gave up."]
        agent = an_agent(
            turns, [hang], limits=Limits(seconds=10), clock=lambda: 5.0, execution=Execution(tool_timeout=None)
        )
        return await agent.run("go")

    result = run_jumping(main())
    assert (result.answer, result.reason) == ("I gave up.", "seconds")


def test_the_time_a_person_takes_to_answer_does_not_count():
    @tool
    async def send() -> str:
        "Sends."
        return "sent"

    async def approve(request):
        await asyncio.sleep(3600)
        return Decision(True)

    async def main():
        turns = ['<execute>[{"name": "send", "args": {}}]</execute>', "Noted."]
        return await an_agent(turns, [send], approve=approve, limits=Limits(seconds=10), clock=loop_clock).run("go")

    result = run_jumping(main())
    assert (result.answer, result.reason) == ("Noted.", "answer")
    assert [one.status for one in result.messages[2].results] == ["success"]


def test_limits_of_a_run_replace_those_of_the_agent():
    agent = an_agent([adding(1, 2), "ok"], [add], limits=Limits(steps=9))
    assert asyncio.run(agent.run("go", limits=Limits(steps=1))).reason == "steps"


def test_a_wrap_up_answer_after_a_call_is_read():
    provider = ScriptedProvider([adding(1, 2), f"{adding(3, 4)} I stopped at 3."])
    result = Agent(provider, TOOLS, limits=Limits(steps=1)).run_sync("go")
    assert (result.answer, result.reason) == ("I stopped at 3.", "steps")


def test_the_time_a_run_waits_for_approval_does_not_count():
    now = [100.0]
    provider = ScriptedProvider([calling("cogency-json", ("note", {"path": "a"})), "Noted."])
    agent = Agent(provider, TOOLS, limits=Limits(seconds=10), clock=lambda: now[0])
    waiting = agent.run_sync("go")
    now[0] += 3600
    result = asyncio.run(agent.resume(waiting, {waiting.waiting[0]: True}))
    assert (result.answer, result.reason) == ("Noted.", "answer")


def test_malformed_calls_do_not_count_as_calls():
    turn = '<execute>[5, {"name": "add", "args": {"a": 1, "b": 2}}]</execute>'
    result = Agent(ScriptedProvider([turn, "3"]), TOOLS, limits=Limits(calls=2)).run_sync("go")
    assert (result.state.totals.calls, result.answer, result.reason) == (1, "3", "answer")
