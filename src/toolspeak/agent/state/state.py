"""A run's state: the fold of its records (see `fold`), and the statuses that may follow each other. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar, cast, overload

from toolspeak.data.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallSuspended,
    HandedOff,
    LimitName,
    Limits,
    MemoryChanged,
    RunStatus,
    StopRequested,
    ToolStarted,
    WaitEnded,
)
from toolspeak.data.messages import (
    JSON,
    ContentPart,
    FilePart,
    ImagePart,
    JsonPart,
    MalformedCall,
    Message,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
    no_extra,
)
from toolspeak.data.values import quick, same_json, value
from toolspeak.execute import ANSWERED_FROM

ItemT = TypeVar("ItemT")
_new: Any = object.__new__

_Calls: TypeAlias = Sequence[ToolCall | MalformedCall]
_Results: TypeAlias = Sequence[ToolResult]

_REPETITION_ADVICE = (
    "Your last calls were the same as before, with the same results: making them again will change nothing. "
    "Do something else, or answer with what you have."
)
_FAILURE_ADVICE = (
    "Every call of your last {steps} steps failed. Read what the errors say and do something else, or answer and say "
    "what keeps you from going on."
)

TRANSITIONS: Mapping[RunStatus, tuple[RunStatus, ...]] = MappingProxyType(
    {
        "queued": ("running", "suspended", "no_answer"),
        "running": (
            *("running", "queued", "waiting", "awaiting_approval", "suspended"),
            *("answered", "no_answer", "failed"),
        ),
        "waiting": ("running", "suspended", "no_answer"),
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


class Log(Sequence[ItemT], Generic[ItemT]):
    """An immutable sequence with an O(1) `append` that gives a longer one.

    The items are shared: a log is its length. Appending twice to the same log copies once (a fork).
    """

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[ItemT] = ()) -> None:
        self._items = list(items)
        self._length = len(self._items)

    def append(self, item: ItemT) -> Log[ItemT]:
        items, length = self._items, self._length
        if not length or len(items) != length:
            items = items[:length]
        items.append(item)
        longer: Log[ItemT] = _new(Log)
        longer._items = items
        longer._length = length + 1
        return longer

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> ItemT: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ItemT]: ...
    def __getitem__(self, index: int | slice) -> ItemT | Sequence[ItemT]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            return self._items[start:stop] if step == 1 else [self._items[i] for i in range(start, stop, step)]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError("log index out of range")
        return self._items[index]

    def __iter__(self) -> Iterator[ItemT]:
        return islice(self._items, self._length)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(cast("Log[ItemT]", other)) if isinstance(other, Log) else NotImplemented

    __hash__ = None  # pyright: ignore[reportAssignmentType] - compared by content, so not hashable, like a list

    def __repr__(self) -> str:
        return f"Log({list(self)!r})"


NOTHING: Log[Any] = Log()
"""The empty log, shared: appending to it begins a list of its own."""


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

    def plus(self, usage: Usage, cost: float | None, estimated: bool = False, calls: int = 0) -> Totals:
        """The totals with a turn's usage, cost (USD) and calls."""
        return Totals(
            self.usage.plus(usage),
            self.tokens + (usage.total or 0),
            self.estimated or estimated,
            self.known_cost + (cost or 0.0),
            self.unpriced or cost is None,
            self.calls + calls,
        )


