"""A run's state: the fold of its records (see `fold`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from toolspeak.agent.state.log import Log, nothing
from toolspeak.agent.state.progress import Progress
from toolspeak.data.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallSuspended,
    LimitName,
    Limits,
    MemoryChanged,
    RunStatus,
    StopRequested,
    ToolStarted,
)
from toolspeak.data.messages import (
    JSON,
    MalformedCall,
    Message,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
    no_extra,
)
from toolspeak.data.values import quick


@quick()
class RunState:
    """Everything the next decision depends on.

    `batch` holds the calls of the current step that have not all finished, `results` what is there of theirs, `begun`
    those that were started, those that wait for runs of theirs, and what was decided of one after that; `started_calls`
    are all that the run started.
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
    begun: Log[ToolStarted | CallSuspended | ApprovalDecided] = field(default_factory=nothing)
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
        found: dict[str, ApprovalDecided | None] = {}
        for one in self.begun:
            if isinstance(one, CallSuspended):
                found.pop(one.call_id, None)  # its function is over, and is to be entered again
            elif one.call_id not in done:
                found[one.call_id] = one if isinstance(one, ApprovalDecided) else None
        return found

    @property
    def sub_runs(self) -> tuple[str, ...]:
        """The runs that the step's calls wait for, or have started besides those."""
        return tuple(run_id for one in self.begun if isinstance(one, CallSuspended) for run_id in one.sub_runs)

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
