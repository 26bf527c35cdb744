"""A process that writes to a journal until SIGTERM: `steady_writer.py FILE`. It prints how many runs it recorded."""

from __future__ import annotations

import asyncio
import signal
import sys

from toolspeak.data.events import RunFinished
from toolspeak.journal import SqliteJournal
from toolspeak.testing.journal import a_run


async def main() -> None:
    journal, stop = SqliteJournal(sys.argv[1]), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    count = 0
    while not stop.is_set():
        records = a_run(f"steady-{count}", RunFinished("answered", "yes", "answer"))
        lease = await journal.acquire(records[0].run_id, "steady", 60)
        for record in records:
            await journal.append(record, lease)
        await journal.release(lease)
        assert [*await journal.read(records[0].run_id)] == records
        count += 1
        print(count, flush=True)
    await journal.aclose()
    print("done", flush=True)


asyncio.run(main())
