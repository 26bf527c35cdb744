"""What an agent gives each of its runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from toolspeak.agent.cassettes.recording import Recording
from toolspeak.agent.drivers.base import Driver
from toolspeak.agent.state.history import Window
from toolspeak.agent.state.output import AnswerType
from toolspeak.data.prices import PRICES, Price
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.execute import Approver, BatchApprover, BatchExecutor, InDoubtPolicy, Level, Observer, Secrets
from toolspeak.journal.base import Journal
from toolspeak.tools import Toolset


@quick()
class RunSettings:
    """See `Agent` and `RunOptions` for the fields without a docstring."""

    driver: Driver
    toolset: Toolset
    executor: BatchExecutor
    journal: Journal
    keeps: bool
    """Whether the journal is the caller's (`Agent(journal=…)`), so that the run outlives this process."""
    asks: Callable[[ToolSpec], bool]
    """Whether somebody may be asked before a call of this tool runs."""
    secrets: Secrets = Secrets()
    approver: Approver | BatchApprover | None = None
    kin_approver: Approver | BatchApprover | None = None
    """Answers the questions of runs that this run's tools start."""
    instructions: str = ""
    agent: str = "agent"
    deps: Any = None
    principal: str | None = None
    traceparent: str | None = None
    parent_run_id: str | None = None
    in_doubt_policy: InDoubtPolicy = "ask"
    window: Window | None = None
    output: AnswerType | None = None
    interceptors: Mapping[Level, tuple[Any, ...]] = field(default_factory=dict[Level, tuple[Any, ...]])
    """Those of each level, the outermost first."""
    prices: Mapping[str, Price] = field(default_factory=lambda: PRICES)
    recording: Recording | None = None
    observers: tuple[Observer, ...] = ()
    clock: Callable[[], float] = time.time
