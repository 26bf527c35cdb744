"""How many calls run at once, how long each may take, and what is known of those that outlive their time."""

import asyncio
import threading

import pytest
from executor_helpers import Recorder, a_call, run_batch

from jumping_loop import run_jumping
from toolspeak.data.tools import Effects
from toolspeak.errors import ConfigurationError, ToolDefinitionError
from toolspeak.execute import BatchContext, Concurrency, Executor, Interceptor, RunScope, approve_all
from toolspeak.tools import Toolset, tool


class Crowd:
    """Tools that count how many of their calls are inside at once."""

    def __init__(self, **options):
        self.inside = self.most = 0

        @tool(read_only=True, **options)
        async def enter(rest: int = 3) -> None:
            self.inside += 1
            self.most = max(self.most, self.inside)
            for _ in range(rest):
                await asyncio.sleep(0)
            self.inside -= 1

        self.enter = enter


@pytest.mark.parametrize("limit", [1, 3, 40])
def test_a_batch_runs_so_many_calls_at_once(limit):
    crowd = Crowd()
    calls = [a_call("enter") for _ in range(40)]
    batch = asyncio.run(run_batch([crowd.enter], calls, options={"concurrency": Concurrency(batch=limit)}))
    assert [result.status for result in batch.results] == ["success"] * 40
    assert crowd.most == limit


def test_a_tool_limits_itself_and_no_other():
    crowd, free = Crowd(max_concurrent=2), Crowd()
    calls = [call for _ in range(20) for call in (a_call("enter"), a_call("other"))]
    other = tool(free.enter.function, name="other", read_only=True)
    batch = asyncio.run(run_batch([crowd.enter, other], calls))
    assert {result.status for result in batch.results} == {"success"}
    assert (crowd.most, free.most) == (2, 20)


def test_a_run_limits_batches_that_go_on_at_the_same_time():
    crowd = Crowd()

    async def main():
        executor, scope = Executor(Toolset([crowd.enter]), concurrency=Concurrency(run=3, batch=2)), RunScope()
        batches = await asyncio.gather(
            *(
                executor.run(
                    [a_call("enter") for _ in range(10)],
                    emit=Recorder(),
                    context=BatchContext("run", scope=scope),
                    approver=approve_all,
                )
                for _ in range(4)
            )
        )
        return [result.status for batch in batches for result in batch.results]

    assert asyncio.run(main()) == ["success"] * 40
    assert crowd.most == 3


def test_calls_that_wait_for_a_place_are_skipped_at_the_deadline():
    @tool(read_only=True)
    async def endless() -> None:
        await asyncio.Event().wait()

    calls = [a_call("endless") for _ in range(5)]
    options = {"concurrency": Concurrency(batch=2)}
    batch = run_jumping(run_batch([endless], calls, options=options, deadline=0.05))
    assert [result.code for result in batch.results] == ["timeout"] * 2 + ["skipped"] * 3


