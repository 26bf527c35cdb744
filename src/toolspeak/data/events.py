"""The durable facts of a run: a closed union, in the past tense, without any dialect.

An event says what happened; a `Record` is the event with its stamp (which run, when, by whom), and is
what a journal holds. State is the fold of the records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, TypeAlias

from toolspeak.data.approvals import Rule
from toolspeak.data.messages import (
    JSON,
    FinishReason,
    Message,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
    no_extra,
)
from toolspeak.data.tools import Effects
from toolspeak.data.values import value

RunStatus = Literal["running", "answered", "no_answer", "failed", "awaiting_approval", "suspended"]
PauseReason = Literal["awaiting_approval", "suspended"]
PAUSED: frozenset[RunStatus] = frozenset({"awaiting_approval", "suspended"})
"""The statuses of runs that have stopped and can be resumed."""
UNFINISHED: tuple[RunStatus, ...] = ("running", *sorted(PAUSED))
"""The statuses of runs that can go on."""
StopReason = Literal["stopped", "tool_failure", "terminated", "blocked", "interceptor_failure"]
LimitName = Literal["steps", "calls", "seconds", "tokens", "cost", "repeats", "failures"]


@value()
class Limits:
    """What a run may use before it has to wrap up; None is no limit.

    `steps` are model turns (the wrap-up answer comes on top), `calls` tool calls, `seconds` wall-clock time
    since the start, `tokens` input and output of all turns (estimated where the provider does not say), `cost` USD;
    what runs have used that the run's tools started counts as the run's own.
    `repeats` are steps in a row with the same calls and results as one or two steps before (polls do not count),
    `failures` steps in a row in which every call failed; the model is told at half of them.
    """

    steps: int | None = 50
    calls: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    repeats: int | None = 4
    failures: int | None = 8
    cost: float | None = None


@value()
class RunStarted:
    """`messages` are the history the run starts with, the task last.

    In a session the run goes on behind the first `follows_seq` records of run `follows` (None: it is the first),
    whose messages come before `messages`. `session_version` is the session's version it was started on, 0 for a new
    one. `setup` is what the program that started the run needs to set it up again in another process. `choice` is what
    the model is asked to do with its tools.
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
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class UserMessageQueued:
    """Something the user said while the run was going on; the model reads it at the next step."""

    message: Message
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class ModelAsked:
    """A turn was asked for. The digests (SHA-256, hex) tell whether tools or instructions changed between turns."""

    model: str
    tools_digest: str
    instructions_digest: str
    choice: ToolChoice = ToolChoice()
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class ModelAnswered:
    """A turn was read to its end; recorded before any of its calls runs.

    `message` holds text, reasoning and the calls that count; `ignored` those that do not; `forged` is what
    the model wrote as results itself. `usage_estimated`: the provider gave no usage. `cost` is in USD, None where it is
    not known.
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
    """A piece of a turn that is not at its end: its text and reasoning since the piece before, as the model wrote them,
    with its calls as text: in its dialect, or for an API's own calls the name and the arguments' JSON on a line.

    Recorded every half second, and when a turn is cut off. It is no part of the history: a turn that is read to its
    end is `ModelAnswered`, one that was cut off is asked for again.
    """

    text: str
    reasoning: str = ""
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class ModelFailed:
    """The model API failed and the run cannot go on."""

    error: str
    status: int | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class ApprovalRequested:
    """A call waits for a yes: `call` as it would run. `preview` shows what it would change (a unified diff, a command).
    Of a call of a run that a tool started, the id begins with that run's (its first 8 characters and a slash).

    `digest` (SHA-256, hex) is that of the tool's definition, the arguments and the effects: a decision holds for it
    alone.
    """

    call_id: str
    reason: str
    preview: str = ""
    call: ToolCall | None = None
    effects: Effects | None = None
    digest: str = ""
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class ApprovalDecided:
    """A yes or a no to the request with this digest; the fields are those of `Decision`."""

    call_id: str
    approved: bool
    reason: str = ""
    by: str = ""
    digest: str = ""
    arguments: Mapping[str, JSON] | None = None
    ends_run: bool = False
    always: Rule | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class ToolStarted:
    """Recorded immediately before the tool's function is entered.

    `waited_for` are the calls of the batch that had to finish before this one might start, `effects` what it
    touches. `early`: the function was entered while the model still wrote; nothing was made of it before this.
    `changed` is the call as it runs, if an interceptor or an approval made another of the model's.
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
    """A call's function is over without a result: a run that it started waits (for approval, or it was suspended). The
    function is entered again when the run goes on, and finds its runs, which are `sub_runs`, as they are by then."""

    call_id: str
    sub_runs: tuple[str, ...] = ()
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class MemoryChanged:
    """A value that a tool has kept in `RunContext.memory`, under a key or a key and an entry of what is under it; or
    has `forgotten`."""

    path: tuple[str, ...]
    value: JSON = None
    forgotten: bool = False


