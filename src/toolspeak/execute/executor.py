"""The executor: one batch of calls in, one result per call out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import cast

from toolspeak.data.approvals import Decision, Rule
from toolspeak.data.events import StopRequested
from toolspeak.data.messages import MalformedCall, ToolCall, ToolResult, no_extra
from toolspeak.errors import AgentStop, ConfigurationError, ToolFailed
from toolspeak.execute.approval.approvers import Approver, BatchApprover, Policy
from toolspeak.execute.approval.evaluator import PolicyEvaluator
from toolspeak.execute.approval.policy_rules import StandingRules, resolve_policy
from toolspeak.execute.batch_context import BatchContext, BatchResult, Deadline, Emit
from toolspeak.execute.batch_state import BatchState, Call, ExecutorSettings
from toolspeak.execute.call_admission import CallAdmission
from toolspeak.execute.calls.observe import Observation, Observed, Observer
from toolspeak.execute.calls.prepare import unique
from toolspeak.execute.calls.replay import Replayer, ResultRecorder
from toolspeak.execute.calls.result_limits import ResultCap
from toolspeak.execute.calls.secrets import Secrets
from toolspeak.execute.concurrency.limits import Concurrency, Timers
from toolspeak.execute.concurrency.schedule import ScheduleName, check_schedule
from toolspeak.execute.hooks import HookNotes, Interceptor, in_order
from toolspeak.execute.invocation import EarlyStart
from toolspeak.execute.recovery import NONE_IN_DOUBT, CallsInDoubt
from toolspeak.execute.scheduler import Scheduler
from toolspeak.tools.stored_results import READ_RESULT
from toolspeak.tools.toolset import Toolset

_NO_DECISIONS: Mapping[str, Decision] = MappingProxyType({})
_NO_RESULTS: Mapping[str, ToolResult] = MappingProxyType({})


class Executor:
    """Runs batches of calls. It holds no state of a batch, so one executor may run several at the same time.

    - `tools`: the tools that calls may name.
    - `schedule`: the order of the calls of a batch.
    - `concurrency`: how many calls run at once.
    - `early_start`: whether calls that only read may start before their turn is over.
    - `interceptors`: the interceptors of calls.
    - `max_result_bytes`: the most text and JSON that a result may hold, in UTF-8 bytes.
    - `tool_timeout`: the time limit in seconds of calls whose tool has none of its own; None is no limit.
    - `secrets`: the values that calls name by placeholders, and that results hide.
    - `throw_on_failure`: the first call that fails ends the batch. No further call starts, and ToolFailed is raised
      once all results are recorded.
    - `stop_on_block`: the calls behind one that is blocked or rejected are skipped.
    - `policy`: looks at every call before anybody is asked. A function, or rules of which the first that fits decides.
    - `rules`: the standing rules.
    - `observers`: are called with every call as it starts and ends.
    - `recorder`: records the calls' results, for a replay.
    - `replayer`: gives recorded results in place of calling functions.

    Raises ConfigurationError for tools that are not a Toolset, an unknown schedule, a size that is not a number, and a
    rule that contradicts itself.
    """

    def __init__(
        self,
        tools: Toolset,
        *,
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
        observers: tuple[Observer, ...] = (),
        recorder: ResultRecorder | None = None,
        replayer: Replayer | None = None,
    ) -> None:
        check_schedule(schedule)
        if not isinstance(cast("object", max_result_bytes), int) or max_result_bytes < 0:
            problem = "expected a number of bytes from 0 up, such as 16384"
            raise ConfigurationError(f"max_result_bytes={max_result_bytes!r}: {problem}")
        if not isinstance(cast("object", tools), Toolset):
            raise ConfigurationError(
                f"Executor needs a Toolset, not a {type(tools).__name__}; write Executor(Toolset([…]))"
            )
        self.tools = tools
        self.secrets = Secrets() if secrets is None else secrets
        self.policy = resolve_policy(policy)
        self.rules = StandingRules() if rules is None else rules
        self._early_start = early_start
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
            recorder,
            replayer,
        )

    def early(self, context: BatchContext) -> EarlyStart | None:
        """Returns the early start of a turn's calls, None if interceptors or a policy must see every call first."""
        settings = self._settings
        if not self._early_start or settings.interceptors or self.policy is not None or settings.replayer is not None:
            return None
        return EarlyStart(
            self.tools,
            context=context,
            schedule=settings.schedule,
            concurrency=settings.concurrency,
            secrets=self.secrets,
            tool_timeout=settings.tool_timeout,
        )

    async def run(
        self,
        calls: Sequence[ToolCall | MalformedCall],
        *,
        emit: Emit,
        context: BatchContext,
        approver: Approver | BatchApprover | None,
        decisions: Mapping[str, Decision] = _NO_DECISIONS,
        finished: Mapping[str, ToolResult] = _NO_RESULTS,
        doubtful_calls: CallsInDoubt = NONE_IN_DOUBT,
        deadline: float | None = None,
        max_calls: int | None = None,
        early: EarlyStart | None = None,
        stop: StopRequested | None = None,
    ) -> BatchResult:
        """Runs the calls and returns their results in call order, whatever finished first.

        - `emit`: records a fact.
        - `context`: the run that the batch belongs to.
        - `approver`: answers about calls that need approval. With None, or one that escalates, the batch stops before
          any call runs: the BatchResult lists the pending calls.
        - `decisions`: earlier answers, by call id. An approval is bound to its request (`Decision.digest`): it holds
          only while the tool and the arguments are the same.
        - `finished`: results that are recorded already, by call id. They are returned as they are.
        - `doubtful_calls`: the calls that an earlier process started, without a result.
        - `deadline`: in seconds from now. Calls not finished then are cancelled, calls not started are skipped. The
          approver's time (`BatchResult.waited`) does not count.
        - `max_calls`: further calls are skipped. Malformed and finished calls do not count.
        - `early`: the early start that this turn's calls were offered to.
        - `stop`: why the run ended in this batch, before it was interrupted. No call starts any more.

        A call whose id is missing, or was used before in the batch, gets an id of its own, in its result and facts too;
        the id it came with is its `provider_id`.

        The metadata that interceptors set is recorded: of `before` ahead of the calls, of `around` and `after` behind
        them, in call order.

        A tool's failure is a result. A synchronous tool cannot be stopped at its timeout: while it goes on, calls that
        conflict with it are skipped (except in the schedule "parallel").

        Raises AgentStop, with the batch's result, if a tool, an interceptor or the approver did, or a decision ended
        the run. Raises ToolFailed (`throw_on_failure`). Raises BatchPaused if the context's `pause` was requested, once
        the calls under way have their results; the others are left for the next `run`. Raises BatchHeld if calls wait
        for runs that their functions started; the next `run` calls these functions again. Raises what `emit` or the
        approver raises: a fact that cannot be recorded stops the batch, and its call does not run. Cancelling cancels
        the async tools and waits for them, orphans the synchronous ones, and records no result of either.
        """
        owner, loop, scope = asyncio.current_task(), asyncio.get_running_loop(), context.scope
        assert owner is not None, "batches run in tasks"
        observers, observation = (*self._observers, *context.observers), None
        if observers:
            run = Observed(context.run_id, context.step, context.agent, context.parent_run_id)
            observation = Observation(observers, run)
        batch = BatchState(
            self._settings,
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
        admission = CallAdmission(batch, PolicyEvaluator(self.policy, self.rules, decisions), approver)
        try:
            await admission.admit_all(finished, max_calls)
            if admission.has_pending:
                pending = await admission.ask_all()
                if pending:
                    return BatchResult((), pending, admission.waited)
            await admission.close()
            await Scheduler(batch).run()
        finally:
            if early is not None:
                await early.drop()
        orphaned = tuple([call.call_id for call in scope.orphans.running()]) if scope.orphans.calls else ()
        results: list[ToolResult] = []
        ran: list[ToolCall | MalformedCall] = []
        times: list[tuple[float, float]] = []
        for call in batch.calls:
            assert call.result is not None, "every call has a result"
            results.append(call.result)
            ran.append(call.call)
            times.append((call.started or call.completed, call.completed))
        done = BatchResult(
            tuple(results), (), admission.waited, orphaned, context.run_id, tuple(ran), tuple(times), scope.details
        )
        stop = admission.stop or batch.stop
        if stop is not None:
            error = _stopped(stop, done)
            raise error from (error.execution.exception if isinstance(error, ToolFailed) and error.execution else None)
        return done


def _stopped(stop: StopRequested, batch: BatchResult) -> AgentStop | ToolFailed:
    if stop.reason == "tool_failure":
        error = ToolFailed(f"the call {stop.call_id} failed: {stop.message}")
        error.execution = next((each for each in batch.executions if each.result.call_id == stop.call_id), None)
    else:
        error = AgentStop(stop.message, answer=stop.answer)
    error.batch = batch
    return error
