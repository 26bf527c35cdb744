"""Asking before something changes: which calls need a yes, what is asked, who answers."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Literal, Protocol, cast

from toolspeak.data.messages import ToolCall
from toolspeak.data.tools import Effects, ToolSpec
from toolspeak.errors import UsageError


@dataclass(frozen=True, slots=True)
class Decision:
    """A yes or a no. `reason` of a no goes to the model; `by` says who decided."""

    approved: bool
    reason: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """One call that waits for a yes, with secrets as placeholders.

    `preview` shows what the call would change, "" when its tool cannot tell; `reason` says why it needs a yes.
    """

    call: ToolCall
    tool: ToolSpec
    effects: Effects
    preview: str
    reason: str


class Approver(Protocol):
    """Answers one request; requests come one at a time, in call order."""

    async def __call__(self, request: ApprovalRequest, /) -> Decision: ...


@dataclass(frozen=True, slots=True)
class StandingApprover:
    """Gives every request the same answer. Nobody is asked, so no preview is made and no question recorded."""

    decision: Decision

    async def __call__(self, request: ApprovalRequest, /) -> Decision:
        return self.decision


approve_all = StandingApprover(Decision(True, by="approve_all"))
"""Says yes to every call."""


def approve_none(reason: str = "changes are not allowed in this run") -> StandingApprover:
    """Says no to every call that needs a yes, with this reason for the model."""
    return StandingApprover(Decision(False, reason, by="approve_none"))


def resolve_approver(approve: Literal["all", "none"] | Approver | None) -> Approver | None:
    """What a person may write as `approve=`: "all", "none", an async callable, or None (pause and wait).

    Raises UsageError for anything else.
    """
    if approve is None:
        return None
    if approve == "all":
        return approve_all
    if approve == "none":
        return approve_none()
    if not callable(approve):
        raise UsageError(f"approve is 'all', 'none', an async callable or None, not {approve!r}")
    return approve


async def ask(approver: Approver, request: ApprovalRequest) -> Decision:
    """The approver's decision. Raises UsageError when the answer is anything but a Decision."""
    # Typed callers cannot get this wrong; others must not have a forgotten `async` read as a yes.
    answer = cast("object", approver(request))
    if isinstance(answer, Awaitable):
        answer = await cast("Awaitable[object]", answer)
    if not isinstance(answer, Decision):
        raise UsageError(f"an approver answers with a Decision, not {type(answer).__name__}")
    return answer


def approval_reason(effects: Effects) -> str:
    """Why a call with these effects waits for a yes: it writes, leaves the machine, or does not say; "" if it
    does not wait."""
    if effects.declared and not effects.writes and not effects.external:
        return ""
    if not effects.declared:
        return "does not declare what it touches"
    reasons: list[str] = []
    if not effects.read_only:
        reasons.append(f"writes {', '.join(sorted(effects.writes))}")
    if effects.external:
        reasons.append("leaves this machine")
    return " and ".join(reasons)
