"""What a run may change once it has read the web: a page may have told the model what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Literal, TypeAlias

from toolspeak.data.approvals import Decision, Escalate
from toolspeak.data.messages import Message
from toolspeak.data.tools import WEB, Effects
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
_URL_IN_TEXT = re.compile(r"https?://[^\s()\[\]<>\"'`|*,#{}\\]+", re.IGNORECASE)
_MOST_URLS = 200

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


def answer_after_web(
    choice: Literal["ask", "refuse"], request: ApprovalRequest, answer: ApprovalAnswer | None
) -> ApprovalAnswer | None:
    """The policy's answer about a call, limited if the run has read the web. A decision of the policy stays."""
    state = request.state
    if state is None or not state.sources or isinstance(answer, Decision):
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
    return next((url for url in urls if request.hosts and not _is_of_others(url, state)), "")


def urls_of_others(messages: Iterable[Message], state: StateView) -> list[str]:
    """The URLs in messages of a run's model, such as the task of another run, that it did not make up."""
    text = "\n".join(message.text for message in messages)
    urls = dict.fromkeys(match[0].rstrip(".;:!?") for match in islice(_URL_IN_TEXT.finditer(text), _MOST_URLS))
    return [url for url in urls if _is_of_others(url, state)]


def _is_of_others(url: str, state: StateView) -> bool:
    """Whether a URL stands in a text that others than the model wrote, to its end: of a longer one a model could choose
    where to cut it."""
    if state.given_urls is not None and url in state.given_urls:
        return True
    whole = re.compile(rf"(?<![\w/]){re.escape(url)}(?=$|[\s()\[\]<>\"'`|*,#{{}}\\]|[.;:!?]+(?:$|[\s)\"'\]]))")
    for message in state.messages:
        if message.role == "tool":
            texts = [result.text for result in message.results]
        elif message.role == "assistant" or (message.role == "user" and state.given_urls is not None):
            continue  # what a user says to a run that a tool started is what another model wrote
        else:
            texts = [message.text]
        if any(whole.search(text) for text in texts):
            return True
    return False
