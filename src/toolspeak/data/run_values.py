"""The statuses of runs, and what a run may use."""

from __future__ import annotations

from typing import Literal

from toolspeak.data.values import value

RunStatus = Literal["queued", "running", "waiting", "awaiting_approval", "suspended", "answered", "no_answer", "failed"]
PauseReason = Literal["queued", "waiting", "awaiting_approval", "suspended"]
PAUSED: frozenset[RunStatus] = frozenset({"queued", "waiting", "awaiting_approval", "suspended"})
"""The statuses of runs that no process drives and that can go on: `queued` ones wait for a worker, `waiting` ones for a
time or an outside event, `awaiting_approval` ones for a decision, `suspended` ones for a person to resume them."""
UNFINISHED: tuple[RunStatus, ...] = ("running", *sorted(PAUSED))
"""The statuses of runs that can go on."""
LimitName = Literal["steps", "calls", "seconds", "tokens", "cost", "repeats", "failures"]


@value()
class Limits:
    """What a run may use before it must wrap up; None is no limit. Sub-runs count as the run's own use.

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
