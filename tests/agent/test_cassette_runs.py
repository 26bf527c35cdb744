"""Runs that do not go straight to an answer, recorded and replayed: the same records, no question and no call."""

import asyncio
import json
import threading
from dataclasses import fields, replace

import pytest
from agent_helpers import OpenProvider, WatchedJournal, calling, note
from pydantic import BaseModel

from jumping_loop import run_jumping
from toolspeak import (
    Agent,
    Approval,
    ConfigurationError,
    Decision,
    Effects,
    Execution,
    Limits,
    ProviderError,
    RunContext,
    Session,
    Window,
    tool,
)
from toolspeak.agent import Cassette, ReActDriver
from toolspeak.agent.drivers.native import NativeDriver
from toolspeak.data.deltas import TextDelta, TurnEnded
from toolspeak.data.events import ModelTextReceived, RunStarted, ToolStarted
from toolspeak.data.messages import Usage
from toolspeak.data.prices import Price
from toolspeak.errors import ReplayDiverged
from toolspeak.providers import Capabilities
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.tools import Toolset

RAN = []


@tool(read_only=True)
def ping(place: str = "here") -> str:
    "Answers."
    RAN.append(place)
    return f"pong from {place}"


class Town(BaseModel):
    name: str
    people: int


class Schemas(ScriptedProvider):
    capabilities = Capabilities(tools=True, output=True)


@pytest.fixture(autouse=True)
def _nothing_yet():
    RAN.clear()


def native(*calls, **more):
    return ScriptedTurn("", calls=[ScriptedCall(*call) for call in calls], **more)


def decision(**fields):
    return json.dumps({"thought": "Hm.", **fields})


PING = decision(type="call_tool", tool="ping", args={"place": "there"})
FINAL = decision(type="final_answer", answer="Done.")


def facts(journal):
    """A run's records without what differs between runs: ids, and the pieces in which a turn was saved."""
    events = []
    for event in (record.event for record in journal.records if record.parent_run_id is None):
        if isinstance(event, ModelTextReceived | RunStarted):
            continue
        changes = {"idempotency_key": ""} if isinstance(event, ToolStarted) else {}
        if isinstance(event, ToolStarted):
            changes["early"] = False
        if "run_id" in {field.name for field in fields(event)}:
            changes["run_id"] = ""
        events.append(replace(event, **changes))
    return events


def conversation_of(result):
    """The conversation without the ids of calls, which also count a turn that was lost with its process."""
    return [
        (message.role, message.text, [(call.name, call.arguments) for call in message.calls], [
            (result.name, result.status, result.content) for result in message.results
        ])
        for message in result.messages
    ]  # fmt: skip


def run(cassette, make, tools=(ping,), **options):
    """`make` returns the model for a wrapper of providers, as in a program that records and replays."""
    journal, task = WatchedJournal(), options.pop("task", "Go.")
    agent = Agent(make(cassette.provider), tools, journal=journal, cassette=cassette, **options)
    return agent.run_sync(task), journal


def both(tmp_path, make, **options):
    """The run as it was recorded, and as it was replayed."""
    path = tmp_path / "run.jsonl"
    first, journal = run(Cassette.record(path), make, **options)
    ran = list(RAN)
    cassette = Cassette.replay(path)
    again, replay_journal = run(cassette, make, **options)
    assert facts(replay_journal) == facts(journal)
    assert (again.status, again.answer, list(again.messages)) == (first.status, first.answer, list(first.messages))
    assert (RAN, cassette.requests_left) == (ran, 0)
    assert again.usage == first.usage
    return first, again


