"""One call's way through its batch: from its task's first step to its recorded result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import time

from toolspeak.data.events import RetryScheduled, StopRequested, ToolFinished, ToolStarted
from toolspeak.data.messages import TextPart, ToolCall, ToolResult, failure
from toolspeak.data.tools import FOUND_TOOLS, SOURCES, WEB, sources_in, with_sources
from toolspeak.errors import AgentStop, ReplayDiverged, ToolError
from toolspeak.execute.batch_context import NotStarted
from toolspeak.execute.batch_state import BatchState, Call
from toolspeak.execute.calls.observe import LocalDetails
from toolspeak.execute.calls.prepare import PreparedCall
from toolspeak.execute.calls.replay import RecordedResult
from toolspeak.execute.calls.result_limits import describe, finish_result, result_of_value, stopped_result
from toolspeak.execute.calls.secrets import hide_effects, hide_retry
from toolspeak.execute.concurrency.limits import OrphanedCall, ThreadOutcome
from toolspeak.execute.hooks import HookNotes, chain_of
from toolspeak.execute.invocation import Invocation
from toolspeak.execute.sub_runs import CallHeld, SubRuns
from toolspeak.tools.crashes import log_crash, without_our_frames
from toolspeak.tools.stored_results import stored_result

_LOG = logging.getLogger("toolspeak.execute")
_LATE_SECONDS = 1.0
"""How long `after` of all interceptors may take together once the run's time is over."""
_BY_CHANCE = frozenset({"skipped", "unknown_outcome"})
"""The codes of calls that another time, or a process that had not died, would have let run."""


async def run_call(batch: BatchState, call: Call, finish: Callable[[Call, ToolResult], None]) -> None:
    """Runs a scheduled call to its recorded result, in a task of its own, and hands the result to `finish`.

    The result is that of the call's function, of an earlier call like it (the result cache), or the one that admission
    gave it. An error that must end the batch is handed to the batch: the exception of a task would be lost.
    """
    settings, context, prepared_call = batch.settings, batch.context, call.prepared_call
    try:
        result = _from_cache(batch, call, prepared_call) if batch.uses_cache and prepared_call is not None else None
        if result is not None:
            if call.passed_calls and prepared_call is not None:
                # What the interceptors made of the earlier result is part of it: they do not change it again.
                after = await _pass_after(batch, call, prepared_call.call, result, prepared_call)
                result = after if call.notes is not None and call.notes.failures else result
        else:
            if prepared_call is not None:
                result = await _run_prepared(batch, call, prepared_call)
                if batch.doubtful_calls.decisions:
                    result = batch.doubtful_calls.report(prepared_call.call, result)
            else:
                result = call.result
                assert result is not None, "admission resolved it"
                if settings.cassette_results is not None and result.code in _BY_CHANCE:
                    of_call = ToolCall(result.call_id, result.name, {})
                    settings.cassette_results.keep(of_call, RecordedResult(result, skipped=True))
                if call.passed_calls:
                    result = await _pass_after(batch, call, call.passed_calls[-1], result)
            read = call.function_result
            if read is not None and SOURCES in read.extra:  # whatever an interceptor made of the result
                result = replace(result, extra=with_sources(result.extra, sources_in(read.extra)))
            result, whole = finish_result(result, settings.secrets, settings.cap, context.memory)
            if whole is not None or call.error is not None:
                context.scope.details[result.call_id] = LocalDetails(call.error, whole)
        if call.notes is not None:
            for fact in call.notes.failures:
                await batch.emit(replace(fact, error=settings.secrets.hide_text(fact.error)))
        call.move("recording")
        has_failed = result.status == "failure" and result.code != "skipped"
        if settings.throw_on_failure and has_failed and prepared_call is not None:
            await batch.stop_starting(StopRequested("tool_failure", result.text, result.call_id))
        handle = result.extra.get("handle")
        await batch.emit(ToolFinished(result, None if handle is None else stored_result(context.memory, handle)))
    except NotStarted:
        call.move("postponed")
        call.release()
    except BaseException as error:  # noqa: BLE001 - the batch raises it
        batch.fail(error)
    else:
        finish(call, result)
    finally:
        if call.error is not None:  # of the last attempt: no interceptor called the function again
            place = f"the tool {call.call.name} raised in the call {call.original.id}"
            level = logging.DEBUG if isinstance(call.error, ToolError) else logging.WARNING
            log_crash(_LOG, place, call.error, settings.secrets.hide_text, level)
        batch.under_way -= 1
        if batch.waiting_calls or context.pause.is_requested:
            batch.end_if_idle()


def _from_cache(batch: BatchState, call: Call, prepared_call: PreparedCall) -> ToolResult | None:
    """The result of an earlier read like this one, unless something in this batch may change it first."""
    settings = batch.settings
    if settings.replayer is not None:
        return settings.replayer.cached_result(prepared_call.call)
    if call.waited_for:
        return None
    result = batch.context.scope.result_cache.answer(prepared_call.call, prepared_call.effects)
    if result is not None and settings.cassette_results is not None:
        settings.cassette_results.keep(prepared_call.call, RecordedResult(result, recalled=True))
    return result


async def _run_prepared(batch: BatchState, call: Call, prepared_call: PreparedCall) -> ToolResult:
    """Calls the function, with the interceptors around it, and returns the result as `after` left it; or the failure of
    a call that may not start any more."""
    settings = batch.settings
    if batch.context.pause.is_requested:
        raise NotStarted
    if prepared_call.call.id in batch.context.waits:
        batch.waiting_calls.append(SubRuns(batch.context.run_id, prepared_call.call.id, is_entered=False))
        raise CallHeld
    skip_result, notes = None, None
    if settings.replayer is not None:
        skip_result = settings.replayer.skipped_result(prepared_call.call)
    elif reason := _reason_to_skip(batch, call, prepared_call):
        skip_result = failure(prepared_call.call, "skipped", reason)
        if settings.cassette_results is not None:
            settings.cassette_results.keep(prepared_call.call, RecordedResult(skip_result, skipped=True))
    if skip_result is not None:
        return (
            await _pass_after(batch, call, prepared_call.call, skip_result, prepared_call)
            if call.passed_calls
            else skip_result
        )
    try:
        if settings.interceptors:
            call.move("entering")
            notes = call.notes = HookNotes(batch.notes.current)
            tool, effects = prepared_call.tool.now, hide_effects(prepared_call.effects, settings.secrets)
            record = partial(_record_retry, batch)
            chain = chain_of(prepared_call.call, settings.interceptors, batch.context, notes, tool, effects, record)
            result = await chain.surround(prepared_call.call, partial(_call_function, batch, call, prepared_call))
        else:
            result = await _call_function(batch, call, prepared_call)
    except AgentStop as stop:
        await batch.stop_starting(batch.stop_of(stop, prepared_call.call.id))
        result = (notes and notes.outcome) or call.function_result or stopped_result(prepared_call.call, stop)
    except asyncio.CancelledError as error:
        if batch.is_being_cancelled:
            raise
        _forget_cancellations()
        result = (
            (notes and notes.outcome)
            or call.function_result
            or _interrupted_result(batch, call, prepared_call.call, error)
        )
    # An interceptor may have caught what must end the batch.
    if call.function_result is None and batch.is_being_cancelled:
        raise asyncio.CancelledError
    if call.passed_calls:
        result = await _pass_after(batch, call, prepared_call.call, result, prepared_call)
    if prepared_call.is_unread:
        result = replace(result, extra={**result.extra, FOUND_TOOLS: [prepared_call.tool.name]})
    return replace(result, content=(TextPart(prepared_call.note), *result.content)) if prepared_call.note else result


async def _record_retry(batch: BatchState, event: RetryScheduled) -> None:
    await batch.emit(hide_retry(event, batch.settings.secrets))


async def _pass_after(
    batch: BatchState, call: Call, hook_call: ToolCall, result: ToolResult, prepared_call: PreparedCall | None = None
) -> ToolResult:
    """Returns the result, passed through the `after` of each interceptor whose `before` let the call pass.

    `hook_call`: the call as they see it; `prepared_call`: the call made ready, if it might run.
    """
    settings = batch.settings
    call.move("entering" if call.phase == "scheduled" else "returned")
    notes = call.notes = call.notes or HookNotes(batch.notes.current)
    tool = None if prepared_call is None else prepared_call.tool.now
    effects = None if prepared_call is None else hide_effects(prepared_call.effects, settings.secrets)
    interceptors = settings.interceptors[: len(call.passed_calls)]
    chain = chain_of(hook_call, interceptors, batch.context, notes, tool, effects)
    notes.outcome, stops = result, list[AgentStop]()
    try:
        async with asyncio.timeout(_LATE_SECONDS if batch.is_late else None):
            result = await chain.after(hook_call, result, stops)
    except TimeoutError:
        result = notes.outcome
    except asyncio.CancelledError:
        if batch.is_being_cancelled:
            raise
        _forget_cancellations()
        result = notes.outcome
    for stop in stops:
        await batch.stop_starting(batch.stop_of(stop, hook_call.id))
    return result


