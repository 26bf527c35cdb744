"""The executor: one batch of calls in, one result per call out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from toolspeak.data.events import ApprovalRequested
from toolspeak.data.messages import MalformedCall, ToolCall, ToolResult
from toolspeak.execute.admission import Admission, Ready
from toolspeak.execute.approval import ApprovalRequest, Approver, Decision
from toolspeak.execute.batch import Batch, BatchContext, Deadline, Emit
from toolspeak.execute.doubts import NO_DOUBTS, Doubts
from toolspeak.execute.early import EarlyStart
from toolspeak.execute.execution import Execution, ExecutionSettings
from toolspeak.execute.gates import Concurrency
from toolspeak.execute.ids import unique
from toolspeak.execute.interceptors import Interceptor, in_order
from toolspeak.execute.results import ResultCap
from toolspeak.execute.schedule import ScheduleName, check_schedule
from toolspeak.execute.secrets import Secrets
from toolspeak.tools.kept import READ_RESULT
from toolspeak.tools.toolset import Toolset

_NO_DECISIONS: Mapping[str, Decision] = MappingProxyType({})
_NO_RESULTS: Mapping[str, ToolResult] = MappingProxyType({})


class Executor:
    """Runs batches of calls; holds nothing of a batch, so one executor may run several at the same time.

    `concurrency` says how many calls run at once. `max_result_bytes` is what a result may hold of text and JSON
    (UTF-8 bytes). `tool_timeout` is in seconds, for calls whose tool names none; None is no limit. Raises UsageError
    for an unknown schedule.
    """

    def __init__(
        self,
        tools: Toolset,
        *,
        schedule: ScheduleName = "serializable",
        concurrency: Concurrency = Concurrency(),
        call_pipeline: tuple[Interceptor, ...] = (),
        max_result_bytes: int = 16 * 1024,
        tool_timeout: float | None = 120.0,
        secrets: Secrets | None = None,
    ) -> None:
        check_schedule(schedule)
        self._tools = tools
        self._pipeline = in_order(call_pipeline)
        self._secrets = Secrets() if secrets is None else secrets
        self._settings = ExecutionSettings(
            schedule,
            concurrency,
            self._pipeline,
            self._secrets,
            tool_timeout,
            ResultCap(max_result_bytes, pages=READ_RESULT in tools),
        )

    def early(self, context: BatchContext) -> EarlyStart | None:
        """What starts the calls of a turn before it is over, None if interceptors must see every call first."""
        if self._pipeline:
            return None
        settings = self._settings
        return EarlyStart(
            self._tools,
            context=context,
            schedule=settings.schedule,
            concurrency=settings.concurrency,
            secrets=self._secrets,
            tool_timeout=settings.tool_timeout,
        )

    async def run(
        self,
        calls: Sequence[ToolCall | MalformedCall],
        *,
        emit: Emit,
        context: BatchContext,
        approver: Approver | None,
        decided: Mapping[str, Decision] = _NO_DECISIONS,
        finished: Mapping[str, ToolResult] = _NO_RESULTS,
        doubts: Doubts = NO_DOUBTS,
        deadline: float | None = None,
        max_calls: int | None = None,
        early: EarlyStart | None = None,
    ) -> Batch:
        """Runs the calls and returns their results in call order, whatever finished first.

        With no approver, a call that needs a yes and is not in `decided` stops the batch before anything runs:
        the Batch then lists the calls that wait. `finished` results (by call id) are returned as they are;
        what becomes of calls that were started and have none is said in `doubts`.
        `deadline` is in seconds from now: calls that are not finished then are cancelled, calls not started are
        skipped. What the approver takes does not count; `Batch.waited` is that time. Past `max_calls` calls are
        skipped; malformed and finished ones do not count. `early` is what this turn's calls were offered to.

        Calls whose id is missing or was used before in the batch get one of their own, in their results and facts
        too; the id they came with is their `provider_id` then.

        A tool's failure is a result. A synchronous tool cannot be stopped at its timeout: while it goes on, calls
        that conflict with it are skipped (except in the schedule "parallel"). Raises what `emit` or the approver
        raises: a fact that cannot be recorded stops the batch, and the call it was about does not run. Cancelling
        cancels the async tools and waits for them, abandons the synchronous ones, and records nothing for either.
        """
        limit = Deadline.after(deadline)
        admission = Admission(
            tools=self._tools,
            pipeline=self._pipeline,
            secrets=self._secrets,
            context=context,
            emit=emit,
            approver=approver,
            decided=decided,
            doubts=doubts,
            deadline=limit,
            early=early,
        )
        try:
            admitted = await admission.admit_all(unique(calls), finished, max_calls)
            pending = tuple(entry for entry in admitted if isinstance(entry, ApprovalRequest))
            if pending:
                for request in pending:
                    await emit(ApprovalRequested(request.call.id, request.reason, request.preview))
                return Batch((), pending)
            entries = [entry for entry in admitted if not isinstance(entry, ApprovalRequest)]
            if early is not None and not early.is_wanted:
                entries = [replace(entry, begun=None) if isinstance(entry, Ready) else entry for entry in entries]
                await early.drop()
            execution = Execution(entries, self._settings, emit=emit, context=context, deadline=limit, doubts=doubts)
            results = await execution.run()
        finally:
            if early is not None:
                await early.drop()
        running = tuple(call.call_id for call in context.scope.lingering.running())
        return Batch(results, waited=admission.waited, lingering=running)