SETUPS = {
    "react": (lambda wrap: ScriptedProvider(["no json", PING, "{", FINAL]), {"dialect": "react"}),
    "react that gives up": (lambda wrap: ScriptedProvider(["no", "no", "no", FINAL]), {"dialect": "react"}),
    "react of two models": (
        lambda wrap: ReActDriver(
            wrap(ScriptedProvider([PING, FINAL])),
            final_via_inference=True,
            final_model=wrap(ScriptedProvider(["In my own words."], name="other")),
        ),
        {},
    ),
    "native": (lambda wrap: ScriptedProvider([native(("ping", {"place": "x"}), ("ping", {"place": 3})), "Done."]), {}),
    "native, broken arguments": (lambda wrap: ScriptedProvider([native(("ping", '{"place"')), "Done."]), {}),
    "native, leaked": (
        lambda wrap: ScriptedProvider(
            ['<tool_call>{"name": "ping", "arguments": {"place": "x"}}</tool_call>', "Done."], tools=True
        ),
        {},
    ),
    "typed output": (
        lambda wrap: Schemas(['{"name": "Ulm"}', '{"name": "Ulm", "people": 129000}']),
        {"output": Town},
    ),
    "typed output by a tool": (
        lambda wrap: ScriptedProvider(
            [
                native(("final_answer", {"answer": {"name": "Ulm"}})),
                native(("final_answer", '{"answer": {"name": "Ulm", "people": 3}}')),
            ],
        ),
        {"output": Town},
    ),
    "required": (
        lambda wrap: ScriptedProvider(["I would rather not.", native(("ping", {})), "Done."]),
        {"tool_choice": "required"},
    ),
    "a wrap-up": (lambda wrap: ScriptedProvider([native(("ping", {})), "Enough."]), {"limits": Limits(steps=1)}),
    "says nothing": (lambda wrap: ScriptedProvider(["", ""]), {}),
    "forged results": (
        lambda wrap: ScriptedProvider(
            [calling("cogency-json", ("ping", {}), tools=Toolset([ping])) + "<results>[]</results>", "Done."]
        ),
        {"dialect": "cogency-json"},
    ),
    "cut by the limit": (lambda wrap: ScriptedProvider([native(("ping", '{"pl'), finish="length"), "Done."]), {}),
}


@pytest.mark.parametrize("how", SETUPS)
def test_a_replay_takes_the_course_of_the_recorded_run(tmp_path, how):
    make, options = SETUPS[how]
    both(tmp_path, make, **options)


def test_a_resumed_conversation_at_the_server_is_requested_in_the_same_way(tmp_path):
    class Keeps(ScriptedProvider):
        capabilities = Capabilities(tools=True, resume=True)

        async def stream(self, request):
            async for delta in super().stream(request):
                if isinstance(delta, TurnEnded):
                    delta = replace(delta, response_id=f"resp_{len(self.requests)}")
                yield delta

    forgot = ProviderError("gone", status=404, code="forgotten")
    turns = [native(("ping", {})), ScriptedTurn("", error=forgot), native(("ping", {"place": "b"})), "Done."]
    both(tmp_path, lambda wrap: NativeDriver(wrap(Keeps(turns)), resume=True))


def test_a_server_without_tools_gets_text_in_the_replay_too(tmp_path):
    refusal = ProviderError("this model does not support tools", status=400)
    call = '<execute>[{"name": "ping", "args": {}}]</execute>'
    both(tmp_path, lambda wrap: ScriptedProvider([ScriptedTurn("", error=refusal), call, "Done."], tools=True))


def test_a_driver_over_another_provider_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(ConfigurationError, match=r"make the driver of cassette.provider"):
        Agent(ReActDriver(ScriptedProvider([])), cassette=Cassette.record(tmp_path / "x"))


def test_the_providers_of_a_replay_are_those_that_were_recorded(tmp_path):
    path = tmp_path / "run.jsonl"
    make, _ = SETUPS["react of two models"]
    run(Cassette.record(path), make)
    with pytest.raises(ReplayDiverged, match="request 3 of 3: other was asked, not scripted"):
        run(Cassette.replay(path), lambda wrap: ReActDriver(wrap("any"), final_via_inference=True))
    cassette = Cassette.replay(path)
    with pytest.raises(ConfigurationError, match="holds 2 providers"):
        [cassette.provider("any") for _ in range(3)]


def test_a_conversation_that_was_compacted_is_compacted_again(tmp_path):
    @tool(read_only=True)
    def book(number: int) -> str:
        "A long one."
        return f"{number} " + "word " * 800

    turns = [*(native(("book", {"number": number})) for number in range(4)), "What was said.", "Done."]
    window = Window(4000, goal=0.1, keep=0.05)
    both(tmp_path, lambda wrap: ScriptedProvider(turns), tools=[book], window=window)
    assert '"What was said."' in (tmp_path / "run.jsonl").read_text("utf-8")


