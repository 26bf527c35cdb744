"""From records to a run's state: what each event changes. Pure, and O(1) an event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from toolspeak.agent.state.compaction import compacted, task_after, tokens_of
from toolspeak.agent.state.history import turns_in
from toolspeak.agent.state.log import NOTHING, Log
from toolspeak.agent.state.output import FINAL_TOOL
from toolspeak.agent.state.state import RunState
from toolspeak.data.events import (
    AnswerRejected,
    ApprovalDecided,
    ApprovalRequested,
    CallSuspended,
    Event,
    HistoryCompacted,
    LimitReached,
    MetadataSet,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Record,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    StopRequested,
    SubRunUsed,
    ToolFinished,
    ToolStarted,
    UserMessageQueued,
)
from toolspeak.data.messages import (
    NORMAL_END,
    MalformedCall,
    Message,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
)
from toolspeak.data.values import changed
from toolspeak.errors import RunError

WRAP_UP = {
    "steps": "The limit of {allowed:g} steps is reached.",
    "calls": "The limit of {allowed:g} tool calls is reached.",
    "seconds": "The time limit of {allowed:g} seconds is reached.",
    "tokens": "The limit of {allowed:g} tokens is reached.",
    "cost": "The limit of {allowed:g} US dollars is reached.",
    "repeats": "The same calls brought the same results {used:g} times in a row: there is no progress.",
    "failures": "Every call of the last {used:g} steps failed: there is no progress.",
}
_NO_ANSWER = ("invalid_arguments", "malformed")  # why a call of `FINAL_TOOL` was refused
_WRAP_UP_TASK = "Do not call any more tools. Answer now with what you have, and say what is not done."
_EMPTY_TURN = "Your reply was empty. Call a tool, or give your answer in plain text."
_NO_CALLS = "No tool can be called now. Give your answer in plain text."
_UNHEEDED = "You must call {what} before you answer. Call it now."
_FORGED_TURN = (
    "You wrote a block of results yourself. Only the system writes results: nothing was executed, and what you wrote "
    "there is not true. Call a tool, or answer without such a block."
)


def apply(state: RunState | None, record: Record, before: Sequence[Message] = ()) -> RunState:
    """The state after one more record. Raises RunError for a record that cannot come here.

    `before` are the messages of the runs this one follows, needed where it starts.
    """
    event = record.event
    if type(event) is RunStarted:
        if state is not None:
            raise RunError(f"run {record.run_id} starts twice; one run's records were written over another's")
        return _started(record, event, before)
    if state is None:
        raise RunError(f"run {record.run_id} does not begin with RunStarted; its journal is incomplete")
    change = _CHANGES.get(type(event))
    after = state if change is None else change(state, record, event)
    return changed(after, seq=record.seq + 1, time=record.time)


def fold(records: Iterable[Record], before: Sequence[Message] = ()) -> RunState:
    """The state after these records, behind the messages `before` them. Raises RunError when there are none."""
    state: RunState | None = None
    for record in records:
        state = apply(state, record, before)
    if state is None:
        raise RunError("a run without records has no state")
    return state


def _tool_started(state: RunState, _: Record, started: ToolStarted) -> RunState:
    return changed(
        state,
        started_calls=state.started_calls.append(started),
        begun=state.begun.append(started),
        polled=state.polled or (started.effects is not None and started.effects.repeatable),
    )


def _call_suspended(state: RunState, _: Record, event: CallSuspended) -> RunState:
    return changed(state, begun=state.begun.append(event))


def _said(state: RunState, _: Record, event: UserMessageQueued) -> RunState:
    return changed(state, queued=state.queued.append(event.message))


def _approval_asked(state: RunState, record: Record, requested: ApprovalRequested) -> RunState:
    decisions = state.decisions
    if any(one.call_id == requested.call_id for one in decisions):  # asked anew: the old answer is void
        decisions = Log(one for one in decisions if one.call_id != requested.call_id)
    asked = record.time if state.asked is None else state.asked  # the question may change before its answer
    return changed(state, waiting=state.waiting.append(requested), decisions=decisions, asked=asked)


def _approval_decided(state: RunState, record: Record, decided: ApprovalDecided) -> RunState:
    # A person's time is nobody's: what a question took moves the start on. (A paused run does that itself.)
    waited = record.time - state.asked if state.asked is not None and state.status == "running" else 0.0
    begun = state.begun
    if any(one.call_id == decided.call_id for one in begun):
        begun = begun.append(decided)
    decisions = state.decisions.append(decided)
    return changed(state, decisions=decisions, begun=begun, asked=None, started=state.started + waited)


def _metadata_set(state: RunState, _: Record, event: MetadataSet) -> RunState:
    return changed(state, metadata={**state.metadata, **event.values})


def _answer_rejected(state: RunState, _: Record, event: AnswerRejected) -> RunState:
    history = state.history.append(Message.user(event.reason))
    return changed(state, history=history, answer=None, rejected=state.rejected + 1)


def _stop_requested(state: RunState, _: Record, stop: StopRequested) -> RunState:
    return changed(state, stop=state.stop or stop)


def _limit_reached(state: RunState, _: Record, reached: LimitReached) -> RunState:
    note = f"{WRAP_UP[reached.limit].format(allowed=reached.allowed, used=reached.used)} {_WRAP_UP_TASK}"
    return changed(state, limit=reached.limit, history=state.history.append(Message.user(note)))


def _compacted(state: RunState, _: Record, event: HistoryCompacted) -> RunState:
    return changed(
        _spent(state, event.usage, event.cost),
        history=Log(compacted(state.history, event)),
        task=task_after(state.history, state.task, event),
        context=event.tokens_after,
        compacted=True,
    )


def _sub_run_used(state: RunState, _: Record, used: SubRunUsed) -> RunState:
    estimated = state.tokens_estimated or used.usage_estimated
    return changed(_spent(state, used.usage, used.cost), tokens_estimated=estimated)


def _paused(state: RunState, record: Record, event: RunPaused) -> RunState:
    waiting = state.waiting
    if event.reason == "awaiting_approval":
        latest = {request.call_id: request for request in waiting if request.call_id in event.call_ids}
        waiting = Log(latest.values())
    return changed(state, status=event.reason, paused=record.time, asked=None, waiting=waiting)


def _resumed(state: RunState, record: Record, _: RunResumed) -> RunState:
    # Nor is the time nobody's in which its process was dead.
    waited = record.time - (state.time if state.paused is None else state.paused)
    return changed(state, status="running", paused=None, asked=None, started=state.started + waited)


def _model_failed(state: RunState, _: Record, event: ModelFailed) -> RunState:
    return changed(state, error=event.error)


def _run_finished(state: RunState, _: Record, event: RunFinished) -> RunState:
    history = state.history
    for message in state.queued:  # said too late to be read: it is there for the next run
        history = history.append(message)
    return changed(
        state, status=event.status, answer=event.answer, reason=event.reason, history=history, queued=NOTHING
    )


def _started(record: Record, event: RunStarted, before: Sequence[Message]) -> RunState:
    history = before if isinstance(before, Log) else Log(before)
    for message in event.messages:
        history = history.append(message)
    return RunState(
        run_id=record.run_id,
        model=event.model,
        limits=event.limits,
        history=history,
        started=record.time,
        time=record.time,
        principal=record.principal,
        traceparent=record.traceparent,
        parent_run_id=record.parent_run_id,
        turns_before=turns_in(history),
        context=sum(map(tokens_of, history)),
        task=len(history) - 1,
        seq=record.seq + 1,
        choice=event.choice,
    )


def _asked(state: RunState, record: Record, _: ModelAsked) -> RunState:
    if not state.queued:
        return changed(state, step=record.step)
    history = state.history
    for message in state.queued:
        history = history.append(message)
    context = state.context + sum(map(tokens_of, state.queued))
    return changed(state, step=record.step, history=history, queued=NOTHING, context=context, task=len(history) - 1)


def _answered(state: RunState, _: Record, event: ModelAnswered) -> RunState:
    message = event.message
    calls = message.calls
    history = state.history.append(message) if message.parts else state.history
    answer, fruitless = None, 0
    # The server works at the turn with tools of its own, and goes on with it when it is asked again.
    pauses = event.finish == "pause" and not calls and bool(message.parts) and not state.limit
    if not calls and not pauses:
        # An answer that rests on results the model made up is none.
        answer = None if event.forged and not state.limit else message.text.strip() or None
        if answer is None and not state.limit:
            fruitless = state.fruitless_turns + 1
            empty = _NO_CALLS if state.choice.mode == "none" else _EMPTY_TURN
            history = history.append(Message.user(_FORGED_TURN if event.forged else empty))
    usage, choice, unheeded = event.usage, state.choice, False
    if choice.mode in ("required", "specific") and not state.limit and not pauses:
        unheeded = not state.unheeded and not event.forged and not _follows(choice, calls)
        if unheeded and not calls and answer is not None:
            answer = None
            history = history.append(Message.user(_UNHEEDED.format(what=_wanted(choice))))
        if not unheeded and not choice.every_step:
            choice = ToolChoice()
    return changed(
        _spent(state, usage, event.cost),
        history=history,
        choice=choice,
        unheeded=unheeded,
        batch=calls,
        results=NOTHING,
        waiting=NOTHING,
        decisions=NOTHING,
        begun=NOTHING,
        calls=state.calls + len([call for call in calls if type(call) is ToolCall]),
        tokens_estimated=state.tokens_estimated or event.usage_estimated,
        context=usage.total or state.context + tokens_of(message),
        compacted=False,
        wrapped_up=state.limit is not None,
        fruitless_turns=fruitless,
        answer=answer,
        reason="" if calls or pauses else _reason(event, answer),
    )


def _follows(choice: ToolChoice, calls: Sequence[ToolCall | MalformedCall]) -> bool:
    return any(choice.mode == "required" or call.name == choice.name for call in calls)


def _wanted(choice: ToolChoice) -> str:
    return "at least one tool" if choice.mode == "required" else f"the tool {choice.name!r}"


def _reason(event: ModelAnswered, answer: str | None) -> str:
    if answer is None:
        return "forged_results" if event.forged else "empty_answer"
    if event.finish == "length":
        return "answer_cut"
    return "answer" if event.finish in NORMAL_END else event.finish


def _tool_finished(state: RunState, _: Record, event: ToolFinished) -> RunState:
    result, memory = event.result, state.memory
    for change in event.memory:
        memory = memory.append(change)
    if not state.batch:
        raise RunError(f"run {state.run_id} has a result for {result.call_id}, and no call that waits for one")
    results = state.results.append(result)
    if len(results) < len(state.batch):
        return changed(state, results=results, memory=memory)
    parts = tuple(results)
    for part, call in zip(parts, state.batch, strict=True):
        if part.call_id != call.id:
            parts = _in_order(state, parts)
            break
    progress = state.progress.after(state.batch, parts, state.limits, polled=state.polled)
    message = Message("tool", parts)
    history = state.history.append(message)
    advice = progress.advice(state.limits)
    if advice:
        history = history.append(Message.user(advice))
    rejected = state.rejected
    for part in parts:
        if part.code in _NO_ANSWER and part.name == FINAL_TOOL:
            rejected += 1
    return changed(
        state,
        history=history,
        batch=(),
        results=NOTHING,
        memory=memory,
        progress=progress,
        polled=False,
        context=state.context + tokens_of(message),
        rejected=rejected,
    )


def _in_order(state: RunState, results: Sequence[ToolResult]) -> tuple[ToolResult, ...]:
    """A batch's results, which come in the order they finish, in the order of the calls."""
    by_id = {result.call_id: result for result in results}
    missing = [call.id for call in state.batch if call.id not in by_id]
    if missing:
        raise RunError(f"run {state.run_id} has results that belong to no call; {', '.join(missing)} have none")
    return tuple([by_id[call.id] for call in state.batch])


def _spent(state: RunState, usage: Usage, cost: float | None) -> RunState:
    """The state with what its counts come to with this."""
    return changed(
        state,
        tokens=state.tokens + (usage.total or 0),
        usage=state.usage.plus(usage),
        spent=state.spent + (cost or 0.0),
        unpriced=state.unpriced or cost is None,
    )


_CHANGES: Mapping[type[Event], Callable[[RunState, Record, Any], RunState]] = {
    ModelAsked: _asked,
    ModelAnswered: _answered,
    ToolStarted: _tool_started,
    CallSuspended: _call_suspended,
    ToolFinished: _tool_finished,
    UserMessageQueued: _said,
    ApprovalRequested: _approval_asked,
    ApprovalDecided: _approval_decided,
    MetadataSet: _metadata_set,
    AnswerRejected: _answer_rejected,
    StopRequested: _stop_requested,
    LimitReached: _limit_reached,
    HistoryCompacted: _compacted,
    SubRunUsed: _sub_run_used,
    RunPaused: _paused,
    RunResumed: _resumed,
    ModelFailed: _model_failed,
    RunFinished: _run_finished,
}
"""What an event changes. The others leave the state as it is."""
