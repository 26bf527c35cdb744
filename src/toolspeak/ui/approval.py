"""Approvers for a live view: requests appear on the console, at the right place in the run's output."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass

from rich.console import Console

from toolspeak.agent.recording.recorder import StreamItem
from toolspeak.data.events import ApprovalRequested, Record
from toolspeak.execute import ApprovalRequest, Approver, Decision, Escalate
from toolspeak.execute.approval.evaluator import unapproved_repair
from toolspeak.ui.question import Question


@dataclass(frozen=True, slots=True)
class AnnouncingApprover:
    """Implements `Approver`: shows every request, and approves it, unless it needs a person."""

    console: Console
    by: str
    """The approver's name in the decision."""
    repaired: bool = False
    """Approve repaired calls, too."""
    person: Approver | None = None
    """Asks the person, where there is one."""

    async def __call__(self, request: ApprovalRequest, /) -> Decision | Escalate | bool:
        if request.needs_person and self.person is not None:
            return await self.person(request)
        Question(request).show(self.console)
        refusal = "" if self.repaired else unapproved_repair(request)
        if request.needs_person:
            refusal = f"{request.reason}; there is no one to ask"
        return Decision(not refusal, refusal, by=self.by)


class SerialApprover:
    """Implements `Approver`: passes one request on after the other. A terminal has room for one question."""

    def __init__(self, approver: Approver) -> None:
        self._approver = approver
        self._lock = asyncio.Lock()

    async def __call__(self, request: ApprovalRequest, /) -> Decision | Escalate | bool:
        async with self._lock:
            return await self._approver(request)


class AfterDisplayApprover:
    """Implements `Approver`: passes a request on once the stream's reader has shown everything before it.

    The reader of a run's stream is behind the run. Without this a question could appear above the text that led to it.
    The reader calls `saw` with each item (as `watch` does).
    """

    def __init__(self, approver: Approver) -> None:
        self._approver = approver
        self._announcements: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def saw(self, item: StreamItem) -> None:
        if isinstance(item, Record) and isinstance(item.event, ApprovalRequested):
            self._announcements[item.event.call_id].set()

    async def __call__(self, request: ApprovalRequest, /) -> Decision | Escalate | bool:
        await self._announcements[request.call.id].wait()
        return await self._approver(request)
