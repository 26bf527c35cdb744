"""Synchronous tools: threads that are shared, bounded in number, and never waited for when they hang."""

import asyncio
import subprocess
import sys
import threading
import weakref

import pytest
from executor_helpers import Recorder, a_call, results_of, run_batch

from patience import in_time
from toolspeak.data.tools import Effects
from toolspeak.execute import Interceptor
from toolspeak.tools import RunContext, tool


@tool(read_only=True)
async def quick() -> str:
    return "quick"


def test_a_hung_thread_holds_up_nothing_and_learns_that_it_was_given_up():
    release_event, notice_event = threading.Event(), threading.Event()

    @tool(read_only=True, timeout=0.05)
    def hang(ctx: RunContext) -> None:
        release_event.wait()
        if ctx.is_cancelled():
            notice_event.set()

    recorder = Recorder()
    calls = [a_call("hang", "h"), *(a_call("quick", f"q{number}") for number in range(20))]
    results = results_of([quick, hang], calls, emit=recorder)
    assert (results[0].code, results[0].text) == (
        "timeout",
        "hang did not finish within 0.05 seconds; it may still be running",
    )
    assert [result.text for result in results[1:]] == ["quick"] * 20
    assert recorder.finishes[-1] == "h"
    release_event.set()
    assert notice_event.wait(60)


PROGRAM = """
import asyncio, threading
from executor_helpers import a_call, run_batch
from toolspeak.tools import tool

@tool(read_only=True, timeout=0.05)
def hang() -> None:
    threading.Event().wait()

batch = asyncio.run(run_batch([hang], [a_call("hang") for _ in range(3)]))
print(*(result.code for result in batch.results))
"""


def test_hung_threads_do_not_keep_the_process_alive(request):
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=request.path.parent,
    )
    assert (result.returncode, result.stdout.split(), result.stderr) == (0, ["timeout"] * 3, "")


def test_more_hung_threads_than_run_at_once_still_all_time_out():
    release_event = threading.Event()

    @tool(read_only=True, timeout=0.05)
    def hang() -> None:
        release_event.wait()

    results = results_of([hang, quick], [*(a_call("hang") for _ in range(300)), a_call("quick")])
    release_event.set()
    assert [result.code for result in results] == ["timeout"] * 300 + [None]


def test_the_deadline_orphans_threads():
    release_event = threading.Event()

    @tool(read_only=True)
    def hang() -> None:
        release_event.wait()

    def attempt(seconds: float) -> None:
        results = results_of([hang, quick], [a_call("hang"), a_call("quick")], deadline=seconds)
        assert [result.code for result in results] == ["timeout", None]

    try:
        in_time(attempt, 0.1, 5, 60)
    finally:
        release_event.set()