def _reason_to_skip(batch: BatchState, call: Call, prepared_call: PreparedCall) -> str:
    """Why the call may not start any more, "" if it may: the run's time, a stop, or orphaned calls in its way."""
    scope, tool = batch.context.scope, prepared_call.tool
    if batch.is_late:
        return batch.deadline.before_start()
    if batch.stop is not None:
        return "not started: the run was told to stop before it"
    if not scope.orphans.calls:
        return ""
    if batch.settings.schedule != "parallel":
        running = scope.orphans.conflicting_tool(prepared_call.effects)
        if running:
            return f"not started: it depends on {running}, which is still running after its timeout"
    own = scope.own_limiter(tool)
    if own is not None and own not in call.limiters and call.early is None:
        return (
            f"not started: earlier calls of {tool.name} are still running after their timeout, and no more may run at "
            "once"
        )
    return ""


async def _call_function(batch: BatchState, call: Call, prepared_call: PreparedCall) -> ToolResult:
    """Calls the tool's function, unless a recording has its result; ToolStarted is durable before the call."""
    settings = batch.settings
    if batch.is_being_cancelled:
        raise asyncio.CancelledError
    if batch.context.pause.is_requested:
        raise NotStarted
    call.move("starting")
    if call.error is not None and call.function_result is not None:
        level = logging.DEBUG if isinstance(call.error, ToolError) else logging.INFO
        name, call_id = prepared_call.call.name, prepared_call.call.id
        _LOG.log(level, "the tool %s is called again in the call %s: %s", name, call_id, call.function_result.text)
    call.function_result = call.error = None
    if call.notes is not None:
        call.notes.outcome = None
    try:
        fact = ToolStarted(
            prepared_call.call.id,
            prepared_call.tool.spec.name,
            prepared_call.idempotency_key,
            call.waited_for,
            hide_effects(prepared_call.effects, settings.secrets)
            if settings.secrets.has_values
            else prepared_call.effects,
            call.early is not None,
            prepared_call.call if prepared_call.changed else None,
            prepared_call.tool.boundary,
        )
        await batch.emit(fact)
    except BaseException as error:
        # An interceptor may give its call a time limit: the call has not begun, and the batch continues.
        if not isinstance(error, asyncio.CancelledError) or batch.is_being_cancelled:
            batch.fail(error)
        raise
    call.move("running")
    call.started_at = call.started_at or time()
    if batch.observation is not None:
        batch.observation.report_start(prepared_call.call, call.started_at)
    if batch.is_late:
        result = failure(prepared_call.call, "skipped", batch.deadline.before_start())
    elif settings.replayer is not None:
        try:
            recorded_result = settings.replayer.play(prepared_call.call)
        except ReplayDiverged as error:
            batch.fail(error)  # whatever an interceptor makes of it
            raise
        for usage_event in recorded_result.sub_run_usage:
            await batch.emit(usage_event)
        if recorded_result.stop is not None:
            await batch.stop_starting(batch.stop_of(recorded_result.stop, prepared_call.call.id))
        result = recorded_result.result
    else:
        result, stop = await _invoke(batch, call, prepared_call)
        if settings.cassette_results is not None:
            settings.cassette_results.keep(prepared_call.call, RecordedResult(result, stop))
        if stop is not None:
            await batch.stop_starting(batch.stop_of(stop, prepared_call.call.id))
    call.move("returned")
    call.function_result = result
    return result


