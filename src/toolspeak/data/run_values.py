"""The statuses and limits of a run, and the events of a run that stops, pauses, resumes or ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from toolspeak.data.messages import JSON, Usage, no_extra
from toolspeak.data.values import value

RunStatus = Literal["queued", "running", "waiting", "awaiting_approval", "suspended", "answered", "no_answer", "failed"]
PauseReason = Literal["queued", "waiting", "awaiting_approval", "suspended"]
PAUSED_STATUSES: frozenset[RunStatus] = frozenset({"queued", "waiting", "awaiting_approval", "suspended"})
"""The statuses of runs that no process drives and that can go on: `queued` ones wait for a worker, `waiting` ones for a
time or an outside event, `awaiting_approval` ones for a decision, `suspended` ones for a person to resume them."""
UNFINISHED_STATUSES: tuple[RunStatus, ...] = ("running", *sorted(PAUSED_STATUSES))
"""The statuses of runs that can go on."""
StopReason = Literal["stopped", "tool_failure", "terminated", "blocked", "interceptor_failure"]
LimitName = Literal["steps", "calls", "seconds", "tokens", "cost", "repeats", "failures"]


@value()
class Limits:
    """What a run may use before it must wrap up; None is no limit.

    Tokens and cost include those of sub-runs. A sub-run starts with what its parent has left of both as its own limit,
    unless its own is lower. Sub-runs that run at the same time each start with all that is left then; the parent counts
    them once they have ended. Steps, calls, repeats and failures are each run's own, but a program's calls are calls of
    the run too.

    - `steps`: model turns; the wrap-up answer comes on top.
    - `calls`: tool calls.
    - `seconds`: wall-clock time since the start.
    - `tokens`: input and output of all turns, estimated where the provider does not say.
    - `cost`: USD.
    - `repeats`: steps in a row with the same calls and results as one or two steps before; polls do not count.
    - `failures`: steps in a row in which every call failed.

    The model is warned at half of `repeats` and `failures`.
    """

    steps: int | None = 50
    calls: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    repeats: int | None = 4
    failures: int | None = 8
    cost: float | None = None


@value()
class StopRequested:
    """The run ends once the calls of its step have their results.

    - `reason`: `stopped` (`AgentStop`, with its `answer`), `tool_failure` (in a run that ends at the first failure),
      `terminated` (by a decision about a call), `blocked` or `interceptor_failure`.
    - `message`: why, in words.
    - `call_id`: the call that ends the run, None if none does.
    - `answer`: the answer of the run, None without one.
    - `by`: who decided.
    """

    reason: StopReason
    message: str
    call_id: str | None = None
    answer: str | None = None
    by: str = ""
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class LimitReached:
    """The run reached a limit; the next turn is the wrap-up answer.

    - `limit`: its name in `Limits`.
    - `used`, `allowed`: in the limit's unit.
    """

    limit: LimitName
    used: float
    allowed: float
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class SubRunUsed:
    """The usage of a sub-run since the last such record, recorded when that run ends, pauses or breaks off.

    - `run_id`, `agent`: those of the sub-run.
    - `usage`: its tokens.
    - `usage_estimated`: a provider gave no usage.
    - `cost`: in USD, None if a part of it is unknown.
    - `calls`: the calls of a program, which count as those of the run. 0 for the sub-run of a model.
    """

    run_id: str
    agent: str
    usage: Usage
    usage_estimated: bool = False
    cost: float | None = None
    calls: int = 0
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
    """A process goes on with the run.

    - `caller_trace`: as in `RunStarted`.
    """

    caller_trace: str | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class RunFinished:
    """The run ended.

    - `status`: `answered`, `no_answer` or `failed`.
    - `answer`: the answer's text, "" without one.
    - `reason`: `answer`, `answer_cut` (by the token limit), a limit's name, `empty_answer`, `forged_results` (the model
      made up results), `model_error`, `batch_ended` (the run is a turn's calls of another framework), a stop's reason
      (see `StopRequested`), or the model's own finish reason.
    """

    status: RunStatus
    answer: str
    reason: str
    extra: Mapping[str, JSON] = field(default_factory=no_extra)
