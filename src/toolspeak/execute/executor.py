"""The executor: one batch of calls in, one result per call out.

A batch has two phases. `CallAdmission` decides which calls run; the `Scheduler` runs each of those as soon as the
schedule and the limits allow it.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from time import time
from types import MappingProxyType
from typing import Any

from toolspeak.data.approvals import Decision, Rule
from toolspeak.data.events import Event, StopRequested
from toolspeak.data.messages import MalformedCall, ToolCall, ToolResult, no_extra
from toolspeak.data.tools import Effects
from toolspeak.execute.approval.after_web import AfterWeb, usual_after_web
from toolspeak.execute.approval.approvers import Approve, Approver, BatchApprover, Policy, resolve_approver
from toolspeak.execute.approval.evaluator import PolicyEvaluator
from toolspeak.execute.approval.policy_rules import StandingRules, resolve_policy
from toolspeak.execute.batch_context import BatchContext, BatchPaused, BatchResult, Deadline, Emit, RunScope
from toolspeak.execute.batch_state import INTERRUPTIBLE, BatchState, Call
from toolspeak.execute.call_admission import CallAdmission
from toolspeak.execute.calls.observe import EventOrigin, Observation, Observer
from toolspeak.execute.calls.prepare import PreparedCall, unique
from toolspeak.execute.calls.replay import CassetteResults, Replayer
from toolspeak.execute.calls.result_limits import ResultCap
from toolspeak.execute.calls.secrets import Secrets
from toolspeak.execute.concurrency.limits import Concurrency, Limiter, Timers
from toolspeak.execute.concurrency.schedule import ScheduleName, check_schedule, plan
from toolspeak.execute.hooks import HookNotes, Interceptor, hook_facts, in_order
from toolspeak.execute.invocation import EarlyStart, ExecutorSettings
from toolspeak.execute.recovery import NONE_IN_DOUBT, CallsInDoubt
from toolspeak.execute.run_call import run_call
from toolspeak.execute.sub_runs import BatchHeld
from toolspeak.tools.stored_results import READ_RESULT
from toolspeak.tools.tool import Tool
from toolspeak.tools.toolset import Toolset

_NO_DECISIONS: Mapping[str, Decision] = MappingProxyType({})
_NO_RESULTS: Mapping[str, ToolResult] = MappingProxyType({})


async def _drop(_fact: Event) -> None: ...


class Executor:
    """Runs batches of calls: for an agent, or alone, for a program that has its own loop.

        batch = await Executor([read, write], approve="all").run(calls)

    It holds no state of a batch, so one executor may run several at the same time.

    - `tools`: the tools that calls may name: functions, Tools, or a Toolset.
    - `approve`: who decides about calls that write or leave the machine: "all", "none", an async function, or None (no
      call of the batch runs, and the BatchResult lists the pending ones).
    - `schedule`: the order of the calls of a batch.
    - `concurrency`: how many calls run at once.
    - `early_start`: whether calls that only read may start before their turn is over.
    - `max_result_bytes`: the most text and JSON that a result may hold, in UTF-8 bytes.
    - `tool_timeout`: the time limit in seconds of calls whose tool has none of its own; None is no limit.
    - `secrets`: the values that calls name by placeholders, and that results hide.
    - `throw_on_failure`: the first call that fails ends the batch; ToolFailed is raised once all results are recorded.
    - `stop_on_block`: the calls after one that is blocked or rejected are skipped.
    - `policy`: decides about every call before the approver. A function, or rules; the first one that fits decides.
    - `rules`: the standing rules. `after_web`: see `Approval`. `interceptors`: those of calls.
    - `observers`: are called with every call as it starts and ends.
    - `cassette_results`, `replayer`: record the calls' results, or give recorded ones instead of calling functions.

    Raises ConfigurationError for a value that it cannot use, such as an approver that is not async.
    """

    def __init__(
        self,
        tools: Toolset | Iterable[Tool | Callable[..., Any]],
        *,
        approve: Approve = None,
        schedule: ScheduleName = "serializable",
        concurrency: Concurrency = Concurrency(),
        early_start: bool = True,
        interceptors: tuple[Interceptor, ...] = (),
        max_result_bytes: int = 16 * 1024,
        tool_timeout: float | None = 120.0,
        secrets: Secrets | None = None,
        throw_on_failure: bool = False,
        stop_on_block: bool = False,
        policy: Policy | Sequence[Rule] | None = None,
        rules: StandingRules | None = None,
        after_web: AfterWeb | None = None,
        observers: tuple[Observer, ...] = (),
        cassette_results: CassetteResults | None = None,
        replayer: Replayer | None = None,
    ) -> None:
        check_schedule(schedule)
        self.tools = tools = tools if isinstance(tools, Toolset) else Toolset(tools)
        self.approver = resolve_approver(approve)
        self.secrets = Secrets() if secrets is None else secrets
        self.policy = resolve_policy(policy)
        self.rules = StandingRules() if rules is None else rules
        self.after_web: AfterWeb | None = after_web
        self._early_start = early_start
        self._own_context: BatchContext | None = None  # memory and scope of batches without a context
        self._observers = tuple(observers)
        self._settings = ExecutorSettings(
            tools,
            schedule,
            concurrency,
            in_order(interceptors),
            self.secrets,
            tool_timeout,
            ResultCap(max_result_bytes, pages=READ_RESULT in tools),
            throw_on_failure,
            stop_on_block,
            cassette_results,
            replayer,
        )

    def early(self, context: BatchContext) -> EarlyStart | None:
        """Returns the early start of a turn's calls, None if interceptors or a policy must see every call first."""
        settings = self._settings
        if not self._early_start or self.policy is not None or settings.replayer is not None:
            return None
        if not all(getattr(each, "passes_reads", False) for each in settings.interceptors):
            return None
        return EarlyStart(settings if context.tools is None else settings.with_tools(context.tools), context)

    async def run(
        self,
        calls: Sequence[ToolCall | MalformedCall],
        *,
        emit: Emit = _drop,
        context: BatchContext | None = None,
        approver: Approver | BatchApprover | None = None,
        decisions: Mapping[str, Decision] = _NO_DECISIONS,
        earlier_results: Mapping[str, ToolResult] = _NO_RESULTS,
        doubtful_calls: CallsInDoubt = NONE_IN_DOUBT,
        deadline: float | None = None,
        max_calls: int | None = None,
        early: EarlyStart | None = None,
        stop: StopRequested | None = None,
    ) -> BatchResult:
        """Runs the calls and returns their results in call order, whatever finished first.

        - `emit`: records a fact. Without it nothing is recorded.
        - `context`: the run that the batch belongs to. Without one the batches of this executor share the memory of the
          tools, orphaned calls and repeated reads, so make an executor for each conversation.
        - `approver`: answers about calls that need approval, instead of the executor's own. With neither, or one that
          escalates, the batch stops before any call runs: the BatchResult lists the pending calls.
        - `decisions`: earlier answers, by call id. An approval is bound to its request (`Decision.digest`): it holds
          only while the tool and the arguments are the same.
        - `earlier_results`: results that are recorded already, by call id. They are returned as they are.
        - `doubtful_calls`: the calls that an earlier process started, without a result.
        - `deadline`: in seconds from now. Calls not finished then are cancelled, calls not started are skipped. The
          approver's time (`BatchResult.approval_seconds`) does not count.
        - `max_calls`: further calls are skipped. Malformed and finished calls do not count.
        - `early`: the early start that this turn's calls were offered to.
        - `stop`: why the run ended in this batch, before it was interrupted. No call starts any more.

        A call whose id is missing, or was used before in the batch, gets an id of its own, in its result and facts too;
        the id it came with is its `provider_id`.

        The metadata that interceptors set is recorded: that of `before` ahead of the calls, that of `around` and
        `after` once they have ended, in call order.

        A tool's failure is a result. A synchronous tool cannot be stopped at its timeout: while it still runs, calls
        that conflict with it are skipped (except in the schedule "parallel").

        Raises AgentStop, with the batch's result, if a tool, an interceptor or the approver did, or a decision ended
        the run. Raises ToolFailed (`throw_on_failure`). Raises BatchPaused if the context's `pause` was requested, once
        the calls under way have their results; the others are left for the next `run`. Raises BatchHeld if calls wait
        (see `BatchHeld`); the next `run` calls these functions again. Raises what `emit` or the approver raises: a fact
        that cannot be recorded stops the batch before its call. Cancelling cancels and awaits the async tools, orphans
        the synchronous ones, and records no result of either.
        """
        approver = self.approver if approver is None else approver
        if context is None:
            own_context = self._own_context = self._own_context or BatchContext()
            scope = RunScope(own_context.scope.orphans, own_context.scope.result_cache)
            context = BatchContext(memory=own_context.memory, scope=scope)
        owner, loop, scope = asyncio.current_task(), asyncio.get_running_loop(), context.scope
        assert owner is not None, "batches run in tasks"
        observers, observation = (*self._observers, *context.observers), None
        if observers:
            principal = None if context.state is None else context.state.principal
            run = EventOrigin(context.run_id, context.step, context.agent, context.parent_run_id, principal)
            observation = Observation(observers, run)
        batch = BatchState(
            self._settings if context.tools is None else self._settings.with_tools(context.tools),
            context,
            emit,
            [Call(call) for call in unique(calls)],
            Deadline(None if deadline is None else loop.time() + deadline),
            doubtful_calls,
            early,
            stop,
            HookNotes(no_extra() if context.state is None else context.state.metadata),
            observation,
            scope.timers or Timers(),
            owner,
            loop.create_future(),
        )
        after_web = self.after_web or usual_after_web(approver) if context.state and context.state.sources else "allow"
        admission = CallAdmission(batch, PolicyEvaluator(self.policy, self.rules, decisions, after_web), approver)
        try:
            await admission.admit_all(earlier_results, max_calls)
            if admission.has_pending:
                pending = await admission.ask_all()
                if pending:
                    return BatchResult((), pending, admission.approval_seconds)
            await admission.close()
            await Scheduler(batch).run()
        finally:
            if early is not None:
                await early.drop()
        orphan_ids = tuple([call.call_id for call in scope.orphans.running()]) if scope.orphans.calls else ()
        results: list[ToolResult] = []
        run_calls: list[ToolCall | MalformedCall] = []
        times: list[tuple[float, float]] = []
        for call in batch.calls:
            assert call.result is not None, "every call has a result"
            results.append(call.result)
            run_calls.append(call.call)
            times.append((call.started_at or call.completed_at, call.completed_at))
        batch_result = BatchResult(
            tuple(results),
            (),
            admission.approval_seconds,
            orphan_ids,
            context.run_id,
            tuple(run_calls),
            tuple(times),
            scope.details,
        )
        stop = admission.stop or batch.stop
        if stop is not None:
            batch_result.raise_stop(stop)
        return batch_result


