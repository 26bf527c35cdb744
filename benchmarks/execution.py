"""Compares the executor's cost with two floors measured in the same run.

    python benchmarks/execution.py [--sizes 1 100 10000] [--rounds 15]

`group` is an `asyncio.TaskGroup` that awaits the same functions: no runtime can be cheaper. `careful` is the minimum
for a runtime that checks its calls. It validates the arguments from their JSON text with pydantic. Every call has its
own task and `asyncio.timeout`. An asynchronous generator yields typed events. `toolspeak` does all of that and more:
admission, effects, the schedule, a journal (in memory) with a record before and after every call, capped results, ids,
and stored results for repeated calls.

Prints microseconds of CPU time per call (the median over rounds in which the three take turns), and the ratios.
`undeclared` calls may touch everything, so each waits for the previous call. `waiting` is the wall time of 100 calls
that sleep 10 ms, the minimum over the rounds. The targets are ratios to `careful`: 1.5 for 100 calls or more, and 1.25
for the wall time.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import create_model

from toolspeak.data.events import Event, Record, RunStarted
from toolspeak.data.messages import ToolCall
from toolspeak.execute import BatchContext, Executor, approve_all
from toolspeak.journal.memory_journal import MemoryJournal
from toolspeak.tools import Toolset, tool

NAP = 0.010  # seconds


async def add(a: int, b: int) -> int:
    return a + b


async def nap(a: int, b: int) -> int:
    await asyncio.sleep(NAP)
    return a + b


FUNCTIONS: dict[str, Callable[..., Coroutine[Any, Any, int]]] = {"add": add, "nap": nap}
EXECUTOR = Executor(
    Toolset([*(tool(function, read_only=True) for function in FUNCTIONS.values()), tool(add, name="undeclared")])
)


async def group(name: str, count: int) -> list[int]:
    function = FUNCTIONS[name]
    async with asyncio.TaskGroup() as tasks:
        call_tasks = [tasks.create_task(function(i, 1)) for i in range(count)]
    return [task.result() for task in call_tasks]


@dataclass(slots=True)
class LoggedEvent:
    """An event of the careful floor."""

    seq: int
    kind: str
    call_id: str
    data: Any


READERS = {
    name: create_model(name, a=(int, ...), b=(int, ...)).__pydantic_validator__.validate_json for name in FUNCTIONS
}


async def careful(name: str, count: int) -> list[dict[str, Any]]:
    calls = [(f"c{i}", json.dumps({"a": i, "b": 1})) for i in range(count)]
    messages: list[dict[str, Any]] = []
    log = [event async for event in _events(name, calls, messages)]
    assert len(log) == 2 * count
    return messages


async def _events(
    name: str, calls: Sequence[tuple[str, str]], messages: list[dict[str, Any]]
) -> AsyncIterator[LoggedEvent]:
    results: dict[str, Any] = {}
    seq = 0
    for call_id, arguments in calls:
        seq += 1
        yield LoggedEvent(seq, "started", call_id, arguments)
    async with asyncio.TaskGroup() as tasks:
        for call_id, arguments in calls:
            tasks.create_task(_call(name, call_id, arguments, results))
    for call_id, _ in calls:
        content = json.dumps(results[call_id])
        messages.append({"role": "tool", "tool_call_id": call_id, "content": content})
        seq += 1
        yield LoggedEvent(seq, "finished", call_id, content)


async def _call(name: str, call_id: str, arguments: str, results: dict[str, Any]) -> None:
    try:
        read = READERS[name](arguments).__dict__
    except Exception as error:  # noqa: BLE001 - a wrong argument or a failing tool is a result
        results[call_id] = f"error: {error}"
        return
    try:
        async with asyncio.timeout(30):
            results[call_id] = await FUNCTIONS[name](**read)
    except Exception as error:  # noqa: BLE001 - see above
        results[call_id] = f"error: {error}"


async def toolspeak(name: str, count: int) -> int:
    calls = [ToolCall(f"c{i}", name, {"a": i, "b": 1}) for i in range(count)]
    journal, seq = MemoryJournal(), 0

    async def emit(event: Event) -> None:
        nonlocal seq
        record = Record(event, "run", seq, 1, time.time())
        seq += 1
        await journal.append(record)

    await emit(RunStarted((), "none"))
    batch = await EXECUTOR.run(calls, emit=emit, context=BatchContext("run"), approver=approve_all)
    assert all(result.structured == i + 1 for i, result in enumerate(batch.results))
    return seq


async def without_effects(_name: str, count: int) -> int:
    return await toolspeak("undeclared", count)


Subject = Callable[[str, int], Awaitable[object]]


async def cpu(subjects: Sequence[Subject], count: int, rounds: int) -> list[float]:
    """Returns microseconds of CPU time per call for each subject."""
    repeat = max(1, 2000 // count)  # about 20 ms at a time: shorter times are noise
    times_by_subject: list[list[float]] = [[] for _ in subjects]
    for _ in range(rounds):
        for subject, times in zip(subjects, times_by_subject, strict=True):
            gc.collect()
            start = time.process_time()
            for _ in range(repeat):
                await subject("add", count)
            times.append((time.process_time() - start) / repeat / count * 1e6)
    return [statistics.median(times) for times in times_by_subject]


async def wall(subjects: Sequence[Subject], rounds: int) -> list[float]:
    """Returns the milliseconds that 100 calls of 10 ms take, for each subject."""
    best = [float("inf")] * len(subjects)
    for _ in range(rounds):
        for i, subject in enumerate(subjects):
            start = time.perf_counter()
            await subject("nap", 100)
            best[i] = min(best[i], (time.perf_counter() - start) * 1e3)
    return best


async def main(sizes: Sequence[int], rounds: int) -> None:
    subjects: list[Subject] = [group, careful, toolspeak, without_effects]
    await cpu(subjects, 100, 3)
    print(f"{'calls':>8} {'group':>8} {'careful':>8} {'toolspeak':>10} {'undeclared':>11}   toolspeak/careful  /group")
    for count in sizes:
        bare, floor, ours, serial = await cpu(subjects, count, rounds)
        print(
            f"{count:8} {bare:8.1f} {floor:8.1f} {ours:10.1f} {serial:11.1f}   {ours / floor:17.2f} {ours / bare:7.1f}"
        )
    bare, floor, ours = await wall(subjects[:3], rounds)
    print(f"waiting  {bare:8.1f} {floor:8.1f} {ours:10.1f} ms (ideal 10.0)     {ours / floor:13.2f} {ours / bare:7.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=[1, 100, 10_000])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    asyncio.run(main(options.sizes, options.rounds))
