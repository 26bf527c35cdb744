"""The first phase of a batch: in call order, each call is admitted, is given a result without running, or waits for an
answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from toolspeak.data.approvals import Decision, Escalate
from toolspeak.data.events import StopRequested
from toolspeak.data.messages import MalformedCall, ToolCall, ToolResult, failure
from toolspeak.data.values import same_json
from toolspeak.errors import AgentStop
from toolspeak.execute.approval.approvers import (
    ApprovalRequest,
    Approver,
    BatchApprover,
    StandingApprover,
    ask,
    ask_together,
    decision_fact,
    question_fact,
    request_digest,
)
from toolspeak.execute.approval.evaluator import (
    PolicyEvaluator,
    RequestBuilder,
    changed_note,
    is_of_a_revision,
    is_refusal,
    needs_person_reason,
    unapproved_repair,
)
from toolspeak.execute.approval.policy_rules import record_decision
from toolspeak.execute.batch_state import BatchState, Call
from toolspeak.execute.calls.prepare import PreparedCall
from toolspeak.execute.calls.result_limits import result_of_value, stopped_result
from toolspeak.execute.calls.secrets import hide_effects
from toolspeak.execute.hooks import Answer, Block, HookError, chain_of, hook_failure
from toolspeak.execute.recovery import IN_DOUBT_REASON, has_person, unknown_outcome
from toolspeak.tools.verify import VerifiedResult

ResultT = TypeVar("ResultT")

_RUN_ENDED = "not started: the run was ended by a decision"


class _TooLateError(Exception):
    """The run's time ended while a call was being admitted."""