@quick()
class PendingCalls:
    """The calls of the current step, until each has its result."""

    calls: tuple[ToolCall | MalformedCall, ...] = ()
    results: Log[ToolResult] = field(default_factory=lambda: NOTHING)
    """The results until now, in the order they came."""
    call_events: Log[ToolStarted | CallSuspended | WaitEnded | ApprovalDecided] = field(default_factory=lambda: NOTHING)
    """The calls that were started or wait, what has come for those, and decisions about a call after its start."""
    polls: bool = False
    """Whether one of the calls polls. Such a step does not count as a repetition."""
    handoff: HandedOff | None = None
    """The first hand-off of the step."""

    @property
    def doubtful_calls(self) -> dict[str, ApprovalDecided | None]:
        """The calls that were started and have no result, with the decision about each since its start.

        While a batch runs these are its calls under way. After that a process that died or was stopped has left them.
        """
        done_ids = {result.call_id for result in self.results} if self.call_events else set[str]()
        doubtful: dict[str, ApprovalDecided | None] = {}
        for one in self.call_events:
            if isinstance(one, CallSuspended):
                doubtful.pop(one.call_id, None)  # its function has ended and will be entered again
            elif isinstance(one, WaitEnded):
                continue
            elif one.call_id not in done_ids:
                doubtful[one.call_id] = one if isinstance(one, ApprovalDecided) else None
        return doubtful

    @property
    def sub_runs(self) -> tuple[str, ...]:
        """The ids of the sub-runs that the calls have started, and may wait for."""
        suspensions = [one for one in self.call_events if isinstance(one, CallSuspended)]
        return tuple(dict.fromkeys(run_id for one in suspensions for run_id in one.sub_runs))

    @property
    def waits(self) -> dict[str, CallSuspended]:
        """The calls that wait for a time or an event which has not come yet."""
        done_ids = {result.call_id for result in self.results} if self.call_events else set[str]()
        waits: dict[str, CallSuspended] = {}
        for one in self.call_events:
            if isinstance(one, WaitEnded) or (isinstance(one, CallSuspended) and one.event is None):
                waits.pop(one.call_id, None)
            elif isinstance(one, CallSuspended) and one.call_id not in done_ids:
                waits[one.call_id] = one
        return waits

    @property
    def ended_waits(self) -> dict[str, tuple[WaitEnded, ...]]:
        """What has come for each call that waited, in the order in which its function waited for it."""
        wait_ends: dict[str, tuple[WaitEnded, ...]] = {}
        for one in self.call_events:
            if isinstance(one, WaitEnded):
                wait_ends[one.call_id] = (*wait_ends.get(one.call_id, ()), one)
        return wait_ends


@quick()
class Approvals:
    """The questions about the calls of the current step."""

    requests: Log[ApprovalRequested] = field(default_factory=lambda: NOTHING)
    decisions: Log[ApprovalDecided] = field(default_factory=lambda: NOTHING)
    requested_at: float | None = None
    """Unix seconds of the first open question, during the run."""

    @property
    def open_requests(self) -> dict[str, ApprovalRequested]:
        """The requests without a decision about the call as it is now, by call id."""
        decided_keys = {(decision.call_id, decision.digest) for decision in self.decisions}
        latest = {request.call_id: request for request in self.requests}
        return {name: each for name, each in latest.items() if (name, each.digest) not in decided_keys}


@quick()
class ContextSize:
    """How much of the model's window the history fills."""

    tokens: int = 0
    """The tokens that the next turn reads. Estimated, except for those of the last turn."""
    task: int = 0
    """The index of the user's last message in the history."""
    compacted: bool = False
    """Whether the history was made shorter since the last turn."""


@quick()
class TurnRules:
    """The tool choice of the next turn, and how many of the last turns were unusable."""

    choice: ToolChoice = ToolChoice()
    reminded: bool = False
    """Whether the model was reminded of the tool choice after its last turn."""
    empty_turns: int = 0
    """Turns in a row without calls or an answer."""
    rejected_answers: int = 0
    """Answers that were not of the requested type."""