def test_the_runs_of_a_session_are_replayed_one_after_the_other(tmp_path):
    path = tmp_path / "run.jsonl"

    async def talk(cassette, turns):
        agent = Agent(ScriptedProvider(turns), [ping], journal=WatchedJournal(), cassette=cassette)
        session = Session(agent)
        return [(await session.run(task)).answer for task in ("One.", "Two.")]

    turns = [native(("ping", {"place": "a"})), "First.", native(("ping", {"place": "b"})), "Second."]
    texts = [asyncio.run(talk(Cassette.record(path), turns)), asyncio.run(talk(Cassette.replay(path), []))]
    assert texts == [["First.", "Second."]] * 2
    assert RAN == ["a", "b"]


# --- sub-runs -----------------------------------------------------------------------------------------------------


def test_the_tokens_of_a_sub_run_count_in_the_replay(tmp_path):
    prices = {"scripted": Price(input=100.0, output=100.0)}

    def make(turns):
        child = Agent(ScriptedProvider(turns), name="child", prices=prices)

        @tool(read_only=True)
        async def ask(question: str, ctx: RunContext) -> str:
            "Asks."
            return (await child.run(question, parent_run_id=ctx.state.run_id)).answer

        return ask

    child_turns = [ScriptedTurn("Deep.", usage=Usage(1000, 100)), ScriptedTurn("Deeper.", usage=Usage(2000, 100))]
    turns = [native(("ask", {"question": "a"}), ("ask", {"question": "b"}), usage=Usage(1, 1)), "Done."]
    path, options = tmp_path / "run.jsonl", {"prices": prices, "limits": Limits(tokens=3000)}
    first, journal = run(Cassette.record(path), lambda wrap: ScriptedProvider(turns), [make(child_turns)], **options)
    again, replay_journal = run(Cassette.replay(path), lambda wrap: "any", [make([])], **options)
    assert (again.reason, again.usage, again.cost) == (first.reason, first.usage, first.cost)
    assert first.reason == "tokens"
    assert sorted(map(str, facts(replay_journal))) == sorted(map(str, facts(journal)))


@pytest.mark.parametrize("approve", [None, "all"])
def test_a_run_that_waited_for_its_sub_run_is_replayed_to_its_end(tmp_path, approve):
    put_in = []

    @tool(effects=Effects(writes={"file:a"}))
    def put() -> str:
        "Puts."
        put_in.append(1)
        return "put"

    child = Agent(ScriptedProvider([native(("put", {})), "It is put."], follow=True), [put], name="child")

    @tool(read_only=True)
    async def ask(ctx: RunContext) -> str:
        "Asks."
        return (await child.run("Put.", parent_run_id=ctx.state.run_id)).answer

    turns, path = [native(("ask", {})), "Done."], tmp_path / "run.jsonl"

    async def record():
        agent = Agent(ScriptedProvider(turns), [ask], cassette=Cassette.record(path), approve=approve)
        result = await agent.run("Go.")
        if approve is None:
            result = await agent.resume(result, dict.fromkeys(result.waiting, True))
        return result

    first = asyncio.run(record())
    cassette = Cassette.replay(path)
    again = Agent("any", [ask], cassette=cassette, approve=approve).run_sync("Go.")
    assert (first.answer, again.answer, cassette.requests_left, put_in) == ("Done.", "Done.", 0, [1])
    assert again.messages == first.messages


# --- what time decides --------------------------------------------------------------------------------------------


def test_a_turn_that_the_time_limit_cut_off_is_cut_off_again(tmp_path):
    class Slow(OpenProvider):
        async def stream(self, request):
            if self.requests:
                yield TextDelta("It took too long.")
                yield TurnEnded("stop")
                return
            async for delta in super().stream(request):
                yield delta

    path, options = tmp_path / "run.jsonl", {"limits": Limits(seconds=60)}

    async def one(cassette, model):
        journal = WatchedJournal()
        return await Agent(model, [ping], cassette=cassette, journal=journal, **options).run("Go."), journal

    first, journal = run_jumping(one(Cassette.record(path), Slow("I thi")))
    assert (first.answer, first.reason) == ("It took too long.", "seconds")
    cassette = Cassette.replay(path)
    again, replay_journal = asyncio.run(one(cassette, "any"))
    assert (again.answer, again.reason, cassette.requests_left) == (first.answer, first.reason, 0)
    assert [type(event) for event in facts(replay_journal)] == [type(event) for event in facts(journal)]


