"""The durable facts of a run: a closed union, in the past tense, independent of any dialect. A `Record` is an event
with its stamp."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from toolspeak.data.approvals import ApprovalDecided as ApprovalDecided
from toolspeak.data.approvals import ApprovalRequested as ApprovalRequested
from toolspeak.data.interceptor_events import InterceptorFailed as InterceptorFailed
from toolspeak.data.interceptor_events import MetadataSet as MetadataSet
from toolspeak.data.interceptor_events import RetryScheduled as RetryScheduled
from toolspeak.data.messages import JSON, FinishReason, Message, ToolCall, ToolChoice, ToolResult, Usage, no_extra
from toolspeak.data.run_values import LimitName as LimitName
from toolspeak.data.run_values import LimitReached as LimitReached
from toolspeak.data.run_values import Limits as Limits
from toolspeak.data.run_values import PauseReason as PauseReason
from toolspeak.data.run_values import RunFinished as RunFinished
from toolspeak.data.run_values import RunPaused as RunPaused
from toolspeak.data.run_values import RunResumed as RunResumed
from toolspeak.data.run_values import RunStatus as RunStatus
from toolspeak.data.run_values import StopReason as StopReason
from toolspeak.data.run_values import StopRequested as StopRequested
from toolspeak.data.run_values import SubRunUsed as SubRunUsed
from toolspeak.data.tools import Effects
from toolspeak.data.values import value


@value()
class RunStarted:
    """A run began.

    - `messages`: the history that the run starts with, the task last.
    - `model`: the model's name. "" if the run was submitted by its agent's name alone. Then `RunConfigured` says it.
    - `limits`: what the run may use.
    - `session_id`: the run's session, None outside of one.
    - `follows`, `follows_seq`: in a session the run continues after the first `follows_seq` records of run `follows`
      (None: it is the first), whose messages come before `messages`.
    - `session_version`: the session's version that it started on, 0 for a new session.
    - `setup`: what another process needs to set the run up again.
    - `choice`: what the model must do with its tools.
    - `caller_trace`: the trace context of the run's caller, empty without one, if `Record.traceparent` is a span of the
      run's own from here on. None: it is the caller's.
    - `due`: of a submitted run, when a worker may drive it (Unix seconds). None: the process that started it drives it.
    - `found_tools`: the names of the deferred tools that the session has found before.
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
    found_tools: tuple[str, ...] = ()
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class RunConfigured:
    """The first process that drives a submitted run set what the submission left open. None: it stays as it is.

    - `messages`: in place of those of `RunStarted`: an interceptor changed them, or the agent has secrets.
    - `replaced`: how many messages `messages` replaces, at the end of the history.
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
    """The user sent a message during the run.

    - `message`: what the model reads at the next step.
    - `key`: that of the delivery, of a message that came from another process; "" otherwise.
    - `by`: the principal that sent it.
    """

    message: Message
    key: str = ""
    by: str | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class ModelAsked:
    """A turn was requested.

    - `model`: the model's name.
    - `tools_digest`, `instructions_digest`: SHA-256 (hex), which shows whether they changed between turns.
    - `choice`: what the model must do with its tools.
    - `request_parts`: what is in the request besides the messages, each part that changed since the turn before.
    """

    model: str
    tools_digest: str
    instructions_digest: str
    choice: ToolChoice = ToolChoice()
    request_parts: Mapping[str, str] = field(default_factory=no_extra)
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class ModelAnswered:
    """A turn was read to its end. Recorded before any of its calls runs.

    - `message`: text, reasoning and the calls that count.
    - `finish`: why the model stopped.
    - `usage`: the tokens of the turn.
    - `notes`: what the parser accepted although the dialect has it otherwise (see `BatchEnded`).
    - `ignored`: the calls that do not count.
    - `forged`: results that the model wrote itself.
    - `usage_estimated`: the provider gave no usage.
    - `cost`: in USD, None if unknown.
    - `request_digest`: SHA-256 (hex) of the body of the request; "" if none was sent over HTTP.
    - `raw_text`, `raw_reasoning`: the end of the turn as the model wrote it, since the last `ModelTextReceived`. None
      if `message` shows it: the text of a turn without calls and markers, but for white space around it. Recorded only
      if a journal keeps the run.
    """

    message: Message
    finish: FinishReason
    usage: Usage = Usage()
    usage_estimated: bool = False
    ignored: tuple[ToolCall, ...] = ()
    forged: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    cost: float | None = None
    request_digest: str = ""
    raw_text: str | None = None
    raw_reasoning: str | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class ModelTextReceived:
    """A piece of an unfinished turn: its text and reasoning since the piece before, as the model wrote them.

    Calls are in it as text: in their dialect, or for an API's own calls the name and the arguments' JSON on a line.
    Recorded every half second, and when a turn is cut off. It is no part of the history: a turn that is read to its end
    is `ModelAnswered`, one that was cut off is requested again.

    - `text`, `reasoning`: each since the record before.
    """

    text: str
    reasoning: str = ""
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class ModelFailed:
    """The model API failed, or the run's tool choice names a tool that is gone: the run cannot continue.

    - `error`: what failed, in words.
    - `status`: the HTTP status, None without a response.
    - `request_digest`: as in `ModelAnswered`.
    """

    error: str
    status: int | None = None
    request_digest: str = ""
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class ToolStarted:
    """A tool's function is about to be called.

    - `call_id`: the call's id, as in `CallStarted.call_id` and in the call of the message.
    - `name`: the tool's name.
    - `idempotency_key`: stays the same when the same call runs again after a crash.
    - `waited_for`: the calls of the batch that had to finish before this one could start.
    - `effects`: what the call touches.
    - `early`: the function was called while the model still wrote. Its result was not used before this fact.
    - `changed`: the call as it runs, if an interceptor or a decision changed the model's.
    - `sandbox`: the boundary of the processes that the call starts, "none" without one; "" if it starts none, or its
      tool does not say.
    """

    call_id: str
    name: str
    idempotency_key: str
    waited_for: tuple[str, ...] = ()
    effects: Effects | None = None
    early: bool = False
    changed: ToolCall | None = None
    sandbox: str = ""
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class CallSuspended:
    """A call's function is over without a result. It is called again when the run goes on.

    - `call_id`: the call's id.
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
    """What a suspended call waited for has come.

    - `call_id`: the call's id.
    - `event`: the event's name, "" for a time.
    - `payload`: what came with the event.
    - `expired`: the time is over, and no event has come.
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
    """A tool changed `RunContext.memory`.

    - `path`: the key, or the key and an entry below it.
    - `value`: what is there now.
    - `forgotten`: the tool removed the value.
    """

    path: tuple[str, ...]
    value: JSON = None
    forgotten: bool = False


@value()
class ToolFinished:
    """A call has its result, whether its function ran or not. Recorded before the result is used.

    - `result`: its `call_id`, `name`, `status` ("success" or "failure"), `content`, and the `code` of a failure.
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
class AnswerRejected:
    """The answer does not have the requested type. The model answers again.

    - `reason`: what is wrong, as the model reads it.
    """

    reason: str
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class HistoryCompacted:
    """The model reads less of the history from here on. The records before this one hold the whole.

    - `cleared`: the calls whose results are no longer shown.
    - `upto`: above 0, the first so many messages are replaced by `summary`, except system messages at the start.
    - `summary`: what the model wrote of them.
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
class HandedOff:
    """A call handed the conversation to another agent, which continues once all calls of the step have their results.
    Recorded before the call's result.

    - `call_id`: the call's id.
    - `agent`: the name of the other agent.
    - `model`, `choice`: its model's name, and what the model must do with its tools.
    """

    call_id: str
    agent: str
    model: str
    choice: ToolChoice = ToolChoice()
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value(unread="data")
class UnknownEvent:
    """An event of a kind that this version does not know, as it was.

    - `kind`: its name.
    - `data`: its fields.
    """

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
    | RetryScheduled
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

    - `event`: what happened.
    - `run_id`: the run's id.
    - `seq`: counts a run's records from 0.
    - `step`: the model turn it belongs to, from 1; 0 before the first.
    - `time`: Unix time in seconds.
    - `agent`: the name of the agent.
    - `call_id`: the call that the event is about, None if it is about none.
    - `parent_run_id`: the run whose tool started this one, None for a run of its own.
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
