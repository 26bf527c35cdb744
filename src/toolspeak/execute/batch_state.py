"""A batch under way: each call's record with the table of its phases, and what the calls share.

    proposed ──┬─> resolved ────────────────────────────────────────────────┐
               ├─> pending ──> admitted or resolved                         │
               └─> admitted ─┬─> queued ─> scheduled ─┐                     │
                             └──────────> scheduled ──┴─> entering ─> …     └─> scheduled ─> recording ─> done

An interceptor's `around` may proceed more than once, or at the same time, so the phases from `entering` to `returned`
lead to each other. What is interrupted in `starting` or `recording` would be half a fact: nothing is cancelled there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, TypeAlias

from toolspeak.data.events import StopRequested
from toolspeak.data.messages import MalformedCall, ToolCall, ToolResult
from toolspeak.data.values import quick
from toolspeak.errors import AgentStop
from toolspeak.execute.approval.approvers import ApprovalRequest
from toolspeak.execute.batch_context import BatchContext, Deadline, Emit
from toolspeak.execute.calls.observe import NO_DETAILS, LocalDetails, Observation, ToolExecution
from toolspeak.execute.calls.prepare import PreparedCall, key_of, prepare
from toolspeak.execute.calls.replay import Replayer, ResultRecorder
from toolspeak.execute.calls.result_limits import ResultCap
from toolspeak.execute.calls.secrets import Secrets
from toolspeak.execute.concurrency.limits import Concurrency, Limiter, Timers
from toolspeak.execute.concurrency.schedule import ScheduleName
from toolspeak.execute.hooks import HookNotes, Interceptor
from toolspeak.execute.invocation import EarlyCall, EarlyStart
from toolspeak.execute.recovery import CallsInDoubt
from toolspeak.execute.sub_runs import SubRuns
from toolspeak.tools.toolset import Toolset

Phase: TypeAlias = Literal[
    "proposed",  # the model wrote it
    "pending",  # it waits for an answer of the approver
    "resolved",  # it has its result, and does not run
    "admitted",  # it may run, once the calls it waits for are done
    "queued",  # it waits for a slot
    "scheduled",  # its task is made, and has not begun
    "entering",  # interceptors are around it, and its function is not called yet
    "starting",  # ToolStarted is being recorded
    "running",  # in its function
    "returned",  # its function is over, interceptors are still around it
    "postponed",  # not started because of a pause, or left because a run that it started waits
    "recording",  # ToolFinished is being recorded
    "done",
]

_INSIDE: frozenset[Phase] = frozenset({"entering", "starting", "running", "returned", "postponed", "recording"})

NEXT: Mapping[Phase, frozenset[Phase]] = {
    "proposed": frozenset({"pending", "resolved", "admitted"}),
    "pending": frozenset({"resolved", "admitted"}),
    "resolved": frozenset({"resolved", "scheduled", "done"}),
    "admitted": frozenset({"resolved", "queued", "scheduled"}),
    "queued": frozenset({"queued", "scheduled"}),
    "scheduled": frozenset({"entering", "starting", "postponed", "recording"}),
    "entering": _INSIDE,
    "starting": _INSIDE,
    "running": _INSIDE,
    "returned": _INSIDE,
    "postponed": frozenset(),
    "recording": frozenset({"done"}),
    "done": frozenset(),
}
"""Where each phase may lead."""

INTERRUPTIBLE: frozenset[Phase] = frozenset({"entering", "running", "returned"})
"""The phases in which the run's deadline cancels a call. A task that has not begun must not be cancelled: its code
would never run."""


@quick(frozen=False, eq=False)
class Call:
    """A call on its way. Its fields, by who sets them:

    - admission: `written` as the model has it, `prepared` if it may run, with what began `early` of it. Of one that
      does not run: its `result`, `refused_by` (an interceptor's name, or who decided), and whether it is `recorded`
      already. The `request` of a pending one, and whether it is `in_doubt` whether that one ran before.
    - the scheduler: `wait_count` of calls it still waits for, all of them by id (`waited_for`), its `followers`, the
      `limiters` it holds a slot of, its `task`. `started` and `completed` are Unix seconds, 0 where there is none yet.
    - `run_call`: what interceptors leave behind (`notes`), what the function brought (`returned`) or raised (`error`).
      `result` is what was recorded.
    """

    written: ToolCall | MalformedCall
    phase: Phase = "proposed"
    prepared: PreparedCall | None = None
    early: EarlyCall | None = None
    result: ToolResult | None = None
    refused_by: str = ""
    recorded: bool = False
    request: ApprovalRequest | None = None
    in_doubt: bool = False
    wait_count: int = 0
    waited_for: tuple[str, ...] = ()
    followers: list[Call] | None = None
    limiters: tuple[Limiter, ...] = ()
    task: asyncio.Task[None] | None = None
    notes: HookNotes | None = None
    returned: ToolResult | None = None
    error: Exception | None = None
    started: float = 0.0
    completed: float = 0.0

    @property
    def call(self) -> ToolCall | MalformedCall:
        """As it runs, or would have."""
        return self.written if self.prepared is None else self.prepared.call

    def move(self, phase: Phase) -> None:
        """The next phase. Raises AssertionError for one that the table does not allow: a fault of the executor."""
        assert phase in NEXT[self.phase], f"the call {self.written.id} cannot go from {self.phase} to {phase}"
        self.phase = phase

    def admit(self, prepared: PreparedCall) -> None:
        """It may run."""
        self.move("admitted")
        self.prepared = prepared

    def resolve(self, result: ToolResult, refused_by: str = "", *, recorded: bool = False) -> None:
        """It has its result and does not run."""
        self.move("resolved")
        self.prepared, self.result, self.refused_by, self.recorded = None, result, refused_by, recorded

    def ask(self, prepared: PreparedCall, request: ApprovalRequest, *, in_doubt: bool = False) -> None:
        """It waits for an answer."""
        self.move("pending")
        self.prepared, self.request, self.in_doubt = prepared, request, in_doubt

    def release(self) -> None:
        """Gives its slots back."""
        limiters, self.limiters = self.limiters, ()
        for limiter in limiters:
            limiter.release()

    def execution(self, run_id: str, details: Mapping[str, LocalDetails]) -> ToolExecution:
        """What observers are told of it, once it is done."""
        assert self.result is not None, "it is done"
        started, call_id = self.started or self.completed, self.result.call_id
        known = details.get(call_id, NO_DETAILS)
        return ToolExecution(key_of(run_id, call_id), self.call, self.result, started, self.completed, known)


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
