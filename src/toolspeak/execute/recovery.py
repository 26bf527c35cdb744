"""Recovery: calls that were started before their run was interrupted, and have no result.

If the tool has a `verify` function, it says what happened. Otherwise a call that `may_run_twice` (it is idempotent, or
only reads and stays on this machine) runs again with the same idempotency key. For any other call a person decides, or
the model reads that its outcome is unknown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import field
from functools import partial
from inspect import isawaitable
from typing import Any, Literal, TypeAlias

from toolspeak.data.approvals import Decision
from toolspeak.data.events import ApprovalDecided
from toolspeak.data.messages import MalformedCall, ToolCall, ToolResult, failure
from toolspeak.data.values import quick
from toolspeak.execute.approval.approvers import Approver, BatchApprover, StandingApprover, decision_of
from toolspeak.execute.calls.prepare import PreparedCall
from toolspeak.execute.concurrency.limits import in_thread
from toolspeak.tools.context import RunContext
from toolspeak.tools.crashes import log_crash
from toolspeak.tools.tool import Tool
from toolspeak.tools.verify import VerifiedResult

_LOG = logging.getLogger("toolspeak.execute")

InDoubtPolicy: TypeAlias = Literal["ask", "report", "repeat"]
"""What becomes of a call in doubt that must not simply run again.

- "ask": a person decides; the run pauses if it has no approver. A standing "all" or "none" is no person: "report".
- "report": the model reads that the outcome is unknown.
- "repeat": the call runs again.
"""

_VERIFY_SECONDS = 60.0
_NOT_RUN = frozenset({"skipped", "unknown_tool", "invalid_arguments", "rejected", "blocked"})
_REPORT = (
    "unknown outcome: this call was started, the run was interrupted, and nothing says whether it took effect. Look at"
    " what it would have changed before you repeat it."
)
IN_DOUBT_REASON = "was started before the run was interrupted, and may have taken effect. Approve to run it again"
_BY_POLICY: Mapping[InDoubtPolicy, bool | None] = {"ask": None, "report": False, "repeat": True}


def _no_decisions() -> dict[str, Decision | None]:
    return {}


@quick()
class CallsInDoubt:
    """The calls of a batch that are in doubt.

    - `decisions`: their ids, each with the decision about running it again, None without one.
    - `in_doubt_policy`: what happens to a call without a decision.
    """

    decisions: Mapping[str, Decision | None] = field(default_factory=_no_decisions)
    in_doubt_policy: InDoubtPolicy = "ask"

    def report(self, call: ToolCall | MalformedCall, result: ToolResult) -> ToolResult:
        """Returns the result of a call that does not run, as the model reads it.

        A call in doubt may have run before, so its result never says that it was not run.
        """
        if result.code in _NOT_RUN and call.id in self.decisions:
            return failure(call, "unknown_outcome", f"{_REPORT} It was not run again: {result.text}")
        return result

    def result_of_unknown(self, call: ToolCall) -> ToolResult:
        """Returns the failure of a call that `settle` does not run again, with the reason of its decision."""
        decision = self.decisions.get(call.id)
        return unknown_outcome(call, "" if decision is None or decision.approved else decision.reason)

    async def settle(
        self, prepared_call: PreparedCall, digest: str, context: RunContext[Any]
    ) -> VerifiedResult | bool | None:
        """Decides about a call in doubt: True if it runs again, False if its outcome stays unknown, None if a person
        must decide, `VerifiedResult` if it took effect.

        A decision counts only if it answers the question with this digest.
        """
        tool, effects = prepared_call.tool, prepared_call.effects
        if tool.verify is not None:
            verdict = await _verify(tool, prepared_call.arguments, context)
            if verdict is not None:
                return verdict if isinstance(verdict, VerifiedResult) else True
        if effects.may_run_twice:
            return True
        decision = self.decisions[prepared_call.call.id]
        if decision is not None and decision.digest in ("", digest):
            return decision.approved
        return _BY_POLICY[self.in_doubt_policy]


NONE_IN_DOUBT = CallsInDoubt()
"""No call of the batch is in doubt."""


def calls_in_doubt(facts: Mapping[str, ApprovalDecided | None], in_doubt_policy: InDoubtPolicy) -> CallsInDoubt:
    """Returns the calls in doubt of a run's state, with the recorded decision about each."""
    decisions = {call_id: None if fact is None else decision_of(fact) for call_id, fact in facts.items()}
    return CallsInDoubt(decisions, in_doubt_policy)


def has_person(approver: Approver | BatchApprover | None) -> bool:
    """Whether the approver is a person, who can look at what happened."""
    return approver is not None and not isinstance(approver, StandingApprover)


def unknown_outcome(call: ToolCall, reason: str = "") -> ToolResult:
    """Returns the failure of a call in doubt whose outcome stays unknown. `reason`: of whoever did not let it run
    again."""
    return failure(call, "unknown_outcome", f"{_REPORT} It was not run again: {reason}" if reason else _REPORT)


async def _verify(tool: Tool, arguments: Mapping[str, Any], context: RunContext[Any]) -> VerifiedResult | bool | None:
    """Returns what the tool's `verify` says; None if it fails or takes too long."""
    verify = tool.verify
    if verify is None:
        return None
    message = f"tool {tool.name!r}: verify failed, so the outcome of its call is unknown"
    try:
        async with asyncio.timeout(_VERIFY_SECONDS):
            outcome = await in_thread(partial(verify, arguments, context))
            if outcome.error is not None:
                log_crash(_LOG, message, outcome.error)
                return None
            verdict = await outcome.value if isawaitable(outcome.value) else outcome.value
    except Exception as error:  # noqa: BLE001 - the author's code; not knowing is the careful answer
        log_crash(_LOG, message, error)
        return None
    if verdict is True:
        return VerifiedResult("done before the run was interrupted")
    return verdict if verdict is False or isinstance(verdict, VerifiedResult) else None
