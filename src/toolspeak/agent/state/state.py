"""A run's state: the fold of its records (see `fold`), and the statuses that may follow each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

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

TRANSITIONS: Mapping[RunStatus, tuple[RunStatus, ...]] = MappingProxyType(
    {
        "running": ("running", "awaiting_approval", "suspended", "answered", "no_answer", "failed"),
        "awaiting_approval": ("running", "no_answer"),
        "suspended": ("running", "no_answer"),
        "answered": (),
        "no_answer": (),
        "failed": (),
    }
)
"""The statuses that may follow each status. A run that was interrupted is resumed from `running`; one that was closed
while it paused ends as `no_answer`."""

FINAL = frozenset(status for status, following in TRANSITIONS.items() if not following)
"""The statuses of a run that is over."""


@quick()
class Totals:
    """What a run has used, with the runs that its tools started."""

    usage: Usage = Usage(0, 0, 0, 0)
    """Tokens of all turns, by kind."""
    tokens: int = 0
    """Tokens of all turns, input and output."""
    estimated: bool = False
    """Whether some of the tokens are estimated."""
    known_cost: float = 0.0
    """USD of the turns whose price is known."""
    unpriced: bool = False
    """Whether the price of some turn is not known."""
    calls: int = 0
    """Calls of this run alone."""

    @property
    def cost(self) -> float | None:
        """USD of all turns; None if some have no known price."""
        return None if self.unpriced else self.known_cost


@quick()
class PendingCalls:
    """The calls of the current step, until each has its result."""

    calls: tuple[ToolCall | MalformedCall, ...] = ()
    results: Log[ToolResult] = field(default_factory=nothing)
    """The results until now, in the order they came."""
    started: Log[ToolStarted | CallSuspended | ApprovalDecided] = field(default_factory=nothing)
    """The calls that were started, those that wait for runs of theirs, and what was decided of one after that."""
    polls: bool = False
    """Whether one of the calls polls: then the step does not count as a repetition."""

    @property
    def in_doubt(self) -> dict[str, ApprovalDecided | None]:
        """The calls that were started and have no result, with what was decided of each since.

        Such calls are left by a process that died, or that was stopped: while a batch runs, they are on their way.
        """
        finished = {result.call_id for result in self.results} if self.started else set[str]()
        doubtful: dict[str, ApprovalDecided | None] = {}
        for one in self.started:
            if isinstance(one, CallSuspended):
                doubtful.pop(one.call_id, None)  # its function is over, and is to be entered again
            elif one.call_id not in finished:
                doubtful[one.call_id] = one if isinstance(one, ApprovalDecided) else None
        return doubtful

    @property
    def sub_runs(self) -> tuple[str, ...]:
        """The runs that the calls wait for, or have started besides those."""
        return tuple(run_id for one in self.started if isinstance(one, CallSuspended) for run_id in one.sub_runs)


@quick()
class Approvals:
    """The questions about the calls of the current step."""

    requests: Log[ApprovalRequested] = field(default_factory=nothing)
    decisions: Log[ApprovalDecided] = field(default_factory=nothing)
    requested_at: float | None = None
    """Unix seconds since when a question is open, while the run goes on."""

    @property
    def undecided(self) -> dict[str, ApprovalRequested]:
        """The calls that nobody has decided about as they are now, by id."""
        decided = {(decision.call_id, decision.digest) for decision in self.decisions}
        latest = {request.call_id: request for request in self.requests}
        return {name: each for name, each in latest.items() if (name, each.digest) not in decided}


@quick()
class ContextSize:
    """How much of the model's window the history fills."""

    tokens: int = 0
    """What the next turn reads, estimated from the last turn on."""
    task: int = 0
    """The index of the history's last message of a person."""
    compacted: bool = False
    """Whether the history was made shorter since the last turn."""


@quick()
class TurnRules:
    """What is asked of the next turn, and which of the last ones were no good."""

    choice: ToolChoice = ToolChoice()
    reminded: bool = False
    """Whether the model was told that its last turn did not follow the tool choice."""
    empty_turns: int = 0
    """Turns in a row without calls or an answer."""
    rejected_answers: int = 0
    """Answers that were not of the type asked for."""


NO_CALLS = PendingCalls()
NO_APPROVALS = Approvals()


@quick()
class RunState:
    """Everything the next decision depends on."""

    run_id: str
    model: str
    limits: Limits
    history: Log[Message]
    """What the model reads."""
    started: float
    """Unix seconds. It moves on by the time a run paused, a question was open, or its process was dead."""
    time: float
    """Unix seconds of the last record."""
    principal: str | None = None
    traceparent: str | None = None
    parent_run_id: str | None = None
    turns_before: int = 0
    """The highest turn among the call ids of the history: this run's ids go on from there."""
    status: RunStatus = "running"
    paused_at: float | None = None
    """Unix seconds since when the run pauses."""
    step: int = 0
    seq: int = 0
    """The number of the next record."""
    pending: PendingCalls = NO_CALLS
    approvals: Approvals = NO_APPROVALS
    queued: Log[Message] = field(default_factory=nothing)
    """Messages that the model reads at the next step."""
    totals: Totals = Totals()
    context: ContextSize = ContextSize()
    turn: TurnRules = TurnRules()
    progress: Progress = Progress()
    limit: LimitName | None = None
    """The limit that was reached."""
    wrapped_up: bool = False
    """Whether the last turn was the wrap-up answer."""
    started_calls: Log[ToolStarted] = field(default_factory=nothing)
    """All calls that the run started."""
    answer: str | None = None
    """Set once a turn held text and no calls."""
    reason: str = ""
    error: str = ""
    stop: StopRequested | None = None
    """Set once the run is to end."""
    metadata: Mapping[str, JSON] = field(default_factory=no_extra)
    """What interceptors keep with the run."""
    memory: Log[MemoryChanged] = field(default_factory=nothing)
    """How the tools' memory came to be."""

    @property
    def messages(self) -> Sequence[Message]:
        return self.history
