"""Reads that begin while the model still writes: the same outcome, sooner; nothing of a turn that goes wrong."""

import asyncio
import threading
from dataclasses import replace

import pytest
from agent_helpers import WatchedJournal, calling
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak import Agent, Effects, Execution, Interceptor, Limits, RunContext, tool
from toolspeak.agent.state.steps import memory_after
from toolspeak.data.deltas import BatchEnded, CallCompleted, TextDelta, TurnEnded
from toolspeak.data.events import ModelAnswered, ToolFinished, ToolStarted
from toolspeak.errors import ProviderError
from toolspeak.execute import Concurrency
from toolspeak.providers import Capabilities
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.tools import Toolset


class GatedProvider:
    """A provider that writes a turn up to a place and goes on when it may; `finish` is how the first turn ends."""

    name, capabilities = "gated", Capabilities()

    def __init__(self, turn, *, stop_before, finish="stop", end="done"):
        at = turn.index(stop_before)
        self.pieces, self.finish, self.end = (turn[:at], turn[at:]), finish, end
        self.at_gate, self.go, self.turns = asyncio.Event(), asyncio.Event(), 0

    async def stream(self, request):
        self.turns += 1
        if self.turns > 1:
            yield TextDelta(self.end)
        else:
            yield TextDelta(self.pieces[0])
            self.at_gate.set()
            await self.go.wait()
            if self.finish == "stop":
                yield TextDelta(self.pieces[1])
        yield TurnEnded("stop" if self.turns > 1 else self.finish)

    async def aclose(self):
        pass


class Bench:
    """Tools whose calls are seen: `calls_begun` grows as they begin, and `began` is set by the first."""

    def __init__(self):
        self.calls_begun, self.began, self.calls_cancelled = [], asyncio.Event(), []

        async def note(name, wait=False):
            self.calls_begun.append(name)
            self.began.set()
            try:
                if wait:
                    await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.calls_cancelled.append(name)
                raise
            return name

        @tool(effects=lambda key: Effects(reads={key}))
        async def look(key: str, ctx: RunContext, wait: bool = False) -> str:
            ctx.memory.setdefault("seen", {})[key] = True
            return await note(f"look {key}", wait)

        @tool(effects=lambda key: Effects(writes={key}))
        async def put(key: str) -> str:
            return await note(f"put {key}")

        @tool(external=True, effects=Effects(reads={"web:"}))
        async def fetch() -> str:
            return await note("fetch")

        @tool
        async def vague() -> str:
            return await note("vague")

        self.tools = Toolset([look, put, fetch, vague])

    def turn(self, *calls, dialect="cogency-json"):
        return calling(dialect, *calls, tools=self.tools)


LOOK = ("look", {"key": "file:a"})
LAST = ("put", {"key": "file:zzz"})


def watch(*calls, dialect="cogency-json", finish="stop", **options):
    """What had begun when the model paused before its last call, then what came of the run."""

    async def main():
        bench, journal = Bench(), WatchedJournal()
        provider = GatedProvider(bench.turn(*calls, LAST, dialect=dialect), stop_before="file:zzz", finish=finish)
        options.setdefault("approve", "all")
        agent = Agent(provider, bench.tools, dialect=dialect, journal=journal, **options)
        run = asyncio.create_task(agent.run("go"))
        await provider.at_gate.wait()
        for _ in range(20):  # time for calls to begin, if they may
            await asyncio.sleep(0)
        early, kinds = list(bench.calls_begun), journal.kinds
        provider.go.set()
        return early, kinds, await run, bench, journal

    return asyncio.run(main())


@pytest.mark.parametrize("dialect", ["cogency-json", "cogency-xml", "hermes"])
def test_a_read_begins_before_the_turn_is_over_and_counts_once_it_is_recorded(dialect):
    early, kinds, result, bench, journal = watch(LOOK, dialect=dialect)
    assert early == ["look file:a"]
    assert kinds == ["RunStarted", "ModelAsked"]
    assert bench.calls_begun == ["look file:a", "put file:zzz"]
    assert result.memory["seen"] == {"file:a": True}
    starts = journal.all(ToolStarted)
    assert [(event.name, event.early) for event in starts] == [("look", True), ("put", False)]
    kinds = journal.kinds
    assert kinds.index("ModelAnswered") < kinds.index("ToolStarted")
    assert [event.result.text for event in journal.all(ToolFinished)] == ["look file:a", "put file:zzz"]


class Watchful(Interceptor):
    pass


@pytest.mark.parametrize(
    ("calls", "options", "early"),
    [
        ([LOOK], {"execution": Execution(early_start=False)}, []),
        ([LOOK], {"interceptors": True}, []),
        ([LOOK], {"dialect": "tool-call"}, []),
        ([("put", {"key": "file:a"})], {}, []),
        ([("fetch", {})], {}, []),
        ([("vague", {}), LOOK], {}, []),
        ([("put", {"key": "file:a/b"}), LOOK], {}, []),
        ([("put", {"key": "file:a/b"}), LOOK], {"execution": Execution(schedule="parallel")}, ["look file:a"]),
        ([("put", {"key": "file:b"}), LOOK], {}, ["look file:a"]),
        ([("put", {"key": "file:b"}), LOOK], {"execution": Execution(schedule="sequential")}, []),
        ([("look", {"key": 5}), LOOK], {}, ["look file:a"]),
        ([("no_such_tool", {}), LOOK], {}, ["look file:a"]),
        (
            [LOOK, ("look", {"key": "file:b"})],
            {"execution": Execution(concurrency=Concurrency(batch=1))},
            ["look file:a"],
        ),
    ],
    ids=[
        "switched off",
        "interceptors",
        "the last block counts",
        "a write",
        "external",
        "behind an undeclared one",
        "behind a write to it",
        "parallel",
        "behind another write",
        "sequential",
        "behind a bad call",
        "behind an unknown one",
        "no place",
    ],
)
def test_what_may_begin_early(calls, options, early):
    if options.pop("interceptors", False):
        options = {**options, "interceptors": (Watchful(),)}
    early_starts, _, result, _, _ = watch(*calls, **options)
    assert early_starts == early
    assert result.status == "answered"