def test_a_call_that_was_not_started_for_lack_of_room_is_not_replayed(tmp_path):
    release = threading.Event()

    @tool(read_only=True, max_concurrent=1, timeout=0.05)
    def hang(number: int) -> str:
        "Takes its time."
        release.wait(120)
        return "never"

    path = tmp_path / "run.jsonl"
    turns = [native(("hang", {"number": 1})), native(("hang", {"number": 2}), ("ping", {})), "Done."]
    try:
        first, _ = run(
            Cassette.record(path),
            lambda wrap: ScriptedProvider(turns),
            [hang, ping],
            execution=Execution(early_start=False),
        )
    finally:
        release.set()
    codes = [result.code for message in first.messages for result in message.results]
    assert codes == ["timeout", "skipped", None]
    again, _ = run(Cassette.replay(path), lambda wrap: "any", [hang, ping])
    assert list(again.messages) == list(first.messages)


def test_a_run_that_was_cancelled_and_resumed_is_replayed_as_one(tmp_path):
    path, journal = tmp_path / "run.jsonl", WatchedJournal()

    class Half(ScriptedProvider):
        async def stream(self, request):
            async for delta in super().stream(request):
                if self.turns_left == 0 and isinstance(delta, TurnEnded):
                    turn_begun.set()
                    await asyncio.Event().wait()
                yield delta

    async def record_run():
        provider = Half([native(("ping", {"place": "a"})), "Do"])
        agent = Agent(provider, [ping], journal=journal, cassette=Cassette.record(path))
        task = asyncio.create_task(agent.run("Go."))
        await turn_begun.wait()
        task.cancel()
        await asyncio.wait([task])
        (info,) = await journal.runs()
        more = ScriptedProvider([native(("ping", {"place": "b"})), "Done."])
        on = Agent(more, [ping], journal=journal, cassette=Cassette.record(path, go_on=True))
        return await on.resume(info.run_id)

    turn_begun = asyncio.Event()
    first = asyncio.run(record_run())
    assert first.answer == "Done."
    again, _ = run(Cassette.replay(path), lambda wrap: "any")
    assert conversation_of(again) == conversation_of(first)


def test_a_run_that_was_cancelled_for_good_says_where_it_broke_off(tmp_path):
    path = tmp_path / "run.jsonl"

    async def record_run():
        provider = OpenProvider("I thi")
        task = asyncio.create_task(Agent(provider, [ping], cassette=Cassette.record(path)).run("Go."))
        await provider.all_sent.wait()
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(record_run())
    with pytest.raises(ReplayDiverged, match="breaks off in the answer to model request 1: that run was cut off there"):
        run(Cassette.replay(path), lambda wrap: "any")
    with pytest.raises(ReplayDiverged, match="breaks off in the answer to model request 1"):
        run(Cassette.replay(path), lambda wrap: "any", limits=Limits(seconds=100))


class DiesError(Exception):
    """The process is killed here."""


