"""Asks the user of an editor for approval."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

from toolspeak.acp.call_presentation import FileChange, JsonObject, call_fields, content_of, shown_id
from toolspeak.acp.client_messages import PermissionAnswer
from toolspeak.acp.json_rpc import Peer, PeerGone, RpcError, params_as
from toolspeak.acp.permission_modes import Mode, decision_by_mode
from toolspeak.acp.prompt_content import fence, text_block
from toolspeak.agent.recording.recorder import StreamItem
from toolspeak.data.approvals import Decision, Escalate, Rule
from toolspeak.data.events import ApprovalRequested, Record
from toolspeak.data.messages import ToolCall
from toolspeak.data.tools import WEB
from toolspeak.execute import ApprovalRequest
from toolspeak.execute.approval.policy_rules import fitting
from toolspeak.tools.files.text_format import visible
from toolspeak.ui.format import is_diff, one_line, shorten

CLOSED_QUESTION = "the user closed the question without an answer"

_ALWAYS_REFUSED = "the user refuses this call, and every other one like it"

_BY = "user"


class EditorApprover:
    """Implements `BatchApprover`: the mode decides, or a choice for "always", or the user, who is asked about all calls
    of a batch at once.

    - `session_id`, `folders`: the session's. The first folder is its working directory.
    - `change_of`: the change of a file that a call would make; None if it makes none, or would fail.

    The reader of a run's stream is behind the run; it calls `saw` with each item, so that no question comes before the
    text that led to it.
    """

    def __init__(
        self,
        peer: Peer,
        session_id: str,
        folders: tuple[str, ...],
        change_of: Callable[[ToolCall], Awaitable[FileChange | None]],
    ) -> None:
        self.mode: Mode = "ask"
        self.run_id = ""
        """The run whose stream is read."""
        self.rules_file = ""
        """Where choices for "always" are kept; "" until the session is closed."""
        self._peer = peer
        self._session_id = session_id
        self._folders = folders
        self._change_of = change_of
        self._announcements: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._refusals: list[Rule] = []

    def begin(self, run_id: str) -> None:
        """The stream of this run is read from now on."""
        self.run_id = run_id
        self._announcements.clear()

    def saw(self, item: StreamItem) -> None:
        if isinstance(item, Record) and isinstance(item.event, ApprovalRequested):
            self._announcements[item.event.call_id].set()

    async def together(self, requests: Sequence[ApprovalRequest], /) -> Sequence[Decision | Escalate]:
        decisions = [self._without_question(request) for request in requests]
        questions = [
            await self._question(request) if decision is None else None
            for request, decision in zip(requests, decisions, strict=True)
        ]
        return await asyncio.gather(*map(self._answer, requests, decisions, questions))

    def _without_question(self, request: ApprovalRequest) -> Decision | None:
        decision = decision_by_mode(self.mode, request, self._folders)
        if decision is None and any(fitting(rule, request) is not None for rule in self._refusals):
            return Decision(False, _ALWAYS_REFUSED, by=_BY, digest=request.digest)
        return decision

    async def _question(self, request: ApprovalRequest) -> JsonObject:
        return {
            "sessionId": self._session_id,
            "toolCall": await self._shown_call(request),
            "options": _options(request, _rule_for_always(request), self.rules_file),
            "_meta": {"toolspeak": {"digest": request.digest, "reason": request.reason}},
        }

    async def _answer(
        self, request: ApprovalRequest, decision: Decision | None, question: JsonObject | None
    ) -> Decision | Escalate:
        if decision is not None or question is None:
            return decision or Escalate()
        if request.state is not None and request.state.run_id == self.run_id:
            await self._announcements[request.call.id].wait()
        try:
            raw = await self._peer.call("session/request_permission", question)
            outcome = params_as(PermissionAnswer, raw).outcome
        except PeerGone:
            return Escalate("the editor closed the connection during the question")
        except RpcError as error:
            return Escalate(f"the editor did not ask the question: {visible(str(error))}")
        match outcome.option_id if outcome.outcome == "selected" else "cancelled":
            case "allow_once":
                return Decision(True, by=_BY, digest=request.digest)
            case "allow_always":
                return Decision(True, by=_BY, always=_rule_for_always(request), digest=request.digest)
            case "reject_once":
                return Decision(False, by=_BY, digest=request.digest)
            case "reject_always":
                self._refusals.append(_rule_for_always(request))
                return Decision(False, _ALWAYS_REFUSED, by=_BY, digest=request.digest)
            case "cancelled":
                return Decision(False, CLOSED_QUESTION, by=_BY, ends_run=True, digest=request.digest)
            case other:
                return Escalate(f"the editor chose {other!r}, which is not among the options")

    async def _shown_call(self, request: ApprovalRequest) -> JsonObject:
        """The call with all that it would do."""
        change = await self._change_of(request.call) if is_diff(request.preview) else None
        fields = call_fields(request.call, self._folders[0], change)
        content: list[JsonObject] = [content_of(text_block(f"{visible(request.tool.name)} {visible(request.reason)}"))]
        if request.repaired_from is not None:
            text = f"The model wrote this, which is not valid:\n{fence(visible(request.repaired_from))}"
            content.append(content_of(text_block(text)))
        if change is not None:
            content.append(change.content())
        if request.preview and (change is None or not request.preview.startswith("--- ")):
            language = "diff" if is_diff(request.preview) else "console"
            content.append(content_of(text_block(fence(visible(request.preview), language))))
        return {**fields, "toolCallId": shown_id(self.run_id, request.call.id), "status": "pending", "content": content}


def _rule_for_always(request: ApprovalRequest) -> Rule:
    """What "always" means for a call: commands that begin like its commands, or the very command; its hosts of the web;
    else its tool."""
    if request.command_line is None:
        return request.always("host" if request.hosts else "tool")
    return request.always("commands" if request.begins else "call")


def _options(request: ApprovalRequest, always: Rule, rules_file: str) -> list[JsonObject]:
    if always.begins:
        what = "commands that begin with " + " or ".join(one_line(visible(each)) for each in always.begins)
    elif always.exact:
        what = "exactly this call"
    elif always.paths:
        hosts = ", ".join(one_line(visible(each.removeprefix(WEB))) for each in request.hosts)
        what = f"{one_line(visible(request.tool.name))} of {hosts}"
    else:
        what = one_line(visible(request.tool.name))
    what = shorten(what, 80)
    duration = "kept" if rules_file else "this session"
    return [
        {"optionId": "allow_once", "name": "Allow", "kind": "allow_once"},
        {"optionId": "allow_always", "name": f"Always allow {what} ({duration})", "kind": "allow_always"},
        {"optionId": "reject_once", "name": "Refuse", "kind": "reject_once"},
        {"optionId": "reject_always", "name": f"Always refuse {what} (this session)", "kind": "reject_always"},
    ]
