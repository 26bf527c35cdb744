"""Whether an event loop stood still."""

import asyncio


async def turns_of_the_loop(work):
    """How often others get their turn until the work is done."""
    task, turns = asyncio.ensure_future(work), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns
