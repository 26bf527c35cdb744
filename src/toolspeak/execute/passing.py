"""One call's way through its batch: from its turn to its recorded result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import time

from toolspeak.data.events import StopRequested, ToolFinished
from toolspeak.data.messages import TextPart, ToolCall, ToolResult, failure
from toolspeak.data.values import quick
from toolspeak.errors import AgentStop, ReplayDiverged, ToolError
from toolspeak.execute.call_interceptors import chain_of
from toolspeak.execute.calls.observe import LocalDetails
from toolspeak.execute.calls.replay import RecordedResult
from toolspeak.execute.calls.results import describe, finish_result, result_of
from toolspeak.execute.concurrency.limits import OrphanedCall
from toolspeak.execute.concurrency.pause import NotStarted
from toolspeak.execute.concurrency.threads import Outcome
from toolspeak.execute.course import Course
from toolspeak.execute.entries import Ready, Settled, stopped_result
from toolspeak.execute.hooks import HookNotes
from toolspeak.execute.invocation import Invocation, seconds_of
from toolspeak.execute.sub_runs import CallHeld, SubRuns
from toolspeak.execute.turns import Turn, forget_cancellations, obstacle_of, started_fact
from toolspeak.tools.crashes import log_crash, without_our_frames
from toolspeak.tools.kept import kept

_LOG = logging.getLogger("toolspeak.execute")
_BY_CHANCE = frozenset({"skipped", "unknown_outcome"})
"""The codes of calls that another time, or a process that had not died, would have let run."""


@quick()
class Passing:
    """Takes the turns of one batch. `recalls`: a read may be answered from memory."""

    _course: Course
    _recalls: bool

    async def take(self, turn: Turn, finish: Callable[[Turn, ToolResult], None]) -> None:
        """All of a turn, in a task of its own; `finish` is told the result once it is recorded. What must end the
        batch is handed to its course."""
        entry, course = turn.entry, self._course
        settings, memory = course.settings, course.context.memory
        try:
            result = self._remembered(turn) if self._recalls else None
            if result is None:
                if isinstance(entry, Ready):
                    result = course.doubts.told(entry.call, await self._run_call(turn, entry))
                else:
                    result = self._refused(entry)
                result, whole = finish_result(result, settings.secrets, settings.cap, memory)
                if whole is not None or turn.error is not None:
                    course.scope.details[result.call_id] = LocalDetails(turn.error, whole)
            if turn.notes is not None:
                for failed in turn.notes.failed:
                    await course.emit(replace(failed, error=settings.secrets.hide_text(failed.error)))
            turn.phase = "recording"
            if settings.stopping.on_failure and result.status == "failure" and isinstance(entry, Ready):
                await self._halt_on(result)
            handle = result.extra.get("handle")
            await course.emit(ToolFinished(result, None if handle is None else kept(memory, handle)))
        except NotStarted:
            turn.release()
        except BaseException as error:  # noqa: BLE001 - the batch raises it; a task's own exception would be lost
            course.abort(error)
        else:
            finish(turn, result)
        finally:
            course.under_way -= 1
            if course.pause.asked or course.held:
                course.rest()

    def _remembered(self, turn: Turn) -> ToolResult | None:
        """The result of a read that was made before, unless something in this batch may change it first."""
        entry, settings = turn.entry, self._course.settings
        if not isinstance(entry, Ready):
            return None
        if settings.replayer is not None:
            return settings.replayer.recalled(entry.call)
        if turn.waited_for:
            return None
        result = self._course.scope.recall.answer(entry.call, entry.effects)
        if result is not None and settings.recorder is not None:
            settings.recorder.keep(entry.call, RecordedResult(result, recalled=True))
        return result

    def _refused(self, entry: Settled) -> ToolResult:
        result, recorder = entry.result, self._course.settings.recorder
        if recorder is not None and result.code in _BY_CHANCE:
            recorder.keep(ToolCall(result.call_id, result.name, {}), RecordedResult(result, skipped=True))
        return result

    async def _halt_on(self, result: ToolResult) -> None:
        if result.code != "skipped":
            await self._course.halt(StopRequested("tool_failure", result.text, result.call_id))

    async def _run_call(self, turn: Turn, entry: Ready) -> ToolResult:
        course = self._course
        if course.pause.asked:
            raise NotStarted
        skipped = self._skipped(turn, entry)
        if skipped is not None:
            return skipped
        turn.phase = "waiting"
        pipeline = course.settings.pipeline
        try:
            if pipeline:
                turn.notes = HookNotes(course.metadata)
                passage = chain_of(entry.call, pipeline, course.context, turn.notes)
                result = await passage.around(entry.call, partial(self._call_tool, turn, entry))
            else:
                result = await self._call_tool(turn, entry)
            if entry.note:
                result = replace(result, content=(TextPart(entry.note), *result.content))
        except AgentStop as stop:
            await self._told_to_stop(entry.call, stop)
            return turn.returned or stopped_result(entry.call, stop)
        except asyncio.CancelledError as error:
            if course.is_being_cancelled:
                raise
            forget_cancellations()
            return turn.returned or self._interrupted(turn, entry.call, error)
        # An interceptor may have caught what must end the batch.
        if turn.returned is None and course.is_being_cancelled:
            raise asyncio.CancelledError
        return result

    def _skipped(self, turn: Turn, entry: Ready) -> ToolResult | None:
        """The result of a call that is not to start any more."""
        course, settings = self._course, self._course.settings
        if settings.replayer is not None:
            return settings.replayer.skipped(entry.call)
        if course.is_late:
            told = course.deadline.before_start()
        elif course.stop is not None:
            told = "not started: the run was told to stop before it"
        else:
            orphans = course.scope.orphans.calls
            obstacle = obstacle_of(course.scope, course.settings.schedule, turn, entry) if orphans else ""
            told = f"not started: {obstacle}" if obstacle else ""
        if not told:
            return None
        result = failure(entry.call, "skipped", told)
        if settings.recorder is not None:
            settings.recorder.keep(entry.call, RecordedResult(result, skipped=True))
        return result

    async def _told_to_stop(self, call: ToolCall, stop: AgentStop) -> None:
        hide = self._course.settings.secrets.hide_text
        answer = None if stop.answer is None else hide(stop.answer)
        await self._course.halt(StopRequested("stopped", hide(str(stop)), call.id, answer))

    async def _call_tool(self, turn: Turn, entry: Ready) -> ToolResult:
        course = self._course
        if course.is_being_cancelled:
            raise asyncio.CancelledError
        if course.pause.asked:
            raise NotStarted
        turn.phase, turn.returned = "starting", None
        try:
            await course.emit(started_fact(turn, entry, course.settings.secrets))
        except BaseException as error:
            course.abort(error)
            raise
        turn.phase = "running"
        turn.started = turn.started or time()
        if course.watch is not None:
            course.watch.started(turn, entry.call)
        if course.is_late:
            result = failure(entry.call, "skipped", course.deadline.before_start())
        else:
            recorded = await self._outcome(turn, entry)
            for used in recorded.spent:
                await course.emit(used)
            if recorded.stop is not None:
                await self._told_to_stop(entry.call, recorded.stop)
            result = recorded.result
        turn.phase, turn.returned = "settling", result
        return result

    async def _outcome(self, turn: Turn, entry: Ready) -> RecordedResult:
        """Runs the tool's function, unless a recorder says what came of it."""
        course, begun = self._course, entry.begun
        settings = course.settings
        if settings.replayer is not None:
            try:
                return settings.replayer.play(entry.call)
            except ReplayDiverged as error:
                course.abort(error)  # whatever an interceptor makes of it
                raise
        invocation = self._invocation(entry) if begun is None else begun.invocation
        stop = None
        try:
            outcome, timed_out = await (invocation.run(course.timers) if begun is None else begun.outcome())
        except asyncio.CancelledError as error:
            self._give_up(turn, entry, invocation)
            if course.is_being_cancelled:
                raise
            forget_cancellations()
            result = self._interrupted(turn, entry.call, error)
        else:
            stop = outcome.error if isinstance(outcome.error, AgentStop) else None
            if invocation.sub_runs is not None and invocation.sub_runs.resting and stop is None and not timed_out:
                problem, stop = await self._of_sub_runs(turn, entry, invocation.sub_runs)
                if problem:
                    outcome = Outcome(error=ToolError(problem))
            result = self._result(turn, entry, invocation, outcome, timed_out)
        recorded = RecordedResult(result, stop)
        if settings.recorder is not None:
            settings.recorder.keep(entry.call, recorded)
        return recorded

    async def _of_sub_runs(self, turn: Turn, entry: Ready, runs: SubRuns) -> tuple[str, AgentStop | None]:
        """What is wrong with the runs that the function started, and whether a decision about one ends this run too.
        Raises CallHeld if one of them waits: what the function returned rests on an answer that is not there yet."""
        course = self._course
        if runs.waiting and runs.at_work:
            await runs.all_rest(seconds_of(entry.tool, entry.arguments, course.settings.tool_timeout))
        ended = [run for run in runs.resting.values() if run.reason == "terminated"]
        if ended:
            return "", AgentStop(f"a decision ended the run of {ended[0].agent}, which this call had started")
        lost = [run for run in runs.waiting if not run.is_kept]
        if lost:
            return (
                f"the run of {lost[0].agent} that this call started waits for approval, and no journal keeps it: give "
                "that agent a journal of its own (Agent(journal=…)), or an approver"
            ), None
        if runs.waiting:
            turn.phase = "waiting"
            course.held += (runs,)
            raise CallHeld
        return "", None

    def _result(
        self, turn: Turn, entry: Ready, invocation: Invocation, outcome: Outcome, timed_out: bool
    ) -> ToolResult:
        call, secrets = entry.call, self._course.settings.secrets
        if outcome.error is None:
            # Even if it was told to stop, or the batch is being cancelled: what was done is recorded if it can be.
            return result_of(call, outcome.value, secrets)
        if isinstance(outcome.error, AgentStop):
            return stopped_result(call, outcome.error)
        if timed_out:
            return self._timed_out(turn, entry, invocation)
        if isinstance(outcome.error, Exception):
            error = without_our_frames(outcome.error)
            level = logging.DEBUG if isinstance(error, ToolError) else logging.WARNING
            log_crash(_LOG, f"the tool {call.name} raised in the call {call.id}", error, secrets.hide_text, level)
            turn.error = error
            return failure(call, "exception", secrets.hide_text(describe(error)))
        if isinstance(outcome.error, asyncio.CancelledError):
            return self._interrupted(turn, call, outcome.error)
        raise outcome.error

    def _invocation(self, entry: Ready) -> Invocation:
        settings = self._course.settings
        return Invocation(
            entry.tool,
            entry.call,
            entry.arguments,
            entry.idempotency_key,
            seconds_of(entry.tool, entry.arguments, settings.tool_timeout),
            self._course.context,
            settings.secrets,
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
        scope = self._course.scope
        scope.orphans.add(OrphanedCall(entry.call.id, entry.tool.name, entry.effects, ended))
        own = scope.own_limiter(entry.tool)
        if own is not None and own in turn.limiters:
            turn.limiters = tuple(limiter for limiter in turn.limiters if limiter is not own)
            invocation.on_end = own.release_orphaned
            own.orphan()
        return True

    def _interrupted(self, turn: Turn, call: ToolCall, error: asyncio.CancelledError) -> ToolResult:
        """The failure of a call that got a CancelledError although nobody cancels the batch."""
        course = self._course
        if not course.is_late:
            told = course.settings.secrets.hide_text(f"the tool gave up: {describe(error)}")
            return failure(call, "cancelled", told)
        if turn.phase == "running":
            return failure(call, "timeout", course.deadline.before_end())
        return failure(call, "skipped", course.deadline.before_start())
