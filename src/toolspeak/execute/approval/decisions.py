"""Questions and decisions as facts, in the run that asks and in one that is resumed with decisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from toolspeak.data.approvals import Decision
from toolspeak.data.events import ApprovalDecided, ApprovalRequested
from toolspeak.errors import ConfigurationError, RunError
from toolspeak.execute.approval.approval_validation import check_decision
from toolspeak.execute.approval.approvers import ApprovalRequest
from toolspeak.execute.approval.policy_rules import StandingRules
from toolspeak.execute.calls.secrets import Secrets


def question_fact(request: ApprovalRequest) -> ApprovalRequested:
    """That somebody is asked about a call."""
    call = request.call
    return ApprovalRequested(call.id, request.reason, request.preview, call, request.effects, request.digest)


def decision_fact(call_id: str, decision: Decision, digest: str, secrets: Secrets) -> ApprovalDecided:
    """The decision, bound to the question with this digest; its reason holds no secrets."""
    return ApprovalDecided(
        call_id,
        decision.approved,
        secrets.hide_text(decision.reason),
        decision.by,
        digest,
        decision.arguments,
        decision.ends_run,
        decision.always,
    )


def decision_of(fact: ApprovalDecided) -> Decision:
    """The decision that was recorded."""
    return Decision(fact.approved, fact.reason, fact.by, fact.arguments, fact.ends_run, fact.always, fact.digest)


def keep_rule(fact: ApprovalDecided, rules: StandingRules) -> None:
    """Keeps the rule that came with a decision, if one did."""
    if fact.always is not None:
        rules.add(fact.always, fact.by)


def read_decisions(answers: Mapping[str, bool | Decision]) -> dict[str, Decision]:
    """Decisions as a caller may write them: `{"call_1_0": True}`. Raises ConfigurationError for anything but a bool or
    a Decision: the text "no" is a true value."""
    if not isinstance(cast("object", answers), Mapping):
        raise ConfigurationError(
            f"decisions is a dict by call id, as in {{'call_1_0': True}}, not a {type(answers).__name__}"
        )
    decisions: dict[str, Decision] = {}
    for call_id, answer in answers.items():
        decision = Decision(answer, by="caller") if isinstance(answer, bool) else answer
        if not isinstance(cast("object", decision), Decision):
            raise ConfigurationError(f"{call_id} is decided by True, False or a Decision, not {answer!r}")
        check_decision(decision)
        decisions[call_id] = decision
    return decisions


def decision_facts(
    decisions: Mapping[str, Decision], waiting: Mapping[str, ApprovalRequested], secrets: Secrets
) -> list[ApprovalDecided]:
    """The facts of these decisions, each bound to what was asked.

    Raises RunError for a call that does not wait, and for a decision about another request than the one that waits.
    """
    unknown = set(decisions) - set(waiting)
    if unknown:
        known = ", ".join(waiting) or "none"
        raise RunError(f"no call {', '.join(sorted(map(str, unknown)))} waits for approval; these do: {known}")
    facts: list[ApprovalDecided] = []
    for call_id, decision in decisions.items():
        digest = waiting[call_id].digest
        if decision.digest not in ("", digest):
            raise RunError(f"the decision about {call_id} was made for another call: its digest is not the request's")
        facts.append(decision_fact(call_id, decision, digest, secrets))
    return facts
