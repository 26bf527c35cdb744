"""From records to a run's state: what each event changes. Pure, O(1) for an event."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from toolspeak.agent.state.history import apply_compaction, task_after
from toolspeak.agent.state.output import FINAL_TOOL
from toolspeak.agent.state.state import (
    NO_APPROVALS,
    NO_CALLS,
    NOTHING,
    TRANSITIONS,
    Approvals,
    ContextSize,
    Log,
    PendingCalls,
    RunState,
    TurnRules,
)
from toolspeak.agent.state.turn_notes import EMPTY_TURN, FORGED_TURN, NO_CALLS_NOW, REMINDER, WRAP_UP, WRAP_UP_TASK
from toolspeak.data.events import (
    AnswerRejected,
    ApprovalDecided,
    ApprovalRequested,
    CallSuspended,
    Event,
    HandedOff,
    HistoryCompacted,
    InterceptorFailed,
    LimitReached,
    MetadataSet,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    ModelTextReceived,
    Record,
    RetryScheduled,
    RunConfigured,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStatus,
    StopRequested,
    SubRunUsed,
    ToolFinished,
    ToolStarted,
    UnknownEvent,
    UserMessageQueued,
    WaitEnded,
)
from toolspeak.data.messages import NORMAL_END, MalformedCall, Message, ToolCall, ToolChoice, ToolResult, tokens_of
from toolspeak.data.tools import (
    SOURCES,
    found_in,
    found_in_messages,
    sources_in,
    sources_of,
    urls_in,
    with_choice,
    with_more,
)
from toolspeak.data.values import evolve
from toolspeak.errors import RunError

_CALL_ID = re.compile(r"call_(\d{1,9})_\d+")
_NO_ANSWER = ("invalid_arguments", "malformed")  # why a call of `FINAL_TOOL` was refused


def apply(state: RunState | None, record: Record, before: Sequence[Message] = ()) -> RunState:
    """The state after one more record. `before`: the messages of the runs that this one follows, read at its first
    record. Raises RunError for a record that cannot follow this state."""
    event = record.event
    if type(event) is RunStarted:
        if state is not None:
            raise RunError(f"run {record.run_id} starts twice; one run's records were written over another's")
        return _run_started(record, event, before)
    if state is None:
        raise RunError(f"run {record.run_id} does not begin with RunStarted; its journal is incomplete")
    change = _CHANGES[type(event)]
    after = state if change is None else change(state, record, event)
    return evolve(after, seq=record.seq + 1, time=record.time)


def fold(records: Iterable[Record], before: Sequence[Message] = ()) -> RunState:
    """The state after these records. `before` as in `apply`. Raises RunError without records."""
    state: RunState | None = None
    for record in records:
        state = apply(state, record, before)
    if state is None:
        raise RunError("a run without records has no state")
    return state


def _tool_started(state: RunState, _: Record, event: ToolStarted) -> RunState:
    pending = state.pending
    polls = pending.polls or (event.effects is not None and event.effects.polls)
    return evolve(
        state,
        started_calls=state.started_calls.append(event),
        pending=evolve(pending, call_events=pending.call_events.append(event), polls=polls),
    )


def _call_suspended(state: RunState, _: Record, event: CallSuspended | WaitEnded) -> RunState:
    pending = state.pending
    return evolve(state, pending=evolve(pending, call_events=pending.call_events.append(event)))


def _message_queued(state: RunState, _: Record, event: UserMessageQueued) -> RunState:
    messages, keys = state.queued_messages.append(event.message), state.message_keys | {event.key}
    return evolve(state, queued_messages=messages, message_keys=keys)


def _approval_requested(state: RunState, record: Record, event: ApprovalRequested) -> RunState:
    approvals = state.approvals
    decisions, requested_at = approvals.decisions, approvals.requested_at
    if any(one.call_id == event.call_id for one in decisions):  # asked again: the old answer is void
        decisions = Log(one for one in decisions if one.call_id != event.call_id)
    # A question may be asked again before its answer: the first one counts.
    requested_at = record.time if requested_at is None else requested_at
    return evolve(state, approvals=Approvals(approvals.requests.append(event), decisions, requested_at))


def _approval_decided(state: RunState, record: Record, event: ApprovalDecided) -> RunState:
    approvals, pending = state.approvals, state.pending
    if not any(one.call_id == event.call_id for one in approvals.requests):
        return state  # nobody was asked: a hook, the policy or a rule decides anew if the run resumes before the call
    # The time of a question does not count for the time limit: it moves the start on. A pause does that on resuming.
    counts = approvals.requested_at is not None and state.status == "running"
    seconds_waited = record.time - (approvals.requested_at or 0.0) if counts else 0.0
    if any(one.call_id == event.call_id for one in pending.call_events):
        pending = evolve(pending, call_events=pending.call_events.append(event))
    return evolve(
        state,
        approvals=Approvals(approvals.requests, approvals.decisions.append(event)),
        pending=pending,
        started_at=state.started_at + seconds_waited,
    )


def _metadata_set(state: RunState, _: Record, event: MetadataSet) -> RunState:
    return evolve(state, metadata={**state.metadata, **event.values})


def _answer_rejected(state: RunState, _: Record, event: AnswerRejected) -> RunState:
    history = state.history.append(Message.user(event.reason))
    turn = evolve(state.turn, rejected_answers=state.turn.rejected_answers + 1)
    return evolve(state, history=history, answer=None, turn=turn)


def _stop_requested(state: RunState, _: Record, stop: StopRequested) -> RunState:
    return evolve(state, stop=state.stop or stop)


def _limit_reached(state: RunState, _: Record, event: LimitReached) -> RunState:
    note = f"{WRAP_UP[event.limit].format(allowed=event.allowed, used=event.used)} {WRAP_UP_TASK}"
    return evolve(state, limit=event.limit, history=state.history.append(Message.user(note)))


def _history_compacted(state: RunState, _: Record, event: HistoryCompacted) -> RunState:
    return evolve(
        state,
        totals=state.totals.plus(event.usage, event.cost),
        history=Log(apply_compaction(state.history, event)),
        context=ContextSize(event.tokens_after, task_after(state.history, state.context.task, event), compacted=True),
    )


def _sub_run_used(state: RunState, _: Record, event: SubRunUsed) -> RunState:
    return evolve(state, totals=state.totals.plus(event.usage, event.cost, event.usage_estimated, event.calls))


def _handed_off(state: RunState, _: Record, event: HandedOff) -> RunState:
    return evolve(state, pending=evolve(state.pending, handoff=state.pending.handoff or event))


def _run_paused(state: RunState, record: Record, event: RunPaused) -> RunState:
    requests = state.approvals.requests
    if event.reason == "awaiting_approval":
        latest = {request.call_id: request for request in requests if request.call_id in event.call_ids}
        requests = Log(latest.values())
    approvals, status = Approvals(requests, state.approvals.decisions), _following(state, event.reason)
    return evolve(state, status=status, paused_at=record.time, until=event.until, approvals=approvals, resumptions=0)


def _run_resumed(state: RunState, record: Record, _: RunResumed) -> RunState:
    # Nor does the time count for which the run paused, or no process drove it.
    seconds_paused = record.time - (state.time if state.paused_at is None else state.paused_at)
    return evolve(
        state,
        status=_following(state, "running"),
        paused_at=None,
        until=None,
        approvals=evolve(state.approvals, requested_at=None),
        started_at=state.started_at + seconds_paused,
        resumptions=state.resumptions + 1,
    )


def _run_configured(state: RunState, _: Record, event: RunConfigured) -> RunState:
    if event.messages is not None:
        history = Log([*state.history[: len(state.history) - event.replaced], *event.messages])
        context = ContextSize(sum(map(tokens_of, history)), len(history) - 1)
        sources = state.sources | sources_of(event.messages)
        state = evolve(state, history=history, turns_before=_turns_in(history), context=context, sources=sources)
    if event.choice is not None:
        names = with_choice(state.found_tools, event.choice)
        state = evolve(state, turn=TurnRules(event.choice), found_tools=names)
    return evolve(state, model=event.model or state.model, limits=event.limits or state.limits)


def _following(state: RunState, status: RunStatus) -> RunStatus:
    """The new status. Raises RunError if it cannot follow the run's status."""
    if status not in TRANSITIONS[state.status]:
        raise RunError(f"run {state.run_id} is {state.status}, and its journal says that it became {status} after that")
    return status


def _model_failed(state: RunState, _: Record, event: ModelFailed) -> RunState:
    return evolve(state, error=event.error)


def _run_finished(state: RunState, _: Record, event: RunFinished) -> RunState:
    history = state.history
    for message in state.queued_messages:  # it came too late for a turn, and is there for the next run
        history = history.append(message)
    return evolve(
        state,
        status=_following(state, event.status),
        answer=event.answer,
        reason=event.reason,
        history=history,
        queued_messages=NOTHING,
    )


def _turns_in(messages: Sequence[Message]) -> int:
    """The highest turn in the messages' call ids. The ids of later turns are free."""
    matches = (_CALL_ID.fullmatch(call.id) for message in messages for call in message.calls)
    return max((int(match[1]) for match in matches if match), default=0)


def _run_started(record: Record, event: RunStarted, before: Sequence[Message]) -> RunState:
    history = before if isinstance(before, Log) else Log(before)
    for message in event.messages:
        history = history.append(message)
    return RunState(
        run_id=record.run_id,
        model=event.model,
        limits=event.limits,
        history=history,
        started_at=record.time,
        time=record.time,
        principal=record.principal,
        traceparent=record.traceparent,
        parent_run_id=record.parent_run_id,
        session_id=event.session_id,
        turns_before=_turns_in(history),
        context=ContextSize(sum(map(tokens_of, history)), len(history) - 1),
        status="running" if event.due is None else "queued",
        paused_at=None if event.due is None else record.time,
        until=event.due,
        seq=record.seq + 1,
        turn=TurnRules(event.choice),
        found_tools=with_choice(with_more(event.found_tools, found_in_messages(history)), event.choice),
        sources=sources_of(history).union(sources_in(event.extra)),
        given_urls=urls_in(event.extra),
    )


def _model_asked(state: RunState, record: Record, _: ModelAsked) -> RunState:
    if not state.queued_messages:
        return evolve(state, step=record.step)
    history = state.history
    for message in state.queued_messages:
        history = history.append(message)
    context = state.context
    tokens = context.tokens + sum(map(tokens_of, state.queued_messages))
    context = ContextSize(tokens, len(history) - 1, context.compacted)
    return evolve(state, step=record.step, history=history, queued_messages=NOTHING, context=context)


def _model_answered(state: RunState, _: Record, event: ModelAnswered) -> RunState:
    message, rules, context = event.message, state.turn, state.context
    calls = message.calls
    history = state.history.append(message) if message.parts else state.history
    answer, empty_turns = None, 0
    # The server runs tools of its own in this turn, and continues it when it is asked again.
    pauses = event.finish == "pause" and not calls and bool(message.parts) and not state.limit
    if not calls and not pauses:
        # An answer from results that the model made up does not count.
        answer = None if event.forged and not state.limit else message.text.strip() or None
        if answer is None and not state.limit:
            empty_turns = rules.empty_turns + 1
            empty = NO_CALLS_NOW if rules.choice.mode == "none" else EMPTY_TURN
            history = history.append(Message.user(FORGED_TURN if event.forged else empty))
    choice, is_reminded = rules.choice, False
    if choice.mode in ("required", "specific") and not state.limit and not pauses:
        is_reminded = not rules.reminded and not event.forged and not _follows(choice, calls)
        if is_reminded and not calls and answer is not None:
            answer = None
            history = history.append(Message.user(REMINDER.format(what=_choice_name(choice))))
        if not is_reminded and not choice.every_step:
            choice = ToolChoice()
    count = len([call for call in calls if type(call) is ToolCall])
    return evolve(
        state,
        totals=state.totals.plus(event.usage, event.cost, event.usage_estimated, count),
        history=history,
        turn=TurnRules(choice, is_reminded, empty_turns, rules.rejected_answers),
        pending=PendingCalls(calls) if calls else NO_CALLS,
        approvals=NO_APPROVALS,
        context=ContextSize(event.usage.total or context.tokens + tokens_of(message), context.task),
        wrapped_up=state.limit is not None,
        answer=answer,
        reason="" if calls or pauses else _reason(event, answer),
        resumptions=0,
    )


