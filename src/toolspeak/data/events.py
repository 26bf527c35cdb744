"""The durable facts of a run: a closed union, in the past tense, independent of any dialect.

An event says what happened; a `Record` is the event with its stamp. State is the fold of the records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, TypeAlias

from toolspeak.data.approvals import ApprovalDecided as ApprovalDecided
from toolspeak.data.approvals import ApprovalRequested as ApprovalRequested
from toolspeak.data.messages import JSON, FinishReason, Message, ToolCall, ToolChoice, ToolResult, Usage, no_extra
from toolspeak.data.run_values import LimitName as LimitName
from toolspeak.data.run_values import Limits as Limits
from toolspeak.data.run_values import PauseReason as PauseReason
from toolspeak.data.run_values import RunStatus as RunStatus
from toolspeak.data.tools import Effects
from toolspeak.data.values import value

StopReason = Literal["stopped", "tool_failure", "terminated", "blocked", "interceptor_failure"]


@value()
class RunStarted:
    """A run began.

    - `messages`: the history that the run starts with, the task last.
    - `follows`, `follows_seq`: in a session the run continues after the first `follows_seq` records of run `follows`
      (None: it is the first), whose messages come before `messages`.
    - `session_version`: the session's version that it started on, 0 for a new session.
    - `setup`: what another process needs to set the run up again.
    - `choice`: what the model must do with its tools.
    - `caller_trace`: the trace context of the run's caller, empty without one, if `Record.traceparent` is a span of the
      run's own from here on. None: it is the caller's.
    - `due`: of a submitted run, when a worker may drive it (Unix seconds). None: the process that started it drives it.
    - `model`: "" if the run was submitted by its agent's name alone. Then `RunConfigured` says it.
    """

    messages: tuple[Message, ...]
    model: str
    limits: Limits = Limits()
    session_id: str | None = None
    session_version: int = 0
    follows: str | None = None
    follows_seq: int = 0
    setup: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    choice: ToolChoice = ToolChoice()
    caller_trace: str | None = None
    due: float | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class RunConfigured:
    """The first process that drives a submitted run set what the submission left open. None: it stays as it is.

    - `messages`: in place of the last `replaced` messages, which are those of `RunStarted`: an interceptor changed
      them, or the agent has secrets.
    - `model`, `limits`, `choice`: the agent's, of a run that was submitted by its agent's name.
    """

    messages: tuple[Message, ...] | None = None
    replaced: int = 0
    model: str | None = None
    limits: Limits | None = None
    choice: ToolChoice | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class UserMessageQueued:
    """The user sent a message during the run. The model reads it at the next step."""

    message: Message
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class ModelAsked:
    """A turn was requested. The digests (SHA-256, hex) show whether tools or instructions changed between turns."""

    model: str
    tools_digest: str
    instructions_digest: str
    choice: ToolChoice = ToolChoice()
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class ModelAnswered:
    """A turn was read to its end. Recorded before any of its calls runs.

    - `message`: text, reasoning and the calls that count.
    - `ignored`: the calls that do not count.
    - `forged`: results that the model wrote itself.
    - `usage_estimated`: the provider gave no usage.
    - `cost`: in USD, None if unknown.
    """

    message: Message
    finish: FinishReason
    usage: Usage = Usage()
    usage_estimated: bool = False
    ignored: tuple[ToolCall, ...] = ()
    forged: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    cost: float | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class ModelTextReceived:
    """A piece of an unfinished turn: its text and reasoning since the piece before, as the model wrote them.

    Calls are in it as text: in their dialect, or for an API's own calls the name and the arguments' JSON on a line.
    Recorded every half second, and when a turn is cut off. It is no part of the history: a turn that is read to its end
    is `ModelAnswered`, one that was cut off is requested again.
    """

    text: str
    reasoning: str = ""
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class ModelFailed:
    """The model API failed and the run cannot continue."""

    error: str
    status: int | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class ToolStarted:
    """A tool's function is about to be called.

    - `waited_for`: the calls of the batch that had to finish before this one could start.
    - `effects`: what the call touches.
    - `early`: the function was called while the model still wrote. Its result was not used before this fact.
    - `changed`: the call as it runs, if an interceptor or a decision changed the model's.
    """

    call_id: str
    name: str
    idempotency_key: str
    waited_for: tuple[str, ...] = ()
    effects: Effects | None = None
    early: bool = False
    changed: ToolCall | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class CallSuspended:
    """A call's function is over without a result. It is called again when the run goes on.

    - `sub_runs`: the runs that it started and that wait. It finds them as they are by then.
    - `event`: the event that it waits for, "" for a time alone. None: it waits for its sub-runs only.
    - `until`: when it stops waiting, in Unix seconds; None: never.
    """

    call_id: str
    sub_runs: tuple[str, ...] = ()
    event: str | None = None
    until: float | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class WaitEnded:
    """What a suspended call waited for has come: the event with its payload, or (`expired`) the time.

    - `key`: that of the delivery.
    - `by`: the principal that delivered it.
    """

    call_id: str
    event: str
    payload: JSON = None
    expired: bool = False
    key: str = ""
    by: str | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class MemoryChanged:
    """A tool changed `RunContext.memory` under a key, or under a key and an entry below it. `forgotten`: it removed the
    value."""

    path: tuple[str, ...]
    value: JSON = None
    forgotten: bool = False


@value()
class ToolFinished:
    """A call has its result, whether its function ran or not. Recorded before the result is used.

    - `whole`: the text of a result that was too long for the model, which `read_result` pages through.
    - `memory`: the changes of the tools' memory until then.
    """

    result: ToolResult
    whole: str | None = None
    memory: tuple[MemoryChanged, ...] = ()
    extra: Mapping[str, JSON] = field(default_factory=no_extra)

    @property
    def call_id(self) -> str:
        """The id of the call."""
        return self.result.call_id


@value()
class MetadataSet:
    """An interceptor set metadata of the run: `values` are added. `by` is the interceptor."""

    values: Mapping[str, JSON]
    by: str = ""
    call_id: str | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class InterceptorFailed:
    """An interceptor failed in `hook`: it raised, or returned what it must not. What it wraps (`level`) fails."""

    interceptor: str
    level: Literal["call", "model", "step", "run"]
    hook: Literal["before", "around", "after"]
    error: str
    call_id: str | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class AnswerRejected:
    """The answer does not have the requested type. The model reads `reason` and answers again."""

    reason: str
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class StopRequested:
    """The run ends once the calls of its step have their results. `reason`: `stopped` (`AgentStop`, with its `answer`),
    `tool_failure` (in a run that ends at the first failure), `terminated` (by a decision about a call), `blocked` or
    `interceptor_failure`."""

    reason: StopReason
    message: str
    call_id: str | None = None
    answer: str | None = None
    by: str = ""
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class LimitReached:
    """The run reached a limit; the next turn is the wrap-up answer. `used` and `allowed` are in the limit's unit."""

    limit: LimitName
    used: float
    allowed: float
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class HistoryCompacted:
    """The model reads less of the history from here on. The records before this one hold the whole.

    - `cleared`: the calls whose results are no longer shown.
    - `upto`: above 0, the first so many messages are replaced by `summary`, except system messages at the start.
    - `pinned`: numbers of messages in the history that stay, too.
    - `tokens_before`, `tokens_after`: estimates of what a turn reads.
    - `usage`, `cost`: those of the summary; `cost` is in USD, None if unknown.
    """

    cleared: tuple[str, ...] = ()
    upto: int = 0
    pinned: tuple[int, ...] = ()
    summary: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    usage: Usage = Usage()
    cost: float | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class SubRunUsed:
    """The usage of a sub-run since the last such record, recorded when that run ends, pauses or breaks off. `cost` is
    in USD, None if a part of it is unknown."""

    run_id: str
    agent: str
    usage: Usage
    usage_estimated: bool = False
    cost: float | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class HandedOff:
    """A call handed the conversation to `agent`, which continues with its own model and tool choice once all calls of
    the step have their results. Recorded before the call's result."""

    call_id: str
    agent: str
    model: str
    choice: ToolChoice = ToolChoice()
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class RunPaused:
    """The run stopped while no call was under way, and can be resumed.

    - `reason`: it waits for decisions about calls (`awaiting_approval`), for a time or an event (`waiting`) or for a
      worker (`queued`), or was suspended.
    - `call_ids`: the calls that wait.
    - `until`: when it goes on at the latest, in Unix seconds; None: when something comes from outside.
    """

    reason: PauseReason
    call_ids: tuple[str, ...] = ()
    until: float | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class RunResumed:
    caller_trace: str | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class RunFinished:
    """The run ended. `reason`: `answer`, `answer_cut` (by the token limit), a limit's name, `empty_answer`,
    `forged_results` (the model made up results), `model_error`, `batch_ended` (the run is a turn's calls of another
    framework), a stop's reason (see `StopRequested`), or the model's own finish reason."""

    status: RunStatus
    answer: str
    reason: str
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value(unread="data")
class UnknownEvent:
    """An event of a kind that this version does not know, as it was."""

    kind: str
    data: Mapping[str, JSON]


Event: TypeAlias = (
    RunStarted
    | RunConfigured
    | UserMessageQueued
    | ModelAsked
    | ModelTextReceived
    | ModelAnswered
    | ModelFailed
    | ApprovalRequested
    | ApprovalDecided
    | ToolStarted
    | CallSuspended
    | WaitEnded
    | ToolFinished
    | MetadataSet
    | InterceptorFailed
    | AnswerRejected
    | StopRequested
    | LimitReached
    | HistoryCompacted
    | SubRunUsed
    | HandedOff
    | RunPaused
    | RunResumed
    | RunFinished
    | UnknownEvent
)


@value()
class Record:
    """An event with its stamp.

    - `seq`: counts a run's records from 0.
    - `step`: the model turn it belongs to, from 1; 0 before the first.
    - `time`: Unix time in seconds.
    - `principal`: on whose behalf the run acts.
    - `traceparent`: the W3C trace context.
    """

    event: Event
    run_id: str
    seq: int
    step: int
    time: float
    agent: str = "agent"
    call_id: str | None = None
    parent_run_id: str | None = None
    principal: str | None = None
    traceparent: str | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)