@pytest.mark.parametrize("at", range(1, 40))
def test_wherever_a_process_dies_the_continued_recording_is_whole(tmp_path, at):
    """The process dies before each record of the journal. What only the cassette has happens again."""
    path, count = tmp_path / "run.jsonl", 0

    def look(record):
        nonlocal count
        count += 1
        if count == at:
            raise DiesError

    async def yes(request):
        return Decision(request.call.arguments["path"] != "no", by="eve")

    turns = [
        native(("note", {"path": "a"}), ("note", {"path": "no"}), ("ping", {})),
        native(("ping", {"place": "b"})),
        "Done.",
    ]
    journal = WatchedJournal(look)
    options = {"journal": journal, "approve": Approval(yes, in_doubt="report")}
    agent = Agent(ScriptedProvider(turns, follow=True), [ping, note], cassette=Cassette.record(path), **options)
    try:
        asyncio.run(agent.run("Go."))
    except DiesError:
        pass
    else:
        assert count < at
        return
    (info,) = asyncio.run(journal.runs()) or (None,)
    if info is None:
        return
    on = Cassette.record(path, go_on=True)
    second_agent = Agent(ScriptedProvider(turns, follow=True), [ping, note], cassette=on, **options)
    first = asyncio.run(second_agent.resume(info.run_id))
    ran = list(RAN)

    async def nobody(request):
        raise AssertionError("somebody was asked")

    cassette = Cassette.replay(path, pauses=False)
    again, _ = run(cassette, lambda wrap: "any", [ping, note], approve=nobody)
    assert (again.answer, conversation_of(again), cassette.requests_left) == ("Done.", conversation_of(first), 0)
    assert ran == RAN


def test_a_truncated_last_line_is_left_out(tmp_path):
    path = tmp_path / "run.jsonl"
    run(Cassette.record(path), lambda wrap: ScriptedProvider([native(("ping", {})), "Done."]))
    whole = path.read_bytes()
    for cut in range(whole.rindex(b"\n", 0, -1) + 2, len(whole) - 1, 50):
        path.write_bytes(whole[:cut])
        cassette = Cassette.replay(path)
        assert cassette.requests_left == 1
        with pytest.raises(ReplayDiverged, match="it holds 1 model requests"):
            run(cassette, lambda wrap: "any")
        Cassette.record(path, go_on=True)
        assert path.read_bytes() == whole[: whole.rindex(b"\n", 0, -1) + 1]
    path.write_bytes(whole[:-1])  # all but the end of its line
    Cassette.record(path, go_on=True)
    assert path.read_bytes() == whole


class Hands:
    """A clock that tools move."""

    def __init__(self, hurry: float = 0.0):
        self.time, self.hurry = 1_790_000_000.0, hurry

    def __call__(self):
        self.time += self.hurry
        return self.time


def of_hours(clock):
    @tool(read_only=True)
    def work(day: int) -> str:
        """Takes half an hour."""
        clock.time += 1800
        return f"day {day} is done"

    @tool()
    def ask(question: str) -> str:
        """Asks somebody, who takes his time."""
        return "yes"

    return [work, ask]


WORK = [
    native(("work", {"day": 1})),
    native(("ask", {"question": "May I?"})),
    native(("work", {"day": 2})),
    native(("work", {"day": 3})),
    "I had no more time.",
    "never asked",
]


@pytest.mark.parametrize("hurry", [0.0, 3600.0], ids=["no time passes", "an hour passes at each look"])
@pytest.mark.parametrize("thinks", [False, True], ids=["tools take it", "the model takes it"])
def test_a_time_limit_between_two_turns_is_reached_at_the_same_place(tmp_path, hurry, thinks):
    path, live = tmp_path / "run.jsonl", Hands()

    def slow(messages):
        live.time += 1800
        return WORK[2]

    turns = [*WORK[:2], slow, *WORK[4:]] if thinks else WORK

    def one(cassette, model, clock):
        journal = WatchedJournal()
        limits = Limits(seconds=3 * 1800 - 1)
        agent = Agent(model, of_hours(clock), cassette=cassette, journal=journal, limits=limits, clock=clock)
        paused_run = agent.run_sync("Go.")
        assert paused_run.status == "awaiting_approval"
        clock.time += 100_000  # the person answers the next day: that time is not the run's
        return asyncio.run(agent.resume(paused_run, {paused_run.waiting[0]: True})), journal

    first, journal = one(Cassette.record(path), ScriptedProvider(turns, tools=True), live)
    assert (first.answer, first.reason) == ("I had no more time.", "seconds")
    cassette = Cassette.replay(path)
    again, replay_journal = one(cassette, "any", Hands(hurry))
    assert (again.answer, again.reason, cassette.requests_left) == (first.answer, first.reason, 0)
    assert [type(event) for event in facts(replay_journal)] == [type(event) for event in facts(journal)]
