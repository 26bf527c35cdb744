"""The first phase of a batch: in call order, each call is admitted, refused, or found to wait for a yes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from toolspeak.data.events import ApprovalDecided, ApprovalRequested
from toolspeak.data.messages import MalformedCall, ToolCall, ToolResult, failure
from toolspeak.data.tools import Effects
from toolspeak.errors import suggest
from toolspeak.execute.approval import (
    ApprovalRequest,
    Approver,
    Decision,
    StandingApprover,
    approval_reason,
    ask,
)
from toolspeak.execute.arguments import read_arguments
from toolspeak.execute.batch import BatchContext, Deadline, Emit
from toolspeak.execute.doubts import ASKED, Doubts, has_person, unknown_outcome
from toolspeak.execute.early import Begun, EarlyStart, key_of
from toolspeak.execute.interceptors import Answer, Interceptor, run_before
from toolspeak.execute.results import cap_text, describe, result_of
from toolspeak.execute.secrets import Secrets, hide_effects
from toolspeak.execute.threads import in_thread
from toolspeak.tools.context import RunContext
from toolspeak.tools.tool import Tool
from toolspeak.tools.toolset import Toolset
from toolspeak.tools.verify import Happened

ResultT = TypeVar("ResultT")

_PREVIEW_SECONDS = 30.0
_PREVIEW_BYTES = 64 * 1024
"""More than a person reads before saying yes, and small enough to record."""


class _TooLateError(Exception):
    """The run's time was over while a call was being admitted."""


@dataclass(slots=True)  # not frozen: one is made for every call, and freezing doubles its cost
class Ready:
    """A call that may run. `arguments` hold revealed secrets and are for the function alone. `begun` is set when the
    function was entered already, while the model still wrote."""

    call: ToolCall
    tool: Tool
    arguments: Mapping[str, Any]
    effects: Effects
    idempotency_key: str
    begun: Begun | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """A call that has its result without running now; `recorded` says whether the journal has it already."""

    result: ToolResult
    recorded: bool = False


Admitted: TypeAlias = Ready | Settled | ApprovalRequest


