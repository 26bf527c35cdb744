"""Who decides about a call: an earlier decision, the policy, a standing rule, the effects, or a person, with the
question for that person."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, cast

from toolspeak.data.approvals import Decision, Escalate
from toolspeak.data.events import ApprovalDecided
from toolspeak.data.messages import JSON, ToolCall, ToolResult, failure
from toolspeak.data.tools import Effects
from toolspeak.data.values import quick
from toolspeak.errors import AgentStop, CertainFailure, ConfigurationError, ToolError
from toolspeak.execute.approval.after_web import AfterWeb, answer_after_web
from toolspeak.execute.approval.approvers import (
    ApprovalAnswer,
    ApprovalRequest,
    Policy,
    approval_reason,
    check_decision,
    decision_fact,
    request_digest,
)
from toolspeak.execute.approval.policy_rules import StandingRules
from toolspeak.execute.calls.prepare import PreparedCall
from toolspeak.execute.calls.replay import CassetteResults, RecordedResult, Replayer
from toolspeak.execute.calls.result_limits import describe
from toolspeak.execute.calls.secrets import Secrets, hide_effects
from toolspeak.execute.concurrency.limits import in_thread
from toolspeak.execute.concurrency.schedule import Conflicts
from toolspeak.tools.context import RunContext, StateView
from toolspeak.tools.crashes import log_crash
from toolspeak.tools.tool import Tool

_LOG = logging.getLogger("toolspeak.execute")

_PREVIEW_SECONDS = 30.0
_PREVIEW_CHARACTERS = 16 * 1024 * 1024
"""The longest preview: more than a person reads before a decision, and small enough to record. A longer one is left out
as a whole: a decision must not rest on a part."""


@quick()
class PolicyEvaluator:
    """Decides what needs no question.

    - `decisions`: earlier answers to this batch's questions, by call id.
    - `after_web`: what may change once the run has read the web; "allow" if it has not.
    """

    policy: Policy | None
    rules: StandingRules
    decisions: Mapping[str, Decision]
    after_web: AfterWeb = "allow"

    @property
    def looks_back(self) -> bool:
        """Whether a policy or a rule may need the calls before."""
        return self.policy is not None or len(self.rules) > 0

    def only_effects_decide(self, call: ToolCall) -> bool:
        """Whether no policy, rule, decision or repair has a part in the decision about the call."""
        is_plain = call.id not in self.decisions and call.repaired_from is None
        return not self.looks_back and is_plain and self.after_web == "allow"

    def answer(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Returns a decision, `Escalate` if a person must decide, or None if the call runs without a question.

        For a repaired call that does more than read, only an approval of this very call counts.
        """
        decision = self.decisions.get(request.call.id)
        if decision is not None and self._holds(decision, request):
            return decision
        answer = self.of_policy(request)
        if answer is None and request.reason:
            answer = Escalate()
        if isinstance(answer, Escalate) and not answer.person:
            answer = self.rules.decide(request) or answer
        if isinstance(answer, Decision) and answer.approved and unapproved_repair(request):
            return Escalate()
        return answer

    def with_hook(
        self, request: ApprovalRequest, answer: ApprovalAnswer | None, hook: ApprovalAnswer
    ) -> ApprovalAnswer | None:
        """Returns what counts of an answer and of an interceptor's decision (`HookContext.decide`)."""
        if isinstance(answer, Decision) and not answer.approved:
            return answer
        if is_refusal(hook):
            return hook
        decision = self.decisions.get(request.call.id)
        if decision is not None and self._holds(decision, request):
            return answer
        if isinstance(hook, Escalate):
            return replace(hook, person=True)
        is_for_a_person = isinstance(answer, Escalate) and answer.person
        return answer if answer is None or is_for_a_person or unapproved_repair(request) else hook

    def of_policy(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Returns the answer of the policy, and of what may happen after the web was read."""
        answer = None if self.policy is None else self._by_policy(self.policy, request)
        return answer if self.after_web == "allow" else answer_after_web(self.after_web, request, answer)

    def _holds(self, decision: Decision, request: ApprovalRequest) -> bool:
        """Whether the decision is about this request. A refusal without a digest holds for any call with its id."""
        return decision.digest == request.digest or (not decision.approved and not decision.digest)

    def _by_policy(self, policy: Policy, request: ApprovalRequest) -> ApprovalAnswer | None:
        try:
            answer = cast("object", policy(request))
            if isinstance(answer, Decision):
                check_decision(answer)
            if answer is None or isinstance(answer, Decision | Escalate):
                return answer
            problem = f"the policy returned {type(answer).__name__}, not a Decision, Escalate or None"
        except AgentStop:
            raise
        except Exception as error:  # noqa: BLE001 - foreign code: a person decides when it cannot
            log_crash(_LOG, f"the policy failed at a call of {request.call.name}, so a person is asked", error)
            problem = f"the policy failed: {describe(error)}"
        return Escalate(problem, person=True)


def is_refusal(answer: ApprovalAnswer | None) -> bool:
    """Whether the answer refuses the call."""
    return isinstance(answer, Decision) and not answer.approved


def unapproved_repair(request: ApprovalRequest) -> str:
    """Why a repaired call may not run without a question, for the model; "" for every other call."""
    if request.repaired_from is None or not approval_reason(request.effects):
        return ""
    read_as = json.dumps(request.call.arguments, ensure_ascii=False)
    return (
        "the call was not written correctly, and a call that does more than read runs only as it was written. It was "
        f"understood as {request.call.name} with {read_as}. If that is what you meant, write it again, as valid JSON"
    )


def needs_person_reason(answer: Escalate) -> str:
    """Why a call is refused that a person must decide about, where only a standing approver is present."""
    return f"{answer.reason or 'a person has to decide about it'}; there is no one to ask"


def changed_note(call: ToolCall, reason: str) -> str:
    """What the model reads about a call that ran with other arguments than its own."""
    because = f" ({reason})" if reason else ""
    return f"[This call was changed before it ran{because}: it ran with the arguments {json.dumps(call.arguments)}]\n"


@quick(frozen=False)
class RequestBuilder:
    """Builds the approval requests of one batch, without asking them.

    - `prepare`: makes a call ready to run.
    - `run_context`: makes the context of a tool's preview.
    """

    prepare: Callable[[ToolCall], PreparedCall | ToolResult]
    run_context: Callable[[ToolCall], RunContext[Any]]
    state: StateView | None
    secrets: Secrets
    evaluator: PolicyEvaluator
    cassette_results: CassetteResults | None = None
    replayer: Replayer | None = None
    _revisions: dict[tuple[str, str], ApprovalRequest] = field(default_factory=dict[tuple[str, str], ApprovalRequest])

    def about(self, prepared_call: PreparedCall, earlier: Sequence[ToolCall]) -> ApprovalRequest:
        """Returns the question about a call, without a preview. `earlier` are the calls of the batch before it."""
        effects = hide_effects(prepared_call.effects, self.secrets)
        reason = self.secrets.hide_text(approval_reason(effects))
        call, tool, before = prepared_call.call, prepared_call.tool.now, tuple(earlier)
        if reason and call.repaired_from is not None:
            reason += "; the model's text was malformed, and was repaired"
        digest, revise = request_digest(call, tool, effects), partial(self._revise, prepared_call, before)
        return ApprovalRequest(call, tool, effects, "", reason, digest, before, self.state, revise)

    def counting_answer(
        self,
        request: ApprovalRequest,
        answer: ApprovalAnswer | None,
        hook: ApprovalAnswer | None,
        facts: list[ApprovalDecided],
    ) -> ApprovalAnswer | None:
        """Returns what counts of an answer and of an interceptor's decision, None without one (`with_hook`).

        Adds to `facts` why nobody is asked: the interceptor's decision, or the approval by the policy or a rule of a
        call that needs approval. An earlier decision is recorded already.
        """
        call_id = request.call.id
        if hook is not None:
            counting = self.evaluator.with_hook(request, answer, hook)
            if isinstance(counting, Decision) and counting is hook:
                facts.append(decision_fact(call_id, counting, request.digest, self.secrets))
            return counting
        is_new = request.reason and answer is not self.evaluator.decisions.get(call_id)
        if is_new and isinstance(answer, Decision) and answer.approved:
            approval = replace(answer, by=answer.by or "the policy")
            facts.append(decision_fact(call_id, approval, request.digest, self.secrets))
        return answer

    async def with_preview(self, request: ApprovalRequest, prepared_call: PreparedCall) -> ApprovalRequest:
        """Returns the question with its preview, for a person. If the preview says that the call would fail, all
        arguments are shown in full."""
        try:
            return await self._with_preview(request, prepared_call)
        except ToolError as error:
            return self._with_failure(request, error)

    async def for_person(
        self, request: ApprovalRequest, prepared_call: PreparedCall, earlier: Iterable[Effects]
    ) -> ApprovalRequest | ToolResult:
        """Returns the question with its preview; or the failure of a call whose preview says that it is certain to
        fail, because nobody's yes can change that. `earlier`: the effects of the calls that run before it, which may
        change it."""
        call = prepared_call.call
        if self.replayer is not None and (replayed_result := self.replayer.unasked_result(call)) is not None:
            return replayed_result
        try:
            return await self._with_preview(request, prepared_call)
        except ToolError as error:
            before = Conflicts()
            for index, effects in enumerate(earlier):
                before.add(index, effects)
            if not isinstance(error, CertainFailure) and before.any_with(prepared_call.effects):
                return self._with_failure(request, error)
            result = failure(call, "exception", self.secrets.hide_text(describe(error)))
            result = replace(result, extra=error.extra) if error.extra else result
            if self.cassette_results is not None:
                self.cassette_results.keep(call, RecordedResult(result, skipped=True))
            return result

    async def _with_preview(self, request: ApprovalRequest, prepared_call: PreparedCall) -> ApprovalRequest:
        return replace(
            request,
            preview=await self._preview_of(prepared_call),
            preview_parameters=prepared_call.tool.preview_parameters,
        )

    def _with_failure(self, request: ApprovalRequest, error: ToolError) -> ApprovalRequest:
        reason = self.secrets.hide_text(describe(error))
        return replace(request, preview=f"As things are now, this call would fail: {reason}")

    async def _preview_of(self, prepared_call: PreparedCall) -> str:
        if self.replayer is not None:
            return self.replayer.preview(prepared_call.call)  # the tool would show what is here now
        text = await _preview(prepared_call.tool, prepared_call.arguments, self.run_context(prepared_call.call))
        if len(text) > _PREVIEW_CHARACTERS:
            text = f"(no preview: it has {len(text):,} characters; the arguments are complete)"
        preview = self.secrets.hide_text(text)
        if self.cassette_results is not None:
            self.cassette_results.keep_preview(prepared_call.call, preview)
        return preview

    def revision_of(self, prepared_call: PreparedCall, decision: Decision) -> ApprovalRequest | None:
        """Returns the question with the decision's arguments, as it was shown; None if it was not shown, or would
        differ by now.
        """
        request = self._revisions.get((prepared_call.call.id, decision.digest))
        if request is None or decision.arguments is None:
            return None
        revised_call = replace(request.call, arguments=decision.arguments)
        return request if self._digest_of(revised_call) == decision.digest else None

    def decided_before(self, prepared_call: PreparedCall) -> Decision | None:
        """Returns an earlier approval of this call with other arguments, if it still holds."""
        decision = self.evaluator.decisions.get(prepared_call.call.id)
        if decision is None or not decision.approved or decision.arguments is None:
            return None
        revised_call = replace(prepared_call.call, arguments=decision.arguments)
        return decision if self._digest_of(revised_call) == decision.digest else None

    def _digest_of(self, call: ToolCall) -> str | None:
        prepared_call = self.prepare(call)
        return None if isinstance(prepared_call, ToolResult) else self.about(prepared_call, ()).digest

    async def _revise(
        self, prepared_call: PreparedCall, earlier: Sequence[ToolCall], arguments: Mapping[str, JSON]
    ) -> ApprovalRequest:
        revised_call = self.prepare(replace(prepared_call.call, arguments=self.secrets.hide(dict(arguments))))
        if isinstance(revised_call, ToolResult):
            raise ConfigurationError(revised_call.text)
        request = self.about(revised_call, earlier)
        answer = self.evaluator.of_policy(request)
        if isinstance(answer, Decision) and not answer.approved:
            raise ConfigurationError(f"the policy refuses this: {answer.reason or 'it gives no reason'}")
        because = answer.reason if isinstance(answer, Escalate) else ""
        request = await self.with_preview(request.because(because), revised_call)
        self._revisions[request.call.id, request.digest] = request
        return request


def is_of_a_revision(decision: Decision, request: ApprovalRequest) -> bool:
    """Whether the decision approves other arguments, and is bound to the question that showed them."""
    return decision.approved and decision.arguments is not None and decision.digest not in ("", request.digest)


async def _preview(tool: Tool, arguments: Mapping[str, Any], context: RunContext[Any]) -> str:
    if tool.preview is None:
        return ""
    make = tool.preview
    try:
        async with asyncio.timeout(_PREVIEW_SECONDS):
            outcome = await in_thread(lambda: make(arguments, context))
    except TimeoutError:
        return f"(no preview: it took more than {_PREVIEW_SECONDS:g} seconds)"
    if isinstance(outcome.error, ToolError):
        raise outcome.error
    if isinstance(outcome.error, Exception):
        return f"(no preview: {describe(outcome.error)})"
    if outcome.error is not None:
        raise outcome.error
    return str(outcome.value)
