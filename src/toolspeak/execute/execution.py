"""The second phase of a batch: the admitted calls run as soon as their schedule and the limits let them."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import time
from typing import Any, cast

from toolspeak.data.events import StopRequested, ToolFinished
from toolspeak.data.messages import JSON, MalformedCall, TextPart, ToolCall, ToolResult, failure, no_extra
from toolspeak.errors import AgentStop
from toolspeak.execute.batch import BatchContext, Deadline, Emit
from toolspeak.execute.doubts import NO_DOUBTS, Doubts
from toolspeak.execute.entries import Ready, Settled, stopped_result
from toolspeak.execute.gates import Gate
from toolspeak.execute.hooks import HookNotes, applied
from toolspeak.execute.interceptors import passage_of
from toolspeak.execute.invoke import Invocation, seconds_of
from toolspeak.execute.lingering import Abandoned
from toolspeak.execute.pause import BatchPaused, NotStarted
from toolspeak.execute.results import describe, finish_result, result_of
from toolspeak.execute.settings import ExecutionSettings
from toolspeak.execute.threads import Outcome
from toolspeak.execute.timers import Timers
from toolspeak.execute.turns import Turn, Watch, chain, forget_cancellations, obstacle_of, started_fact
from toolspeak.tools.kept import kept


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
        doubts: Doubts = NO_DOUBTS,
        metadata: Mapping[str, JSON] = no_extra(),
        stop: StopRequested | None = None,
    ) -> None:
        self.stop = stop
        self._metadata = metadata
        self._watch = Watch(settings.observers, context)
        self._settings = settings
        self._emit = emit
        self._context = context
        self._scope = context.scope
        self._deadline = deadline
        self._doubts = doubts
        self._turns = [Turn(call, entry) for call, entry in zip(calls, entries, strict=True)]
        self._calls = [(turn, turn.entry) for turn in self._turns if isinstance(turn.entry, Ready)]
        chain(self._calls, settings.schedule)
        limit = settings.concurrency.batch
        self._gates = () if limit is None else (Gate(limit),)
        self._places: dict[str, tuple[Gate, ...]] = {}
        self._recalls = bool(self._scope.recall) and (
            settings.schedule != "parallel" or all(entry.effects.read_only for _, entry in self._calls)
        )
        self._left = len(self._turns)
        self._pause = context.pause
        self._under_way = 0
        self._ready = deque(turn for turn in self._turns if not turn.waits)
        self._starting = False
        self._stopping = False
        self._expired = False
        self._error: BaseException | None = None
        self._owner = cast("asyncio.Task[Any]", asyncio.current_task())
        self._cancellations = self._owner.cancelling()
        self._vars = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self._timers = Timers()
        self._over: asyncio.Future[None] = self._loop.create_future()

    async def run(self) -> tuple[ToolResult, ...]:
        """All results, in call order.

        Raises BatchPaused when the run was asked to pause and calls were left. Raises what `emit` raised, and a tool's
        KeyboardInterrupt or SystemExit, after the other calls have been cancelled and awaited; what was not recorded by
        then has no result.
        """
        at = self._deadline.at
        timer = None if at is None else self._loop.call_at(at, self._expire)
        end_telling = self._pause.tell(self._rest)
        try:
            self._start_ready()
            self._rest()
            if self._left:
                await self._over
        finally:
            end_telling()
            if timer is not None:
                timer.cancel()
            try:
                await self._stop()
            finally:
                self._close()
        if self._error is not None:
            raise self._error
        if self._settings.pipeline:
            notes = (turn.notes for turn in self._turns if turn.result is not None)
            for fact in applied(notes, self._metadata, "call"):
                await self._emit(fact)
        if self._left:
            raise BatchPaused
        return tuple(cast("ToolResult", turn.result) for turn in self._turns)

    @property
    def times(self) -> tuple[tuple[float, float], ...]:
        """When each call started and completed, in Unix seconds."""
        return tuple((turn.started or turn.completed, turn.completed) for turn in self._turns)

    def _start_ready(self) -> None:
        # A task may run at once (eager task factories) and come back here: the loop below takes its turns too.
        if self._starting:
            return
        self._starting = True
        while self._ready and not self._stopping and not self._pause.asked:
            self._start(self._ready.popleft())
        self._starting = False

    def _start(self, turn: Turn) -> None:
        entry = turn.entry
        if self._stopping or self._pause.asked or turn.task is not None or turn.result is not None:
            return
        if isinstance(entry, Settled):
            if entry.recorded:
                self._finish(turn, entry.result)
                return
        elif not self._expired and entry.begun is None and not self._has_place(turn, entry):
            turn.phase = "queued"
            return
        turn.phase = "new"
        self._under_way += 1
        # A copy of the batch's context: a call must not see what the call before it has set.
        turn.task = self._loop.create_task(self._take(turn), context=self._vars.copy())

    def _has_place(self, turn: Turn, entry: Ready) -> bool:
        """Takes the places the call needs, all or none; without them it is started again when there may be some."""
        gates = self._places.get(entry.tool.name)
        if gates is None:
            gates = self._gates + self._scope.gates(entry.tool, self._settings.concurrency)
            self._places[entry.tool.name] = gates
        if not gates:
            return True
        for gate in gates:
            if not gate.free and not gate.stuck:
                gate.wait(partial(self._start, turn))
                return False
        if not any(gate.stuck for gate in gates):
            for gate in gates:
                gate.take()
            turn.gates = gates
        return True

    async def _take(self, turn: Turn) -> None:
        entry, settings = turn.entry, self._settings
        try:
            result = self._remembered(turn) if self._recalls else None
            if result is None:
                ready = isinstance(entry, Ready)
                result = self._doubts.told(entry.call, await self._run_call(turn, entry)) if ready else entry.result
                result = finish_result(result, settings.secrets, settings.cap, self._context.memory)
            if turn.notes is not None:
                for failed in turn.notes.failed:
                    await self._emit(replace(failed, error=settings.secrets.hide_text(failed.error)))
            turn.phase = "recording"
            if settings.stopping.on_failure and result.status == "failure" and isinstance(entry, Ready):
                await self._halt_on(result)
            handle = result.extra.get("handle")
            await self._emit(ToolFinished(result, None if handle is None else kept(self._context.memory, handle)))
        except NotStarted:
            pass
        except BaseException as error:  # noqa: BLE001 - run() raises it; a task's own exception would be lost
            self._abort(error)
        else:
            self._finish(turn, result)
        finally:
            self._under_way -= 1
            self._rest()

    def _rest(self) -> None:
        """Ends the batch when the run is to pause and nothing is under way."""
        if self._pause.asked and not self._under_way and not self._over.done():
            self._over.set_result(None)

    def _remembered(self, turn: Turn) -> ToolResult | None:
        """The result of a read that was made before, unless something in this batch may change it first."""
        entry = turn.entry
        if not isinstance(entry, Ready) or turn.waited_for:
            return None
        return self._scope.recall.answer(entry.call, entry.effects)

    def _finish(self, turn: Turn, result: ToolResult) -> None:
        # The task has nothing left to do: a batch of thousands must not keep them all.
        turn.result, turn.phase, turn.task = result, "done", None
        turn.completed = time()
        if self._settings.observers:
            self._watch.ended(turn, result)
        if turn.gates:
            turn.leave()
        for follower in turn.followers:
            follower.waits -= 1
            if not follower.waits:
                self._ready.append(follower)
        self._left -= 1
        if not self._left and not self._over.done():
            self._over.set_result(None)
        if self._ready:
            self._start_ready()

    async def _halt_on(self, result: ToolResult) -> None:
        if result.code != "skipped":
            await self._halt(StopRequested("tool_failure", result.text, result.call_id))

    async def _halt(self, stop: StopRequested) -> None:
        """From here on no call is started; those that are under way go on."""
        if self.stop is None:
            self.stop = stop
            await self._emit(stop)

    async def _run_call(self, turn: Turn, entry: Ready) -> ToolResult:
        if self._pause.asked:
            raise NotStarted
        if self._is_late():
            return failure(entry.call, "skipped", self._deadline.before_start())
        if self.stop is not None:
            return failure(entry.call, "skipped", "not started: the run was told to stop before it")
        if self._scope.lingering.calls:
            obstacle = obstacle_of(self._scope, self._settings.schedule, turn, entry)
            if obstacle:
                return failure(entry.call, "skipped", f"not started: {obstacle}")
        turn.phase = "waiting"
        pipeline = self._settings.pipeline
        try:
            if not pipeline:
                return self._noted(entry, await self._call_tool(turn, entry))
            turn.notes = HookNotes(self._metadata)
            passage = passage_of(entry.call, pipeline, self._context, turn.notes)
            result = self._noted(entry, await passage.around(entry.call, partial(self._call_tool, turn, entry)))
        except AgentStop as stop:
            await self._told_to_stop(entry.call, stop)
            return turn.returned or stopped_result(entry.call, stop)
        except asyncio.CancelledError as error:
            if self._is_being_cancelled():
                raise
            forget_cancellations()
            return turn.returned or self._interrupted(turn, entry.call, error)
        # An interceptor may have caught what must end the batch.
        if turn.returned is None and self._is_being_cancelled():
            raise asyncio.CancelledError
        return result

    def _noted(self, entry: Ready, result: ToolResult) -> ToolResult:
        return replace(result, content=(TextPart(entry.note), *result.content)) if entry.note else result

    async def _told_to_stop(self, call: ToolCall, stop: AgentStop) -> None:
        hide = self._settings.secrets.hide_text
        answer = None if stop.answer is None else hide(stop.answer)
        await self._halt(StopRequested("stopped", hide(str(stop)), call.id, answer))

    async def _call_tool(self, turn: Turn, entry: Ready) -> ToolResult:
        if self._is_being_cancelled():
            raise asyncio.CancelledError
        if self._pause.asked:
            raise NotStarted
        turn.phase, turn.returned = "starting", None
        try:
            await self._emit(started_fact(turn, entry, self._settings.secrets))
        except BaseException as error:
            self._abort(error)
            raise
        turn.phase = "running"
        turn.started = turn.started or time()
        if self._settings.observers:
            self._watch.started(turn, entry.call)
        if self._is_late():
            result = failure(entry.call, "skipped", self._deadline.before_start())
        else:
            begun = entry.begun
            invocation = self._invocation(entry) if begun is None else begun.invocation
            try:
                outcome, timed_out = await (invocation.run(self._timers) if begun is None else begun.outcome())
            except asyncio.CancelledError as error:
                self._give_up(turn, entry, invocation)
                if self._is_being_cancelled():
                    raise
                forget_cancellations()
                result = self._interrupted(turn, entry.call, error)
            else:
                if isinstance(outcome.error, AgentStop):
                    await self._told_to_stop(entry.call, outcome.error)
                result = self._result(turn, entry, invocation, outcome, timed_out)
        turn.phase, turn.returned = "settling", result
        return result

    def _result(
        self, turn: Turn, entry: Ready, invocation: Invocation, outcome: Outcome, timed_out: bool
    ) -> ToolResult:
        call, secrets = entry.call, self._settings.secrets
        if outcome.error is None:
            # Even if it was told to stop, or the batch is being cancelled: what was done is recorded if it can be.
            return result_of(call, outcome.value, secrets)
        if isinstance(outcome.error, AgentStop):
            return stopped_result(call, outcome.error)
        if timed_out:
            return self._timed_out(turn, entry, invocation)
        if isinstance(outcome.error, Exception):
            return failure(call, "exception", secrets.hide_text(describe(outcome.error)))
        if isinstance(outcome.error, asyncio.CancelledError):
            return self._interrupted(turn, call, outcome.error)
        raise outcome.error

    def _invocation(self, entry: Ready) -> Invocation:
        return Invocation(
            entry.tool,
            entry.call,
            entry.arguments,
            entry.idempotency_key,
            seconds_of(entry.tool, entry.arguments, self._settings.tool_timeout),
            self._context,
            self._settings.secrets,
        )

    def _timed_out(self, turn: Turn, entry: Ready, invocation: Invocation) -> ToolResult:
        told = f"{entry.tool.name} did not finish within {invocation.seconds:g} seconds"
        if not self._give_up(turn, entry, invocation):
            return failure(entry.call, "timeout", told)
        result = failure(entry.call, "timeout", f"{told}; it may still be running")
        return replace(result, extra={"still_running": True})

    def _give_up(self, turn: Turn, entry: Ready, invocation: Invocation) -> bool:
        """Whether the call goes on although nobody waits for it any more: a thread cannot be stopped."""
        ended = invocation.ended
        if ended is None or ended.is_set():
            return False
        scope = self._scope
        scope.lingering.add(Abandoned(entry.call.id, entry.tool.name, entry.effects, ended))
        own = scope.own_gate(entry.tool)
        if own is not None and own in turn.gates:
            turn.gates = tuple(gate for gate in turn.gates if gate is not own)
            invocation.on_end = own.leave
            own.linger()
        return True

    def _interrupted(self, turn: Turn, call: ToolCall, error: asyncio.CancelledError) -> ToolResult:
        """The failure of a call that got a CancelledError although nobody cancels the batch."""
        if not self._is_late():
            return failure(call, "cancelled", self._settings.secrets.hide_text(f"the tool gave up: {describe(error)}"))
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
            elif turn.phase == "queued":
                self._start(turn)

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

    def _close(self) -> None:
        """Gives everything back; nothing of the batch runs any more."""
        self._timers.close()
        for turn, _ in self._calls:
            turn.leave()
        done = ((entry.call, entry.effects, turn.result) for turn, entry in self._calls)
        self._scope.recall.learn(done, ordered=self._settings.schedule != "parallel")
