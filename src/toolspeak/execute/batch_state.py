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
from dataclasses import field, replace
from typing import Any, Literal, TypeAlias

from toolspeak.data.events import StopRequested, UserMessageQueued
from toolspeak.data.messages import MalformedCall, Message, ToolCall, ToolResult
from toolspeak.data.values import quick
from toolspeak.errors import AgentStop
from toolspeak.execute.approval.approvers import ApprovalRequest
from toolspeak.execute.batch_context import BatchContext, Deadline, Emit
from toolspeak.execute.calls.observe import NO_DETAILS, LocalDetails, Observation, ToolExecution
from toolspeak.execute.calls.prepare import PreparedCall, key_of, prepare
from toolspeak.execute.concurrency.limits import Limiter, Timers
from toolspeak.execute.hooks import HookNotes
from toolspeak.execute.invocation import EarlyCall, EarlyStart, ExecutorSettings
from toolspeak.execute.recovery import CallsInDoubt
from toolspeak.execute.sub_runs import SubRuns

Phase: TypeAlias = Literal[
    "proposed",  # the model wrote it
    "pending",  # it waits for an answer of the approver
    "resolved",  # it has its result, and does not run
    "admitted",  # it may run, once the calls it waits for are done
    "queued",  # it waits for a slot
    "scheduled",  # its task is made, and has not begun
    "entering",  # interceptors are around it, and its function is not called yet, or never is
    "starting",  # ToolStarted is being recorded
    "running",  # in its function
    "returned",  # its function is over, interceptors are still called
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
    """One call of a batch. Its fields, by who sets them.

    Admission:

    - `original`: the call as the model wrote it.
    - `passed_calls`: the call as each `before` let it pass. As many interceptors get its result in their `after`.
    - `prepared_call`: the call made ready, if it may run.
    - `early`: its early start, if it has one.
    - `result`: the result, if it does not run; otherwise `run_call` sets it.
    - `refused_by`: who refused it, an interceptor's name or a decision's author.
    - `is_recorded`: whether its result is recorded already.
    - `request`: the question about it, while it is pending.
    - `asks_to_repeat`: whether that question is about running a call in doubt a second time.

    The scheduler:

    - `wait_count`: the number of calls that it still waits for.
    - `waited_for`: the ids of all calls that it waits for.
    - `followers`: the calls that wait for it.
    - `limiters`: the limiters whose slots it holds.
    - `task`: the task that runs it, None before and after.
    - `started_at`, `completed_at`: when its function began and its result was recorded, in Unix seconds; 0 before that.

    `run_call`:

    - `notes`: what interceptors record about it.
    - `function_result`: the result of its function, before interceptors change it.
    - `error`: the exception that its function raised.
    """

    original: ToolCall | MalformedCall
    phase: Phase = "proposed"
    passed_calls: Sequence[ToolCall] = ()
    prepared_call: PreparedCall | None = None
    early: EarlyCall | None = None
    result: ToolResult | None = None
    refused_by: str = ""
    is_recorded: bool = False
    request: ApprovalRequest | None = None
    asks_to_repeat: bool = False
    wait_count: int = 0
    waited_for: tuple[str, ...] = ()
    followers: list[Call] | None = None
    limiters: tuple[Limiter, ...] = ()
    task: asyncio.Task[None] | None = None
    notes: HookNotes | None = None
    function_result: ToolResult | None = None
    error: Exception | None = None
    started_at: float = 0.0
    completed_at: float = 0.0

    @property
    def call(self) -> ToolCall | MalformedCall:
        """The call as it runs: as the model wrote it, unless an interceptor or a decision changed it."""
        return self.original if self.prepared_call is None else self.prepared_call.call

    def move(self, phase: Phase) -> None:
        """Enters the next phase. Raises AssertionError if the table does not allow it: a fault of the executor."""
        assert phase in NEXT[self.phase], f"the call {self.original.id} cannot go from {self.phase} to {phase}"
        self.phase = phase

    def admit(self, prepared_call: PreparedCall) -> None:
        """Lets the call run."""
        self.move("admitted")
        self.prepared_call = prepared_call

    def resolve(self, result: ToolResult, refused_by: str = "", *, is_recorded: bool = False) -> None:
        """Gives the call a result. It does not run."""
        self.move("resolved")
        self.prepared_call, self.result, self.refused_by, self.is_recorded = None, result, refused_by, is_recorded

    def ask(self, prepared_call: PreparedCall, request: ApprovalRequest, *, asks_to_repeat: bool = False) -> None:
        """Lets the call wait for an answer to the question."""
        self.move("pending")
        self.prepared_call, self.request, self.asks_to_repeat = prepared_call, request, asks_to_repeat

    def release(self) -> None:
        """Releases the slots that the call holds."""
        limiters, self.limiters = self.limiters, ()
        for limiter in limiters:
            limiter.release()

    def execution(self, run_id: str, details: Mapping[str, LocalDetails]) -> ToolExecution:
        """The call with its result and times, for observers. Call it once the call is done."""
        assert self.result is not None, "the call is done"
        started_at, call_id = self.started_at or self.completed_at, self.result.call_id
        call_details = details.get(call_id, NO_DETAILS)
        return ToolExecution(
            key_of(run_id, call_id), self.call, self.result, started_at, self.completed_at, call_details
        )


@quick(frozen=False, eq=False)
class BatchState:
    """One batch under way.

    - `doubtful_calls`: the calls that an earlier process started, without a result.
    - `early`: the early starts of the turn.
    - `stop`: why no further call may start, None while calls may.
    - `notes`: what `before` interceptors record.
    - `owner`: the task that runs the batch.
    - `end`: done when the batch ends.
    - `cancellations`: how often `owner` was cancelled before the batch.
    - `uses_cache`: whether a read may be answered from the result cache.
    - `under_way`: the number of tasks that have begun and not ended.
    - `is_expired`: whether the run's time is over.
    - `is_failing`: whether the batch ends before its calls are done.
    - `error`: why it ended early.
    - `waiting_calls`: for each call that waits, the runs that its function started.
    """

    settings: ExecutorSettings
    context: BatchContext
    emit: Emit
    calls: Sequence[Call]
    deadline: Deadline
    doubtful_calls: CallsInDoubt
    early: EarlyStart | None
    stop: StopRequested | None
    notes: HookNotes
    observation: Observation | None
    timers: Timers
    owner: asyncio.Task[Any]
    end: asyncio.Future[None]
    cancellations: int = 0
    uses_cache: bool = False
    under_way: int = 0
    is_expired: bool = False
    is_failing: bool = False
    error: BaseException | None = None
    waiting_calls: list[SubRuns] = field(default_factory=list[SubRuns])

    def prepare(self, call: ToolCall) -> PreparedCall | ToolResult:
        """Returns the call with its tool, arguments and effects, or its failure."""
        settings = self.settings
        return prepare(call, settings.tools, settings.secrets, self.context.run_id, of_turn=settings.of_turn)

    def prepare_or_reuse(self, call: ToolCall) -> PreparedCall | ToolResult:
        """As `prepare`; the call as it began early, if it did and its effects are still the same."""
        early = None if self.early is None else self.early.calls.get(call.id)
        if early is not None and (early.prepared_call.call is call or early.prepared_call.call == call):
            prepared_call = early.prepared_call
            effects = prepared_call.tool.effects_of(prepared_call.arguments)
            if effects is prepared_call.effects or effects == prepared_call.effects:
                return prepared_call
        return self.prepare(call)

    async def record_notes(self) -> None:
        """Records what the `before` of interceptors noted."""
        notes, hide = self.notes, self.settings.secrets.hide_text
        for fact in notes.failures:
            await self.emit(replace(fact, error=hide(fact.error)))
        for fact in (*notes.approvals, *(change.fact for change in notes.changes)):
            await self.emit(fact)
        for text in notes.messages:
            await self.emit(UserMessageQueued(Message.user(hide(text))))

    @property
    def is_late(self) -> bool:
        return self.is_expired or (
            self.deadline.at is not None and asyncio.get_running_loop().time() >= self.deadline.at
        )

    @property
    def is_being_cancelled(self) -> bool:
        # Code that cancels every task (such as asyncio.run) reaches a call's task before the batch's can react.
        return self.is_failing or self.owner.cancelling() > self.cancellations

    def stop_of(self, error: AgentStop, call_id: str) -> StopRequested:
        """Returns the fact that a tool, an interceptor or the approver ended the run."""
        hide = self.settings.secrets.hide_text
        return StopRequested("stopped", hide(str(error)), call_id, None if error.answer is None else hide(error.answer))

    async def stop_starting(self, stop: StopRequested) -> None:
        """Starts no further call. Running calls continue."""
        if self.stop is None:
            self.stop = stop
            await self.emit(stop)

    def fail(self, error: BaseException) -> None:
        """Ends the batch with this error. The first error counts."""
        if isinstance(error, asyncio.CancelledError) and self.is_being_cancelled:
            return
        if self.error is None:
            self.error = error
        self.is_failing = True
        self.finish()

    def end_if_idle(self) -> None:
        """Ends the batch if the run is to pause, or a call is held, and no call is under way."""
        if (self.context.pause.is_requested or self.waiting_calls) and not self.under_way:
            self.finish()

    def finish(self) -> None:
        """Ends the batch. Nothing happens if it has ended."""
        if not self.end.done():
            self.end.set_result(None)