@value()
class Progress:
    """Whether a run gets anywhere: steps that repeat each other, and steps of failures alone."""

    last: tuple[tuple[_Calls, _Results], ...] = ()
    """The calls and results of the last two steps."""
    repeats: int = 0
    """How many steps in a row were the same as one or two steps before."""
    failures: int = 0
    """How many steps in a row had failed calls alone."""

    def after(self, calls: _Calls, results: _Results, limits: Limits, *, polled: bool) -> tuple[Progress, str]:
        """The progress after one more step, and the warning that the model reads half-way to the end of the run, else
        "". A step that polled does not count as a repetition: it asks again on purpose. Without a limit on repeats,
        steps are not compared."""
        failures = self.failures + 1
        for result in results:
            if result.status != "failure":
                failures = 0
                break
        repeats, last = 0, ()
        if not polled and limits.repeats is not None:
            last = (*self.last[-1:], (calls, results))
            for earlier in self.last:
                if _same_step(earlier, calls, results):
                    repeats = self.repeats + 1
                    break
        advice = ""
        if limits.repeats is not None and repeats == max(1, limits.repeats // 2):
            advice = _REPETITION_ADVICE
        elif limits.failures is not None and failures == max(1, limits.failures // 2):
            advice = _FAILURE_ADVICE.format(steps=failures)
        return Progress(last, repeats, failures), advice


def _same_step(earlier: tuple[_Calls, _Results], calls: _Calls, results: _Results) -> bool:
    """Whether two steps have the same calls and results. Ids and what providers attach are not compared."""
    if len(earlier[0]) != len(calls):
        return False
    for call, other in zip(calls, earlier[0], strict=True):
        if isinstance(call, ToolCall):
            if not isinstance(other, ToolCall) or call.name != other.name:
                return False
            if not same_json(call.arguments, other.arguments):
                return False
        elif not isinstance(other, MalformedCall) or call.raw != other.raw:
            return False
    for result, other in zip(results, earlier[1], strict=True):
        if result.status != other.status or result.code != other.code:
            return False
        content, before = _own_content(result), _own_content(other)
        if len(content) != len(before) or not all(map(_same_part, content, before)):
            return False
    return True


def _own_content(result: ToolResult) -> Sequence[ContentPart]:
    """The content of a result, without the note in front of one that was answered from memory."""
    return result.content[1:] if ANSWERED_FROM in result.extra else result.content


def _same_part(part: ContentPart, other: ContentPart) -> bool:
    if isinstance(part, TextPart):
        return isinstance(other, TextPart) and part.text == other.text
    if isinstance(part, JsonPart):
        return isinstance(other, JsonPart) and same_json(part.value, other.value)
    if isinstance(part, ImagePart):
        return isinstance(other, ImagePart) and (part.data, part.url) == (other.data, other.url)
    return isinstance(other, FilePart) and part.data == other.data


NO_CALLS = PendingCalls()
NO_APPROVALS = Approvals()


@quick()
class RunState:
    """Everything the next decision depends on."""

    run_id: str
    model: str
    """The model of the current agent."""
    limits: Limits
    history: Log[Message]
    """What the model reads."""
    started_at: float
    """Unix seconds. It moves on by the time for which the run paused, a question was open, or no process drove it."""
    time: float
    """Unix seconds of the last record."""
    principal: str | None = None
    traceparent: str | None = None
    parent_run_id: str | None = None
    session_id: str | None = None
    agent: str | None = None
    """The agent that the conversation was handed to; None without a hand-off."""
    turns_before: int = 0
    """The highest turn among the call ids of the history: this run's ids continue from there."""
    status: RunStatus = "running"
    paused_at: float | None = None
    """Unix seconds at which the run paused; None while it runs."""
    until: float | None = None
    """Until when it pauses at most, in Unix seconds."""
    step: int = 0
    seq: int = 0
    """The number of the next record."""
    pending: PendingCalls = NO_CALLS
    approvals: Approvals = NO_APPROVALS
    queued_messages: Log[Message] = field(default_factory=lambda: NOTHING)
    """Messages that the model reads at the next step."""
    message_keys: frozenset[str] = frozenset()
    """The keys of the messages that came from other processes."""
    totals: Totals = Totals()
    context: ContextSize = ContextSize()
    turn: TurnRules = TurnRules()
    progress: Progress = Progress()
    limit: LimitName | None = None
    """The limit that was reached."""
    wrapped_up: bool = False
    """Whether the last turn was the wrap-up answer."""
    started_calls: Log[ToolStarted] = field(default_factory=lambda: NOTHING)
    """All calls that the run started."""
    answer: str | None = None
    """Set once a turn held text and no calls."""
    reason: str = ""
    error: str = ""
    stop: StopRequested | None = None
    """Set when the run has to end."""
    resumptions: int = 0
    """How many times in a row the run was resumed and got no further: a process that drives it may die each time."""
    metadata: Mapping[str, JSON] = field(default_factory=no_extra)
    """What interceptors store with the run."""
    memory: Log[MemoryChanged] = field(default_factory=lambda: NOTHING)
    """The changes that make up the tools' memory."""
    found_tools: tuple[str, ...] = ()
    """The names of the deferred tools that the run has found, or the session before it."""
    sources: frozenset[str] = frozenset()
    """From where on the web the model has read: resources such as `web:example.com`. They never become fewer."""
    given_urls: tuple[str, ...] | None = None
    """The URLs in the task that others wrote, if the task is of a model that had read the web."""

    @property
    def messages(self) -> Sequence[Message]:
        return self.history