@value()
class ToolFinished:
    """A call has its result, whether its function ran or not; recorded before the result is used.

    `whole` is the text of a result that was too long for the model, which `read_result` pages through. `memory` is what
    was changed in the tools' memory until then.
    """

    result: ToolResult
    whole: str | None = None
    memory: tuple[MemoryChanged, ...] = ()
    extra: Mapping[str, JSON] = field(default_factory=no_extra)

    @property
    def call_id(self) -> str:
        """The call it is about."""
        return self.result.call_id


@value()
class MetadataSet:
    """What interceptors keep with the run: `values` are added to its metadata. `by` names the interceptor."""

    values: Mapping[str, JSON]
    by: str = ""
    call_id: str | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class InterceptorFailed:
    """An interceptor raised, or gave back what it must not: what it was asked about fails. `level` is what it wraps,
    `hook` where it failed (before, around, after)."""

    interceptor: str
    level: Literal["call", "model", "step", "run"]
    hook: Literal["before", "around", "after"]
    error: str
    call_id: str | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class AnswerRejected:
    """The answer is not of the type that was asked for; the model reads `reason` and answers again."""

    reason: str
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class StopRequested:
    """The run is to end as soon as the calls of its step have their results.

    `reason` says what asked for it: `stopped` (`AgentStop`; `answer` is the run's answer, if there is one),
    `tool_failure` (of a run that ends at the first), `terminated` (by a decision about a call), `blocked` or
    `interceptor_failure`.
    """

    reason: StopReason
    message: str
    call_id: str | None = None
    answer: str | None = None
    by: str = ""
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class LimitReached:
    """A limit was hit; the next turn is the wrap-up answer. `used` and `allowed` in the limit's unit."""

    limit: LimitName
    used: float
    allowed: float
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class HistoryCompacted:
    """The model reads less of the history from here on; the records before this one keep the whole.

    The results of the calls `cleared` are shown no more. Or, with `upto` above 0, the first so many messages are
    replaced by the `summary`, but for the system messages in front and those `pinned` (numbers in the history).
    `tokens_before` and `tokens_after` are estimates of what a turn reads, `usage` is what the summary took, and `cost`
    that in USD (None where it is not known).
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
    """What a run that one of this run's tools started has used, since it was last told: recorded when that run ends,
    pauses or breaks off. `cost` is in USD, None if some of it is not known."""

    run_id: str
    agent: str
    usage: Usage
    usage_estimated: bool = False
    cost: float | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class RunPaused:
    """The run stopped where nothing is under way, and can be resumed: it waits for decisions about these calls, or was
    asked to be suspended."""

    reason: PauseReason
    call_ids: tuple[str, ...] = ()
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class RunResumed:
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class RunFinished:
    """`reason` says why in a word: `answer`, `answer_cut` (by the token limit), a limit's name, `empty_answer`,
    `forged_results` (the model made up results), `model_error`, a stop's reason (see `StopRequested`), or the model's
    own finish reason."""

    status: RunStatus
    answer: str
    reason: str
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value(unread="data")
class UnknownEvent:
    """An event of a kind this version does not know, kept as it was."""

    kind: str
    data: Mapping[str, JSON]


Event: TypeAlias = (
    RunStarted
    | UserMessageQueued
    | ModelAsked
    | ModelTextReceived
    | ModelAnswered
    | ModelFailed
    | ApprovalRequested
    | ApprovalDecided
    | ToolStarted
    | CallSuspended
    | ToolFinished
    | MetadataSet
    | InterceptorFailed
    | AnswerRejected
    | StopRequested
    | LimitReached
    | HistoryCompacted
    | SubRunUsed
    | RunPaused
    | RunResumed
    | RunFinished
    | UnknownEvent
)


@value()
class Record:
    """An event with its stamp.

    `seq` counts a run's records from 0. `step` is the model turn it belongs to, from 1 (0 before the
    first). `time` is Unix time in seconds. `principal` is on whose behalf the run acts, `traceparent` the
    W3C trace context it belongs to.
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
