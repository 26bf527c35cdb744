"""What a run may change once it has read the web: a page may have told the model what to do."""

from __future__ import annotations

from typing import Literal, TypeAlias

from toolspeak.data.approvals import Decision, Escalate
from toolspeak.data.tools import Effects
from toolspeak.data.web_sources import WEB
from toolspeak.execute.approval.approvers import ApprovalAnswer, Approver, BatchApprover, StandingApprover
from toolspeak.tools.context import StateView

AfterWeb: TypeAlias = Literal["ask", "refuse", "allow"]
"""What happens to a call that changes something, here or elsewhere, in a run that has read the web: a person is asked,
whoever else approves; it is refused; or nothing special."""

_MOST_NAMED = 3
_DEFAULTS: list[AfterWeb] = []


def use_after_web_by_default(choice: AfterWeb) -> None:
    """Sets what counts in this process where an agent does not choose, whomever it asks, as a worker does."""
    _DEFAULTS[:] = [choice]


def usual_after_web(approver: Approver | BatchApprover | None) -> AfterWeb:
    """What counts where an agent does not choose: the default of this process, else "ask" if no person is asked."""
    if _DEFAULTS:
        return _DEFAULTS[0]
    return "ask" if approver is None or isinstance(approver, StandingApprover) else "allow"


def after_web_now(
    choice: AfterWeb | None, approver: Approver | BatchApprover | None, state: StateView | None
) -> AfterWeb:
    """What counts for the calls of a batch: "allow" as long as the run has not read the web."""
    return (choice or usual_after_web(approver)) if state is not None and state.sources else "allow"


def answer_after_web(
    choice: AfterWeb, effects: Effects, state: StateView | None, answer: ApprovalAnswer | None
) -> ApprovalAnswer | None:
    """What counts of the policy's answer about a call once the run has read the web. A decision of the policy stays."""
    sources = () if state is None else state.sources
    if choice == "allow" or not sources or isinstance(answer, Decision) or not _changes_something(effects):
        return answer
    names = sorted(sources)
    places = ", ".join(name.removeprefix(WEB) or "the web" for name in names[:_MOST_NAMED])
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    reason = f"the run has read the web ({places}{more}), which may have asked for this"
    if choice == "refuse":
        return Decision(False, reason, by="after_web")
    earlier = answer.reason if isinstance(answer, Escalate) else ""
    return Escalate("; ".join(filter(None, (reason, earlier))), person=True)


def _changes_something(effects: Effects) -> bool:
    """Whether a call may change something. One that leaves the machine and names nothing that it reads sends."""
    return not effects.declared or bool(effects.writes) or (effects.external and not effects.reads)
