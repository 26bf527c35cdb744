"""The second phase of a batch: each admitted call runs as soon as its schedule and the limits allow it."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from functools import partial
from time import time

from toolspeak.data.messages import ToolCall, ToolResult
from toolspeak.data.tools import Effects
from toolspeak.execute.batch_context import BatchPaused
from toolspeak.execute.batch_state import INTERRUPTIBLE, BatchState, Call
from toolspeak.execute.calls.prepare import PreparedCall
from toolspeak.execute.concurrency.limits import Limiter
from toolspeak.execute.concurrency.schedule import plan
from toolspeak.execute.hooks import applied
from toolspeak.execute.run_call import run_call
from toolspeak.execute.sub_runs import BatchHeld


class Scheduler:
    """Runs the admitted calls of one batch. Make a new one for each batch, in the task that runs it."""

    def __init__(self, batch: BatchState) -> None:
        settings, scope = batch.settings, batch.context.scope
        self._batch = batch
        self._loop = asyncio.get_running_loop()
        self._open_calls = len(batch.calls)
        limit = settings.concurrency.batch
        self._of_batch = () if limit is None else (Limiter(limit),)
        self._limiters: dict[str, tuple[Limiter, ...]] = {}
        self._starting = False
        self._vars = contextvars.copy_context()
        running = [(call, call.prepared) for call in batch.calls if call.prepared is not None]
        self._running = running
        if len(running) > 1:
            self._chain(running)
            self._ready = deque([call for call in batch.calls if not call.wait_count])
        else:
            self._ready = deque(batch.calls)
        batch.cancellations = batch.owner.cancelling()
        batch.uses_cache = settings.replayer is not None or (  # a recording has its own cached results
            bool(scope.result_cache)
            and (settings.schedule != "parallel" or all(prepared.effects.read_only for _, prepared in running))
        )

    def _chain(self, running: list[tuple[Call, PreparedCall]]) -> None:
        """Sets for each call which calls it waits for, and which wait for it."""
        waits: tuple[int, ...] = ()
        names: tuple[str, ...] = ()
        planned = plan([prepared.effects for _, prepared in running], self._batch.settings.schedule)
        for (call, _), earlier in zip(running, planned, strict=True):
            if earlier is not waits:
                waits, names = earlier, tuple(running[index][1].call.id for index in earlier)
            call.wait_count, call.waited_for = len(waits), names
            for index in waits:
                before = running[index][0]
                if before.followers is None:
                    before.followers = []
                before.followers.append(call)

    async def run(self) -> None:
        """Runs all calls to their results.

        Raises BatchPaused if the run was asked to pause and some calls were not started. Raises BatchHeld if calls wait
        for runs that their functions started. Raises what `emit` raised, and a tool's KeyboardInterrupt or SystemExit,
        once the other calls are cancelled and have ended; a call whose result was not recorded by then has none.
        """
        batch, pause = self._batch, self._batch.context.pause
        at = batch.deadline.at
        timer = None if at is None else self._loop.call_at(at, self._expire)
        pause.add_callback(end_if_idle := batch.end_if_idle)
        try:
            self._start_ready()
            end_if_idle()
            if self._open_calls:
                await batch.end
        finally:
            pause.remove_callback(end_if_idle)
            if timer is not None:
                timer.cancel()
            try:
                if self._open_calls:
                    await self._stop()
            finally:
                if batch.timers is not batch.context.scope.timers:
                    batch.timers.close()
                done: list[tuple[ToolCall, Effects, ToolResult | None]] = []
                for call, prepared in self._running:
                    if call.limiters:
                        call.release()
                    done.append((prepared.call, prepared.effects, call.result))
                batch.context.scope.result_cache.learn(done, ordered=batch.settings.schedule != "parallel")
        if batch.error is not None:
            raise batch.error
        if batch.settings.interceptors:
            notes = (call.notes for call in batch.calls if call.phase == "done")
            for fact in applied(notes, batch.notes.current, "call", batch.settings.secrets.hide_text):
                await batch.emit(fact)
        if self._open_calls:
            raise BatchHeld(tuple(batch.held)) if batch.held and not pause.is_requested else BatchPaused

    def _start_ready(self) -> None:
        # A task may run at once (eager task factories) and come back here: the loop below takes its calls too.
        if self._starting:
            return
        self._starting = True
        while self._ready and not self._batch.is_failing and not self._batch.context.pause.is_requested:
            self._start(self._ready.popleft())
        self._starting = False

    def _start(self, call: Call) -> None:
        batch = self._batch
        if batch.is_failing or batch.context.pause.is_requested or call.task is not None or call.phase == "done":
            return
        if call.prepared is None:
            if call.recorded:
                assert call.result is not None, "it is recorded"
                self._finish(call, call.result)
                return
        elif not batch.expired and call.early is None and not self._acquire_slots(call, call.prepared):
            call.move("queued")
            return
        call.move("scheduled")
        batch.under_way += 1
        # A copy of the batch's context: a call must not see what the call before it has set.
        call.task = self._loop.create_task(run_call(batch, call, self._finish), context=self._vars.copy())

    def _acquire_slots(self, call: Call, prepared: PreparedCall) -> bool:
        """Acquires all slots that the call needs, or none. Without them `_start` is called again when one may be
        free."""
        tool = prepared.tool
        limiters = self._limiters.get(tool.spec.name)
        if limiters is None:
            limiters = self._of_batch + self._batch.context.scope.limiters(tool, self._batch.settings.concurrency)
            self._limiters[tool.spec.name] = limiters
        if not limiters:
            return True
        for limiter in limiters:
            if not limiter.has_slot and not limiter.blocked:
                limiter.wait(partial(self._start, call))
                return False
        if not any(limiter.blocked for limiter in limiters):
            for limiter in limiters:
                limiter.acquire()
            call.limiters = limiters
        return True

    def _finish(self, call: Call, result: ToolResult) -> None:
        call.move("done")
        # The task is at its end: a batch of thousands must not keep a task for each call.
        call.result, call.task = result, None
        call.completed = time()
        observation = self._batch.observation
        if observation is not None and not call.recorded:
            execution = call.execution(observation.run.run_id, self._batch.context.scope.details)
            observation.ended(execution, call.refused_by)
        if call.limiters:
            call.release()
        for follower in call.followers or ():
            follower.wait_count -= 1
            if not follower.wait_count:
                self._ready.append(follower)
        self._open_calls -= 1
        if not self._open_calls:
            self._batch.finish()
        if self._ready:
            self._start_ready()

    def _expire(self) -> None:
        """Interrupts the calls under way, except one whose fact is being recorded."""
        # Set, for a timer may fire a tick before the clock reaches its time.
        self._batch.expired = True
        for call in self._batch.calls:
            if call.task is not None and call.phase in INTERRUPTIBLE:
                call.task.cancel()
            elif call.phase == "queued":
                self._start(call)

    async def _stop(self) -> None:
        """Cancels the calls under way and waits for them. A result that is being recorded is not cancelled."""
        batch = self._batch
        batch.is_failing = True
        tasks: list[asyncio.Task[None]] = []
        for call in batch.calls:
            if call.task is not None and not call.task.done():
                tasks.append(call.task)
                if call.phase != "recording":
                    call.task.cancel()
        cancelled = None
        while tasks:
            try:
                await asyncio.wait(tasks)
            except asyncio.CancelledError as error:
                # Cancelled once more: then recording is cancelled too.
                cancelled = error
                for task in tasks:
                    task.cancel()
            tasks = [task for task in tasks if not task.done()]
        if cancelled is not None and batch.error is None:
            raise cancelled