class CallAdmission:
    """Admits the calls of one batch. Make a new one for each batch.

    - `approval_seconds`: how long the approver has taken so far.
    - `stop`: why the run ends, None unless it does.
    - `ends_run`: whether a decision has ended the run. Then no call of the batch runs.
    - `has_pending`: whether a call waits for an answer.
    """

    def __init__(
        self, batch: BatchState, evaluator: PolicyEvaluator, approver: Approver | BatchApprover | None
    ) -> None:
        settings, context = batch.settings, batch.context
        self._batch = batch
        self._evaluator = evaluator
        self._approver = approver
        self._builder = RequestBuilder(
            batch.prepare,
            context.run_context,
            context.state,
            settings.secrets,
            evaluator,
            settings.cassette_results,
            settings.replayer,
        )
        self._skip_reason = ""
        self._earlier: list[ToolCall] = []
        self.approval_seconds = 0.0
        self.stop: StopRequested | None = None
        self.ends_run = False
        self.has_pending = False

    async def admit_all(self, earlier_results: Mapping[str, ToolResult], max_calls: int | None) -> None:
        """Admits or resolves each call, or lets it wait for an answer.

        `earlier_results` holds the recorded results by call id. Their calls, and malformed ones, do not count towards
        `max_calls`.
        """
        batch, deadline = self._batch, self._batch.deadline
        call_count, looks_back = 0, len(batch.calls) > 1 and self._evaluator.looks_back
        for call in batch.calls:
            original = call.original
            if original.id in earlier_results:
                call.resolve(earlier_results[original.id], is_recorded=True)
                continue
            call_count += type(original) is ToolCall
            if self._skip_reason:
                self._keep_from_running(call, failure(original, "skipped", self._skip_reason))
            elif type(original) is not ToolCall:
                assert isinstance(original, MalformedCall), "each call is a ToolCall or a MalformedCall"
                await self._refuse_malformed(call, original)
            elif max_calls is not None and call_count > max_calls:
                self._keep_from_running(call, failure(original, "skipped", "the run's limit on calls is reached"))
            elif batch.is_late:
                self._keep_from_running(call, failure(original, "skipped", deadline.before_start()))
            else:
                try:
                    if batch.settings.interceptors:
                        prepared_call = await self._pass_before(call, original)
                    else:
                        prepared_call = batch.prepare_or_reuse(original)
                    if type(prepared_call) is ToolResult:
                        self._keep_from_running(call, prepared_call)
                    elif prepared_call is not None and original.id in batch.doubtful_calls.decisions:
                        await self._recover(call, prepared_call)
                    elif prepared_call is not None:
                        question = self._judge(call, prepared_call)
                        if question is not None:
                            before = [each.effects for one in batch.calls if (each := one.prepared_call) is not None]
                            outcome = await self._in_time(self._builder.for_person(question, prepared_call, before))
                            if isinstance(outcome, ToolResult):
                                self._keep_from_running(call, outcome)
                            else:
                                call.ask(prepared_call, outcome)
                except _TooLateError:
                    self._keep_from_running(call, failure(original, "skipped", deadline.before_start()))
                except AgentStop as stop:
                    self._stop_run(stop, original)
                    self._keep_from_running(call, stopped_result(original, stop))
            if call.prepared_call is None:
                self._skip_after(call)
                continue
            if looks_back:
                self._earlier.append(call.prepared_call.call)
            if call.request is not None:
                self.has_pending = True

    async def _pass_before(self, call: Call, original: ToolCall) -> PreparedCall | ToolResult | None:
        """Passes the call through every `before`. Returns the call made ready, or its result, or None if an interceptor
        refused it: then it is resolved."""
        batch, notes = self._batch, self._batch.notes
        chain = chain_of(original, batch.settings.interceptors, batch.context, notes)
        call.passed_calls = chain.passed_values
        try:
            verdict = await self._in_time(chain.before(original))
        except HookError as error:
            return self._keep_from_running(call, hook_failure(original, error, notes), error.name)
        if isinstance(verdict, Block):
            return self._keep_from_running(call, failure(original, "blocked", verdict.reason), notes.last)
        if isinstance(verdict, Answer):
            return result_of_value(original, verdict.value, batch.settings.secrets)
        prepared_call = batch.prepare_or_reuse(verdict)
        if isinstance(prepared_call, ToolResult):
            call.passed_calls = ()  # `after` is called here: it may rescue a failure that would end the batch
            chain = chain_of(verdict, batch.settings.interceptors, batch.context, notes)
            return await self._in_time(chain.after(verdict, prepared_call))
        is_changed = verdict is not original and verdict != original
        return replace(prepared_call, changed=True) if is_changed else prepared_call

    async def _refuse_malformed(self, call: Call, malformed_call: MalformedCall) -> None:
        """Resolves a malformed call. Interceptors see it as a call without arguments."""
        batch, result = self._batch, failure(malformed_call, "malformed", malformed_call.reason)
        extra = {**malformed_call.extra, "malformed": malformed_call.raw}
        stand_in = ToolCall(malformed_call.id, malformed_call.name or "", {}, extra=extra)
        try:
            if batch.settings.interceptors:
                chain = chain_of(stand_in, batch.settings.interceptors, batch.context, batch.notes)
                result = await self._in_time(chain.after(stand_in, result))
        except _TooLateError:
            pass
        except AgentStop as stop:
            self._stop_run(stop, stand_in)
            result = stopped_result(stand_in, stop)
        self._keep_from_running(call, result)

    async def _recover(self, call: Call, prepared_call: PreparedCall) -> None:
        """Decides about a call in doubt. Its approval stays valid and is not requested again."""
        batch, tool_call, tool = self._batch, prepared_call.call, prepared_call.tool
        effects = hide_effects(prepared_call.effects, batch.settings.secrets)
        digest = request_digest(tool_call, tool.now, effects, again=True)
        context = batch.context.run_context(tool_call, prepared_call.idempotency_key)
        outcome = await batch.doubtful_calls.settle(prepared_call, digest, context)
        if not isinstance(outcome, VerifiedResult) and is_refusal(batch.notes.decisions.get(call.original.id)):
            outcome = False
        if isinstance(outcome, VerifiedResult):
            self._keep_from_running(call, result_of_value(tool_call, outcome.value, batch.settings.secrets))
        elif outcome is None and (self._approver is None or has_person(self._approver)):
            request = ApprovalRequest(
                tool_call, tool.now, effects, "", IN_DOUBT_REASON, digest, state=batch.context.state
            )
            request = await self._in_time(self._builder.with_preview(request, prepared_call))
            call.ask(prepared_call, request, asks_to_repeat=True)
        elif outcome:
            call.admit(prepared_call)
        else:
            self._keep_from_running(call, batch.doubtful_calls.result_of_unknown(tool_call))

    def _judge(self, call: Call, prepared_call: PreparedCall) -> ApprovalRequest | None:
        """Admits or refuses a call, or returns the question that a person must answer.

        The order: an earlier decision, the policy, an interceptor, the rules, the effects, a standing approver.
        """
        evaluator, builder, tool_call = self._evaluator, self._builder, prepared_call.call
        notes, hook = self._batch.notes, self._batch.notes.decisions.get(call.original.id)
        standing = self._approver if isinstance(self._approver, StandingApprover) else None
        is_open = evaluator.policy is None and hook is None and tool_call.id not in evaluator.decisions
        if is_open and not prepared_call.effects.needs_approval:
            answer = None  # as for most reads
        elif hook is None and standing is not None and evaluator.only_effects_decide(tool_call):
            answer = standing.decision  # without the question: to make it takes longer than all the rest
        else:
            request = builder.about(prepared_call, self._earlier)
            answer = builder.decided_before(prepared_call) or evaluator.answer(request)
            answer = builder.counting_answer(request, answer, hook, notes.approvals)
            if isinstance(answer, Escalate):
                request = replace(request.because(answer.reason), needs_person=answer.person)
                if standing is None:
                    return request
                refused_repair = "" if standing.repaired else unapproved_repair(request)
                if not standing.decision.approved:
                    answer = standing.decision
                elif answer.person:
                    answer = Decision(False, needs_person_reason(answer))
                elif refused_repair:
                    self._keep_from_running(call, failure(tool_call, "rejected", refused_repair), standing.decision.by)
                    return None
                else:
                    answer = standing.decision
        if answer is None:
            early = None if self._batch.early is None else self._batch.early.calls.get(tool_call.id)
            if early is not None and early.prepared_call is prepared_call:
                call.early = early
            call.admit(prepared_call)
        else:
            self._apply(call, prepared_call, answer)
        return None

    def _apply(self, call: Call, prepared_call: PreparedCall, decision: Decision) -> None:
        """Applies a decision to a call."""
        tool_call = prepared_call.call
        if not decision.approved:
            reason = f": {decision.reason}" if decision.reason else ""
            if decision.ends_run:
                self.stop = StopRequested("terminated", decision.reason, tool_call.id, by=decision.by)
                self.ends_run = True
            self._keep_from_running(call, failure(tool_call, "rejected", f"the call was rejected{reason}"), decision.by)
        elif decision.arguments is None or same_json(decision.arguments, tool_call.arguments):
            call.admit(prepared_call)
        else:
            new_prepared = self._batch.prepare(replace(tool_call, arguments=decision.arguments))
            if isinstance(new_prepared, ToolResult):
                self._keep_from_running(call, new_prepared)
            else:
                call.admit(replace(new_prepared, changed=True, note=changed_note(new_prepared.call, decision.reason)))

    def _keep_from_running(self, call: Call, result: ToolResult, refused_by: str = "") -> None:
        """Gives the call a result instead of running it. The result of a call in doubt says that it may have run."""
        call.resolve(self._batch.doubtful_calls.report(call.call, result), refused_by)

    def _skip_after(self, call: Call) -> None:
        """Skips the later calls if the result of a call that does not run ends the batch."""
        result, settings = call.result, self._batch.settings
        if result is None or call.is_recorded or self._skip_reason:
            return
        if self.ends_run:
            self._skip_reason = _RUN_ENDED
        elif result.code in ("blocked", "rejected"):
            if settings.stop_on_block:
                self._skip_reason = f"not started: {result.name} was blocked before it"
        elif settings.throw_on_failure and result.code is not None and result.code != "skipped":
            self._skip_reason = f"not started: {result.name or 'a call'} failed before it"
            self.stop = StopRequested("tool_failure", result.text, result.call_id)

    def _stop_run(self, stop: AgentStop, call: ToolCall) -> None:
        self._skip_reason = "not started: the run was told to stop before it"
        self.stop = self._batch.stop_of(stop, call.id)

    # --- asking

    async def ask_all(self) -> tuple[ApprovalRequest, ...]:
        """Asks about the pending calls, in call order or all at once.

        Returns the unanswered questions; none if a decision has ended the run.
        """
        calls = self._batch.calls
        if not self.ends_run:
            self._skip_reason = ""
            together: Mapping[str, Decision | Escalate] = {}
            if isinstance(self._approver, BatchApprover):
                together = await self._ask_together(self._approver, self._pending())
            for call in calls:
                if self._skip_reason:
                    result = call.result
                    if result is None:
                        self._keep_from_running(call, failure(call.call, "skipped", self._skip_reason))
                    elif not call.is_recorded and result.code != "skipped":
                        placeholder_call = ToolCall(result.call_id, result.name, {})
                        self._keep_from_running(call, failure(placeholder_call, "skipped", self._skip_reason))
                    continue
                if call.phase == "pending":
                    await self._ask(call, together)
                self._skip_after(call)
                if self.ends_run:
                    break
        return () if self.ends_run else self._pending()

    def _pending(self) -> tuple[ApprovalRequest, ...]:
        """The questions of the pending calls."""
        calls = self._batch.calls
        return tuple(call.request for call in calls if call.phase == "pending" and call.request is not None)

    async def _ask(self, call: Call, together: Mapping[str, Decision | Escalate]) -> None:
        """Asks about one call and applies the answer. Without an answer the call stays pending."""
        batch, prepared_call, request = self._batch, call.prepared_call, call.request
        assert prepared_call is not None, "the call is pending"
        assert request is not None, "the call is pending"
        tool_call = request.call
        if not together:
            await batch.emit(question_fact(request))
        if self._approver is None:
            return
        try:
            answer = together.get(tool_call.id)
            if answer is None:
                if isinstance(self._approver, BatchApprover):
                    raise TypeError("a batch approver cannot answer about a single call")
                answer = await self._outside_deadline(ask(self._approver, request))
        except AgentStop as stop:
            self._stop_run(stop, tool_call)
            self._keep_from_running(call, stopped_result(tool_call, stop))
            return
        revision: ApprovalRequest | None = request
        if isinstance(answer, Decision) and is_of_a_revision(answer, request):
            revision = self._builder.revision_of(prepared_call, answer)
            if revision is not None:
                await batch.emit(question_fact(revision))
        if isinstance(answer, Escalate) or revision is None:
            return
        fact = decision_fact(tool_call.id, answer, revision.digest, batch.settings.secrets)
        await record_decision(fact, batch.emit, self._evaluator.rules)
        if not call.asks_to_repeat or answer.ends_run:
            self._apply(call, prepared_call, replace(answer, reason=fact.reason))
        elif answer.approved:
            call.admit(prepared_call)
        else:
            self._keep_from_running(call, unknown_outcome(prepared_call.call, fact.reason))

    async def _ask_together(
        self, approver: BatchApprover, requests: Sequence[ApprovalRequest]
    ) -> dict[str, Decision | Escalate]:
        for request in requests:
            await self._batch.emit(question_fact(request))
        try:
            answers = await self._outside_deadline(ask_together(approver, requests))
        except AgentStop as stop:
            self._stop_run(stop, requests[0].call)
            return {}
        return {request.call.id: answer for request, answer in zip(requests, answers, strict=True)}

    # --- before the calls run

    async def close(self) -> None:
        """Ends the admission.

        Resolves the pending calls, and the admitted ones too if a decision has ended the run. Drops all early starts if
        one of them is not used. Records what interceptors noted, and that the run ends.
        """
        batch, early = self._batch, self._batch.early
        if self.ends_run:
            for call in batch.calls:
                if call.phase in ("pending", "admitted"):
                    self._keep_from_running(call, failure(call.call, "skipped", _RUN_ENDED))
        if early is not None and len(early.calls) > sum(call.early is not None for call in batch.calls):
            for call in batch.calls:
                if call.prepared_call is not None:
                    self._prepare_anew(call, call.prepared_call)
            await early.drop()
        if batch.settings.interceptors or batch.notes.approvals:
            await batch.record_notes()
        if self.stop is not None:
            await batch.emit(self.stop)

    def _prepare_anew(self, call: Call, earlier: PreparedCall) -> None:
        """Makes the call ready again: its function may have begun early, and changed the arguments."""
        call.early = None
        prepared_call = self._batch.prepare(earlier.call)
        if isinstance(prepared_call, ToolResult):
            self._keep_from_running(call, prepared_call)
        else:
            call.prepared_call = replace(earlier, arguments=prepared_call.arguments)

    # --- time

    async def _in_time(self, work: Awaitable[ResultT]) -> ResultT:
        """Awaits the work until the deadline. No fact is recorded in here: a half-recorded one would be lost."""
        limit = asyncio.timeout_at(self._batch.deadline.at)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if limit.expired():
                raise _TooLateError from None
            raise

    async def _outside_deadline(self, question: Awaitable[ResultT]) -> ResultT:
        """Awaits an answer outside the deadline, and moves the deadline by the time it took."""
        clock = asyncio.get_running_loop()
        began = clock.time()
        async with self._batch.context.pause.interrupts():
            answer = await question
        seconds = clock.time() - began
        self.approval_seconds += seconds
        self._batch.deadline.move_on(seconds)
        return answer
