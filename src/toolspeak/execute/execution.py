"""The second phase of a batch: the admitted calls run as soon as their schedule lets them."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from toolspeak.data.events import ToolFinished, ToolStarted
from toolspeak.data.messages import ToolCall, ToolResult, failure
from toolspeak.execute.admission import Ready, Settled
from toolspeak.execute.batch import BatchContext, Deadline, Emit
from toolspeak.execute.interceptors import Interceptor, run_around
from toolspeak.execute.invoke import invoke
from toolspeak.execute.results import describe, finish_result, result_of
from toolspeak.execute.schedule import Conflicts, ScheduleName, plan
from toolspeak.execute.secrets import Secrets

_MAX_THREADS = 128
"""Synchronous calls of one batch that run at once: a batch of thousands must not become as many threads."""


@dataclass(slots=True)
class _Turn:
    """One call on its way; `returned` is what its function brought, `result` what was recorded."""

    entry: Ready | Settled
    waits: int = 0
    followers: list[_Turn] = field(default_factory=list["_Turn"])
    phase: Literal["new", "waiting", "starting", "running", "settling", "recording", "done"] = "new"
    returned: ToolResult | None = None
    result: ToolResult | None = None
    task: asyncio.Task[None] | None = None


class _Abandoned:
    """The synchronous calls that were given up and go on in their threads: nothing that conflicts may start."""

    def __init__(self) -> None:
        self._calls: list[tuple[str, threading.Event]] = []
        self._conflicts = Conflicts()

    def add(self, entry: Ready, ended: threading.Event) -> None:
        self._conflicts.add(len(self._calls), entry.effects)
        self._calls.append((entry.tool.name, ended))

    def in_the_way_of(self, entry: Ready) -> str:
        """The name of one that conflicts with this call and is still running, or ""."""
        if not self._calls:
            return ""
        conflicting = (self._calls[index] for index in sorted(self._conflicts.with_(entry.effects)))
        return next((name for name, ended in conflicting if not ended.is_set()), "")


class Execution:
    """Runs the admitted calls of one batch; make a new one for each, in the task that runs it."""

    def __init__(
        self,
        entries: Sequence[Ready | Settled],
        *,
        schedule: ScheduleName,
        emit: Emit,
        context: BatchContext,
        pipeline: Sequence[Interceptor],
        secrets: Secrets,
        deadline: Deadline,
        tool_timeout: float | None,
        max_result_bytes: int,
    ) -> None:
        self._emit = emit
        self._context = context
        self._pipeline = pipeline
        self._secrets = secrets
        self._deadline = deadline
        self._tool_timeout = tool_timeout
        self._max_result_bytes = max_result_bytes
        self._turns = [_Turn(entry) for entry in entries]
        _chain([turn for turn in self._turns if isinstance(turn.entry, Ready)], schedule)
        self._abandoned = None if schedule == "parallel" else _Abandoned()
        self._left = len(self._turns)
        self._ready = deque(turn for turn in self._turns if not turn.waits)
        self._starting = False
        self._stopping = False
        self._expired = False
        self._error: BaseException | None = None
        self._threads = asyncio.Semaphore(_MAX_THREADS)
        self._owner = cast("asyncio.Task[Any]", asyncio.current_task())
        self._cancellations = self._owner.cancelling()
        self._vars = contextvars.copy_context()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> tuple[ToolResult, ...]:
        """All results, in call order.

        Raises what `emit` raised, and a tool's KeyboardInterrupt or SystemExit, after the other calls have been
        cancelled and awaited; what was not recorded by then has no result.
        """
        loop = asyncio.get_running_loop()
        timer = None if self._deadline.at is None else loop.call_at(self._deadline.at, self._expire)
        try:
            self._start_ready()
            if self._left:
                await self._over
        finally:
            if timer is not None:
                timer.cancel()
            await self._stop()
        if self._error is not None:
            raise self._error
        return tuple(cast("ToolResult", turn.result) for turn in self._turns)

    def _start_ready(self) -> None:
        # A task may run at once (eager task factories) and come back here: the loop below takes its turns too.
        if self._starting:
            return
        self._starting = True
        loop = asyncio.get_running_loop()
        while self._ready and not self._stopping:
            turn = self._ready.popleft()
            if isinstance(turn.entry, Settled) and turn.entry.recorded:
                self._finish(turn, turn.entry.result)
                continue
            # A copy of the batch's context: a call must not see what the call before it has set.
            turn.task = loop.create_task(self._take(turn), context=self._vars.copy())
        self._starting = False

    async def _take(self, turn: _Turn) -> None:
        try:
            if isinstance(turn.entry, Settled):
                result = turn.entry.result
            else:
                result = await self._run_call(turn, turn.entry)
            result = finish_result(result, self._secrets, self._max_result_bytes)
            turn.phase = "recording"
            await self._emit(ToolFinished(result))
        except BaseException as error:  # noqa: BLE001 - run() raises it; a task's own exception would be lost
            self._abort(error)
        else:
            self._finish(turn, result)

    def _finish(self, turn: _Turn, result: ToolResult) -> None:
        turn.result, turn.phase = result, "done"
        for follower in turn.followers:
            follower.waits -= 1
            if not follower.waits:
                self._ready.append(follower)
        self._left -= 1
        if not self._left and not self._over.done():
            self._over.set_result(None)
        self._start_ready()

    async def _run_call(self, turn: _Turn, entry: Ready) -> ToolResult:
        if self._is_late():
            return failure(entry.call, "skipped", self._deadline.before_start())
        running = self._abandoned.in_the_way_of(entry) if self._abandoned is not None else ""
        if running:
            reason = f"not started: it depends on {running}, which is still running after its timeout"
            return failure(entry.call, "skipped", reason)
        turn.phase = "waiting"
        try:
            result = await run_around(self._pipeline, entry.call, lambda: self._call_in_turn(turn, entry))
        except asyncio.CancelledError as error:
            if self._is_being_cancelled():
                raise
            _forget_cancellations()
            return turn.returned or self._interrupted(turn, entry.call, error)
        # An interceptor may have caught what must end the batch.
        if turn.returned is None and self._is_being_cancelled():
            raise asyncio.CancelledError
        return result

    async def _call_in_turn(self, turn: _Turn, entry: Ready) -> ToolResult:
        if entry.tool.is_async:
            return await self._call_tool(turn, entry)
        async with self._threads:
            return await self._call_tool(turn, entry)

    async def _call_tool(self, turn: _Turn, entry: Ready) -> ToolResult:
        if self._is_being_cancelled():
            raise asyncio.CancelledError
        turn.phase, turn.returned = "starting", None
        try:
            await self._emit(ToolStarted(entry.call.id, entry.tool.name, entry.idempotency_key))
        except BaseException as error:
            self._abort(error)
            raise
        turn.phase = "running"
        if self._is_late():
            result = failure(entry.call, "skipped", self._deadline.before_start())
        else:
            result = await self._call_function(turn, entry)
        turn.phase, turn.returned = "settling", result
        return result

    async def _call_function(self, turn: _Turn, entry: Ready) -> ToolResult:
        call, tool = entry.call, entry.tool
        seconds = self._tool_timeout if tool.timeout is None else tool.timeout
        ended = threading.Event()
        try:
            outcome, timed_out = await invoke(
                tool,
                call,
                entry.arguments,
                key=entry.idempotency_key,
                seconds=seconds,
                context=self._context,
                secrets=self._secrets,
                ended=ended,
            )
        except asyncio.CancelledError as error:
            self._give_up(entry, ended)
            if self._is_being_cancelled():
                raise
            _forget_cancellations()
            return self._interrupted(turn, call, error)
        if outcome.error is None:
            # Even if it was told to stop, or the batch is being cancelled: what was done is recorded if it can be.
            return result_of(call, outcome.value, self._secrets)
        if timed_out:
            still = "; it may still be running" if self._give_up(entry, ended) else ""
            return failure(call, "timeout", f"{tool.name} did not finish within {seconds:g} seconds{still}")
        if isinstance(outcome.error, Exception):
            return failure(call, "exception", self._secrets.hide_text(describe(outcome.error)))
        if isinstance(outcome.error, asyncio.CancelledError):
            return self._interrupted(turn, call, outcome.error)
        raise outcome.error

    def _give_up(self, entry: Ready, ended: threading.Event) -> bool:
        """Whether the call goes on although nobody waits for it any more: a thread cannot be stopped."""
        if entry.tool.is_async or ended.is_set():
            return False
        if self._abandoned is not None:
            self._abandoned.add(entry, ended)
        return True

    def _interrupted(self, turn: _Turn, call: ToolCall, error: asyncio.CancelledError) -> ToolResult:
        """The failure of a call that got a CancelledError although nobody cancels the batch."""
        if not self._is_late():
            return failure(call, "cancelled", self._secrets.hide_text(f"the tool gave up: {describe(error)}"))
        if turn.phase == "running":
            return failure(call, "timeout", self._deadline.before_end())
        return failure(call, "skipped", self._deadline.before_start())

    def _is_late(self) -> bool:
        return self._expired or self._deadline.passed()

    def _is_being_cancelled(self) -> bool:
        # Whoever cancels every task (as asyncio.run does) reaches a call's task before run() can react.
        return self._stopping or self._owner.cancelling() > self._cancellations

    def _expire(self) -> None:
        """Interrupts the calls that are under way, never one whose fact is being recorded."""
        # A timer may fire a tick before the clock says so.
        self._expired = True
        for turn in self._turns:
            # A task that has not begun must not be cancelled: its code would never run.
            if turn.task is not None and turn.phase in ("waiting", "running", "settling"):
                turn.task.cancel()

    def _abort(self, error: BaseException) -> None:
        """Ends the batch with this error; the first one counts."""
        if isinstance(error, asyncio.CancelledError) and self._is_being_cancelled():
            return
        if self._error is None:
            self._error = error
        self._stopping = True
        if not self._over.done():
            self._over.set_result(None)

    async def _stop(self) -> None:
        """Cancels what is still under way and waits for it; results that are being recorded get their time."""
        self._stopping = True
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
        if cancelled is not None and self._error is None:
            raise cancelled


def _chain(turns: Sequence[_Turn], schedule: ScheduleName) -> None:
    effects = [turn.entry.effects for turn in turns if isinstance(turn.entry, Ready)]
    for turn, waits in zip(turns, plan(effects, schedule), strict=True):
        turn.waits = len(waits)
        for index in waits:
            turns[index].followers.append(turn)


def _forget_cancellations() -> None:
    """Lets the current task go on after a cancellation that was meant for its tool."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
