"""Ten thousand calls that fail, hang, are cancelled or go well: every result is there, and nothing is left behind."""

import asyncio
import gc
import os
import random
import subprocess
import threading
from pathlib import Path

import pytest
from executor_helpers import Recorder, a_call, run_batch

from toolspeak.data.events import ToolFinished
from toolspeak.data.tools import Effects
from toolspeak.execute import ANSWERED_FROM, BatchContext, Concurrency, RunScope
from toolspeak.tools import tool
from toolspeak.tools.builtin import workspace_tools

pytestmark = pytest.mark.skipif(os.name != "posix", reason="descriptors are counted as POSIX has them")
CALLS = 10_000
CODES = {"good": None, "bad": "exception", "late": "timeout", "give_up": "cancelled", "wrong": "invalid_arguments"}


@tool(effects=lambda key: Effects(writes={f"file:{key}"}))
async def good(key: int, rest: int) -> int:
    for _ in range(rest):
        await asyncio.sleep(0)
    return key


@tool(effects=lambda key: Effects(reads={f"file:{key}"}))
async def bad(key: int, rest: int) -> None:
    for _ in range(rest):
        await asyncio.sleep(0)
    raise ValueError(key)


@tool(effects=lambda key: Effects(reads={f"file:{key}"}), timeout=0.01)
async def late(key: int, rest: int) -> None:
    await asyncio.Event().wait()


@tool(read_only=True)
async def give_up(key: int, rest: int) -> None:
    raise asyncio.CancelledError


@tool(effects=lambda key: Effects(reads={f"file:{key}"}))
def thread(key: int, rest: int) -> int:
    if rest == 3:
        raise KeyError(key)
    return key


@tool(effects=lambda key: Effects(writes={f"file:{key}"}))
async def wrong(key: int) -> int:
    return key


TOOLS = [good, bad, late, give_up, thread, wrong]


def a_batch(chance, count):
    return [
        a_call(chance.choice(TOOLS).name, f"c{number}", key=chance.randrange(200), rest=chance.randrange(4))
        for number in range(count)
    ]


def leftovers():
    """What the process holds: threads other than the shared workers', and the number of open descriptors."""
    gc.collect()
    threads = {each.name for each in threading.enumerate()} - {"MainThread", "toolspeak-tool"}
    return threads, len(os.listdir("/dev/fd"))


@pytest.mark.over_a_second
@pytest.mark.parametrize("schedule", ["serializable", "parallel"])
def test_ten_thousand_calls_have_their_results_in_order_and_leave_nothing(schedule):
    chance, recorder, scope = random.Random(7), Recorder(), RunScope()
    calls = a_batch(chance, CALLS // 2)

    async def main():
        batch = await run_batch(
            TOOLS,
            calls,
            emit=recorder,
            context=BatchContext("run", scope=scope),
            options={"schedule": schedule, "concurrency": Concurrency(run=500, threads=8)},
        )
        return batch, asyncio.all_tasks() - {asyncio.current_task()}

    before = leftovers()
    batch, tasks = asyncio.run(main())
    assert [result.call_id for result in batch.results] == [call.id for call in calls]
    assert sorted(recorder.finishes) == sorted(call.id for call in calls)
    for call, result in zip(calls, batch.results, strict=True):
        if call.name == "thread":
            assert result.code == ("exception" if call.arguments["rest"] == 3 else None)
        else:
            assert result.code == CODES[call.name], result
    assert tasks == set()
    assert batch.orphan_ids == ()
    assert leftovers() == before


@pytest.mark.over_a_second
def test_batches_that_are_cancelled_at_any_moment_leave_nothing():
    chance = random.Random(11)

    async def main():
        scope = RunScope()
        for _ in range(40):
            recorder = Recorder()
            run = run_batch(
                TOOLS,
                a_batch(chance, 100),
                emit=recorder,
                context=BatchContext("run", scope=scope),
                options={"concurrency": Concurrency(run=20, threads=4)},
            )
            task = asyncio.create_task(run)
            for _ in range(chance.randrange(60)):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            results = [event.result for event in recorder.events if isinstance(event, ToolFinished)]
            assert len({result.call_id for result in results}) == len(results)
            ran = {each.call_id for each in results if each.status == "success" and ANSWERED_FROM not in each.extra}
            assert ran <= set(recorder.starts)
        # All places were given back: a batch that needs every one of them still runs.
        calls = [a_call("good", key=number, rest=1) for number in range(50)]
        batch = await run_batch(TOOLS, calls, context=BatchContext("run", scope=scope))
        return [result.code for result in batch.results], asyncio.all_tasks() - {asyncio.current_task()}

    before = leftovers()
    assert asyncio.run(main()) == ([None] * 50, set())
    assert leftovers() == before


def test_cancelling_ends_the_processes_of_many_shells(tmp_path: Path):
    mark = f"31.{os.getpid()}"
    ready = tmp_path / "ready"

    async def main():
        shells = [a_call("shell", command=f"echo x >> ready; sleep {mark} & sleep {mark}") for _ in range(10)]
        options = {"schedule": "parallel"}
        task = asyncio.create_task(run_batch(workspace_tools(tmp_path), shells, options=options))
        while not (ready.exists() and ready.read_text().count("x") == 10):  # noqa: ASYNC110 - another process's doing
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    before = leftovers()
    assert asyncio.run(main())
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert f"sleep {mark}" not in processes
    assert leftovers()[1] == before[1]
