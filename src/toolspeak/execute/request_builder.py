"""What is asked about a call: the call made ready to run, and the question that shows it, also with other arguments."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

from toolspeak.data.approvals import Decision, Escalate
from toolspeak.data.messages import JSON, ToolCall, ToolResult, failure
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, suggest
from toolspeak.execute.approval.approvers import ApprovalRequest, approval_reason, request_digest
from toolspeak.execute.approval.evaluator import PolicyEvaluator
from toolspeak.execute.batch import BatchContext
from toolspeak.execute.calls.arguments import read_arguments
from toolspeak.execute.calls.ids import key_of
from toolspeak.execute.calls.replay import Replayer, ResultRecorder
from toolspeak.execute.calls.results import describe
from toolspeak.execute.calls.secrets import Secrets, hide_effects
from toolspeak.execute.concurrency.threads import in_thread
from toolspeak.execute.entries import Held, Ready, Settled
from toolspeak.tools.context import RunContext
from toolspeak.tools.tool import Tool
from toolspeak.tools.toolset import Toolset

_PREVIEW_SECONDS = 30.0
_PREVIEW_CHARACTERS = 16 * 1024 * 1024
"""Of the longest preview. A longer one is left out whole: a person must never decide by a part."""
"""More than a person reads before saying yes, and small enough to record."""


@quick(frozen=False)
class RequestBuilder:
    """Makes the builder of one batch; nobody is asked here."""

    tools: Toolset
    secrets: Secrets
    context: BatchContext
    evaluator: PolicyEvaluator
    recorder: ResultRecorder | None = None
    replayer: Replayer | None = None
    _revisions: dict[tuple[str, str], ApprovalRequest] = field(default_factory=dict[tuple[str, str], ApprovalRequest])

    def ready(self, call: ToolCall) -> Ready | Settled:
        """The call with its tool, validated arguments and effects, or the failure that says what is wrong."""
        tool = self.tools.get(call.name)
        if tool is None:
            known = suggest(call.name, (one.name for one in self.tools))
            return Settled(failure(call, "unknown_tool", f"no tool is called {known}"))
        arguments = read_arguments(tool, call, self.secrets)
        if type(arguments) is ToolResult:
            return Settled(arguments)
        return Ready(call, tool, arguments, tool.effects_of(arguments), key_of(self.context.run_id, call.id))

    def about(self, ready: Ready, earlier: Sequence[ToolCall]) -> ApprovalRequest:
        """The question about a call, without a preview; `earlier` are the calls of the batch before it."""
        effects = hide_effects(ready.effects, self.secrets)
        reason = self.secrets.hide_text(approval_reason(effects))
        call, tool, before = ready.call, ready.tool.now, tuple(earlier)
        if reason and call.repaired_from is not None:
            reason += "; the model's text was malformed, and was repaired"
        digest, revise = request_digest(call, tool, effects), partial(self._revised, ready, before)
        return ApprovalRequest(call, tool, effects, "", reason, digest, before, self.context.state, revise)

    async def with_preview(self, request: ApprovalRequest, ready: Ready) -> ApprovalRequest:
        """The question as a person reads it."""
        return replace(request, preview=await self._preview_of(ready), previewed=ready.tool.previewed)

    async def _preview_of(self, ready: Ready) -> str:
        if self.replayer is not None:
            return self.replayer.preview(ready.call)  # the tool's function would look at what is here now
        made = await _preview(ready.tool, ready.arguments, self.run_context(ready.call))
        if len(made) > _PREVIEW_CHARACTERS:
            made = f"(no preview: it has {len(made):,} characters; the arguments hold all that the call is given)"
        shown = self.secrets.hide_text(made)
        if self.recorder is not None:
            self.recorder.keep_preview(ready.call, shown)
        return shown

    def run_context(self, call: ToolCall, key: str = "") -> RunContext[Any]:
        """What a tool's preview and its `verify` are told of the run."""
        return RunContext(self.context.deps, call, key, memory=self.context.memory, state=self.context.state)

    def revision_of(self, held: Held, decision: Decision) -> ApprovalRequest | None:
        """The question with a decision's arguments, as it was shown; None if it was not, or would be another by now."""
        shown = self._revisions.get((held.ready.call.id, decision.digest))
        if shown is None or decision.arguments is None:
            return None
        decided = replace(shown.call, arguments=decision.arguments)
        return shown if self._digest_of(decided) == decision.digest else None

    def decided_before(self, ready: Ready) -> Decision | None:
        """A yes to this call with other arguments, of a question asked before, if it holds."""
        decision = self.evaluator.decided.get(ready.call.id)
        if decision is None or not decision.approved or decision.arguments is None:
            return None
        revised = replace(ready.call, arguments=decision.arguments)
        return decision if self._digest_of(revised) == decision.digest else None

    def _digest_of(self, call: ToolCall) -> str | None:
        ready = self.ready(call)
        return None if isinstance(ready, Settled) else self.about(ready, ()).digest

    async def _revised(
        self, ready: Ready, earlier: Sequence[ToolCall], arguments: Mapping[str, JSON]
    ) -> ApprovalRequest:
        changed = self.ready(replace(ready.call, arguments=self.secrets.hide(dict(arguments))))
        if isinstance(changed, Settled):
            raise ConfigurationError(changed.result.text)
        request = self.about(changed, earlier)
        answer = self.evaluator.of_policy(request)
        if isinstance(answer, Decision) and not answer.approved:
            raise ConfigurationError(f"the policy refuses this: {answer.reason or 'it gives no reason'}")
        because = answer.reason if isinstance(answer, Escalate) else ""
        request = await self.with_preview(request.because(because), changed)
        self._revisions[request.call.id, request.digest] = request
        return request


def is_of_a_revision(decision: Decision, request: ApprovalRequest) -> bool:
    """Whether the decision is a yes to other arguments, bound to the question that showed them."""
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
    if isinstance(outcome.error, Exception):
        return f"(no preview: {describe(outcome.error)})"
    if outcome.error is not None:
        raise outcome.error
    return str(outcome.value)
