"""What a run may change once it has read the web: a page may have told the model what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

from toolspeak.data.approvals import Decision, Escalate
from toolspeak.data.messages import Message
from toolspeak.data.tools import Effects
from toolspeak.data.web_sources import WEB
from toolspeak.execute.approval.approvers import (
    ApprovalAnswer,
    ApprovalRequest,
    Approver,
    BatchApprover,
    StandingApprover,
)
from toolspeak.tools.context import StateView

AfterWeb: TypeAlias = Literal["ask", "refuse", "allow"]
"""What happens to a call that changes something, here or elsewhere, or reads a URL that the model made up, in a run
that has read the web: a person is asked, whoever else approves; it is refused; or nothing special."""

_URL = re.compile("https?://", re.IGNORECASE)

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
    choice: AfterWeb, request: ApprovalRequest, answer: ApprovalAnswer | None
) -> ApprovalAnswer | None:
    """What counts of the policy's answer about a call once the run has read the web. A decision of the policy stays."""
    state = request.state
    if choice == "allow" or state is None or not state.sources or isinstance(answer, Decision):
        return answer
    url = "" if _changes_something(request.effects) else _own_url(request, state)
    if not url and not _changes_something(request.effects):
        return answer
    names = sorted(state.sources)
    places = ", ".join(name.removeprefix(WEB) or "the web" for name in names[:_MOST_NAMED])
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    reason = f"the run has read the web ({places}{more}), which may have asked for this"
    if url:
        reason += "; the URL is not one of the task or of a page that it read"
    if choice == "refuse":
        return Decision(False, reason, by="after_web")
    earlier = answer.reason if isinstance(answer, Escalate) else ""
    return Escalate("; ".join(filter(None, (reason, earlier))), person=True)


def _changes_something(effects: Effects) -> bool:
    """Whether a call may change something. One that leaves the machine and names nothing that it reads sends."""
    return not effects.declared or bool(effects.writes) or (effects.external and not effects.reads)


def _own_url(request: ApprovalRequest, state: StateView) -> str:
    """A URL that a call would read and that the model made up: it may carry what the model knows to its host. "" if
    each stands in a message to the model."""
    urls = (each for each in request.call.arguments.values() if isinstance(each, str) and _URL.match(each))
    for url in urls if request.hosts else ():
        # To its end: of a longer URL a model could choose where to cut it.
        whole = re.compile(rf"(?<![\w/]){re.escape(url)}(?=$|[\s()\[\]<>\"'`|*,#{{}}\\]|[.;:!?]+(?:$|[\s)\"'\]]))")
        if not any(whole.search(text) for message in state.messages for text in _texts_to_model(message)):
            return url
    return ""


def _texts_to_model(message: Message) -> Iterator[str]:
    """The texts of a message that others than the model wrote."""
    if message.role == "tool":
        yield from (result.text for result in message.results)
    elif message.role != "assistant":
        yield message.text
