"""The first phase of a batch: in call order, each call is admitted, refused, or found to wait for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from toolspeak.data.approvals import Decision, Escalate
from toolspeak.data.events import Event, StopRequested, UserMessageQueued
from toolspeak.data.messages import MalformedCall, Message, ToolCall, ToolResult, failure
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
    no_unasked_repair,
    only_a_person,
)
from toolspeak.execute.batch_state import BatchState, Call
from toolspeak.execute.calls.prepare import PreparedCall
from toolspeak.execute.calls.result_limits import result_of, stopped_result
from toolspeak.execute.calls.secrets import hide_effects
from toolspeak.execute.hooks import Answer, Block, HookError, chain_of, hook_failure
from toolspeak.execute.recovery import IN_DOUBT_REASON, has_person, unknown_outcome
from toolspeak.tools.verify import Happened

ResultT = TypeVar("ResultT")

_ENDED = "not started: the run was ended by a decision"


class _TooLateError(Exception):
    """The run's time was over while a call was being admitted."""


class CallAdmission:
    """Admits the calls of one batch; make a new one for each. `waited` are the seconds an approver took so far; `stop`
    is set once the run is to end. `has_pending`: a call waits for an answer."""

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
            settings.recorder,
            settings.replayer,
        )
        self._skip_reason = ""
        self._earlier: list[ToolCall] = []
        self.waited = 0.0
        self.stop: StopRequested | None = None
        self.has_pending = False

    async def admit_all(self, finished: Mapping[str, ToolResult], max_calls: int | None) -> None:
        """Admits, resolves or holds every call. Those that are `finished` already (by call id) or malformed do not
        count towards `max_calls`."""
        batch, pipeline, deadline = self._batch, self._batch.settings.pipeline, self._batch.deadline
        counted, looks_back = 0, len(batch.calls) > 1 and self._evaluator.looks_back
        for call in batch.calls:
            written = call.written
            if written.id in finished:
                call.resolve(finished[written.id], recorded=True)
                continue
            counted += type(written) is ToolCall
            if self._skip_reason:
                self._resolve(call, failure(written, "skipped", self._skip_reason))
            elif type(written) is not ToolCall:
                assert isinstance(written, MalformedCall), "a call is either"
                await self._refuse_malformed(call, written)
            elif max_calls is not None and counted > max_calls:
                self._resolve(call, failure(written, "skipped", "the run's limit on calls is reached"))
            elif deadline.passed():
                self._resolve(call, failure(written, "skipped", deadline.before_start()))
            else:
                try:
                    prepared = await self._intercepted(call, written) if pipeline else self._prepared(written)
                    if type(prepared) is ToolResult:
                        self._resolve(call, prepared)
                    elif prepared is not None and written.id in batch.in_doubt.calls:
                        await self._recover(call, prepared)
                    elif prepared is not None:
                        question = self._judge(call, prepared)
                        if question is not None:
                            call.ask(prepared, await self._in_time(self._builder.with_preview(question, prepared)))
                except _TooLateError:
                    self._resolve(call, failure(written, "skipped", deadline.before_start()))
                except AgentStop as stop:
                    self._stop_run(stop, written)
                    self._resolve(call, stopped_result(written, stop))
            if call.prepared is None:
                self._consider(call)
                continue
            if looks_back:
                self._earlier.append(call.prepared.call)
            if call.request is not None:
                self.has_pending = True

    def _prepared(self, call: ToolCall) -> PreparedCall | ToolResult:
        """The call made ready; what was made ready while the model wrote is so still, if its effects are the same."""
        early = self._batch.early
        return (None if early is None else early.prepared(call)) or self._batch.prepare(call)

    async def _intercepted(self, call: Call, written: ToolCall) -> PreparedCall | ToolResult | None:
        """The call as `before` lets it pass, or its result; None where it is resolved by what refused it."""
        batch, notes = self._batch, self._batch.notes
        chain = chain_of(written, batch.settings.pipeline, batch.context, notes)
        try:
            verdict = await self._in_time(chain.before(written))
        except HookError as error:
            return self._resolve(call, hook_failure(written, error, notes), error.name)
        if isinstance(verdict, Block):
            return self._resolve(call, failure(written, "blocked", verdict.reason), notes.last)
        if isinstance(verdict, Answer):
            return result_of(written, verdict.value, batch.settings.secrets)
        prepared = batch.prepare(verdict)
        if isinstance(prepared, ToolResult):
            chain = chain_of(verdict, batch.settings.pipeline, batch.context, notes)
            return await self._in_time(chain.after(verdict, prepared))
        return replace(prepared, changed=True) if verdict is not written and verdict != written else prepared

    async def _refuse_malformed(self, call: Call, written: MalformedCall) -> None:
        """The result of what is no call: interceptors see it as one without arguments."""
        batch, result = self._batch, failure(written, "malformed", written.reason)
        stand_in = ToolCall(written.id, written.name or "", {}, extra={**written.extra, "malformed": written.raw})
        try:
            if batch.settings.pipeline:
                chain = chain_of(stand_in, batch.settings.pipeline, batch.context, batch.notes)
                result = await self._in_time(chain.after(stand_in, result))
        except _TooLateError:
            pass
        except AgentStop as stop:
            self._stop_run(stop, stand_in)
            result = stopped_result(stand_in, stop)
        self._resolve(call, result)

    async def _recover(self, call: Call, prepared: PreparedCall) -> None:
        """What becomes of a call that was started before. Its approval stands: it is not asked for again."""
        batch, written, tool = self._batch, prepared.call, prepared.tool
        effects = hide_effects(prepared.effects, batch.settings.secrets)
        digest = request_digest(written, tool.now, effects, again=True)
        context = batch.context.run_context(written, prepared.idempotency_key)
        outcome = await batch.in_doubt.settle(prepared, digest, context)
        if isinstance(outcome, Happened):
            self._resolve(call, result_of(written, outcome.value, batch.settings.secrets))
        elif outcome is None and (self._approver is None or has_person(self._approver)):
            request = ApprovalRequest(
                written, tool.now, effects, "", IN_DOUBT_REASON, digest, state=batch.context.state
            )
            request = await self._in_time(self._builder.with_preview(request, prepared))
            call.ask(prepared, request, in_doubt=True)
        elif outcome:
            call.admit(prepared)
        else:
            self._resolve(call, unknown_outcome(written))

    def _judge(self, call: Call, prepared: PreparedCall) -> ApprovalRequest | None:
        """Admits or refuses a call, or gives the question that has to be asked about it: by an earlier decision, the
        policy, the rules, the effects, and an approver that answers every question alike."""
        evaluator, builder = self._evaluator, self._builder
        standing = self._approver if isinstance(self._approver, StandingApprover) else None
        if not evaluator.is_needed(prepared.call, prepared.effects):
            answer = None
        elif standing is not None and evaluator.only_effects_decide(prepared.call):
            answer = standing.decision  # whatever the question is: making it takes longer than all the rest
        else:
            request = builder.about(prepared, self._earlier)
            answer = builder.decided_before(prepared) or evaluator.answer(request)
            if isinstance(answer, Escalate):
                request = request.because(answer.reason)
                if standing is None:
                    return request
                refused_repair = "" if standing.repaired else no_unasked_repair(request)
                if not standing.decision.approved:
                    answer = standing.decision
                elif answer.person:
                    answer = Decision(False, only_a_person(answer))
                elif refused_repair:
                    self._resolve(call, failure(prepared.call, "rejected", refused_repair), standing.decision.by)
                    return None
                else:
                    answer = standing.decision
        if answer is None:
            if self._batch.early is not None:
                call.early = self._batch.early.take(prepared)
            call.admit(prepared)
        else:
            self._apply(call, prepared, answer)
        return None

    def _apply(self, call: Call, prepared: PreparedCall, decision: Decision) -> None:
        """What a decision makes of a call."""
        written = prepared.call
        if not decision.approved:
            reason = f": {decision.reason}" if decision.reason else ""
            if decision.ends_run:
                self.stop = StopRequested("terminated", decision.reason, written.id, by=decision.by)
            self._resolve(call, failure(written, "rejected", f"the call was rejected{reason}"), decision.by)
        elif decision.arguments is None or same_json(decision.arguments, written.arguments):
            call.admit(prepared)
        else:
            changed = self._batch.prepare(replace(written, arguments=decision.arguments))
            if isinstance(changed, ToolResult):
                self._resolve(call, changed)
            else:
                call.admit(replace(changed, changed=True, note=changed_note(changed.call, decision.reason)))

    def _resolve(self, call: Call, result: ToolResult, refused_by: str = "") -> None:
        """The call does not run. Of one in doubt nobody can say that it did not."""
        call.resolve(self._batch.in_doubt.report(call.call, result), refused_by)

    def _consider(self, call: Call) -> None:
        """Whether what became of a call that does not run ends the batch: then the calls behind it are skipped."""
        result, settings = call.result, self._batch.settings
        if result is None or call.recorded or self._skip_reason:
            return
        if self.ends_run:
            self._skip_reason = _ENDED
        elif result.code in ("blocked", "rejected"):
            if settings.stop_on_block:
                self._skip_reason = f"not started: {result.name} was blocked before it"
        elif settings.throw_on_failure and result.code is not None and result.code != "skipped":
            self._skip_reason = f"not started: {result.name or 'a call'} failed before it"
            self.stop = StopRequested("tool_failure", result.text, result.call_id)

    def _stop_run(self, stop: AgentStop, call: ToolCall) -> None:
        self._skip_reason = "not started: the run was told to stop before it"
        self.stop = self._batch.stop_of(stop, call.id)

    @property
    def ends_run(self) -> bool:
        """Whether a decision has ended the run: then nothing of the batch runs."""
        return self.stop is not None and self.stop.reason == "terminated"

    # --- asking

    async def ask_all(self) -> tuple[ApprovalRequest, ...]:
        """Asks about the calls that are pending, in call order or all at once. The questions that nobody has
        answered; none once a decision has ended the run."""
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
                        self._resolve(call, failure(call.call, "skipped", self._skip_reason))
                    elif not call.recorded and result.code != "skipped":
                        named = ToolCall(result.call_id, result.name, {})
                        self._resolve(call, failure(named, "skipped", self._skip_reason))
                    continue
                if call.phase == "pending":
                    await self._ask(call, together)
                self._consider(call)
                if self.ends_run:
                    break
        return () if self.ends_run else self._pending()

    def _pending(self) -> tuple[ApprovalRequest, ...]:
        """The questions of the calls that wait."""
        calls = self._batch.calls
        return tuple(call.request for call in calls if call.phase == "pending" and call.request is not None)

    async def _ask(self, call: Call, together: Mapping[str, Decision | Escalate]) -> None:
        """What an answer makes of a call; it stays pending if there is none."""
        batch, prepared, request = self._batch, call.prepared, call.request
        assert prepared is not None, "it is pending"
        assert request is not None, "it is pending"
        written = request.call
        if not together:
            await batch.emit(question_fact(request))
        if self._approver is None:
            return
        try:
            answer = together.get(written.id)
            if answer is None:
                if isinstance(self._approver, BatchApprover):
                    raise TypeError("an approver of whole batches is not asked about one call")
                answer = await self._timed(ask(self._approver, request))
        except AgentStop as stop:
            self._stop_run(stop, written)
            self._resolve(call, stopped_result(written, stop))
            return
        revision: ApprovalRequest | None = request
        if isinstance(answer, Decision) and is_of_a_revision(answer, request):
            revision = self._builder.revision_of(prepared, answer)
            if revision is not None:
                await batch.emit(question_fact(revision))
        if isinstance(answer, Escalate) or revision is None:
            return
        fact = decision_fact(written.id, answer, revision.digest, batch.settings.secrets)
        await batch.emit(fact)
        if fact.always is not None:
            self._evaluator.rules.add(fact.always, fact.by)
        if not call.in_doubt or answer.ends_run:
            self._apply(call, prepared, replace(answer, reason=fact.reason))
        elif answer.approved:
            call.admit(prepared)
        else:
            self._resolve(call, unknown_outcome(prepared.call))

    async def _ask_together(
        self, approver: BatchApprover, requests: Sequence[ApprovalRequest]
    ) -> dict[str, Decision | Escalate]:
        for request in requests:
            await self._batch.emit(question_fact(request))
        try:
            answers = await self._timed(ask_together(approver, requests))
        except AgentStop as stop:
            self._stop_run(stop, requests[0].call)
            return {}
        return {request.call.id: answer for request, answer in zip(requests, answers, strict=True)}

    # --- before the calls run

    async def close(self) -> None:
        """Nothing is asked any more. Resolves what waits, and all where a decision has ended the run; drops what began
        early where not all of it is used; records what interceptors leave behind, and that the run is to end."""
        batch, early = self._batch, self._batch.early
        for call in batch.calls:
            if call.phase == "pending" or (self.ends_run and call.phase == "admitted"):
                self._resolve(call, failure(call.call, "skipped", _ENDED))
        if early is not None and not early.is_wanted:
            for call in batch.calls:
                if call.prepared is not None:
                    self._prepare_anew(call, call.prepared)
            await early.drop()
        notes, hide = batch.notes, batch.settings.secrets.hide_text
        facts: list[Event] = [replace(each, error=hide(each.error)) for each in notes.failed]
        facts += [change.fact for change in notes.changes]
        facts += [UserMessageQueued(Message.user(hide(text))) for text in notes.messages]
        if self.stop is not None:
            facts.append(self.stop)
        for fact in facts:
            await batch.emit(fact)

    def _prepare_anew(self, call: Call, known: PreparedCall) -> None:
        """Its function may have begun, and changed the arguments that were made ready for it."""
        call.early = None
        prepared = self._batch.prepare(known.call)
        if isinstance(prepared, ToolResult):
            self._resolve(call, prepared)
        else:
            call.prepared = replace(known, arguments=prepared.arguments)

    # --- time

    async def _in_time(self, work: Awaitable[ResultT]) -> ResultT:
        """Waits no longer than the deadline. Facts are not recorded in here: a half-recorded one would be lost."""
        limit = asyncio.timeout_at(self._batch.deadline.at)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if limit.expired():
                raise _TooLateError from None
            raise

    async def _timed(self, question: Awaitable[ResultT]) -> ResultT:
        """A person's time does not count: the question is not under the deadline, which moves on instead."""
        clock = asyncio.get_running_loop()
        began = clock.time()
        async with self._batch.context.pause.ends():
            answer = await question
        waited = clock.time() - began
        self.waited += waited
        self._batch.deadline.move_on(waited)
        return answer