class Scheduler:
    """Runs the admitted calls of one batch. Make a new one for each batch, in the task that runs it."""

    def __init__(self, batch: BatchState) -> None:
        settings, scope = batch.settings, batch.context.scope
        self._batch = batch
        self._loop = asyncio.get_running_loop()
        self._open_calls = len(batch.calls)
        limit = settings.concurrency.batch
        self._of_batch = () if limit is None else (Limiter(limit),)
        self._limiters: dict[str, tuple[Limiter, ...]] = {}
        self._starting = False
        self._vars = contextvars.copy_context()
        running = [(call, call.prepared_call) for call in batch.calls if call.prepared_call is not None]
        self._running = running
        if len(running) > 1:
            waits: tuple[int, ...] = ()
            names: tuple[str, ...] = ()
            run_plan = plan([prepared_call.effects for _, prepared_call in running], settings.schedule)
            for (call, _), earlier in zip(running, run_plan, strict=True):
                if earlier is not waits:
                    waits, names = earlier, tuple(running[index][1].call.id for index in earlier)
                call.wait_count, call.waited_for = len(waits), names
                for index in waits:
                    before = running[index][0]
                    if before.followers is None:
                        before.followers = []
                    before.followers.append(call)
        self._ready = deque([call for call in batch.calls if not call.wait_count] if len(running) > 1 else batch.calls)
        batch.cancellations = batch.owner.cancelling()
        batch.uses_cache = settings.replayer is not None or (  # a recording has its own cached results
            bool(scope.result_cache.results)
            and (settings.schedule != "parallel" or all(each.effects.read_only for _, each in running))
        )

    async def run(self) -> None:
        """Runs all calls to their results.

        Raises BatchPaused if the run was asked to pause and some calls were not started. Raises BatchHeld if calls wait
        for runs that their functions started. Raises what `emit` raised, and a tool's KeyboardInterrupt or SystemExit,
        once the other calls are cancelled and have ended; a call whose result was not recorded by then has none.
        """
        batch, pause = self._batch, self._batch.context.pause
        at = batch.deadline.at
        timer = None if at is None else self._loop.call_at(at, self._expire)
        pause.callbacks.append(end_if_idle := batch.end_if_idle)
        try:
            self._start_ready()
            if pause.is_requested:
                end_if_idle()
            if self._open_calls:
                await batch.end
        finally:
            pause.callbacks.remove(end_if_idle)
            if timer is not None:
                timer.cancel()
            try:
                if self._open_calls:
                    await self._stop()
            finally:
                if batch.timers is not batch.context.scope.timers:
                    batch.timers.close()
                done_calls: list[tuple[ToolCall, Effects, ToolResult | None]] = []
                for call, prepared_call in self._running:
                    if call.limiters:
                        call.release()
                    done_calls.append((prepared_call.call, prepared_call.effects, call.result))
                batch.context.scope.result_cache.learn(done_calls, ordered=batch.settings.schedule != "parallel")
        if batch.error is not None:
            raise batch.error
        if batch.settings.interceptors:
            notes = (call.notes for call in batch.calls if call.phase == "done")
            for fact in hook_facts(notes, batch.notes.current, "call", batch.settings.secrets.hide_text):
                await batch.emit(fact)
        if self._open_calls:
            raise BatchHeld(tuple(batch.waiting_calls)) if batch.waiting_calls else BatchPaused

    def _start_ready(self) -> None:
        # A task may run at once (eager task factories) and come back here: the loop below takes its calls too.
        if self._starting:
            return
        self._starting = True
        while self._ready and not self._batch.is_failing and not self._batch.context.pause.is_requested:
            self._start(self._ready.popleft())
        self._starting = False

    def _start(self, call: Call) -> None:
        batch = self._batch
        if batch.is_failing or batch.context.pause.is_requested or call.task is not None or call.phase == "done":
            return
        if call.prepared_call is None:
            if call.is_recorded:
                assert call.result is not None, "it is recorded"
                self._finish(call, call.result)
                return
        elif not batch.is_expired and call.early is None and not self._acquire_slots(call, call.prepared_call):
            call.move("queued")
            return
        call.move("scheduled")
        batch.under_way += 1
        # A copy of the batch's context: a call must not see what the call before it has set.
        call.task = self._loop.create_task(run_call(batch, call, self._finish), context=self._vars.copy())

    def _acquire_slots(self, call: Call, prepared_call: PreparedCall) -> bool:
        """Acquires all slots that the call needs, or none. Without them `_start` is called again when one may be
        free."""
        tool = prepared_call.tool
        limiters = self._limiters.get(tool.spec.name)
        if limiters is None:
            limiters = self._of_batch + self._batch.context.scope.limiters(tool, self._batch.settings.concurrency)
            self._limiters[tool.spec.name] = limiters
        if not limiters:
            return True
        for limiter in limiters:
            if limiter.free_slots <= 0 and not limiter.blocked:
                limiter.wait(partial(self._start, call))
                return False
        if not any(limiter.blocked for limiter in limiters):
            for limiter in limiters:
                limiter.free_slots -= 1
            call.limiters = limiters
        return True

    def _finish(self, call: Call, result: ToolResult) -> None:
        call.move("done")
        # The task is at its end: a batch of thousands must not keep a task for each call.
        call.result, call.task = result, None
        call.completed_at = time()
        observation = self._batch.observation
        if observation is not None and not call.is_recorded:
            execution = call.execution(observation.run.run_id, self._batch.context.scope.details)
            observation.report_end(execution, call.refused_by)
        if call.limiters:
            call.release()
        for follower in call.followers or ():
            follower.wait_count -= 1
            if not follower.wait_count:
                self._ready.append(follower)
        self._open_calls -= 1
        if not self._open_calls:
            self._batch.finish()
        if self._ready:
            self._start_ready()

    def _expire(self) -> None:
        """Interrupts the calls under way, except one whose fact is being recorded."""
        # Set, for a timer may fire a tick before the clock reaches its time.
        self._batch.is_expired = True
        for call in self._batch.calls:
            if call.task is not None and call.phase in INTERRUPTIBLE:
                call.task.cancel()
            elif call.phase == "queued":
                self._start(call)

    async def _stop(self) -> None:
        """Cancels the calls under way and waits for them. A result that is being recorded is not cancelled."""
        batch = self._batch
        batch.is_failing = True
        tasks: list[asyncio.Task[None]] = []
        for call in batch.calls:
            if call.task is not None and not call.task.done():
                tasks.append(call.task)
                if call.phase != "recording":
                    call.task.cancel()
        cancellation = None
        while tasks:
            try:
                await asyncio.wait(tasks)
            except asyncio.CancelledError as error:
                # Cancelled once more: then recording is cancelled too.
                cancellation = error
                for task in tasks:
                    task.cancel()
            tasks = [task for task in tasks if not task.done()]
        if cancellation is not None and batch.error is None:
            raise cancellation
