"""What the calls of one batch share while they run: whether they may start, and what ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from toolspeak.data.events import StopRequested
from toolspeak.data.messages import JSON
from toolspeak.execute.batch import BatchContext, Deadline, Emit
from toolspeak.execute.doubts import Doubts
from toolspeak.execute.settings import ExecutionSettings
from toolspeak.execute.timers import Timers
from toolspeak.execute.turns import Watch


class Course:
    """One batch under way; make it in the task that runs the batch.

    `stop` is set once no further call may start, `expired` once the run's time is over, `stopping` once the batch
    ends before its end; `over` is done when it ends, `error` is why it ended early. `pause` asks it to begin nothing
    more, `under_way` counts the tasks that have begun.
    """

    __slots__ = (
        "_cancellations",
        "_owner",
        "context",
        "deadline",
        "doubts",
        "emit",
        "error",
        "expired",
        "metadata",
        "over",
        "pause",
        "scope",
        "settings",
        "stop",
        "stopping",
        "timers",
        "under_way",
        "watch",
    )

    def __init__(
        self,
        settings: ExecutionSettings,
        emit: Emit,
        context: BatchContext,
        deadline: Deadline,
        doubts: Doubts,
        metadata: Mapping[str, JSON],
        stop: StopRequested | None,
    ) -> None:
        self.settings = settings
        self.emit = emit
        self.context = context
        self.scope = context.scope
        self.deadline = deadline
        self.doubts = doubts
        self.metadata = metadata
        self.watch = Watch(settings.observers, context) if settings.observers else None
        self.timers = context.scope.timers or Timers()
        self.pause = context.pause
        self.under_way = 0
        self.stop = stop
        self.expired = False
        self.stopping = False
        self.error: BaseException | None = None
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = cast("asyncio.Task[Any]", asyncio.current_task())
        self._cancellations = self._owner.cancelling()

    @property
    def is_late(self) -> bool:
        return self.expired or (self.deadline.at is not None and self.deadline.passed())

    @property
    def is_being_cancelled(self) -> bool:
        # Whoever cancels every task (as asyncio.run does) reaches a call's task before the batch's can react.
        return self.stopping or self._owner.cancelling() > self._cancellations

    async def halt(self, stop: StopRequested) -> None:
        """From here on no call is started; those that are under way go on."""
        if self.stop is None:
            self.stop = stop
            await self.emit(stop)

    def abort(self, error: BaseException) -> None:
        """Ends the batch with this error; the first one counts."""
        if isinstance(error, asyncio.CancelledError) and self.is_being_cancelled:
            return
        if self.error is None:
            self.error = error
        self.stopping = True
        self.end()

    def rest(self) -> None:
        """Ends the batch when the run is to pause and nothing is under way."""
        if self.pause.asked and not self.under_way:
            self.end()

    def close(self) -> None:
        """Nothing of the batch runs any more."""
        if self.timers is not self.scope.timers:
            self.timers.close()

    def end(self) -> None:
        if not self.over.done():
            self.over.set_result(None)
