"""The runs that the function of one call starts, and where they are when the function is over."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextvars import ContextVar

from toolspeak.data.events import RunStatus
from toolspeak.data.values import quick
from toolspeak.execute.approval.approvers import ApprovalRequest
from toolspeak.execute.batch_context import NotStarted
from toolspeak.execute.concurrency.limits import call_in_loop


@quick()
class SubRun:
    """A run that rests: it has ended or paused.

    - `pending`: the questions it waits with.
    - `is_kept`: whether a journal holds it, so that it can continue when the call's function is called again.
    """

    run_id: str
    agent: str
    status: RunStatus
    reason: str
    pending: tuple[ApprovalRequest, ...] = ()
    is_kept: bool = True


class SubRuns:
    """The runs of one call. Made where its function is called, in the event loop of its batch.

    - `started`: how many runs were started with each task, by its digest.
    - `resting`: the runs that rest, by id.
    - `at_work`: the ids of the runs in progress.
    """

    __slots__ = ("_ended", "_loop", "at_work", "call_id", "resting", "run_id", "started")

    def __init__(self, run_id: str, call_id: str) -> None:
        self.run_id = run_id
        self.call_id = call_id
        self.started: Counter[str] = Counter()
        self.resting: dict[str, SubRun] = {}
        self.at_work: set[str] = set()
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
        return [run for run in self.resting.values() if run.status in ("awaiting_approval", "suspended")]

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
    """A call's function is over, but a run that it started waits. The call has no result yet."""


class BatchHeld(Exception):
    """All other calls of a batch have their results. These wait for runs that their functions started."""

    def __init__(self, held: tuple[SubRuns, ...]) -> None:
        super().__init__("calls wait for runs that their functions started")
        self.held = held
