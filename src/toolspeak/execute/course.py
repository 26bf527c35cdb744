"""What the calls of one batch share while they run: whether they may start, and what ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from toolspeak.data.events import StopRequested
from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.execute.batch import BatchContext, Deadline, Emit
from toolspeak.execute.concurrency.pause import Pause
from toolspeak.execute.concurrency.timers import Timers
from toolspeak.execute.recovery import CallsInDoubt
from toolspeak.execute.scope import RunScope
from toolspeak.execute.settings import ExecutionSettings
from toolspeak.execute.sub_runs import SubRuns
from toolspeak.execute.turns import Watch


@quick(frozen=False, eq=False)
class Course:
    """One batch under way; see `begun`.

    `stop` is set once no further call may start, `expired` once the run's time is over, `stopping` once the batch
    ends before its end; `over` is done when it ends, `error` is why it ended early. `pause` asks it to begin nothing
    more, `held` are those of the calls that wait for runs their functions started, `under_way` counts the tasks that
    have begun. `owner` is the task that runs the batch; it had been cancelled
    so many `cancellations` before.
    """

    settings: ExecutionSettings
    emit: Emit
    context: BatchContext
    deadline: Deadline
    doubts: CallsInDoubt
    metadata: Mapping[str, JSON]
    stop: StopRequested | None
    scope: RunScope
    timers: Timers
    pause: Pause
    watch: Watch | None
    over: asyncio.Future[None]
    owner: asyncio.Task[Any]
    cancellations: int
    under_way: int = 0
    expired: bool = False
    stopping: bool = False
    error: BaseException | None = None
    held: tuple[SubRuns, ...] = ()

    @classmethod
    def begun(
        cls,
        loop: asyncio.AbstractEventLoop,
        settings: ExecutionSettings,
        emit: Emit,
        context: BatchContext,
        deadline: Deadline,
        doubts: CallsInDoubt,
        metadata: Mapping[str, JSON],
        stop: StopRequested | None,
    ) -> Course:
        """The course of a batch that the current task runs, in this event loop."""
        owner = asyncio.current_task(loop)
        assert owner is not None, "batches run in tasks"
        scope, observers = context.scope, (*settings.observers, *context.observers)
        return cls(
            settings,
            emit,
            context,
            deadline,
            doubts,
            metadata,
            stop,
            scope,
            scope.timers or Timers(),
            context.pause,
            Watch(observers, context) if observers else None,
            loop.create_future(),
            owner,
            owner.cancelling(),
        )

    @property
    def is_late(self) -> bool:
        return self.expired or (self.deadline.at is not None and self.deadline.passed())

    @property
    def is_being_cancelled(self) -> bool:
        # Whoever cancels every task (as asyncio.run does) reaches a call's task before the batch's can react.
        return self.stopping or self.owner.cancelling() > self.cancellations

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
        """Ends the batch when the run is to pause, or a call is held, and nothing is under way."""
        if (self.pause.asked or self.held) and not self.under_way:
            self.end()

    def close(self) -> None:
        """Nothing of the batch runs any more."""
        if self.timers is not self.scope.timers:
            self.timers.close()

    def end(self) -> None:
        if not self.over.done():
            self.over.set_result(None)