def test_cancelling_does_not_wait_for_threads():
    release_event, start_event = threading.Event(), threading.Event()

    @tool(read_only=True)
    def hang() -> None:
        start_event.set()
        release_event.wait()

    async def main():
        task = asyncio.create_task(run_batch([hang], [a_call("hang")]))
        await asyncio.to_thread(start_event.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    release_event.set()


def test_workers_are_used_again():
    workers = []

    @tool(effects=lambda: Effects(writes={"here"}))
    def note() -> None:
        workers.append(threading.current_thread())

    results_of([note], [a_call("note") for _ in range(50)])
    assert len(workers) == 50
    assert len(set(workers)) < 25  # on a busy machine the last worker may not be free yet


def test_only_so_many_synchronous_calls_run_at_once():
    release_event, full = threading.Event(), asyncio.Event()

    class Watching(Recorder):
        async def __call__(self, event):
            await super().__call__(event)
            if len(self.starts) == 129:
                full.set()

    recorder = Watching()

    @tool(read_only=True)
    def hold() -> None:
        release_event.wait()

    @tool(read_only=True)
    async def release() -> int:
        await full.wait()
        for _ in range(100):  # time for the others to start, if they could
            await asyncio.sleep(0)
        release_event.set()
        return len(recorder.starts)

    calls = [*(a_call("hold") for _ in range(400)), a_call("release")]
    *held_results, last = results_of([hold, release], calls, emit=recorder)
    assert [result.status for result in held_results] == ["success"] * 400
    assert last.structured == 129


@pytest.fixture
def release_event():
    event = threading.Event()
    yield event
    event.set()


ran = []


@tool(effects=lambda key: Effects(writes={key}))
async def touch(key: str) -> str:
    ran.append(key)
    return key


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("serializable", ["timeout", "skipped", "skipped", None, "skipped", None]),
        ("sequential", ["timeout", "skipped", "skipped", None, "skipped", None]),
        ("parallel", ["timeout", None, None, None, None, None]),
    ],
)
def test_what_conflicts_with_an_orphaned_call_is_not_started(release_event, schedule, expected):
    ran.clear()

    @tool(effects=Effects(writes={"file:a/b"}), timeout=0.05)
    def hang() -> None:
        release_event.wait()

    recorder = Recorder()
    keys = ["file:a", "file:a/b/c", "file:a/d", "file:a/b", "file:e"]
    calls = [a_call("hang", "h"), *(a_call("touch", f"t{number}", key=key) for number, key in enumerate(keys))]
    results = results_of([hang, touch], calls, emit=recorder, options={"schedule": schedule})
    assert [result.code for result in results] == expected
    assert sorted(ran) == sorted(key for key, code in zip(keys, expected[1:], strict=True) if code is None)
    assert len(recorder.finishes) == 6
    if schedule != "parallel":
        assert results[1].text == "not started: it depends on hang, which is still running after its timeout"
        assert "t0" not in recorder.starts


def test_an_orphaned_call_that_ended_meanwhile_holds_up_nobody():
    ran.clear()
    release_event, loop_side = threading.Event(), {}

    class Value:
        """Dropped by the worker once nothing of the call is left."""

    @tool(effects=Effects(writes={"file:a"}), timeout=0.05)
    def hang() -> object:
        release_event.wait()
        value = Value()
        weakref.finalize(value, lambda: loop_side["loop"].call_soon_threadsafe(loop_side["ended"].set))
        return value

    class Watching(Recorder):
        async def __call__(self, event):
            await super().__call__(event)
            if "h" in self.finishes:
                loop_side["timed_out"].set()

    @tool(effects=Effects(writes={"file:b"}))
    async def meanwhile() -> None:
        await loop_side["timed_out"].wait()
        release_event.set()
        await loop_side["ended"].wait()

    @tool(effects=Effects(writes={"file:a", "file:b"}))
    async def after() -> str:
        return "ran"

    async def main():
        loop_side.update(loop=asyncio.get_running_loop(), ended=asyncio.Event(), timed_out=asyncio.Event())
        calls = [a_call("hang", "h"), a_call("meanwhile"), a_call("after")]
        return await run_batch([hang, meanwhile, after], calls, emit=Watching())

    results = asyncio.run(main()).results
    assert [result.code for result in results] == ["timeout", None, None]
    assert results[2].text == "ran"


def test_async_calls_have_ended_at_their_timeout_and_hold_up_nobody():
    ran.clear()

    @tool(effects=Effects(writes={"file:a"}), timeout=0.02)
    async def endless() -> None:
        await asyncio.Event().wait()

    results = results_of([endless, touch], [a_call("endless"), a_call("touch", key="file:a")])
    assert [result.code for result in results] == ["timeout", None]
    assert ran == ["file:a"]


def test_a_call_orphaned_by_an_interceptor_holds_up_its_followers(release_event):
    ran.clear()

    class Impatient(Interceptor):
        async def around(self, call, proceed, context):
            if call.name != "hang":
                return await proceed(call)
            call_task = asyncio.create_task(proceed(call))
            await asyncio.to_thread(start.wait)
            call_task.cancel()
            return await call_task

    start = threading.Event()

    @tool(effects=Effects(writes={"file:a"}))
    def hang() -> None:
        start.set()
        release_event.wait()

    calls = [a_call("hang"), a_call("touch", key="file:a"), a_call("touch", key="file:b")]
    results = results_of([hang, touch], calls, options={"interceptors": (Impatient(),)})
    assert [result.code for result in results] == ["cancelled", "skipped", None]
    assert ran == ["file:b"]
