"""Gathers the calls that another framework makes one by one, and runs each turn's calls as one batch.

These frameworks call each tool in a separate task or thread. Here the calls of a turn wait for each other. Then the
executor runs them in the order that their effects require.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypedDict
from weakref import WeakKeyDictionary

from typing_extensions import Unpack

from toolspeak.adapters.turn_record import TurnRecord
from toolspeak.agent.interceptors import by_level
from toolspeak.agent.options import Approval, Execution
from toolspeak.agent.validation import check_execution, secrets_of, toolset_of
from toolspeak.data.approvals import Decision
from toolspeak.data.deltas import ToolProgress
from toolspeak.data.events import ApprovalDecided, Event, ToolFinished
from toolspeak.data.messages import ToolCall, ToolResult, failure
from toolspeak.data.tools import Effects
from toolspeak.data.values import evolve, quick
from toolspeak.errors import ConfigurationError, RunError
from toolspeak.execute import Approve, BatchContext, Executor, Interceptor, ScheduleName, Secrets, resolve_approver
from toolspeak.execute.approval.approvers import ApprovalRequest, decision_fact, decision_of
from toolspeak.execute.concurrency.limits import OrphanedCalls
from toolspeak.execute.concurrency.schedule import Conflicts
from toolspeak.execute.sub_runs import BatchHeld
from toolspeak.journal.base import Journal
from toolspeak.tools import Tool, Toolset

EXPECTED_SECONDS = 0.25
"""Seconds to wait for the turn's next call after the last one that arrived. A call may never arrive: its framework may
refuse it, or may already have its result. The wait is long enough for threads on a busy machine."""

GATHER_SECONDS = 0.05
"""The same after a call that its framework did not announce."""

_MOST_UNDECIDED = 256
"""The most turns with undecided calls that are remembered. Frameworks do not report that a turn will never resume."""


class AdapterOptions(TypedDict, total=False):
    """How toolspeak tools run for another framework's agent.

    - `approve`: the approver of calls that write, leave the machine or do not declare effects, as for an Agent. Without
      it, and for a call that the approver escalates, the framework asks in its own way.
    - `execution`: the order of the calls, how many run at once, and their time limits. `early_start` has no effect, and
      the schedule "native" is not available.
    - `interceptors`: the interceptors of calls, the outermost first.
    - `secrets`: values that calls name by placeholders, and that results hide.
    - `journal`: records the calls of each turn and their results as a separate run.
    - `on_progress`: gets each line that a tool reports (`RunContext.progress`), in the thread of the event loop.
    """

    approve: Approve | Approval
    execution: Execution
    interceptors: Iterable[Interceptor]
    secrets: Secrets | dict[str, str]
    journal: Journal
    on_progress: Callable[[ToolProgress], object]


class ApprovalMissing(Exception):
    """A call did not run, because it needs a person's decision or must run after a call that needs one.

    - `request`: the question about the call; None if it only waits for another call.
    - `waits_for`: the ids of the undecided calls that must run first.
    """

    def __init__(self, request: ApprovalRequest | None, waits_for: tuple[str, ...] = ()) -> None:
        self.request = request
        self.waits_for = waits_for
        super().__init__(self.reason)

    @property
    def reason(self) -> str:
        """Why the call did not run."""
        if self.request is not None:
            return self.request.reason or "its approver or policy leaves it to a person"
        return f"it must run after {', '.join(self.waits_for)}, which a person has not decided yet"

    def as_json(self) -> dict[str, Any]:
        """The facts that a person needs for the decision."""
        question: dict[str, Any] = {"reason": self.reason}
        if self.request is not None:
            question |= {"preview": self.request.preview} if self.request.preview else {}
        return question


class TurnBatches:
    """Runs the turns of one framework's agents with these tools and options.

    Raises ConfigurationError for unknown options and invalid values.
    """

    def __init__(
        self,
        framework: str,
        tools: Toolset | Iterable[Tool | Callable[..., Any]],
        **options: Unpack[AdapterOptions],
    ) -> None:
        unknown_names = ", ".join(sorted(options.keys() - AdapterOptions.__annotations__.keys()))
        if unknown_names:
            raise ConfigurationError(
                f"unknown option: {unknown_names}; known: {', '.join(AdapterOptions.__annotations__)}"
            )
        approve = options.get("approve")
        approval = approve if isinstance(approve, Approval) else Approval(approve)
        execution = options.get("execution", Execution())
        check_execution(execution)
        if execution.schedule == "native":
            raise ConfigurationError(f"schedule='native' needs a dialect, and {framework} has none; name another one")
        levels = by_level(tuple(options.get("interceptors", ())))
        others = [type(each).__name__ for level in ("model", "step", "run") for each in levels[level]]
        if others:
            names = ", ".join(others)
            raise ConfigurationError(f"{names}: pass only interceptors of calls: the loop is {framework}'s")
        self.framework = framework
        self.toolset = toolset_of(tools)
        self.schedule: ScheduleName = execution.schedule
        self.approver = resolve_approver(approval.approver)
        self.journal = options.get("journal")
        self._on_progress = options.get("on_progress")
        self.executor = Executor(
            self.toolset,
            schedule=execution.schedule,
            concurrency=execution.concurrency,
            interceptors=levels["call"],
            max_result_bytes=execution.max_result_bytes,
            tool_timeout=execution.tool_timeout,
            secrets=secrets_of(options.get("secrets")),
            throw_on_failure=execution.throw_on_failure,
            stop_on_block=execution.stop_on_block,
            policy=approval.policy,
            rules=approval.rules,
        )
        self._turns: dict[Hashable, _GatheredTurn] = {}
        self._orphans: WeakKeyDictionary[asyncio.AbstractEventLoop, OrphanedCalls] = WeakKeyDictionary()

    def needs_approval(self, name: str, arguments: dict[str, Any]) -> bool:
        """Whether a call has effects that need approval. A call that cannot run needs none."""
        tool = self.toolset.get(name)
        read = () if tool is None else tool.read_arguments(arguments)
        return tool is not None and not isinstance(read, tuple) and tool.effects_of(read).needs_approval

    async def run(
        self,
        call: ToolCall,
        turn: Hashable,
        expected: Sequence[str],
        context: BatchContext,
        decision: Decision | None = None,
    ) -> ToolResult:
        """Runs a call with the others of its turn, and returns its result.

        - `turn`: identifies the turn among all turns that run at the same time.
        - `expected`: the ids of the turn's calls that may arrive, in order, as far as the framework reports them.
        - `context`: the run's context. The context of a turn's first call counts.
        - `decision`: a person's answer to the question about this call, if there is one.

        Raises ApprovalMissing for a call that a person must decide about later. Raises what `Executor.run` raises.
        """
        key = (asyncio.get_running_loop(), turn)
        current = self._turns.get(key)
        if current is None:
            # A call also waits for the orphaned calls of other runs: they change the same files.
            context.scope.orphans = self._orphans.setdefault(key[0], context.scope.orphans)
            if self._on_progress is not None:
                context = evolve(context, progress=self._show)
            current = self._turns[key] = _GatheredTurn(self, context)
        try:
            return await current.run(call, decision, expected)
        finally:
            if current.is_idle and not current.undecided_calls:
                self._turns.pop(key, None)
            elif len(self._turns) > _MOST_UNDECIDED:
                oldest = next((each for each, turn in self._turns.items() if turn.is_idle), None)
                self._turns.pop(oldest, None)

    def _show(self, call_id: str, line: str) -> None:
        if self._on_progress is not None:
            self._on_progress(ToolProgress(call_id, line))


@quick(frozen=False, eq=False)
class _Arrival:
    """A call that arrived, and its outcome once it has one."""

    call: ToolCall
    decision: Decision | None
    outcome: asyncio.Future[ToolResult]
    batch: asyncio.Task[None] | None = None


class _GatheredTurn:
    """The calls of one turn. Calls that arrive too late for its batch run in a later batch."""

    def __init__(self, batches: TurnBatches, context: BatchContext) -> None:
        self._batches = batches
        self._context = context
        self._order: dict[str, int] = {}  # of the calls that were announced
        self._missing = set[str]()
        self._arrivals: list[_Arrival] = []
        self._timer: asyncio.TimerHandle | None = None
        self._lock = asyncio.Lock()
        self._callers = 0
        self.undecided_calls: dict[str, Effects] = {}
        """The effects of the calls that wait for a person. A later call must not overtake them."""

    @property
    def is_idle(self) -> bool:
        """Whether no call of the turn is waiting."""
        return self._callers == 0

    async def run(self, call: ToolCall, decision: Decision | None, expected: Sequence[str]) -> ToolResult:
        """Runs the call in the next batch. If all calls of a batch are cancelled, the batch is cancelled."""
        loop = asyncio.get_running_loop()
        if any(each.call.id == call.id for each in self._arrivals):
            self._start()  # two calls have this id, and a batch can hold only one of them
        new_ids = [call_id for call_id in expected if call_id not in self._order]
        self._order |= {call_id: len(self._order) + index for index, call_id in enumerate(new_ids)}
        self._missing = self._missing.union(new_ids) if self._arrivals else set(expected)
        arrival = _Arrival(call, decision, loop.create_future())
        self._arrivals.append(arrival)
        self._missing.discard(call.id)
        self._callers += 1
        if self._timer is not None:
            self._timer.cancel()
        if self._missing:
            self._timer = loop.call_later(EXPECTED_SECONDS, self._start)
        elif all(each.call.id in self._order for each in self._arrivals):
            self._start()
        else:
            self._timer = loop.call_later(GATHER_SECONDS, self._start)
        try:
            return await arrival.outcome
        except asyncio.CancelledError:
            if arrival.batch is not None and arrival.batch.cancelling():
                await asyncio.wait([arrival.batch])  # its tools have ended when this returns
            raise
        finally:
            self._callers -= 1

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        arrivals, self._arrivals, last = self._arrivals, [], len(self._order)
        arrivals.sort(key=lambda each: self._order.get(each.call.id, last))
        task = asyncio.get_running_loop().create_task(self._run_in_turn(arrivals))

        def stop(_: asyncio.Future[ToolResult]) -> None:
            if all(each.outcome.cancelled() for each in arrivals):
                task.cancel()

        for each in arrivals:
            each.batch = task
            each.outcome.add_done_callback(stop)

    async def _run_in_turn(self, arrivals: list[_Arrival]) -> None:
        try:
            async with self._lock:
                arrivals = [each for each in arrivals if not each.outcome.done()]
                if arrivals:
                    await self._run_batch(arrivals)
        except asyncio.CancelledError:
            for each in arrivals:
                each.outcome.cancel()
            raise
        except BaseException as error:  # noqa: BLE001 - each caller raises it
            for each in arrivals:
                if not each.outcome.done():
                    each.outcome.set_exception(error)

    async def _run_batch(self, arrivals: list[_Arrival]) -> None:
        batches, context = self._batches, self._context
        waiting = {each.call.id: each for each in arrivals}
        by_caller = {each.call.id: each.decision for each in arrivals if each.decision is not None}
        # An approval counts only for its own question, once that is known. A refusal counts for any question.
        answers = {call_id: decision for call_id, decision in by_caller.items() if decision.approved}
        decisions = {call_id: decision for call_id, decision in by_caller.items() if not decision.approved}
        finished_results: dict[str, ToolResult] = {}
        calls = [each.call for each in arrivals]
        for call in calls:
            self.undecided_calls.pop(call.id, None)
        async with TurnRecord(batches.journal, batches.framework, context, batches.toolset, calls) as record:

            async def emit(event: Event) -> None:
                await record.add(event)
                if isinstance(event, ApprovalDecided):
                    decisions[event.call_id] = decision_of(event)
                elif isinstance(event, ToolFinished):
                    finished_results[event.call_id] = event.result

            async def hold_back(pending: Sequence[ApprovalRequest]) -> None:
                calls_without_answer = [call for call in calls if call.id not in answers]
                for call, effects, why in self._held_back(calls_without_answer, pending):
                    calls.remove(call)
                    self.undecided_calls[call.id] = effects
                    await record.add(ToolFinished(failure(call, "skipped", f"not run yet: {why.reason}")))
                    _settle(waiting[call.id], why)

            await hold_back(())
            # A batch with an unanswered question does not run. The batch runs without these calls.
            while calls:
                try:
                    batch = await batches.executor.run(
                        calls,
                        emit=emit,
                        context=context,
                        approver=batches.approver,
                        decisions=decisions,
                        earlier_results=finished_results,
                    )
                except BatchHeld as error:
                    names = ", ".join(sub_runs.call_id for sub_runs in error.waiting_calls)
                    raise RunError(
                        f"the calls {names} started runs that wait for a decision, and {batches.framework} cannot"
                        " resume them: give these agents an approver (approve=…)"
                    ) from None
                if not batch.pending:
                    for result in batch.results:
                        _settle(waiting[result.call_id], result)
                    return
                answered_requests = [
                    request
                    for request in batch.pending
                    if request.call.id in answers and request.call.id not in decisions
                ]
                for request in answered_requests:
                    answer = replace(answers[request.call.id], digest=request.digest)
                    await emit(decision_fact(request.call.id, answer, request.digest, batches.executor.secrets))
                if not answered_requests:
                    for request in batch.pending:  # an answer to an older question does not count
                        answers.pop(request.call.id, None)
                    await hold_back(batch.pending)

    def _held_back(
        self, calls: Sequence[ToolCall], pending: Sequence[ApprovalRequest]
    ) -> list[tuple[ToolCall, Effects, ApprovalMissing]]:
        """The calls that cannot run yet, with their effects: those with a question, and those that the schedule puts
        after them or after undecided calls of an earlier batch."""
        requests = {request.call.id: request for request in pending}
        schedule, tools = self._batches.schedule, self._batches.toolset
        earlier, ids = Conflicts(), list[str]()
        held_back: list[tuple[ToolCall, Effects, ApprovalMissing]] = []
        for call_id, effects in self.undecided_calls.items():
            earlier.add(len(ids), effects)
            ids.append(call_id)
        for call in calls:
            request, tool = requests.get(call.id), tools.get(call.name)
            if request is not None:
                effects, why = request.effects, ApprovalMissing(request)
            else:
                read = () if tool is None else tool.read_arguments(call.arguments)
                if tool is None or isinstance(read, tuple):
                    continue  # it fails, whatever runs before it
                effects = tool.effects_of(read)
                every = range(len(ids)) if schedule == "sequential" else ()
                blockers = every if schedule != "serializable" else earlier.with_(effects)
                if not blockers:
                    continue
                why = ApprovalMissing(None, tuple(ids[index] for index in sorted(blockers)))
            held_back.append((call, effects, why))
            earlier.add(len(ids), effects)
            ids.append(call.id)
        return held_back


def _settle(arrival: _Arrival, outcome: ToolResult | ApprovalMissing) -> None:
    if arrival.outcome.done():
        return  # its caller was cancelled
    if isinstance(outcome, ToolResult):
        arrival.outcome.set_result(outcome)
    else:
        arrival.outcome.set_exception(outcome)
