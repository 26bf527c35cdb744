"""Shows the user of an editor what an MCP server asks during a call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from toolspeak.acp.call_presentation import JsonObject, call_fields, content_of
from toolspeak.acp.client_messages import ClientCapabilities, ElicitationAnswer, PermissionAnswer
from toolspeak.acp.json_rpc import Peer, PeerGone, RpcError, params_as
from toolspeak.acp.prompt_content import text_block
from toolspeak.data.approvals import Decision, Escalate
from toolspeak.data.messages import JSON
from toolspeak.execute import ApprovalRequest
from toolspeak.tools.files.text_format import visible

_WEB_ADDRESS = re.compile(r"https?://[!-~]+", re.IGNORECASE)
"""An address that an editor may open, without spaces and invisible characters."""

_FIELD_TYPES = ("string", "number", "integer", "boolean", "array")
"""The types of fields that a form may have."""


class EditorForms:
    """Implements `Approver` for what MCP servers ask: as a form or an address of the editor's, if it shows such
    (`elicitation/create`). One that shows none gets a request for permission, if the question needs no text; of another
    question the server reads that nobody has answered it.
    """

    def __init__(self, peer: Peer, session_id: str, folder: str, capabilities: ClientCapabilities) -> None:
        self._peer = peer
        self._session_id = session_id
        self._folder = folder
        self._capabilities = capabilities

    async def __call__(self, request: ApprovalRequest, /) -> Decision | Escalate:
        url, arguments, elicitation = _url_of(request), request.call.arguments, self._capabilities.elicitation
        message = f"{visible(request.reason)}:\n{request.preview}"
        question: JsonObject = {"sessionId": self._session_id, "message": message}
        if url is not None and not _WEB_ADDRESS.fullmatch(url):
            return Escalate("the address is none of the web")
        try:
            if url is not None and elicitation is not None and elicitation.url is not None:
                return await self._answer({**question, "mode": "url", "elicitationId": request.call.id, "url": url})
            if url is None and elicitation is not None and elicitation.form is not None:
                schema = _form_of(request.tool.parameters)
                if schema is None:
                    return Escalate("the form has fields that an editor cannot show")
                return await self._answer({**question, "mode": "form", "requestedSchema": schema})
            if url is None and (not arguments.keys() >= _required_fields(request) or None in arguments.values()):
                return Escalate("the editor shows no forms")
            return await self._permission(request)
        except PeerGone:
            return Escalate("the editor closed the connection during the question")
        except RpcError as error:
            return Escalate(f"the editor did not ask the question: {visible(str(error))}")

    async def _answer(self, question: JsonObject) -> Decision | Escalate:
        answer = params_as(ElicitationAnswer, await self._peer.call("elicitation/create", question))
        match answer.action:
            case "accept":
                return Decision(True, by="user", arguments=answer.content)
            case "decline":
                return Decision(False, by="user")
            case _:
                return Escalate("the user closed the question without an answer")

    async def _permission(self, request: ApprovalRequest) -> Decision | Escalate:
        """Asks whether the server gets the fields as they are."""
        text = text_block(f"{visible(request.reason)}:\n{request.preview}")
        call = {**call_fields(request.call, self._folder, None), "toolCallId": request.call.id, "status": "pending"}
        question: JsonObject = {
            "sessionId": self._session_id,
            "toolCall": {**call, "content": [content_of(text)]},
            "options": [
                {"optionId": "allow_once", "name": "Answer", "kind": "allow_once"},
                {"optionId": "reject_once", "name": "Decline", "kind": "reject_once"},
            ],
        }
        outcome = params_as(PermissionAnswer, await self._peer.call("session/request_permission", question)).outcome
        match outcome.option_id if outcome.outcome == "selected" else "":
            case "allow_once":
                return Decision(True, by="user")
            case "reject_once":
                return Decision(False, by="user")
            case _:
                return Escalate("the user closed the question without an answer")


def _url_of(request: ApprovalRequest) -> str | None:
    """The address to which a server sends the user; None for a form."""
    properties: Any = request.tool.parameters.get("properties")
    url = request.call.arguments.get("url")
    return url if isinstance(url, str) and properties == {"url": {"const": url}} else None


def _required_fields(request: ApprovalRequest) -> set[str]:
    required_names = request.tool.parameters.get("required")
    names = cast("list[Any]", required_names) if isinstance(required_names, list) else []
    return {each for each in names if isinstance(each, str)}


def _form_of(schema: Mapping[str, Any]) -> JsonObject | None:
    """The schema of a form as the editor gets it; None if it has fields of no type that the protocol knows."""
    properties = cast("Mapping[str, Any]", schema["properties"] if isinstance(schema["properties"], Mapping) else {})
    fields: dict[str, JSON] = {}
    for name, field in properties.items():
        if not isinstance(field, Mapping):
            return None
        entry = cast("Mapping[str, Any]", field)
        if entry.get("type") not in _FIELD_TYPES:
            return None
        texts = {key: visible(entry[key]) for key in ("title", "description") if isinstance(entry.get(key), str)}
        fields[name] = {**entry, **texts}
    form: dict[str, JSON] = {"type": "object", "properties": fields}
    if isinstance(schema.get("required"), list):
        form["required"] = schema["required"]
    return form