def _follows(choice: ToolChoice, calls: Sequence[ToolCall | MalformedCall]) -> bool:
    return any(choice.mode == "required" or call.name == choice.name for call in calls)


def _choice_name(choice: ToolChoice) -> str:
    return "at least one tool" if choice.mode == "required" else f"the tool {choice.name!r}"


def _reason(event: ModelAnswered, answer: str | None) -> str:
    if answer is None:
        return "forged_results" if event.forged else "empty_answer"
    if event.finish == "length":
        return "answer_cut"
    return "answer" if event.finish in NORMAL_END else event.finish


def _tool_finished(state: RunState, _: Record, event: ToolFinished) -> RunState:
    result, memory, pending = event.result, state.memory, state.pending
    if SOURCES in result.extra:
        state = evolve(state, sources=state.sources.union(sources_in(result.extra)))
    for change in event.memory:
        memory = memory.append(change)
    if result.extra and (more := found_in(result)):
        state = evolve(state, found_tools=with_more(state.found_tools, more))
    if not pending.calls:
        raise RunError(f"run {state.run_id} has a result for {result.call_id}, and no call that waits for one")
    results = pending.results.append(result)
    if len(results) < len(pending.calls):
        return evolve(state, pending=evolve(pending, results=results), memory=memory, resumptions=0)
    parts = tuple(results)
    for part, call in zip(parts, pending.calls, strict=True):
        if part.call_id != call.id:
            parts = _in_order(state, parts)
            break
    progress, advice = state.progress.after(pending.calls, parts, state.limits, polled=pending.polls)
    message = Message("tool", parts)
    history = state.history.append(message)
    if advice:
        history = history.append(Message.user(advice))
    turn = state.turn
    for part in parts:
        if part.code in _NO_ANSWER and part.name == FINAL_TOOL:
            turn = evolve(turn, rejected_answers=turn.rejected_answers + 1)
    handoff = pending.handoff
    if handoff is not None and any(part.call_id == handoff.call_id and part.status == "success" for part in parts):
        state, turn = evolve(state, agent=handoff.agent, model=handoff.model), TurnRules(handoff.choice)
        state = evolve(state, found_tools=with_choice(state.found_tools, handoff.choice))
    return evolve(
        state,
        history=history,
        pending=NO_CALLS,
        memory=memory,
        progress=progress,
        context=evolve(state.context, tokens=state.context.tokens + tokens_of(message)),
        turn=turn,
        resumptions=0,
    )


def _in_order(state: RunState, results: Sequence[ToolResult]) -> tuple[ToolResult, ...]:
    """A batch's results in the order of its calls. They come in the order in which they finish."""
    by_id = {result.call_id: result for result in results}
    missing = [call.id for call in state.pending.calls if call.id not in by_id]
    if missing:
        raise RunError(f"run {state.run_id} has results that belong to no call; {', '.join(missing)} have none")
    return tuple([by_id[call.id] for call in state.pending.calls])


_CHANGES: Mapping[type[Event], Callable[[RunState, Record, Any], RunState] | None] = {
    RunConfigured: _run_configured,
    ModelAsked: _model_asked,
    ModelAnswered: _model_answered,
    ToolStarted: _tool_started,
    CallSuspended: _call_suspended,
    WaitEnded: _call_suspended,
    ToolFinished: _tool_finished,
    UserMessageQueued: _message_queued,
    ApprovalRequested: _approval_requested,
    ApprovalDecided: _approval_decided,
    MetadataSet: _metadata_set,
    AnswerRejected: _answer_rejected,
    StopRequested: _stop_requested,
    LimitReached: _limit_reached,
    HistoryCompacted: _history_compacted,
    SubRunUsed: _sub_run_used,
    HandedOff: _handed_off,
    RunPaused: _run_paused,
    RunResumed: _run_resumed,
    ModelFailed: _model_failed,
    RunFinished: _run_finished,
    ModelTextReceived: None,
    InterceptorFailed: None,
    RetryScheduled: None,
    UnknownEvent: None,
}
"""What each event after RunStarted changes; None: nothing."""
