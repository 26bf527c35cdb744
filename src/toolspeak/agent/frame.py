"""What surrounds a whole run: its interceptors' `around`, beside the loop that takes the steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from toolspeak.agent.interceptors import RunStart, Stage
from toolspeak.agent.state.decide import Finish
from toolspeak.data.events import PAUSED, Event
from toolspeak.data.messages import JSON


class RunFrame:
    """Entered before the first step; `end` hands in how the run ends and gives back what is made of it.

    The loop yields its states to whoever reads them, so `around` goes on in a task of its own.
    """

    def __init__(self, stage: Stage, start: RunStart, metadata: Callable[[], Mapping[str, JSON]]) -> None:
        self._stage = stage
        self._start = start
        self._metadata = metadata
        self._entered = asyncio.Event()
        self._pauses = False
        self._finish: asyncio.Future[Finish] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[tuple[Finish | None, list[Event]]] | None = None

    async def enter(self) -> bool:
        """Returns once all of them have proceeded, or one has not and thereby ended the run: then False."""
        around = self._stage.around("run", self._start, self._inner, self._metadata, lambda _: not self._pauses)
        self._task = asyncio.create_task(around)
        entered = asyncio.create_task(self._entered.wait())
        try:
            await asyncio.wait({self._task, entered}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            entered.cancel()
        return not self._task.done()

    async def end(self, finish: Finish) -> tuple[Finish | None, list[Event]]:
        """How the run ends, None if a stop says so; and what to record."""
        if self._task is None:
            return finish, []
        if not self._finish.done():
            self._pauses = finish.status in PAUSED
            self._finish.set_result(finish)
        return await self._task

    async def leave(self) -> None:
        """Cancels what is still going on."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _inner(self) -> Finish:
        self._entered.set()
        return await self._finish
