"""Timeouts, deadlines and cancellation."""

import asyncio

import pytest
from executor_helpers import Recorder, a_call, result_of, results_of, run_batch

from jumping_loop import run_jumping
from toolspeak.data.tools import Effects
from toolspeak.tools import tool


@tool(read_only=True)
async def quick() -> str:
    return "quick"


@tool(read_only=True, timeout=0.05)
async def slow() -> None:
    await asyncio.Event().wait()


def test_an_async_tool_past_its_timeout_fails_alone():
    late, fine = results_of([quick, slow], [a_call("slow"), a_call("quick")])
    assert (late.code, late.text) == ("timeout", "slow did not finish within 0.05 seconds")
    assert fine.text == "quick"


def test_the_executors_timeout_holds_for_tools_without_one():
    @tool(read_only=True)
    async def hang() -> None:
        await asyncio.Event().wait()

    result = result_of([hang], a_call("hang"), options={"tool_timeout": 0.02})
    assert (result.code, result.text) == ("timeout", "hang did not finish within 0.02 seconds")


def test_what_a_tool_raises_while_it_is_stopped_does_not_hide_the_timeout():
    @tool(read_only=True, timeout=0.02)
    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("cleanup failed") from None

    assert result_of([stubborn], a_call("stubborn")).code == "timeout"


def test_a_tool_that_finishes_while_it_is_stopped_has_its_value():
    @tool(read_only=True, timeout=0.02)
    async def saves() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "saved what there was"

    assert result_of([saves], a_call("saves")).text == "saved what there was"


def test_the_deadline_cancels_what_runs_and_skips_what_does_not():
    recorder, cancelled_names = Recorder(), []

    @tool
    async def endless(name: str) -> str:
        if name == "a":
            return name
        try:
            await asyncio.Event().wait()
        finally:
            cancelled_names.append(name)

    calls = [a_call("endless", name, name=name) for name in "abcd"]
    results = results_of([endless], calls, emit=recorder, deadline=0.3, runner=run_jumping)
    assert [result.code for result in results] == [None, "timeout", "skipped", "skipped"]
    assert results[1].text == "the run's time limit was reached before this call finished"
    assert results[2].text == "the run's time limit was reached before this call started"
    assert recorder.starts == ["a", "b"]
    assert recorder.finishes == ["a", "b", "c", "d"]
    assert cancelled_names == ["b"]


@pytest.mark.parametrize("deadline", [0, -1])
def test_a_deadline_that_is_over_skips_every_call(deadline):
    recorder = Recorder()
    results = results_of([quick], [a_call("quick"), a_call("quick")], emit=recorder, deadline=deadline)
    assert [result.code for result in results] == ["skipped"] * 2
    assert recorder.starts == []


class UntilTheDeadline(Recorder):
    """Becomes durable only after the deadline for one fact; `endless` is what the deadline cancels."""

    def __init__(self, kind, call_id):
        super().__init__()
        self.awaited_event, self.end_event = (kind, call_id), asyncio.Event()

        @tool(read_only=True)
        async def endless() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                self.end_event.set()

        self.endless = endless

    async def __call__(self, event):
        result = getattr(event, "result", event)
        if (type(event).__name__, result.call_id) == self.awaited_event:
            await self.end_event.wait()
        await super().__call__(event)


def test_a_deadline_does_not_interrupt_the_recording_of_a_result():
    recorder = UntilTheDeadline("ToolFinished", "q")
    calls = [a_call("quick", "q"), a_call("endless", "e")]
    first, second = results_of([quick, recorder.endless], calls, emit=recorder, deadline=0.05, runner=run_jumping)
    assert first.text == "quick"
    assert second.code == "timeout"
    assert sorted(recorder.finishes) == ["e", "q"]


def test_a_start_that_is_recorded_too_late_does_not_enter_the_function():
    start_event = []

    @tool(read_only=True)
    async def note() -> None:
        start_event.append(True)

    recorder = UntilTheDeadline("ToolStarted", "n")
    calls = [a_call("note", "n"), a_call("endless", "e")]
    results = results_of([note, recorder.endless], calls, emit=recorder, deadline=0.05, runner=run_jumping)
    assert [result.code for result in results] == ["skipped", "timeout"]
    assert sorted(recorder.finishes) == ["e", "n"]
    assert start_event == []


