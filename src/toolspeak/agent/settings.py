"""What an agent gives each of its runs."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from toolspeak.agent.cassettes.recording import Recording
from toolspeak.agent.drivers.base import Driver
from toolspeak.agent.options import Approval, Execution
from toolspeak.agent.state.history import Window
from toolspeak.agent.state.output import AnswerType
from toolspeak.agent.validation import check_execution, check_executor
from toolspeak.data.messages import ToolChoice
from toolspeak.data.prices import Price
from toolspeak.data.run_values import Limits
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects import Dialect
from toolspeak.errors import ConfigurationError
from toolspeak.execute import (
    Approver,
    BatchApprover,
    BatchExecutor,
    Executor,
    InDoubtPolicy,
    Interceptor,
    Level,
    Observer,
    Policy,
    Rule,
    Secrets,
    StandingRules,
)
from toolspeak.journal.base import Journal
from toolspeak.tools import RunContext, Toolset, TurnTools

USUAL_EXECUTION = Execution()
"""The settings of an agent that has none of its own; they need no checks."""


@quick()
class RunSettings:
    """See `Agent` and `RunOptions` for the fields without a docstring."""

    driver: Driver
    toolset: Toolset
    """Without those that `tools_of` returns."""
    executor: BatchExecutor
    journal: Journal
    keeps: bool
    """Whether the journal is the caller's (`Agent(journal=…)`), so that the run outlives this process."""
    needs_approval: Callable[[ToolSpec], bool]
    """Whether a call of this tool may need approval before it runs."""
    secrets: Secrets = Secrets()
    approver: Approver | BatchApprover | None = None
    kin_approver: Approver | BatchApprover | None = None
    """Answers the questions of runs that this run's tools start."""
    instructions: str = ""
    instructions_of: Callable[[RunContext[Any]], str | Awaitable[str]] | None = None
    """Returns the agent's own instructions before each turn; `instructions` follow them."""
    tools_of: TurnTools[Any] | None = None
    """Returns the agent's own tools before each turn; those of `toolset` follow them."""
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
    handoffs: Mapping[str, str] = field(default_factory=dict[str, str])
    """The agents that tools of the agent hand the conversation to, by the tool's name."""
    family: Mapping[str, RunSettings] = field(default_factory=dict[str, "RunSettings"])
    """The settings of all agents that hand-offs lead to, by name."""
    choice: ToolChoice = ToolChoice()
    limits: Limits = Limits()
    all_tools: Toolset | None = None
    """The tools of any turn. None if only the function that selects them knows."""
    rules: StandingRules = field(default_factory=StandingRules)
    price: Price | None = None
    """Of the driver's model; None if it is not known."""
    recording: Recording | None = None
    observers: tuple[Observer, ...] = ()
    clock: Callable[[], float] = time.time


def executor_of(
    execution: Execution | BatchExecutor,
    tools: Toolset,
    approval: Approval,
    interceptors: tuple[Interceptor, ...],
    secrets: Secrets,
    rules: StandingRules,
    recording: Recording | None,
    dialect: Dialect | None,
    *,
    adds_tools: bool,
) -> tuple[BatchExecutor, Policy | Sequence[Rule] | None]:
    """What runs an agent's calls, and the policy that it applies.

    `dialect`: that of calls as text. `adds_tools`: the agent has tools that a custom executor lacks.

    Raises ConfigurationError for settings that a custom executor has itself, and a schedule that needs a dialect.
    """
    results, replayer = (None, None) if recording is None else (recording.cassette_results, recording.replayer)
    if not isinstance(execution, Execution):
        choices = {
            "interceptors": interceptors,
            "policy": approval.policy,
            "rules": approval.rules is not None,
            "after_web": approval.after_web,
            "cassette_results": results,
            "replayer": replayer,
        }
        check_executor(execution, choices, adds_tools=adds_tools)
        return execution, getattr(execution, "policy", None)
    if execution is not USUAL_EXECUTION:
        check_execution(execution)
    schedule = execution.schedule
    if schedule == "native":
        if dialect is None:
            raise ConfigurationError("schedule='native' needs a text dialect; name a schedule")
        schedule = dialect.info.native_schedule
    executor = Executor(
        tools,
        schedule=schedule,
        concurrency=execution.concurrency,
        early_start=execution.early_start,
        interceptors=interceptors,
        max_result_bytes=execution.max_result_bytes,
        tool_timeout=execution.tool_timeout,
        secrets=secrets,
        throw_on_failure=execution.throw_on_failure,
        stop_on_block=execution.stop_on_block,
        policy=approval.policy,
        rules=rules,
        after_web=approval.after_web,
        cassette_results=results,
        replayer=replayer,
    )
    return executor, approval.policy
