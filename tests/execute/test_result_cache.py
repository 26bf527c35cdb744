"""A repeated read is answered from memory as long as nothing has changed what it reads."""

import asyncio

import pytest
from executor_helpers import Recorder, a_call, run_batch
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak.data.tools import EVERYTHING, Effects
from toolspeak.execute import ANSWERED_FROM, BatchContext, RunScope
from toolspeak.tools import tool

PLACES = ["file:a", "file:a/b", "file:c"]


class World:
    """Resources with versions. `calls` has the key of each call whose function was entered."""

    def __init__(self):
        self.state = dict.fromkeys(PLACES, 0)
        self.calls = []

        @tool(effects=lambda key: Effects(reads={key}))
        async def look(key: str) -> dict[str, int]:
            self.calls.append(key)
            await asyncio.sleep(0)
            return {place: n for place, n in self.state.items() if place == key or place.startswith(key + "/")}

        @tool(effects=lambda key: Effects(reads={key}), polls=True)
        async def poll(key: str) -> int:
            self.calls.append(key)
            return self.state[key]

        @tool(effects=lambda key: Effects(writes={key}))
        async def change(key: str, fails: bool = False) -> str:
            await asyncio.sleep(0)
            self.calls.append(key)
            for place in self.state:
                if place == key or place.startswith(key + "/"):
                    self.state[place] += 1
            if fails:
                raise ValueError("half done")
            return "changed"

        @tool
        async def anything() -> None:
            self.state = {place: n + 1 for place, n in self.state.items()}

        @tool(read_only=True)
        async def clock() -> int:
            self.calls.append("clock")
            return len(self.calls)

        @tool(external=True, effects=lambda key: Effects(reads={key}))
        async def fetch(key: str) -> str:
            self.calls.append(key)
            return key

        self.tools = [look, poll, change, anything, clock, fetch]

    def run(self, *batches, schedule="serializable"):
        async def main():
            scope = RunScope()
            return [
                await run_batch(
                    self.tools,
                    calls,
                    emit=Recorder(),
                    context=BatchContext("run", scope=scope),
                    options={"schedule": schedule},
                )
                for calls in batches
            ]

        return [batch.results for batch in asyncio.run(main())]


def look(key, call_id=None):
    return a_call("look", call_id, key=key)


def test_the_same_read_again_is_answered_with_a_note():
    world = World()
    (first,), (second,) = world.run([look("file:a", "one")], [look("file:a", "two")])
    assert world.calls == ["file:a"]
    note, value = second.content
    assert "(one)" in note.text
    assert (value,) == first.content
    assert (second.call_id, second.structured, second.extra) == ("two", first.structured, {ANSWERED_FROM: "one"})


def test_the_answer_from_memory_is_recorded_and_nothing_was_started():
    recorder = Recorder()
    world = World()

    async def main():
        context = BatchContext("run", scope=RunScope())
        await run_batch(world.tools, [look("file:a")], context=context)
        await run_batch(world.tools, [look("file:a")], context=context, emit=recorder)

    asyncio.run(main())
    assert recorder.kinds == ["ToolFinished"]


@pytest.mark.parametrize(
    "between",
    [
        a_call("change", key="file:a"),
        a_call("change", key="file:a/b"),
        a_call("change", key="file:a", fails=True),
        a_call("anything"),
    ],
    ids=["it", "below", "failed", "undeclared"],
)
def test_a_read_after_a_write_is_no_repeat(between):
    world = World()
    first, _, second = world.run([look("file:a")], [between], [look("file:a")])
    assert ANSWERED_FROM not in second[0].extra
    assert second[0].structured != first[0].structured


@pytest.mark.parametrize(
    "call",
    [a_call("poll", key="file:a"), a_call("clock"), a_call("fetch", key="file:a"), a_call("change", key="file:a")],
    ids=lambda call: call.name,
)
def test_polls_writes_and_what_depends_on_the_unknown_always_run(call):
    world = World()
    world.run([call], [call])
    assert len(world.calls) == 2


def test_a_write_elsewhere_changes_nothing():
    world = World()
    world.run([look("file:a")], [a_call("change", key="file:c")], [look("file:a")])
    assert world.calls == ["file:a", "file:c"]


def test_another_version_of_what_is_read_is_another_call():
    versions = iter("112")

    @tool(effects=lambda: Effects(reads={"file:a"}, version=next(versions)))
    async def read() -> str:
        ran.append(1)
        return "text"

    ran = []

    async def main():
        context = BatchContext("run", scope=RunScope())
        for _ in range(3):
            await run_batch([read], [a_call("read")], context=context)

    asyncio.run(main())
    assert len(ran) == 2


CALLS = st.tuples(st.sampled_from(["look", "look", "change"]), st.sampled_from(PLACES))


@settings(max_examples=fewer(50), deadline=None)
@given(st.lists(st.lists(CALLS, max_size=4), max_size=5), st.sampled_from(["serializable", "sequential", "parallel"]))
def test_memory_gives_what_running_the_call_would_have_given(batches, schedule):
    """`parallel` promises nothing within a batch: there reads and writes do not share one here."""
    if schedule == "parallel":
        batches = [[call for call in batch if call[0] == batch[0][0]] for batch in batches]
    batches_of_calls = [[a_call(name, key=key) for name, key in batch] for batch in batches]
    with_memory = World().run(*batches_of_calls, schedule=schedule)
    world = World()
    without = [world.run(calls, schedule="sequential")[0] for calls in batches_of_calls]
    assert [[result.structured for result in batch] for batch in with_memory] == [
        [result.structured for result in batch] for batch in without
    ]


def test_nothing_is_known_of_reads_of_everything():
    @tool(effects=Effects(reads={EVERYTHING}))
    async def all_of_it() -> int:
        ran.append(1)
        return len(ran)

    ran = []

    async def main():
        context = BatchContext("run", scope=RunScope())
        return [
            (await run_batch([all_of_it], [a_call("all_of_it")], context=context)).results[0].structured
            for _ in range(2)
        ]

    assert asyncio.run(main()) == [1, 2]