def test_a_tool_that_cancels_its_own_task_fails_alone():
    @tool(read_only=True)
    async def self_cancelling() -> None:
        asyncio.current_task().cancel()
        await asyncio.Event().wait()

    class Clean(Recorder):
        async def __call__(self, event):
            assert asyncio.current_task().cancelling() == 0
            await super().__call__(event)

    calls = [a_call("self_cancelling"), a_call("quick")]
    first, second = results_of([self_cancelling, quick], calls, emit=Clean())
    assert first.code == "cancelled"
    assert second.text == "quick"


class Batch:
    """A batch with one endless call, cancelled once that has started."""

    def __init__(self):
        self.recorder, self.events, self.start_event = Recorder(), [], asyncio.Event()

        @tool(effects=lambda key: _writes(key))
        async def endless(key: str) -> None:
            self.start_event.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                self.events.append("cleaned up")

        @tool(effects=lambda key: _writes(key))
        async def note(key: str) -> None:
            self.events.append(f"ran {key}")

        calls = [a_call("note", "n1", key="x"), a_call("endless", "e", key="a"), a_call("note", "n2", key="a")]
        self.run = run_batch([endless, note], calls, emit=self.recorder)


def _writes(key):
    return Effects(writes={key})


def test_cancelling_a_batch_awaits_its_async_tools_and_starts_nothing_more():
    async def main():
        batch = Batch()
        task = asyncio.create_task(batch.run)
        await batch.start_event.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return batch

    batch = asyncio.run(main())
    assert batch.events == ["ran x", "cleaned up"]
    assert batch.recorder.starts == ["n1", "e"]
    assert batch.recorder.finishes == ["n1"]


async def expire(limit, start_event):
    await start_event.wait()
    limit.reschedule(asyncio.get_running_loop().time())


async def within(limit, coroutine):
    async with limit:
        return await coroutine


def test_asyncio_timeout_around_a_batch_works():
    async def main():
        batch = Batch()
        limit = asyncio.timeout(None)
        watcher = asyncio.create_task(expire(limit, batch.start_event))
        with pytest.raises(TimeoutError):
            await within(limit, batch.run)
        await watcher
        assert asyncio.current_task().cancelling() == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return batch

    assert asyncio.run(main()).events == ["ran x", "cleaned up"]


def test_cancelling_every_task_at_once_records_no_failure():
    start_event, recorder = asyncio.Event(), Recorder()

    @tool(read_only=True)
    async def endless() -> None:
        start_event.set()
        await asyncio.Event().wait()

    async def main():
        task = asyncio.create_task(run_batch([endless], [a_call("endless")], emit=recorder))
        await start_event.wait()
        # The calls first: they must find out by themselves that it is not their tool that gives up.
        for one in (*(asyncio.all_tasks() - {asyncio.current_task(), task}), task):
            one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert recorder.finishes == []


def test_a_result_being_recorded_when_the_batch_is_cancelled_is_recorded():
    async def main():
        recording, durable = asyncio.Event(), asyncio.Event()

        class Slow(Recorder):
            async def __call__(self, event):
                if type(event).__name__ == "ToolFinished":
                    recording.set()
                    await durable.wait()
                await super().__call__(event)

        recorder = Slow()
        task = asyncio.create_task(run_batch([quick], [a_call("quick", "q")], emit=recorder))
        await recording.wait()
        task.cancel()
        await asyncio.sleep(0)
        durable.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return recorder.finishes

    assert asyncio.run(main()) == ["q"]


def test_cancelling_twice_does_not_wait_for_the_recording_either():
    async def main():
        recording = asyncio.Event()

        async def emit(event):
            if type(event).__name__ == "ToolFinished":
                recording.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(run_batch([quick], [a_call("quick")], emit=emit))
        await recording.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_an_emit_that_fails_cancels_the_other_calls():
    batch_events = []

    @tool(read_only=True)
    async def linger() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            batch_events.append("cleaned up")

    async def main():
        recorder = Recorder(lambda event: getattr(event, "call_id", "") == "bad")
        with pytest.raises(OSError, match="disk is full"):
            await run_batch([linger, quick], [a_call("linger"), a_call("quick", "bad")], emit=recorder)

    asyncio.run(main())
    assert batch_events == ["cleaned up"]