def test_what_a_cut_turn_began_is_dropped():
    early, _, result, bench, journal = watch(("look", {"key": "file:a", "wait": True}), finish="length")
    assert early == bench.calls_cancelled == ["look file:a"]
    assert journal.all(ToolStarted) == []
    assert result.memory == {}
    assert "look file:a" not in str(result.messages)


class AtOnce:
    """An API whose first turn, a call, comes whole and does not wait; `error` is how it ends."""

    name, capabilities = "at-once", Capabilities(tools=True)

    def __init__(self, error):
        self.error, self.turns = error, 0

    async def stream(self, request):
        self.turns += 1
        if self.turns > 1:
            yield TextDelta("done")
            yield TurnEnded("stop")
            return
        yield CallCompleted(0, *LOOK)
        if self.error is not None:
            raise self.error
        yield BatchEnded((0,), ok=True)
        yield TurnEnded("tool_calls")

    async def aclose(self):
        pass


def test_of_a_turn_that_is_over_at_once_nothing_is_early():
    bench = Bench()
    result = asyncio.run(Agent(AtOnce(None), bench.tools).run("go"))
    assert (result.status, bench.calls_begun) == ("answered", ["look file:a"])
    assert [event.early for event in result.state.started_calls] == [False]


def test_of_a_turn_that_fails_at_once_nothing_begins():
    bench = Bench()

    async def main():
        with pytest.raises(ProviderError, match="overloaded"):
            await Agent(AtOnce(ProviderError("overloaded")), bench.tools).run("go")
        for _ in range(5):  # what was to begin would
            await asyncio.sleep(0)

    asyncio.run(main())
    assert bench.calls_begun == []


def test_what_a_limit_forbids_is_dropped():
    async def main():
        bench = Bench()
        provider = GatedProvider(bench.turn(LOOK, ("look", {"key": "file:b"}), LAST), stop_before="file:zzz")
        agent = Agent(provider, bench.tools, approve="all")
        run = asyncio.create_task(agent.run("go", limits=Limits(calls=1)))
        await provider.at_gate.wait()
        await bench.began.wait()
        provider.go.set()
        return await run, bench

    result, bench = asyncio.run(main())
    assert bench.calls_begun == ["look file:a", "look file:b", "look file:a"]
    assert result.memory["seen"] == {"file:a": True}
    codes = [each.code for message in result.messages for each in message.results]
    assert codes == [None, "skipped", "skipped"]


def test_beside_an_interceptor_that_lets_reads_pass_an_early_read_runs_once():
    class Watches(Interceptor):
        passes_reads = True

    async def main():
        bench = Bench()
        provider = GatedProvider(bench.turn(LOOK, LAST), stop_before="file:zzz")
        run = asyncio.create_task(Agent(provider, bench.tools, approve="all", interceptors=[Watches()]).run("go"))
        await provider.at_gate.wait()
        await bench.began.wait()
        provider.go.set()
        return await run, bench

    result, bench = asyncio.run(main())
    assert bench.calls_begun.count("look file:a") == 1
    assert next(iter(result.state.started_calls)).early


def test_cancelling_the_run_cancels_what_began():
    async def main():
        bench = Bench()
        provider = GatedProvider(bench.turn(("look", {"key": "file:a", "wait": True}), LAST), stop_before="file:zzz")
        run = asyncio.create_task(Agent(provider, bench.tools).run("go"))
        await bench.began.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        return bench.calls_cancelled, len(asyncio.all_tasks())

    assert asyncio.run(main()) == (["look file:a"], 1)


def test_a_synchronous_read_begins_early_too():
    began = threading.Event()

    @tool(effects=Effects(reads={"file:a"}))
    def look() -> str:
        began.set()
        return "seen"

    async def main():
        turn = calling("cogency-json", ("look", {}), ("look", {}), tools=Toolset([look]))
        at = turn.rindex("look")
        provider = GatedProvider(turn, stop_before=turn[at:])
        run = asyncio.create_task(Agent(provider, [look]).run("go"))
        await asyncio.to_thread(began.wait)
        assert not provider.go.is_set()
        provider.go.set()
        return await run

    result = asyncio.run(main())
    assert [each.text for message in result.messages for each in message.results] == ["seen", "seen"]


CALLS = st.lists(
    st.tuples(st.sampled_from(["look", "put"]), st.sampled_from(["file:a", "file:a/b", "file:c"])), max_size=6
)


@settings(max_examples=fewer(40), deadline=None)
@given(CALLS, st.integers(1, 30))
def test_the_outcome_is_the_same_with_and_without(calls, chunk):
    def outcome(early):
        bench, journal = Bench(), WatchedJournal()
        turn = bench.turn(*((name, {"key": key}) for name, key in calls))
        provider = ScriptedProvider([turn if calls else "nothing", "done"], chunk=chunk)
        agent = Agent(provider, bench.tools, approve="all", journal=journal, execution=Execution(early_start=early))
        result = asyncio.run(agent.run("go"))
        events = [
            replace(event, memory=()) if isinstance(event, ToolFinished) else event  # which call told of it is open
            for event in journal.events
            if isinstance(event, ModelAnswered | ToolFinished)
        ]
        assert memory_after(result.state.memory) == result.memory
        return result.messages, result.memory, sorted(map(str, events))

    assert outcome(True) == outcome(False)
