"""What the function of one call waits for when it is over: runs that it started, a time, or an outside event."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from contextvars import ContextVar
from typing import Any

from toolspeak.data.events import WaitEnded
from toolspeak.data.run_values import PAUSED_STATUSES, RunStatus
from toolspeak.data.values import quick
from toolspeak.errors import CallWaits, ToolError
from toolspeak.execute.approval.approvers import ApprovalRequest
from toolspeak.execute.batch_context import NotStarted, Pause
from toolspeak.execute.concurrency.limits import call_in_loop


@quick()
class SubRun:
    """A run that has ended or paused.

    - `pending`: its open questions.
    - `is_kept`: whether a journal holds it, so that it can continue when the call's function is called again.
    - `until`: when it continues by itself, in Unix seconds.
    - `sources`: from where on the web it has read.
    """

    run_id: str
    agent: str
    status: RunStatus
    reason: str
    pending: tuple[ApprovalRequest, ...] = ()
    is_kept: bool = True
    until: float | None = None
    sources: Collection[str] = ()


@quick()
class WaitRequest:
    """What a call waits for: an event ("" for a time alone), until a time (Unix seconds) or for so many seconds."""

    event: str
    until: float | None = None
    seconds: float | None = None


class SubRuns:
    """The runs of one call, and what else it waits for. Made where its function is called, in its batch's event loop.

    - `starts`: how many runs were started with each task, by its digest.
    - `inactive`: the runs that have ended or paused, by id.
    - `active_ids`: the ids of the runs in progress.
    - `wait`: what the function waits for, beside its runs.
    - `is_entered`: whether the function was called. It is not while the call waits as before.
    - `memory`: what the tools of its runs keep between calls; None: each run has a memory of its own.
    - `pause`: requests that the run of the call pauses.
    """

    __slots__ = (
        "_loop",
        "_past_waits",
        "_run_end",
        "active_ids",
        "call_id",
        "inactive",
        "is_entered",
        "memory",
        "pause",
        "run_id",
        "starts",
        "wait",
    )

    def __init__(
        self, run_id: str, call_id: str, ended_waits: Sequence[WaitEnded] = (), *, is_entered: bool = True
    ) -> None:
        self.is_entered = is_entered
        self.memory: dict[str, Any] | None = None
        self.pause: Pause | None = None
        self.run_id = run_id
        self.call_id = call_id
        self.starts: Counter[str] = Counter()
        self.inactive: dict[str, SubRun] = {}
        self.active_ids: set[str] = set()
        self.wait: WaitRequest | None = None
        self._past_waits = iter(ended_waits)
        self._loop = asyncio.get_running_loop()
        self._run_end: asyncio.Event | None = None

    def begin(self, run_id: str) -> None:
        """Notes that a run is in progress. Callable in any thread."""
        self.inactive.pop(run_id, None)
        self.active_ids.add(run_id)

    def end(self, run: SubRun) -> None:
        """Notes that a run has ended or paused. Callable in any thread."""
        self.inactive[run.run_id] = run
        self.active_ids.discard(run.run_id)
        call_in_loop(self._loop, self._wake)

    @property
    def paused_runs(self) -> list[SubRun]:
        """The runs that have paused."""
        return [run for run in self.inactive.values() if run.status in PAUSED_STATUSES]

    def wait_for(self, request: WaitRequest) -> WaitEnded:
        """Returns the end of the wait if it is over. Otherwise raises CallWaits: the call waits. Callable in any
        thread.

        A function that is called again gets the ends of its waits in the order in which it waited. Raises ToolError if
        it waits for something else than the last time.
        """
        wait_end = next(self._past_waits, None)
        if wait_end is None:
            self.wait = self.wait or request
            raise CallWaits(f"the call {self.call_id} waits for {request.event or 'a time'}")
        if wait_end.event != request.event:
            now, before = request.event or "a time", wait_end.event or "a time"
            raise ToolError(f"the call waits for {now!r} where it waited for {before!r} before")
        return wait_end

    async def wait_until_inactive(self, seconds: float | None) -> None:
        """Waits until no run is in progress, for at most so many seconds (None: without a limit)."""
        self._run_end = asyncio.Event()
        try:
            async with asyncio.timeout(seconds):
                while self.active_ids:
                    self._run_end.clear()
                    await self._run_end.wait()
        except TimeoutError:
            return

    def _wake(self) -> None:
        if self._run_end is not None:
            self._run_end.set()


CURRENT_SUB_RUNS: ContextVar[SubRuns | None] = ContextVar("toolspeak_sub_runs", default=None)
"""The sub-runs of the call whose function runs in this context."""


class CallHeld(NotStarted):
    """A call's function is over, but it waits, or a run that it started. The call has no result yet."""


class BatchHeld(Exception):
    """All other calls of a batch have their results. These wait for runs that their functions started, for a time or
    for an event."""

    def __init__(self, waiting_calls: tuple[SubRuns, ...]) -> None:
        super().__init__("calls wait for runs that their functions started, for a time or for an event")
        self.waiting_calls = waiting_calls
