"""The groups of an agent's settings, and the options of one run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

from typing_extensions import TypeVar

from toolspeak.data.events import Limits
from toolspeak.data.messages import JSON, Message, ToolChoice
from toolspeak.data.values import quick
from toolspeak.dialects import Dialect, Section
from toolspeak.dialects.base import PromptListing
from toolspeak.execute import (
    AfterWeb,
    Approve,
    Concurrency,
    InDoubtPolicy,
    Policy,
    Rule,
    ScheduleName,
    StandingRules,
)
from toolspeak.tools import RunContext

DepsT = TypeVar("DepsT", default=None, contravariant=True)  # noqa: PLC0105 - users read the name
"""What the agent's tools receive as `RunContext.deps`."""

Instructions: TypeAlias = str | Callable[[RunContext[DepsT]], str] | Callable[[RunContext[DepsT]], Awaitable[str]]
"""The agent's part of the system prompt, or a function of the run that returns it before each turn."""


@quick()
class DialectSettings:
    """How the model writes calls, and who writes the prompt. A dialect on its own means `DialectSettings(dialect)`."""

    dialect: str | Dialect = "auto"
    """A dialect, its name, or one of these. "auto": native calls where the API has them, else the dialect of the
    model's family, else `cogency-json`; every dialect is read. "native": the API's own calls. "react": see
    `ReActDriver`."""
    listing: PromptListing | None = None
    """How the prompt lists the tools where calls are text. "server": the server's chat template writes it (see
    `ServerPromptDriver`). "trained": as the model's chat template does. "signatures": the shortest. "prose" or
    "json_schema". None: "server" where the API is known for it, else "trained"."""
    starts_in: Section = "text"
    """"reasoning" if the chat template opens the reasoning block in the prompt."""


@quick()
class Approval:
    """Who decides whether a call runs. An approver on its own means `Approval(approver)`."""

    approver: Approve = None
    """Decides about calls that write or leave the machine: "all" (except repaired calls), "all+repaired", "none", an
    async function, or None: the run pauses until `Agent.resume`."""
    policy: Policy | Sequence[Rule] | None = None
    """Decides first about every call: a function, or rules; the first one that matches decides."""
    rules: StandingRules | None = None
    """Rules that were added by decisions for "always"."""
    in_doubt: InDoubtPolicy = "ask"
    """What happens to a call in doubt when its run resumes: it started, has no result, and is not safe to run again.
    "ask" the approver (without one: as "report"), "report" the unknown outcome to the model, or "repeat" the call."""
    after_web: AfterWeb | None = None
    """What happens to a call that changes something, or reads a URL that the model made up, once the run has read the
    web, whose text may have asked for it. "ask" a person, whatever approves it otherwise but `policy`; "refuse" it; or
    "allow" what is allowed anyway. None: "ask" if `approver` asks no person, or in a worker; else "allow"."""


@quick()
class Execution:
    """How calls run: in which order, how many at once, for how long."""

    schedule: ScheduleName | Literal["native"] = "serializable"
    """"serializable": at once unless effects conflict. "parallel", "sequential", or "native": as the dialect's
    specification says."""
    concurrency: Concurrency = Concurrency()
    """How many calls run at once."""
    early_start: bool = True
    """Whether a call that only reads may start while the model still writes the rest of its turn. It does not if the
    agent has an interceptor of calls or a policy."""
    tool_timeout: float | None = 120.0
    """Seconds for a call whose tool names no timeout. None: no limit."""
    max_result_bytes: int = 16 * 1024
    """Bytes (UTF-8) of a result's text and JSON that the model reads. The whole is `ToolExecution.value`."""
    throw_on_failure: bool = False
    """Whether the run ends at the first call that fails."""
    stop_on_block: bool = False
    """Whether the calls after a blocked or rejected one are skipped."""


class CommonOptions(TypedDict, total=False):
    """The options of one run besides `deps`.

    - `history`: the conversation that the run continues.
    - `limits`, `tool_choice`: replace those of the agent.
    - `setup`: JSON that is recorded with the run, for a process that resumes it.
    - `principal`: on whose behalf the run acts. In every record.
    - `traceparent`: the trace that the run belongs to. In every record.
    - `parent_run_id`: the run that started this one. In every record.
    - `run_id`: an id of your own (letters, digits and `._:-`). If the agent's journal has the run, with the same task,
      agent and principal, that run goes on, or its result is returned if it has ended.
    """

    history: Sequence[Message]
    limits: Limits | None
    tool_choice: str | ToolChoice
    principal: str | None
    traceparent: str | None
    parent_run_id: str | None
    run_id: str | None
    setup: Mapping[str, JSON]


class RunOptions(CommonOptions, total=False):
    """The options of one run."""

    deps: Any
    """What tools receive as `RunContext.deps`."""
