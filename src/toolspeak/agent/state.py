"""A run's state: the fold of its records. Pure, and O(1) an event."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolspeak.agent.compaction import compacted, task_after, tokens_of
from toolspeak.agent.history import turns_in
from toolspeak.agent.log import Log, nothing
from toolspeak.agent.progress import Progress
from toolspeak.data.events import (
    AnswerRejected,
    ApprovalDecided,
    ApprovalRequested,
    HistoryCompacted,
    LimitName,
    LimitReached,
    Limits,
    MemoryChanged,
    MetadataSet,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Record,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStatus,
    StopRequested,
    SubRunUsed,
    ToolFinished,
    ToolStarted,
    UserMessageQueued,
)
from toolspeak.data.messages import (
    JSON,
    NORMAL_END,
    MalformedCall,
    Message,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
    no_extra,
)
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
_WRAP_UP_TASK = "Do not call any more tools. Answer now with what you have, and say what is not done."
_EMPTY_TURN = "Your reply was empty. Call a tool, or give your answer in plain text."
_UNHEEDED = "You must call {what} before you answer. Call it now."
_FORGED_TURN = (
    "You wrote a block of results yourself. Only the system writes results: nothing was executed, and what you wrote "
    "there is not true. Call a tool, or answer without such a block."
)


@dataclass(frozen=True)  # without slots: a copy is then one of a dict, not of thirty fields (see `_with`)
class RunState:
    """Everything the next decision depends on.

    `batch` holds the calls of the current step that have not all finished, `results` what is there of theirs, `begun`
    those that were started, and what was decided of one after that; `started_calls` are all that the run started.
    `tokens` counts input and output of all turns, `spent` their USD as far as prices are known (`unpriced`: not of
    all), both with those of the runs that tools started; `started` and `time` are Unix seconds, `time` that of the last
    record (`started` moves on by the time a run was `paused`, a question was `asked`, or its process was dead).
    `turns_before`
    is the highest turn among the call ids of the history: this run's ids go on from there. `polled` is set once a call
    of the current step is a poll. `context` is what the next turn reads, in tokens (estimated from the last turn on),
    `task` the number of the history's last message of a person, `compacted` is set when the history was since the last
    turn. `answer` is set once a turn held text and no calls. `choice` is that of the next turn, `unheeded` is set when
    the model was told that its turn did not follow it. `rejected` counts the answers that were not of the type asked
    for.
    `metadata` is what interceptors keep with the run, `memory` how its tools' memory came to be; `stop` is set once it
    is to end.
    """

    run_id: str
    model: str
    limits: Limits
    history: Log[Message]
    started: float
    time: float
    principal: str | None = None
    traceparent: str | None = None
    parent_run_id: str | None = None
    turns_before: int = 0
    status: RunStatus = "running"
    step: int = 0
    seq: int = 0
    batch: tuple[ToolCall | MalformedCall, ...] = ()
    results: Log[ToolResult] = field(default_factory=nothing)
    waiting: Log[ApprovalRequested] = field(default_factory=nothing)
    decisions: Log[ApprovalDecided] = field(default_factory=nothing)
    begun: Log[ToolStarted | ApprovalDecided] = field(default_factory=nothing)
    queued: Log[Message] = field(default_factory=nothing)
    calls: int = 0
    tokens: int = 0
    tokens_estimated: bool = False
    usage: Usage = Usage(0, 0, 0, 0)
    spent: float = 0.0
    unpriced: bool = False
    limit: LimitName | None = None
    wrapped_up: bool = False
    fruitless_turns: int = 0
    progress: Progress = Progress()
    polled: bool = False
    started_calls: Log[ToolStarted] = field(default_factory=nothing)
    answer: str | None = None
    reason: str = ""
    error: str = ""
    context: int = 0
    task: int = 0
    compacted: bool = False
    choice: ToolChoice = ToolChoice()
    unheeded: bool = False
    rejected: int = 0
    metadata: Mapping[str, JSON] = field(default_factory=no_extra)
    memory: Log[MemoryChanged] = field(default_factory=nothing)
    stop: StopRequested | None = None
    paused: float | None = None
    asked: float | None = None

    @property
    def in_doubt(self) -> dict[str, ApprovalDecided | None]:
        """The calls that were started and have no result, with what was decided of each since.

        Such calls are left by a process that died, or that was stopped: while a batch runs, they are on their way.
        """
        done = {result.call_id for result in self.results} if self.begun else set[str]()
        return {
            one.call_id: one if isinstance(one, ApprovalDecided) else None
            for one in self.begun
            if one.call_id not in done
        }

    @property
    def cost(self) -> float | None:
        """USD of all turns; None if some have no known price."""
        return None if self.unpriced else self.spent

    @property
    def messages(self) -> Sequence[Message]:
        return self.history

    @property
    def undecided(self) -> dict[str, ApprovalRequested]:
        """The calls of the step that nobody has decided about as they are now, by id."""
        decided = {(decision.call_id, decision.digest) for decision in self.decisions}
        latest = {request.call_id: request for request in self.waiting}
        return {name: each for name, each in latest.items() if (name, each.digest) not in decided}


def apply(state: RunState | None, record: Record, before: Sequence[Message] = ()) -> RunState:
    """The state after one more record. Raises RunError for a record that cannot come here.

    `before` are the messages of the runs this one follows, needed where it starts.
    """
    event = record.event
    if isinstance(event, RunStarted):
        if state is not None:
            raise RunError(f"run {record.run_id} starts twice; one run's records were written over another's")
        return _started(record, event, before)
    if state is None:
        raise RunError(f"run {record.run_id} does not begin with RunStarted; its journal is incomplete")
    changed = _changed(state, record)
    if changed is state:
        return _with(state, seq=record.seq + 1, time=record.time)
    # Nobody else has the new state yet: finishing it in place saves the second of two copies an event.
    fields = vars(changed)
    fields["seq"], fields["time"] = record.seq + 1, record.time
    return changed


def fold(records: Iterable[Record], before: Sequence[Message] = ()) -> RunState:
    """The state after these records, behind the messages `before` them. Raises RunError when there are none."""
    state: RunState | None = None
    for record in records:
        state = apply(state, record, before)
    if state is None:
        raise RunError("a run without records has no state")
    return state


def _changed(state: RunState, record: Record) -> RunState:
    match record.event:
        case ModelAsked():
            return _asked(state, record)
        case ModelAnswered() as answered:
            return _answered(state, answered)
        case ToolStarted() as started:
            effects = started.effects
            polled = state.polled or (effects is not None and effects.repeatable)
            started_calls, begun = state.started_calls.append(started), state.begun.append(started)
            return _with(state, started_calls=started_calls, begun=begun, polled=polled)
        case ToolFinished() as finished:
            return _finished(state, finished)
        case UserMessageQueued(message):
            return _with(state, queued=state.queued.append(message))
        case ApprovalRequested() as requested:
            decisions = state.decisions
            if any(one.call_id == requested.call_id for one in decisions):  # asked anew: the old answer is void
                decisions = Log(one for one in decisions if one.call_id != requested.call_id)
            asked = record.time if state.asked is None else state.asked  # the question may change before its answer
            return _with(state, waiting=state.waiting.append(requested), decisions=decisions, asked=asked)
        case ApprovalDecided() as decided:
            # A person's time is nobody's: what a question took moves the start on. (A paused run does that itself.)
            waited = record.time - state.asked if state.asked is not None and state.status == "running" else 0.0
            begun = state.begun
            if any(one.call_id == decided.call_id for one in begun):
                begun = begun.append(decided)
            decisions = state.decisions.append(decided)
            return _with(state, decisions=decisions, begun=begun, asked=None, started=state.started + waited)
        case MetadataSet(values):
            return _with(state, metadata={**state.metadata, **values})
        case AnswerRejected(reason):
            history = state.history.append(Message.user(reason))
            return _with(state, history=history, answer=None, rejected=state.rejected + 1)
        case StopRequested() as stop:
            return _with(state, stop=state.stop or stop)
        case LimitReached() as reached:
            note = f"{WRAP_UP[reached.limit].format(allowed=reached.allowed, used=reached.used)} {_WRAP_UP_TASK}"
            return _with(state, limit=reached.limit, history=state.history.append(Message.user(note)))
        case HistoryCompacted() as event:
            changed = _with(
                state,
                history=Log(compacted(state.history, event)),
                task=task_after(state.history, state.task, event),
                context=event.tokens_after,
                compacted=True,
            )
            return _with(changed, **_spent(state, event.usage, event.cost))
        case SubRunUsed(_, _, usage, estimated, cost):
            estimated = state.tokens_estimated or estimated
            return _with(state, tokens_estimated=estimated, **_spent(state, usage, cost))
        case RunPaused("suspended"):
            return _with(state, status="suspended", paused=record.time, asked=None)
        case RunPaused(reason, call_ids):
            latest = {request.call_id: request for request in state.waiting if request.call_id in call_ids}
            waiting = Log(latest.values())
            return _with(state, status=reason, waiting=waiting, paused=record.time, asked=None)
        case RunResumed():
            # Nor is the time nobody's in which its process was dead.
            waited = record.time - (state.time if state.paused is None else state.paused)
            return _with(state, status="running", paused=None, asked=None, started=state.started + waited)
        case ModelFailed(error):
            return _with(state, error=error)
        case RunFinished(status, answer, reason):
            history = state.history
            for message in state.queued:  # said too late to be read: it is there for the next run
                history = history.append(message)
            return _with(state, status=status, answer=answer, reason=reason, history=history, queued=nothing())
        case _:
            return state


def _with(state: RunState, **changes: Any) -> RunState:
    """`dataclasses.replace`, ten times as fast: every event of a run makes a copy."""
    new = object.__new__(RunState)
    fields = new.__dict__
    fields.update(state.__dict__)
    fields.update(changes)
    return new


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


def _asked(state: RunState, record: Record) -> RunState:
    if not state.queued:
        return _with(state, step=record.step)
    history = state.history
    for message in state.queued:
        history = history.append(message)
    context = state.context + sum(map(tokens_of, state.queued))
    return _with(state, step=record.step, history=history, queued=nothing(), context=context, task=len(history) - 1)


def _answered(state: RunState, event: ModelAnswered) -> RunState:
    calls = event.message.calls
    history = state.history.append(event.message) if event.message.parts else state.history
    answer, fruitless = None, 0
    # The server works at the turn with tools of its own, and goes on with it when it is asked again.
    pauses = event.finish == "pause" and not calls and bool(event.message.parts) and not state.limit
    if not calls and not pauses:
        # An answer that rests on results the model made up is none.
        answer = None if event.forged and not state.limit else event.message.text.strip() or None
        if answer is None and not state.limit:
            fruitless = state.fruitless_turns + 1
            history = history.append(Message.user(_FORGED_TURN if event.forged else _EMPTY_TURN))
    usage, choice, unheeded = event.usage, state.choice, False
    if choice.mode in ("required", "specific") and not state.limit and not pauses:
        unheeded = not state.unheeded and not event.forged and not _follows(choice, calls)
        if unheeded and not calls and answer is not None:
            answer = None
            history = history.append(Message.user(_UNHEEDED.format(what=_wanted(choice))))
        if not unheeded and not choice.every_step:
            choice = ToolChoice()
    return _with(
        state,
        **_spent(state, usage, event.cost),
        history=history,
        choice=choice,
        unheeded=unheeded,
        batch=calls,
        results=nothing(),
        waiting=nothing(),
        decisions=nothing(),
        begun=nothing(),
        calls=state.calls + len([call for call in calls if isinstance(call, ToolCall)]),
        tokens_estimated=state.tokens_estimated or event.usage_estimated,
        context=usage.total or state.context + tokens_of(event.message),
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


def _finished(state: RunState, event: ToolFinished) -> RunState:
    result, memory = event.result, state.memory
    for change in event.memory:
        memory = memory.append(change)
    if not state.batch:
        raise RunError(f"run {state.run_id} has a result for {result.call_id}, and no call that waits for one")
    results = state.results.append(result)
    if len(results) < len(state.batch):
        return _with(state, results=results, memory=memory)
    parts = tuple(results)
    if [part.call_id for part in parts] != [call.id for call in state.batch]:  # they come in the order they finish
        by_id = {part.call_id: part for part in parts}
        missing = [call.id for call in state.batch if call.id not in by_id]
        if missing:
            raise RunError(f"run {state.run_id} has results that belong to no call; {', '.join(missing)} have none")
        parts = tuple([by_id[call.id] for call in state.batch])
    progress = state.progress.after(state.batch, parts, state.limits, polled=state.polled)
    message = Message("tool", parts)
    history = state.history.append(message)
    advice = progress.advice(state.limits)
    if advice:
        history = history.append(Message.user(advice))
    return _with(
        state,
        history=history,
        batch=(),
        results=nothing(),
        memory=memory,
        progress=progress,
        polled=False,
        context=state.context + tokens_of(message),
    )


def _spent(state: RunState, usage: Usage, cost: float | None) -> dict[str, Any]:
    """What the state's counts come to with this."""
    return {
        "tokens": state.tokens + (usage.total or 0),
        "usage": state.usage.plus(usage),
        "spent": state.spent + (cost or 0.0),
        "unpriced": state.unpriced or cost is None,
    }
