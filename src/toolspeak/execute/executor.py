"""The executor: one batch of calls in, one result per call out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from toolspeak.data.events import ApprovalRequested
from toolspeak.data.messages import MalformedCall, ToolCall, ToolResult
from toolspeak.execute.admission import Admission, Ready, Settled
from toolspeak.execute.approval import ApprovalRequest, Approver, Decision
from toolspeak.execute.batch import Batch, BatchContext, Deadline, Emit
from toolspeak.execute.doubts import Doubts
from toolspeak.execute.execution import Execution
from toolspeak.execute.interceptors import Interceptor, in_order
from toolspeak.execute.schedule import ScheduleName, check_schedule
from toolspeak.execute.secrets import Secrets
from toolspeak.tools.toolset import Toolset

_NO_DECISIONS: Mapping[str, Decision] = MappingProxyType({})
_NO_DOUBTS = Doubts()
_NO_RESULTS: Mapping[str, ToolResult] = MappingProxyType({})


class Executor:
    """Runs batches of calls; holds nothing of a batch, so one executor may run several at the same time.

    `max_result_bytes` is what a result may hold of text and JSON (UTF-8 bytes). `tool_timeout` is in seconds,
    for tools that name none of their own; None is no limit. Raises UsageError for an unknown schedule.
    """

    def __init__(
        self,
        tools: Toolset,
        *,
        schedule: ScheduleName = "serializable",
        call_pipeline: tuple[Interceptor, ...] = (),
        max_result_bytes: int = 16 * 1024,
        tool_timeout: float | None = 120.0,
        secrets: Secrets | None = None,
    ) -> None:
        check_schedule(schedule)
        self._tools = tools
        self._schedule: ScheduleName = schedule
        self._pipeline = in_order(call_pipeline)
        self._max_result_bytes = max_result_bytes
        self._tool_timeout = tool_timeout
        self._secrets = Secrets() if secrets is None else secrets

    async def run(
        self,
        calls: Sequence[ToolCall | MalformedCall],
        *,
        emit: Emit,
        context: BatchContext,
        approver: Approver | None,
        decided: Mapping[str, Decision] = _NO_DECISIONS,
        finished: Mapping[str, ToolResult] = _NO_RESULTS,
        doubts: Doubts = _NO_DOUBTS,
        deadline: float | None = None,
        max_calls: int | None = None,
    ) -> Batch:
        """Runs the calls and returns their results in call order, whatever finished first.

        With no approver, a call that needs a yes and is not in `decided` stops the batch before anything runs:
        the Batch then lists the calls that wait. `finished` results (by call id) are returned as they are;
        what becomes of calls that were started and have none is said in `doubts`.
        `deadline` is in seconds from now: calls that are not finished then are cancelled, calls not started are
        skipped. What the approver takes does not count; `Batch.waited` is that time. Past `max_calls` calls are
        skipped; malformed and finished ones do not count.

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
        )
        admitted = await admission.admit_all(calls, finished, max_calls)
        pending = tuple(entry for entry in admitted if isinstance(entry, ApprovalRequest))
        if pending:
            for request in pending:
                await emit(ApprovalRequested(request.call.id, request.reason, request.preview))
            return Batch((), pending)
        execution = Execution(
            [entry for entry in admitted if isinstance(entry, Ready | Settled)],
            schedule=self._schedule,
            emit=emit,
            context=context,
            pipeline=self._pipeline,
            secrets=self._secrets,
            deadline=limit,
            tool_timeout=self._tool_timeout,
            max_result_bytes=self._max_result_bytes,
        )
        return Batch(await execution.run(), waited=admission.waited)
