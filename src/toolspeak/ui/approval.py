"""Approvals beside a live view: what is asked is shown, and shown in its place."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass

from rich.console import Console

from toolspeak.agent.recorder import Watched
from toolspeak.data.events import ApprovalRequested, Record
from toolspeak.execute import ApprovalRequest, Approver, Decision, Escalate
from toolspeak.execute.approval.evaluator import no_unasked_repair
from toolspeak.ui.question import Question


@dataclass(frozen=True, slots=True)
class AnnouncingApprover:
    """Implements `Approver`: shows every request and says yes, to a repaired call only if `repaired`. `by` is who is
    said to have decided."""

    console: Console
    by: str
    repaired: bool = False

    async def __call__(self, request: ApprovalRequest, /) -> Decision:
        Question(request).show(self.console)
        refused = "" if self.repaired else no_unasked_repair(request)
        return Decision(not refused, refused, by=self.by)


class InStep:
    """Implements `Approver`: passes a request on once the watcher has seen all that came before it.

    A run's stream is read behind the run itself: without this a question could stand above the text that led
    to it. Whoever reads the stream calls `saw` with each item (as `watch` does).
    """

    def __init__(self, approver: Approver) -> None:
        self._approver = approver
        self._announced: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def saw(self, item: Watched) -> None:
        if isinstance(item, Record) and isinstance(item.event, ApprovalRequested):
            self._announced[item.event.call_id].set()

    async def __call__(self, request: ApprovalRequest, /) -> Decision | Escalate | bool:
        await self._announced[request.call.id].wait()
        return await self._approver(request)