@dataclass(slots=True)
class Admission:
    """Admits the calls of one batch; make a new one for each. `waited` are the seconds an approver took so far."""

    tools: Toolset
    pipeline: Sequence[Interceptor]
    secrets: Secrets
    context: BatchContext
    emit: Emit
    approver: Approver | None
    decided: Mapping[str, Decision]
    doubts: Doubts
    deadline: Deadline
    early: EarlyStart | None = None
    waited: float = 0.0

    async def admit_all(
        self, calls: Sequence[ToolCall | MalformedCall], finished: Mapping[str, ToolResult], max_calls: int | None
    ) -> list[Admitted]:
        """One entry per call. Calls that are finished already or malformed do not count towards `max_calls`."""
        admitted: list[Admitted] = []
        counted = 0
        for call in calls:
            if call.id in finished:
                admitted.append(Settled(finished[call.id], recorded=True))
                continue
            if isinstance(call, MalformedCall):
                admitted.append(Settled(failure(call, "malformed", call.reason)))
                continue
            counted += 1
            if max_calls is not None and counted > max_calls:
                reason = "the run's limit on calls is reached"
                admitted.append(Settled(self.doubts.told(call, failure(call, "skipped", reason))))
                continue
            try:
                entry = self._late(call) if self.deadline.passed() else await self._admit(call)
            except _TooLateError:
                entry = self._late(call)
            admitted.append(Settled(self.doubts.told(call, entry.result)) if isinstance(entry, Settled) else entry)
        return admitted

    def _late(self, call: ToolCall) -> Settled:
        return Settled(failure(call, "skipped", self.deadline.before_start()))

    async def _in_time(self, work: Awaitable[ResultT]) -> ResultT:
        """Waits no longer than the deadline. Facts are not recorded in here: a half-recorded one would be lost."""
        limit = asyncio.timeout_at(self.deadline.at)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if limit.expired():
                raise _TooLateError from None
            raise

    async def _admit(self, call: ToolCall) -> Admitted:
        tool = self.tools.get(call.name)
        if tool is not None and self.pipeline:
            verdict = await self._in_time(run_before(self.pipeline, call, self.context))
            if isinstance(verdict, Answer):
                return Settled(result_of(call, verdict.value, self.secrets))
            if isinstance(verdict, ToolResult):
                return Settled(verdict)
            call, tool = verdict, self.tools.get(verdict.name)
        if tool is None:
            known = suggest(call.name, (one.name for one in self.tools))
            return Settled(failure(call, "unknown_tool", f"no tool is called {known}"))
        arguments = read_arguments(tool, call, self.secrets)
        if isinstance(arguments, ToolResult):
            return Settled(arguments)
        effects = tool.effects_of(arguments)
        key = key_of(self.context.run_id, call.id)
        if call in self.doubts:
            refused = await self._doubted(call, tool, arguments, effects, key)
            return refused or Ready(call, tool, arguments, effects, key)
        reason = approval_reason(effects)
        if reason or call.id in self.decided:
            refused = await self._refusal(call, tool, arguments, effects, reason)
            if refused is not None:
                return refused
        begun = None if self.early is None else self.early.take(call, effects)
        return Ready(call, tool, arguments, effects, key, begun)

    async def _doubted(
        self, call: ToolCall, tool: Tool, arguments: Mapping[str, Any], effects: Effects, key: str
    ) -> Settled | ApprovalRequest | None:
        """None if a call that was started before runs again. Its approval stands: it is not asked for again."""
        settled = await self.doubts.settle(call, tool, arguments, effects, self._run_context(call, key))
        if isinstance(settled, Happened):
            return Settled(result_of(call, settled.value, self.secrets))
        if settled is None and (self.approver is None or has_person(self.approver)):
            request = await self._request(call, tool, arguments, effects, ASKED)
            if self.approver is None:
                return request
            settled = (await self._ask(self.approver, request)).approved
        return None if settled else Settled(unknown_outcome(call))

    async def _refusal(
        self, call: ToolCall, tool: Tool, arguments: Mapping[str, Any], effects: Effects, reason: str
    ) -> Settled | ApprovalRequest | None:
        if reason and call.repaired_from is not None:
            reason += "; the model's text was malformed, and was repaired"
        decision = self.decided.get(call.id)
        if decision is None:
            if isinstance(self.approver, StandingApprover):
                decision = self.approver.decision
            else:
                request = await self._request(call, tool, arguments, effects, reason)
                if self.approver is None:
                    return request
                decision = await self._ask(self.approver, request)
        if decision.approved:
            return None
        told = f": {decision.reason}" if decision.reason else ""
        return Settled(failure(call, "rejected", f"the call was rejected{told}"))

    async def _ask(self, approver: Approver, request: ApprovalRequest) -> Decision:
        await self.emit(ApprovalRequested(request.call.id, request.reason, request.preview))
        # A person's time does not count: the question is not under the deadline, which moves on instead.
        clock = asyncio.get_running_loop()
        asked = clock.time()
        decision = await ask(approver, request)
        waited = clock.time() - asked
        self.waited += waited
        self.deadline.move_on(waited)
        decision = replace(decision, reason=self.secrets.hide_text(decision.reason))
        await self.emit(ApprovalDecided(request.call.id, decision.approved, decision.reason, decision.by))
        return decision

    def _run_context(self, call: ToolCall, key: str = "") -> RunContext[Any]:
        return RunContext(self.context.deps, call, key, memory=self.context.memory, state=self.context.state)

    async def _request(
        self, call: ToolCall, tool: Tool, arguments: Mapping[str, Any], effects: Effects, reason: str
    ) -> ApprovalRequest:
        preview = cap_text(
            self.secrets.hide_text(await self._in_time(_preview(tool, arguments, self._run_context(call)))),
            _PREVIEW_BYTES,
        )
        effects = hide_effects(effects, self.secrets)
        return ApprovalRequest(call, tool.spec, effects, preview, self.secrets.hide_text(reason))


async def _preview(tool: Tool, arguments: Mapping[str, Any], context: RunContext[Any]) -> str:
    if tool.preview is None:
        return ""
    make = tool.preview
    try:
        async with asyncio.timeout(_PREVIEW_SECONDS):
            outcome = await in_thread(lambda: make(arguments, context))
    except TimeoutError:
        return f"(no preview: it took more than {_PREVIEW_SECONDS:g} seconds)"
    if isinstance(outcome.error, Exception):
        return f"(no preview: {describe(outcome.error)})"
    if outcome.error is not None:
        raise outcome.error
    return str(outcome.value)
