"""A worker whose handler drives nothing: it writes a line when it is called and when it returns.

What a run's handler does stands in the run's id: `NAME-sleep-SECONDS` takes so long, `NAME-again-COUNT` asks to be
called again so many times, `NAME-fail-COUNT` raises so many times. SIGTERM stops the worker.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from toolspeak.engines import Delivery, WorkLimits, open_engine
from toolspeak.journal import Journal, open_journal
from toolspeak.journal.leases import new_owner
from toolspeak.testing.journal import a_run

AGENT = "agent"


def say(event: str, run_id: str = "", attempt: int = 0) -> None:
    line = {"event": event, "run": run_id, "attempt": attempt, "time": time.time(), "pid": os.getpid()}
    os.write(1, json.dumps(line).encode() + b"\n")


@asynccontextmanager
async def held(journal: Journal, delivery: Delivery) -> AsyncIterator[None]:
    """Holds the run's lease, where the engine goes by it: it does not notice dead workers itself."""
    if delivery.takes_over is not None:
        yield
        return
    lease = await journal.acquire(delivery.run_id, new_owner(), 60.0)
    if await journal.run(delivery.run_id) is None:
        await journal.append(a_run(delivery.run_id)[0], lease)
    try:
        yield
    finally:
        await journal.release(lease)


async def main(url: str, journal_url: str) -> None:
    journal = open_journal(journal_url)
    engine, stop, calls = open_engine(url, journal), asyncio.Event(), dict[str, int]()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async def handle(delivery: Delivery) -> float | None:
        _, what, amount = delivery.run_id.rsplit("-", 2)
        count = calls[delivery.run_id] = calls.get(delivery.run_id, 0) + 1
        async with held(journal, delivery):
            say("called", delivery.run_id, delivery.attempt)
            if what == "sleep":
                await asyncio.sleep(float(amount))
            if what == "fail" and delivery.attempt <= int(amount):
                raise ValueError("as it should")
        say("returns", delivery.run_id, delivery.attempt)
        return time.time() + 0.2 if what == "again" and count <= int(amount) else None

    say("started")
    await engine.work(handle, agents=[AGENT], limits=WorkLimits(concurrency=10), stop=stop)
    await engine.aclose()
    await journal.aclose()
    say("ended")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
