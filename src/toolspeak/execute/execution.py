"""The second phase of a batch: the admitted calls run as soon as their schedule and the limits let them."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from time import time

from toolspeak.data.events import StopRequested
from toolspeak.data.messages import JSON, MalformedCall, ToolCall, ToolResult, no_extra
from toolspeak.data.tools import Effects
from toolspeak.execute.batch import BatchContext, Deadline, Emit
from toolspeak.execute.concurrency.limits import Limiter
from toolspeak.execute.concurrency.pause import BatchPaused
from toolspeak.execute.course import Course
from toolspeak.execute.entries import Ready, Settled
from toolspeak.execute.hooks import applied
from toolspeak.execute.passing import Passing
from toolspeak.execute.recovery import NONE_IN_DOUBT, CallsInDoubt
from toolspeak.execute.settings import ExecutionSettings
from toolspeak.execute.sub_runs import BatchHeld
from toolspeak.execute.turns import Turn, chain


class Execution:
    """Runs the admitted calls of one batch; make a new one for each, in the task that runs it."""

    def __init__(
        self,
        calls: Sequence[ToolCall | MalformedCall],
        entries: Sequence[Ready | Settled],
        settings: ExecutionSettings,
        *,
        emit: Emit,
        context: BatchContext,
        deadline: Deadline,
        doubts: CallsInDoubt = NONE_IN_DOUBT,
        metadata: Mapping[str, JSON] = no_extra(),
        stop: StopRequested | None = None,
    ) -> None:
        self._settings = settings
        self._loop = loop = asyncio.get_running_loop()
        self._course = Course.begun(loop, settings, emit, context, deadline, doubts, metadata, stop)
        self._turns: list[Turn] = []
        self._calls: list[tuple[Turn, Ready]] = []
        for call, entry in zip(calls, entries, strict=True):
            turn = Turn(call, entry)
            self._turns.append(turn)
            if type(entry) is Ready:
                self._calls.append((turn, entry))
        limit = settings.concurrency.batch
        self._own_limiters = () if limit is None else (Limiter(limit),)
        self._limiters_of: dict[str, tuple[Limiter, ...]] = {}
        recalls = bool(context.scope.recall) and (
            settings.schedule != "parallel" or all(entry.effects.read_only for _, entry in self._calls)
        )
        if settings.replayer is not None:
            recalls = True  # what was remembered is on the recorder: here files may be other than they were
        self._passing = Passing(self._course, recalls)
        self._left = len(self._turns)
        if len(self._calls) > 1:
            chain(self._calls, settings.schedule)
            self._ready = deque([turn for turn in self._turns if not turn.waits])
        else:
            self._ready = deque(self._turns)
        self._starting = False
        self.times: list[tuple[float, float]] = []
        """When each call started and completed, in Unix seconds; once all have."""
        self._vars = contextvars.copy_context()

    async def run(self) -> tuple[ToolResult, ...]:
        """All results, in call order.

        Raises BatchPaused when the run was asked to pause and calls were left, BatchHeld when calls wait for runs that
        their functions started. Raises what `emit` raised, and a tool's
        KeyboardInterrupt or SystemExit, after the other calls have been cancelled and awaited; what was not recorded by
        then has no result.
        """
        course = self._course
        at = course.deadline.at
        timer = None if at is None else self._loop.call_at(at, self._expire)
        course.pause.tell(rest := course.rest)
        try:
            self._start_ready()
            rest()
            if self._left:
                await course.over
        finally:
            course.pause.untell(rest)
            if timer is not None:
                timer.cancel()
            try:
                if self._left:
                    await self._stop()
            finally:
                self._close()
        if course.error is not None:
            raise course.error
        if self._settings.pipeline:
            notes = (turn.notes for turn in self._turns if turn.result is not None)
            for fact in applied(notes, course.metadata, "call", self._settings.secrets.hide_text):
                await course.emit(fact)
        if self._left:
            raise BatchHeld(course.held) if course.held and not course.pause.asked else BatchPaused
        results: list[ToolResult] = []
        for turn in self._turns:
            assert turn.result is not None, "none is left"
            results.append(turn.result)
            self.times.append((turn.started or turn.completed, turn.completed))
        return tuple(results)

    @property
    def stop(self) -> StopRequested | None:
        """What ended the run before its end, if anything did."""
        return self._course.stop

    def _start_ready(self) -> None:
        # A task may run at once (eager task factories) and come back here: the loop below takes its turns too.
        if self._starting:
            return
        self._starting = True
        while self._ready and not self._course.stopping and not self._course.pause.asked:
            self._start(self._ready.popleft())
        self._starting = False

    def _start(self, turn: Turn) -> None:
        entry, course = turn.entry, self._course
        if course.stopping or course.pause.asked or turn.task is not None or turn.result is not None:
            return
        if type(entry) is Settled:
            if entry.recorded:
                self._finish(turn, entry.result)
                return
        elif not course.expired and entry.begun is None and not self._acquire_slots(turn, entry):
            turn.phase = "queued"
            return
        turn.phase = "new"
        course.under_way += 1
        # A copy of the batch's context: a call must not see what the call before it has set.
        turn.task = self._loop.create_task(self._passing.take(turn, self._finish), context=self._vars.copy())

    def _acquire_slots(self, turn: Turn, entry: Ready) -> bool:
        """Takes the places the call needs, all or none; without them it is started again when there may be some."""
        name = entry.tool.spec.name
        limiters = self._limiters_of.get(name)
        if limiters is None:
            limiters = self._own_limiters + self._course.scope.limiters(entry.tool, self._settings.concurrency)
            self._limiters_of[name] = limiters
        if not limiters:
            return True
        for limiter in limiters:
            if not limiter.has_slot and not limiter.blocked:
                limiter.wait(partial(self._start, turn))
                return False
        if not any(limiter.blocked for limiter in limiters):
            for limiter in limiters:
                limiter.acquire()
            turn.limiters = limiters
        return True

    def _finish(self, turn: Turn, result: ToolResult) -> None:
        # The task has nothing left to do: a batch of thousands must not keep them all.
        turn.result, turn.phase, turn.task = result, "done", None
        turn.completed = time()
        if self._course.watch is not None:
            self._course.watch.ended(turn, result)
        if turn.limiters:
            turn.release()
        for follower in turn.followers or ():
            follower.waits -= 1
            if not follower.waits:
                self._ready.append(follower)
        self._left -= 1
        if not self._left:
            self._course.end()
        if self._ready:
            self._start_ready()

    def _expire(self) -> None:
        """Interrupts the calls that are under way, never one whose fact is being recorded."""
        # A timer may fire a tick before the clock says so.
        self._course.expired = True
        for turn in self._turns:
            # A task that has not begun must not be cancelled: its code would never run.
            if turn.task is not None and turn.phase in ("waiting", "running", "settling"):
                turn.task.cancel()
            elif turn.phase == "queued":
                self._start(turn)

    async def _stop(self) -> None:
        """Cancels what is still under way and waits for it; results that are being recorded get their time."""
        self._course.stopping = True
        tasks: list[asyncio.Task[None]] = []
        for turn in self._turns:
            if turn.task is not None and not turn.task.done():
                tasks.append(turn.task)
                if turn.phase != "recording":
                    turn.task.cancel()
        cancelled = None
        while tasks:
            try:
                await asyncio.wait(tasks)
            except asyncio.CancelledError as error:
                # Asked again: then recording is not waited for either.
                cancelled = error
                for task in tasks:
                    task.cancel()
            tasks = [task for task in tasks if not task.done()]
        if cancelled is not None and self._course.error is None:
            raise cancelled

    def _close(self) -> None:
        """Gives everything back; nothing of the batch runs any more."""
        self._course.close()
        done: list[tuple[ToolCall, Effects, ToolResult | None]] = []
        for turn, entry in self._calls:
            if turn.limiters:
                turn.release()
            done.append((entry.call, entry.effects, turn.result))
        self._course.scope.recall.learn(done, ordered=self._settings.schedule != "parallel")
