"""Who decides about a call, and in which order: an earlier decision, the policy, a kept rule, the effects."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import cast

from toolspeak.data.approvals import Decision, Escalate
from toolspeak.data.messages import ToolCall
from toolspeak.data.tools import Effects
from toolspeak.data.values import quick
from toolspeak.errors import AgentStop
from toolspeak.execute.approval.approval_validation import check_decision
from toolspeak.execute.approval.approvers import Answer, ApprovalRequest, Policy, approval_reason
from toolspeak.execute.approval.policy_rules import StandingRules
from toolspeak.execute.calls.result_limits import describe
from toolspeak.tools.crashes import log_crash

_LOG = logging.getLogger("toolspeak.execute")


@quick()
class PolicyEvaluator:
    """Decides without asking anybody. `decisions` are the answers to questions of this batch that were asked before."""

    policy: Policy | None
    rules: StandingRules
    decisions: Mapping[str, Decision]

    @property
    def looks_back(self) -> bool:
        """Whether a policy or a rule may want to know the calls before."""
        return self.policy is not None or len(self.rules) > 0

    def is_needed(self, call: ToolCall, effects: Effects) -> bool:
        """Whether anything has to be decided about the call: of most reads nothing has."""
        return self.policy is not None or call.id in self.decisions or bool(approval_reason(effects))

    def only_effects_decide(self, call: ToolCall) -> bool:
        """Whether no policy, rule, decision or repair has a part in what is decided about the call."""
        return not self.looks_back and call.id not in self.decisions and call.repaired_from is None

    def answer(self, request: ApprovalRequest) -> Answer | None:
        """A decision, `Escalate` (somebody has to be asked), or None: it runs unasked.

        A yes that nobody gave to this very call does not hold for a repaired one that does more than read.
        """
        decision = self.decisions.get(request.call.id)
        if decision is not None and self._holds(decision, request):
            return decision
        answer = self.of_policy(request)
        if answer is None and request.reason:
            answer = Escalate()
        if isinstance(answer, Escalate) and not answer.person:
            answer = self.rules.decide(request) or answer
        if isinstance(answer, Decision) and answer.approved and no_unasked_repair(request):
            return Escalate()
        return answer

    def of_policy(self, request: ApprovalRequest) -> Answer | None:
        """What the policy alone says."""
        return None if self.policy is None else self._by_policy(self.policy, request)

    def _holds(self, decision: Decision, request: ApprovalRequest) -> bool:
        """A yes is for what was asked; a no that is bound to nothing is for whatever bears the id."""
        return decision.digest == request.digest or (not decision.approved and not decision.digest)

    def _by_policy(self, policy: Policy, request: ApprovalRequest) -> Answer | None:
        try:
            answer = cast("object", policy(request))
            if isinstance(answer, Decision):
                check_decision(answer)
            if answer is None or isinstance(answer, Decision | Escalate):
                return answer
            problem = f"the policy answered with {type(answer).__name__}, not a Decision, Escalate or None"
        except AgentStop:
            raise
        except Exception as error:  # noqa: BLE001 - foreign code: a person decides when it cannot
            log_crash(_LOG, f"the policy failed at a call of {request.call.name}, so a person is asked", error)
            problem = f"the policy failed: {describe(error)}"
        return Escalate(problem, person=True)


def no_unasked_repair(request: ApprovalRequest) -> str:
    """What the model is told of a repaired call that may not run unasked, "" for every other call."""
    if request.repaired_from is None or not approval_reason(request.effects):
        return ""
    read = json.dumps(request.call.arguments, ensure_ascii=False)
    return (
        "the call was not written correctly, and a call that does more than read runs only as it was written. It was "
        f"understood as {request.call.name} with {read}. If that is what you meant, write it again, as valid JSON"
    )


def only_a_person(answer: Escalate) -> str:
    """What the model is told where a policy wants a person to decide, and there is nobody but a standing yes."""
    return f"{answer.reason or 'a person has to decide about it'}; there is nobody to ask"


def changed_note(call: ToolCall, reason: str) -> str:
    """What the model is told of a call that was let run with other arguments than its own."""
    because = f" ({reason})" if reason else ""
    return f"[This call was changed before it ran{because}: its arguments were {json.dumps(call.arguments)}]\n"
