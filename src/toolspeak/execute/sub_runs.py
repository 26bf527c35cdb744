"""What the function of one call waits for when it is over: runs that it started, a time, or an outside event."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextvars import ContextVar

from toolspeak.data.events import WaitEnded
from toolspeak.data.run_values import PAUSED, RunStatus
from toolspeak.data.values import quick
from toolspeak.errors import CallWaits, ToolError
from toolspeak.execute.approval.approvers import ApprovalRequest
from toolspeak.execute.batch_context import NotStarted
from toolspeak.execute.concurrency.limits import call_in_loop


@quick()
class SubRun:
    """A run that rests: it has ended or paused.

    - `pending`: the questions it waits with.
    - `is_kept`: whether a journal holds it, so that it can continue when the call's function is called again.
    - `until`: when it continues by itself, in Unix seconds.
    """

    run_id: str
    agent: str
    status: RunStatus
    reason: str
    pending: tuple[ApprovalRequest, ...] = ()
    is_kept: bool = True
    until: float | None = None


@quick()
class WaitRequest:
    """What a call waits for: an event ("" for a time alone), until a time (Unix seconds) or for so many seconds."""

    event: str
    until: float | None = None
    seconds: float | None = None


class SubRuns:
    """The runs of one call, and what else it waits for. Made where its function is called, in its batch's event loop.

    - `started`: how many runs were started with each task, by its digest.
    - `resting`: the runs that rest, by id.
    - `at_work`: the ids of the runs in progress.
    - `wait`: what the function waits for, beside its runs.
    - `is_entered`: whether the function was called. It is not while the call waits as before.
    """

    __slots__ = (
        "_ended",
        "_loop",
        "_past_waits",
        "at_work",
        "call_id",
        "is_entered",
        "resting",
        "run_id",
        "started",
        "wait",
    )

    def __init__(
        self, run_id: str, call_id: str, ended_waits: Sequence[WaitEnded] = (), *, is_entered: bool = True
    ) -> None:
        self.is_entered = is_entered
        self.run_id = run_id
        self.call_id = call_id
        self.started: Counter[str] = Counter()
        self.resting: dict[str, SubRun] = {}
        self.at_work: set[str] = set()
        self.wait: WaitRequest | None = None
        self._past_waits = iter(ended_waits)
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Event | None = None

    def begin(self, run_id: str) -> None:
        """Notes that a run is in progress. Callable in any thread."""
        self.resting.pop(run_id, None)
        self.at_work.add(run_id)

    def rest(self, run: SubRun) -> None:
        """Notes that a run rests. Callable in any thread."""
        self.resting[run.run_id] = run
        self.at_work.discard(run.run_id)
        call_in_loop(self._loop, self._tell)

    @property
    def waiting(self) -> list[SubRun]:
        """The runs that have paused."""
        return [run for run in self.resting.values() if run.status in PAUSED]

    def wait_for(self, request: WaitRequest) -> WaitEnded:
        """Returns what has come. If nothing has, the call waits: raises CallWaits. Callable in any thread.

        A function that is called again gets what has come for it in the order in which it waited. Raises ToolError if
        it waits for something else than the time before.
        """
        ended = next(self._past_waits, None)
        if ended is None:
            self.wait = self.wait or request
            raise CallWaits(f"the call {self.call_id} waits for {request.event or 'a time'}")
        if ended.event != request.event:
            now, before = request.event or "a time", ended.event or "a time"
            raise ToolError(f"the call waits for {now!r} where it waited for {before!r} before")
        return ended

    async def all_rest(self, seconds: float | None) -> None:
        """Waits until all runs rest, for so many seconds at most (None: without a limit)."""
        self._ended = asyncio.Event()
        try:
            async with asyncio.timeout(seconds):
                while self.at_work:
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            return

    def _tell(self) -> None:
        if self._ended is not None:
            self._ended.set()


ENTERED: ContextVar[SubRuns | None] = ContextVar("toolspeak_sub_runs", default=None)
"""The sub-runs of the call whose function runs in this context."""


class CallHeld(NotStarted):
    """A call's function is over, but it waits, or a run that it started. The call has no result yet."""


class BatchHeld(Exception):
    """All other calls of a batch have their results. These wait for runs that their functions started, for a time or
    for an event."""

    def __init__(self, held: tuple[SubRuns, ...]) -> None:
        super().__init__("calls wait for runs that their functions started, for a time or for an event")
        self.held = held
