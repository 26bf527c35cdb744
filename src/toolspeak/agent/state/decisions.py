"""Decisions about calls that wait, as a caller writes them and as they are recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from toolspeak.data.approvals import Decision
from toolspeak.data.events import ApprovalDecided, ApprovalRequested
from toolspeak.errors import ConfigurationError, RunError
from toolspeak.execute import Secrets, check_decision


def decided(
    given: Mapping[str, Decision], waiting: Mapping[str, ApprovalRequested], secrets: Secrets
) -> list[ApprovalDecided]:
    """The facts of these decisions, each bound to what was asked.

    Raises RunError for a call that does not wait, and for a decision about another request than the one that waits.
    """
    unknown = set(given) - set(waiting)
    if unknown:
        known = ", ".join(waiting) or "none"
        raise RunError(f"no call {', '.join(sorted(map(str, unknown)))} waits for approval; these do: {known}")
    facts: list[ApprovalDecided] = []
    for call_id, decision in given.items():
        digest = waiting[call_id].digest
        if decision.digest not in ("", digest):
            raise RunError(f"the decision about {call_id} was made for another call: its digest is not the request's")
        facts.append(fact_of(call_id, replace(decision, reason=secrets.hide_text(decision.reason), digest=digest)))
    return facts


def decisions_of(given: Mapping[str, bool | Decision]) -> dict[str, Decision]:
    """Decisions as a caller may write them: `{"call_1_0": True}`. Raises ConfigurationError for anything but a bool or
    a Decision: the text "no" is a true value."""
    if not isinstance(cast("object", given), Mapping):
        raise ConfigurationError(
            f"decisions is a dict by call id, as in {{'call_1_0': True}}, not a {type(given).__name__}"
        )
    decisions: dict[str, Decision] = {}
    for waiting, said in given.items():
        decision = Decision(said, by="caller") if isinstance(said, bool) else said
        if not isinstance(cast("object", decision), Decision):
            raise ConfigurationError(f"{waiting} is decided by True, False or a Decision, not {said!r}")
        check_decision(decision)
        decisions[waiting] = decision
    return decisions


def fact_of(call_id: str, decision: Decision) -> ApprovalDecided:
    return ApprovalDecided(
        call_id,
        decision.approved,
        decision.reason,
        decision.by,
        decision.digest,
        decision.arguments,
        decision.ends_run,
        decision.always,
    )


def decision_of(fact: ApprovalDecided) -> Decision:
    return Decision(fact.approved, fact.reason, fact.by, fact.arguments, fact.ends_run, fact.always, fact.digest)


def doubts_of(in_doubt: Mapping[str, ApprovalDecided | None]) -> dict[str, Decision | None]:
    """What was decided of the calls in doubt."""
    return {call_id: None if fact is None else decision_of(fact) for call_id, fact in in_doubt.items()}