def test_places_are_given_back_when_a_batch_is_cancelled():
    crowd, scope, inside = Crowd(), RunScope(), asyncio.Event()

    @tool(read_only=True)
    async def endless() -> None:
        inside.set()
        await asyncio.Event().wait()

    async def main():
        executor = Executor(Toolset([crowd.enter, endless]), concurrency=Concurrency(run=1))
        context = BatchContext("run", scope=scope)

        async def run(calls):
            return await executor.run(calls, emit=Recorder(), context=context, approver=approve_all)

        task = asyncio.create_task(run([a_call("endless"), a_call("endless")]))
        await inside.wait()
        waiting = asyncio.create_task(run([a_call("enter")]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await waiting

    assert asyncio.run(main()).results[0].status == "success"


@pytest.mark.parametrize("limits", [{"batch": 0}, {"run": -1}, {"threads": 0}])
def test_a_limit_below_one_is_a_usage_error(limits):
    with pytest.raises(ConfigurationError, match="a number from 1 up"):
        Concurrency(**limits)


def test_a_tool_that_may_never_run_is_refused():
    with pytest.raises(ToolDefinitionError, match="max_concurrent=0"):
        tool(name="never", max_concurrent=0)(lambda: None)


def test_the_arguments_decide_how_long_a_call_may_take():
    @tool(read_only=True, timeout=lambda seconds: seconds)
    async def wait(seconds: float, name: str) -> None:
        await asyncio.Event().wait()

    @tool(read_only=True, timeout=lambda seconds: 1 / seconds)
    async def unsure(seconds: float) -> None:
        await asyncio.Event().wait()

    calls = [
        a_call("wait", seconds=0.04, name="a"),
        a_call("wait", seconds=0.02, name="b"),
        a_call("wait", seconds=-1.0, name="c"),
        a_call("unsure", seconds=0.0),
    ]
    batch = asyncio.run(run_batch([wait, unsure], calls, options={"tool_timeout": 0.03}))
    time_limits = [result.text.rpartition("within ")[2] for result in batch.results]
    assert time_limits == ["0.04 seconds", "0.02 seconds", "0.03 seconds", "0.03 seconds"]


@pytest.fixture
def release_event():
    event = threading.Event()
    yield event
    event.set()


def two_batches(tools, first, second, options=None):
    """Both of one run; the second starts once the first has its results."""

    async def main():
        scope = RunScope()
        batches = [
            await run_batch(tools, calls, context=BatchContext("run", scope=scope), options=options)
            for calls in (first, second)
        ]
        return [*batches, scope]

    return asyncio.run(main())


def test_an_orphaned_write_holds_up_what_depends_on_it_in_later_batches(release_event):
    @tool(effects=Effects(writes={"file:a"}), timeout=0.03)
    def hang() -> None:
        release_event.wait()

    @tool(effects=lambda key: Effects(reads={key}))
    async def look(key: str) -> str:
        return key

    first, second, scope = two_batches(
        [hang, look], [a_call("hang", "h")], [a_call("look", key="file:a/b"), a_call("look", key="file:c")]
    )
    assert first.results[0].extra == {"still_running": True}
    assert first.orphan_ids == second.orphan_ids == ("h",)
    assert [result.code for result in second.results] == ["skipped", None]
    assert [call.tool for call in scope.orphans.running()] == ["hang"]


def test_an_orphaned_read_holds_up_no_write(release_event):
    @tool(effects=Effects(reads={"file:a"}), timeout=0.03)
    def hang() -> None:
        release_event.wait()

    @tool(effects=Effects(writes={"file:a"}))
    async def change() -> str:
        return "changed"

    _, second, _ = two_batches([hang, change], [a_call("hang")], [a_call("change")])
    assert second.results[0].text == "changed"
    assert len(second.orphan_ids) == 1


def test_orphaned_calls_keep_the_slots_of_their_tool(release_event):
    @tool(read_only=True, timeout=0.03, max_concurrent=2)
    def hang() -> None:
        release_event.wait()

    first, second, _ = two_batches([hang], [a_call("hang") for _ in range(3)], [a_call("hang")])
    assert [result.code for result in first.results] == ["timeout", "timeout", "skipped"]
    assert second.results[0].text == (
        "not started: earlier calls of hang are still running after their timeout, and no more may run at once"
    )


def test_an_orphaned_call_that_ends_gives_its_slot_back():
    release_event = threading.Event()

    @tool(read_only=True, timeout=lambda wait: 0.03 if wait else 60.0, max_concurrent=1)
    def hang(wait: bool) -> str:
        if wait:
            release_event.wait()
        return "done"

    async def main():
        scope = RunScope()

        async def one(wait):
            context = BatchContext("run", scope=scope)
            return (await run_batch([hang], [a_call("hang", wait=wait)], context=context)).results[0]

        late = await one(True)
        release_event.set()
        while scope.orphans.running() or scope.own_limiter(hang).free_slots <= 0:  # noqa: ASYNC110 - a thread's end is no event
            await asyncio.sleep(0)
        return late.code, (await one(False)).text

    assert asyncio.run(main()) == ("timeout", "done")


def test_a_call_that_is_orphaned_twice_gives_its_slot_back_once():
    """An interceptor tries it again while the first try is still in its thread; the two had one slot."""
    release_event = threading.Event()

    class Again(Interceptor):
        async def around(self, call, proceed, context):
            await proceed(call)
            return await proceed(call)

    @tool(read_only=True, timeout=0.03, max_concurrent=1)
    def hang() -> None:
        release_event.wait()

    async def main():
        scope = RunScope()
        context = BatchContext("run", scope=scope)
        batch = await run_batch([hang], [a_call("hang")], context=context, options={"interceptors": (Again(),)})
        limiter = scope.own_limiter(hang)
        assert limiter.free_slots == 0
        release_event.set()
        while scope.orphans.running() or limiter.free_slots <= 0:  # noqa: ASYNC110 - a thread's end is no event
            await asyncio.sleep(0)
        limiter.free_slots -= 1
        return batch.results[0].code, limiter.free_slots

    assert asyncio.run(main()) == ("timeout", 0)
