"""Questions about calls as forms of the protocol (elicitation), and the answers as decisions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from mcp import types

from toolspeak.data.approvals import ApprovalRequested, Decision
from toolspeak.tools.files.text_format import visible

_MOST_SHOWN = 32_000
"""Characters of a call's arguments, and of its preview, in a question."""

_FORM: types.ElicitRequestedSchema = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "title": "Approve", "description": "Whether the call may run."},
        "reason": {"type": "string", "title": "Reason", "description": "Why not, for the model. May be empty."},
    },
    "required": ["approve"],
}


def question_key(request: ApprovalRequested) -> str:
    """The key of a question. An answer to an earlier question about the same call has another one."""
    return f"{request.call_id}#{request.digest[:16]}"


def question_form(request: ApprovalRequested) -> types.ElicitRequest:
    """The question about a call, for the person at the client."""
    params = types.ElicitRequestFormParams(message=_question(request), requested_schema=_FORM)
    return types.ElicitRequest(params=params)


def decisions_of(
    requests: Iterable[ApprovalRequested], answers: Mapping[str, Any] | None, by: str
) -> dict[str, Decision]:
    """The decisions in a client's answers, by call id. An answer to another question, and one that does not decide, is
    left out."""
    decisions: dict[str, Decision] = {}
    for request in requests:
        answer = (answers or {}).get(question_key(request))
        if not isinstance(answer, types.ElicitResult):
            continue
        content = answer.content or {}
        reason = content.get("reason")
        words = reason if isinstance(reason, str) else ""
        if answer.action == "decline":
            decisions[request.call_id] = Decision(False, words, by, digest=request.digest)
        elif answer.action == "cancel":
            decisions[request.call_id] = Decision(False, "the question was dismissed", by, digest=request.digest)
        elif isinstance(content.get("approve"), bool):
            is_approved = content["approve"] is True
            decisions[request.call_id] = Decision(is_approved, words, by, digest=request.digest)
    return decisions


def _question(request: ApprovalRequested) -> str:
    call = request.call
    lines = [
        f"May {visible(call.name)} run? It {visible(request.reason)}."
        if request.reason
        else f"May {visible(call.name)} run?"
    ]
    lines.append(_visible_excerpt(json.dumps(dict(call.arguments), ensure_ascii=False, indent=1)))
    if request.preview:
        lines.append(_visible_excerpt(request.preview))
    return "\n\n".join(lines)


def _visible_excerpt(text: str) -> str:
    more = len(text) - _MOST_SHOWN
    return visible(text) if more <= 0 else f"{visible(text[:_MOST_SHOWN])}\n[{more} characters more are not shown]"
