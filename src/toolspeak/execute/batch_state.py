"""What one batch shares, from its first call to its last result, and what all batches of an executor share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from toolspeak.data.events import StopRequested
from toolspeak.data.messages import ToolCall, ToolResult
from toolspeak.data.values import quick
from toolspeak.errors import AgentStop
from toolspeak.execute.batch_context import BatchContext, Deadline, Emit
from toolspeak.execute.call import Call
from toolspeak.execute.call_interceptors import Interceptor
from toolspeak.execute.calls.observe import Observation
from toolspeak.execute.calls.prepare import PreparedCall, prepare
from toolspeak.execute.calls.replay import Replayer, ResultRecorder
from toolspeak.execute.calls.result_limits import ResultCap
from toolspeak.execute.calls.secrets import Secrets
from toolspeak.execute.concurrency.limits import Concurrency
from toolspeak.execute.concurrency.schedule import ScheduleName
from toolspeak.execute.concurrency.timers import Timers
from toolspeak.execute.early import EarlyStart
from toolspeak.execute.hooks import HookNotes
from toolspeak.execute.recovery import CallsInDoubt
from toolspeak.execute.sub_runs import SubRuns
from toolspeak.tools.toolset import Toolset


@quick()
class ExecutorSettings:
    """What an `Executor` was made with, which says what each is; `tool_timeout` is in seconds."""

    tools: Toolset
    schedule: ScheduleName
    concurrency: Concurrency
    pipeline: Sequence[Interceptor]
    secrets: Secrets
    tool_timeout: float | None
    cap: ResultCap
    throw_on_failure: bool
    stop_on_block: bool
    recorder: ResultRecorder | None
    replayer: Replayer | None


@quick(frozen=False, eq=False)
class BatchState:
    """One batch under way.

    `notes` are what `before` interceptors leave behind. `stop` is set once no further call may start, `expired` once
    the run's time is over, `ending` once the batch ends before its end; `over` is done when it ends, `error` is why it
    ended early. `held` are those of the calls that wait for runs their functions started, `under_way` counts the tasks
    that have begun. `owner` is the task that runs the batch; it had been cancelled so many `cancellations` before.
    `uses_cache`: a read may be answered from memory.
    """

    settings: ExecutorSettings
    context: BatchContext
    emit: Emit
    calls: Sequence[Call]
    deadline: Deadline
    in_doubt: CallsInDoubt
    early: EarlyStart | None
    stop: StopRequested | None
    notes: HookNotes
    observation: Observation | None
    timers: Timers
    owner: asyncio.Task[Any]
    over: asyncio.Future[None]
    cancellations: int = 0
    uses_cache: bool = False
    under_way: int = 0
    expired: bool = False
    ending: bool = False
    error: BaseException | None = None
    held: list[SubRuns] = field(default_factory=list[SubRuns])

    def prepare(self, call: ToolCall) -> PreparedCall | ToolResult:
        """The call with its tool, arguments and effects, or its failure."""
        return prepare(call, self.settings.tools, self.settings.secrets, self.context.run_id)

    @property
    def is_late(self) -> bool:
        return self.expired or (self.deadline.at is not None and self.deadline.passed())

    @property
    def is_being_cancelled(self) -> bool:
        # Whoever cancels every task (as asyncio.run does) reaches a call's task before the batch's can react.
        return self.ending or self.owner.cancelling() > self.cancellations

    def stop_of(self, error: AgentStop, call_id: str) -> StopRequested:
        """The fact that a tool, an interceptor or the approver ended the run."""
        hide = self.settings.secrets.hide_text
        return StopRequested("stopped", hide(str(error)), call_id, None if error.answer is None else hide(error.answer))

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
        self.ending = True
        self.end()

    def rest(self) -> None:
        """Ends the batch when the run is to pause, or a call is held, and nothing is under way."""
        if (self.context.pause.is_requested or self.held) and not self.under_way:
            self.end()

    def end(self) -> None:
        if not self.over.done():
            self.over.set_result(None)
