"""What a run does next, as a pure function of its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from toolspeak.agent.state.history import Plan, Window, plan_compaction
from toolspeak.agent.state.state import RunState
from toolspeak.data.events import LimitName, LimitReached, RunStatus, StopRequested
from toolspeak.data.messages import MalformedCall, ToolCall, ToolChoice
from toolspeak.data.values import quick, value

_MAX_EMPTY_TURNS = 2  # a model that says nothing twice in a row will not start talking


@value()
class AskModel:
    """Ask for a turn. `limit_reached` is set for the wrap-up answer, whose calls are ignored."""

    choice: ToolChoice = ToolChoice()
    limit_reached: LimitReached | None = None


@value()
class RunTools:
    """Run the batch: at most `max_calls` of its calls, which is the run's limit. None: all."""

    calls: tuple[ToolCall | MalformedCall, ...]
    max_calls: int | None = None


@quick()
class Compact:
    """Make the history shorter before the next turn."""

    plan: Plan


@quick()
class AwaitApproval:
    """Wait: the run cannot continue before these calls are decided."""

    call_ids: tuple[str, ...]


@quick()
class AwaitExternal:
    """Wait: these calls go on at a time, or once an event has come. `until`: the earliest of the times (Unix seconds),
    None if there is none."""

    call_ids: tuple[str, ...]
    until: float | None = None


@quick()
class Finish:
    """End the run."""

    status: RunStatus
    answer: str
    reason: str


NextAction: TypeAlias = AskModel | Compact | RunTools | AwaitApproval | AwaitExternal | Finish


def decide(state: RunState, window: Window | None = None) -> NextAction:
    """The next action. Reads no clock: the time is that of the last record."""
    if state.error:
        return Finish("failed", "", "model_error")
    pending = state.pending
    if pending.calls:
        if state.status == "awaiting_approval" and state.approvals.open_requests:
            return AwaitApproval(tuple(state.approvals.open_requests))
        if state.status == "waiting" and (waits := pending.waits):
            times = [wait.until for wait in waits.values() if wait.until is not None]
            return AwaitExternal(tuple(waits), min(times, default=None))
        limit = state.limits.calls
        if limit is None:
            return RunTools(pending.calls)
        # A batch that continues has results already: the executor counts only the calls without one.
        run_count = sum(result.code not in ("skipped", "malformed") for result in pending.results)
        before = state.totals.calls - sum(isinstance(call, ToolCall) for call in pending.calls)
        return RunTools(pending.calls, max(0, limit - before - run_count))
    if state.stop is not None:
        return _finish_of(state.stop)
    if state.limit is not None and state.wrapped_up:
        return Finish("answered" if state.answer else "no_answer", state.answer or "", state.limit)
    if state.answer is not None and not state.queued_messages:
        return Finish("answered", state.answer, state.reason)
    if state.turn.empty_turns >= _MAX_EMPTY_TURNS:
        return Finish("no_answer", "", state.reason)
    if window is not None and not state.context.compacted:
        plan = plan_compaction(state.history, state.context.tokens, state.context.task, window)
        if plan is not None:
            return Compact(plan)
    if state.limit is not None:
        return AskModel(ToolChoice("none"))
    limits, totals, progress = state.limits, state.totals, state.progress
    uses: tuple[tuple[LimitName, float, float | None], ...] = (
        ("steps", state.step, limits.steps),
        ("calls", totals.calls, limits.calls),
        ("seconds", state.time - state.started_at, limits.seconds),
        ("tokens", totals.tokens, limits.tokens),
        ("cost", totals.known_cost, limits.cost),
        ("repeats", progress.repeats, limits.repeats),
        ("failures", progress.failures, limits.failures),
    )
    for kind, use, most in uses:
        if most is not None and use >= most:
            return AskModel(ToolChoice("none"), LimitReached(kind, use, most))
    return AskModel(state.turn.choice)


def _finish_of(stop: StopRequested) -> Finish:
    if stop.reason in ("tool_failure", "interceptor_failure"):
        return Finish("failed", "", stop.reason)
    return Finish("no_answer" if stop.answer is None else "answered", stop.answer or "", stop.reason)


def seconds_left(state: RunState, clock: Callable[[], float]) -> float | None:
    """Seconds until the run's time limit; None without a limit. `clock` gives Unix seconds."""
    limit = state.limits.seconds
    return None if limit is None else max(0.0, state.started_at + limit - clock())


def time_is_over(state: RunState, clock: Callable[[], float]) -> LimitReached:
    """The event of a run whose time is over, even if the clock disagrees by a moment."""
    limit = state.limits.seconds or 0.0
    return LimitReached("seconds", max(limit, clock() - state.started_at), limit)
