"""What MCP servers ask the person (elicitation), as questions for an approver: the fields are the arguments."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias, TypeGuard, cast

from mcp import types

from toolspeak.data.approvals import Decision, Escalate
from toolspeak.data.messages import JSON, ToolCall
from toolspeak.data.tools import Effects, ToolSpec
from toolspeak.errors import ConfigurationError
from toolspeak.execute import ApprovalRequest, Approver, BatchApprover
from toolspeak.execute.approval.approvers import StandingApprover, ask, ask_together
from toolspeak.execute.calls.prepare import new_id
from toolspeak.tools.files.text_format import visible
from toolspeak.tools.schema_checks import UnusableSchema, checks_of

QuestionApprover: TypeAlias = Approver | BatchApprover
"""Who answers what servers ask."""

_MOST_ROUNDS = 3
"""How often the person is asked again for fields that are missing or do not fit."""

_MOST_SHOWN = 4_000
"""Characters of a server's question."""


class ServerQuestions:
    """Asks the person what one server asks.

    - `approver`: gets each question as the request to approve a call of a tool `SERVER__asks`. Its arguments are the
      form's fields, with the server's defaults; the person changes them as the arguments of any call. A yes sends them
      to the server, a no sends that the person declined, no answer that the question was closed. Nobody's standing
      answer counts: the server would learn something that no person has seen.
    """

    def __init__(self, server: str, approver: QuestionApprover) -> None:
        self._server = server
        self._approver = approver

    async def answer(self, params: types.ElicitRequestParams) -> types.ElicitResult:
        """The person's answer to one question."""
        if isinstance(self._approver, StandingApprover):
            return types.ElicitResult(action="cancel")
        if isinstance(params, types.ElicitRequestURLParams):
            schema: Mapping[str, Any] = {"type": "object", "properties": {"url": {"const": params.url}}}
            decision = await self._decision_on(self._request(params.message, schema, {"url": params.url}))
            return types.ElicitResult(action="accept") if _is_yes(decision) else _no(decision)
        schema = {"type": "object", "properties": {}, **params.requested_schema}
        try:
            checks = checks_of({**schema, "additionalProperties": False})
        except UnusableSchema:
            return types.ElicitResult(action="cancel")
        problem, fields = "", _defaults(schema)
        for _ in range(_MOST_ROUNDS):
            request = self._request(params.message, schema, fields).because(problem)

            async def revise(arguments: Mapping[str, JSON], request: ApprovalRequest = request) -> ApprovalRequest:
                flaws = checks.flaws(dict(arguments))
                if flaws:
                    raise ConfigurationError("; ".join(each.message for each in flaws))
                call = replace(request.call, arguments=arguments)
                return replace(request, call=call, digest=_digest(request.preview, arguments))

            decision = await self._decision_on(replace(request, _revise=revise))
            if not _is_yes(decision):
                return _no(decision)
            fields = dict(request.call.arguments if decision.arguments is None else decision.arguments)
            flaws = checks.flaws(fields)
            if not flaws:
                return types.ElicitResult(action="accept", content=cast("Any", fields))
            problem = f"edit the fields first: {'; '.join(each.message for each in flaws)}"
        return types.ElicitResult(action="cancel")

    def _request(self, message: str, schema: Mapping[str, Any], fields: Mapping[str, JSON]) -> ApprovalRequest:
        more = len(message) - _MOST_SHOWN
        preview = visible(message[:_MOST_SHOWN]) + (f"\n[{more:,} characters more are not shown]" if more > 0 else "")
        tool = ToolSpec(f"{self._server}__asks", "What the MCP server asks.", schema, Effects(external=True))
        call = ToolCall(new_id(), tool.name, fields)
        reason = f"the MCP server {self._server!r} asks you, and gets these fields"
        digest = _digest(preview, fields)
        return ApprovalRequest(call, tool, tool.effects, preview, reason, digest, needs_person=True)

    async def _decision_on(self, request: ApprovalRequest) -> Decision | Escalate:
        if isinstance(self._approver, BatchApprover):
            (answer,) = await ask_together(self._approver, [request])
            return answer
        return await ask(self._approver, request)


def _is_yes(answer: Decision | Escalate) -> TypeGuard[Decision]:
    return isinstance(answer, Decision) and answer.approved


def _no(answer: Decision | Escalate) -> types.ElicitResult:
    """What the server reads: the person has declined, or has not answered."""
    return types.ElicitResult(action="cancel" if isinstance(answer, Escalate) else "decline")


def _defaults(schema: Mapping[str, Any]) -> dict[str, JSON]:
    """The server's defaults, and null for a required field without one, which the person has to fill in. A form of one
    yes-or-no field is the question itself: a yes is true."""
    required_names: Any = schema.get("required", ())
    properties = cast("Mapping[str, Any]", schema["properties"] if isinstance(schema["properties"], Mapping) else {})
    fields: dict[str, JSON] = {}
    for name, field in properties.items():
        entry = cast("Mapping[str, Any]", field if isinstance(field, Mapping) else {})
        if "default" in entry:
            fields[name] = entry["default"]
        elif isinstance(required_names, list) and name in required_names:
            is_question = len(cast("list[Any]", required_names)) == 1 and entry.get("type") == "boolean"
            fields[name] = True if is_question else None
    return fields


def _digest(message: str, fields: Mapping[str, JSON]) -> str:
    text = json.dumps([message, dict(fields)], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