async def _invoke(batch: BatchState, call: Call, prepared_call: PreparedCall) -> tuple[ToolResult, AgentStop | None]:
    """Enters the function, or awaits the early call; returns its result, and the AgentStop if it ends the run.

    Raises CallHeld if the function waits, or a run that it started. Raises what the function raised if that is no
    Exception, such as KeyboardInterrupt.
    """
    settings, early, tool_call = batch.settings, call.early, prepared_call.call
    if early is None:
        invocation = Invocation(prepared_call, settings.tool_timeout, batch.context, settings.secrets)
    else:
        invocation = early.invocation
    try:
        if early is None:
            outcome, timed_out = await invocation.run(batch.timers)
        else:
            outcome, timed_out = await early.task  # a cancellation here cancels the early call too
            if early.memory is not None:
                early.memory.merge()
    except asyncio.CancelledError as error:
        still_running = _orphan(batch, call, prepared_call, invocation)
        if batch.is_being_cancelled:
            raise
        _forget_cancellations()
        result = _interrupted_result(batch, call, tool_call, error)
        return (replace(result, extra={"still_running": True}) if still_running else result), None
    sub_runs = invocation.sub_runs
    waits = sub_runs is not None and (sub_runs.inactive or sub_runs.wait is not None)
    if waits and sub_runs is not None and not timed_out and not isinstance(outcome.error, AgentStop):
        problem, stop = await _check_sub_runs(batch, call, invocation, sub_runs)
        if problem:
            outcome = ThreadOutcome(error=ToolError(problem))
    else:
        stop = None
    match outcome.error:
        case None:
            # Also when it timed out, or while the batch is being cancelled: what took effect is recorded if it can be.
            result = result_of_value(tool_call, outcome.value, settings.secrets)
        case AgentStop() as stop:
            result = stopped_result(tool_call, stop)
        case _ if timed_out:
            reason = f"{prepared_call.tool.name} did not finish within {invocation.seconds:g} seconds"
            if _orphan(batch, call, prepared_call, invocation):
                result = failure(tool_call, "timeout", f"{reason}; it may still be running")
                result = replace(result, extra={"still_running": True})
            else:
                result = failure(tool_call, "timeout", reason)
        case Exception() as exception:
            error = without_our_frames(exception)
            call.error = error
            result = failure(tool_call, "exception", settings.secrets.hide_text(describe(error)))
            if isinstance(error, ToolError) and error.extra:
                result = replace(result, extra=error.extra)
        case asyncio.CancelledError() as cancellation:
            result = _interrupted_result(batch, call, tool_call, cancellation)
        case other:
            raise other
    sources = {key for key in prepared_call.effects.reads if key.startswith(WEB)}
    if sub_runs is not None and sub_runs.inactive:
        sources = sources.union(*(run.sources for run in sub_runs.inactive.values()))
    return (replace(result, extra=with_sources(result.extra, sources)) if sources else result), stop


async def _check_sub_runs(
    batch: BatchState, call: Call, invocation: Invocation, runs: SubRuns
) -> tuple[str, AgentStop | None]:
    """What is wrong with the runs that the function started, and whether a decision about one ends this run too.
    Raises CallHeld if the call or one of them waits: what the function returned rests on what is not there yet."""
    if runs.paused_runs and runs.active_ids:
        await runs.wait_until_inactive(invocation.seconds)
    terminated_runs = [run for run in runs.inactive.values() if run.reason == "terminated"]
    if terminated_runs:
        return "", AgentStop(f"a decision ended the run of {terminated_runs[0].agent}, which this call had started")
    lost_runs = [run for run in runs.paused_runs if not run.is_kept]
    if lost_runs:
        return (
            f"the run of {lost_runs[0].agent} that this call started waits for approval, and no journal keeps it: give "
            "that agent a journal of its own (Agent(journal=…)), or an approver"
        ), None
    if runs.paused_runs or runs.wait is not None:
        call.move("entering")
        batch.waiting_calls.append(runs)
        raise CallHeld
    return "", None


def _orphan(batch: BatchState, call: Call, prepared_call: PreparedCall, invocation: Invocation) -> bool:
    """Whether the call continues although nothing waits for it: a thread cannot be stopped."""
    end_flag = invocation.end_flag
    if end_flag is None or end_flag.is_set:
        return False
    scope = batch.context.scope
    scope.orphans.add(OrphanedCall(prepared_call.call.id, prepared_call.tool.name, prepared_call.effects, end_flag))
    own = scope.own_limiter(prepared_call.tool)
    if own is not None and own in call.limiters:
        call.limiters = tuple(limiter for limiter in call.limiters if limiter is not own)
        invocation.on_end = own.release_orphaned
        own.orphan()
    return True


def _interrupted_result(
    batch: BatchState, call: Call, tool_call: ToolCall, error: asyncio.CancelledError
) -> ToolResult:
    """The failure of a call that got a CancelledError although its batch is not cancelled."""
    if not batch.is_late:
        reason = batch.settings.secrets.hide_text(f"the tool gave up: {describe(error)}")
        return failure(tool_call, "cancelled", reason)
    if call.phase == "running":
        return failure(tool_call, "timeout", batch.deadline.before_end())
    return failure(tool_call, "skipped", batch.deadline.before_start())


def _forget_cancellations() -> None:
    """Lets the current task continue after a cancellation that was meant for its tool."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
