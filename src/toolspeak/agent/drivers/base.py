"""The contract of drivers: a conversation for each run, a request for each turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol, TypeAlias

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON, Message, ToolCall, ToolChoice, no_extra
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError
from toolspeak.execute import ToolExecution
from toolspeak.tools.context import StateView
from toolspeak.wire.base import OutputSchema

ToolRunner: TypeAlias = Callable[[Sequence[ToolCall]], Awaitable[tuple[ToolExecution, ...]]]
"""Runs calls within a turn."""


def _ignore(_: object) -> None:
    return None


async def _no_tools(_calls: Sequence[ToolCall]) -> tuple[ToolExecution, ...]:
    raise ConfigurationError("run_tools needs a run of an agent: this conversation was opened without one")


def _needs_no_approval(_tool: ToolSpec) -> bool:
    return False


@quick()
class TurnRequest:
    """What a turn is asked with."""

    messages: Sequence[Message]
    """The conversation. In the next turn of the same `Conversation` it is the same, with more at its end."""
    tools: Sequence[ToolSpec]
    instructions: str = ""
    """The agent's own, without the dialect's."""
    choice: ToolChoice = ToolChoice()
    output: OutputSchema | None = None
    """The form of the answer."""
    needs_approval: Callable[[ToolSpec], bool] = _needs_no_approval
    """Whether a call of this tool may need approval before it runs."""
    parallel: bool | None = None
    """Whether a turn may hold several calls. None leaves it to the API and the dialect."""
    options: Mapping[str, JSON] = field(default_factory=no_extra)
    """Sent to the API as they are (`ModelRequest.options`)."""
    state: StateView | None = None
    """The run before this turn, with its metadata."""


@quick()
class DriverContext:
    """What a run offers to its driver. The defaults are for a conversation without a run."""

    on_raw_delta: Callable[[Delta], None] = _ignore
    """Takes each piece as the provider sent it, the text of calls included. The run records these pieces, so that a
    turn that breaks off is not lost. Of a driver that does not call it the run records what the driver yields."""
    notify: Callable[[Any], object] = _ignore
    """Sends an event of the driver's own to the run's observers."""
    run_tools: ToolRunner = _no_tools
    """Runs calls within a turn, as those of any step (journal, approvals, limits), and returns their results. Call it
    before the turn yields anything. If the run pauses or ends there, the turn is left; a resumed run asks for it anew,
    with the results in its messages."""


NO_RUN = DriverContext()
"""For a conversation outside of a run."""


class Conversation(Protocol):
    """One run's side of a driver: what was rendered, what the server knows already. Its messages only grow; open
    another one for other messages."""

    def turn(self, request: TurnRequest) -> AsyncIterator[Delta]:
        """The turn's deltas, `TurnEnded` last. Raises ProviderError."""
        ...

    async def aclose(self) -> None:
        """Ends the conversation; the driver stays open."""
        ...


class Driver(Protocol):
    """A way to reach a model: calls as text, native calls, ReAct. Shared by all runs of an agent."""

    @property
    def name(self) -> str: ...

    @property
    def starts_early(self) -> bool:
        """Whether a complete call counts, unless its turn breaks off. Calls that only read may start at once then."""
        ...

    def prompt(self, request: TurnRequest) -> str:
        """The system prompt of a turn. The run records its digest."""
        ...

    def open(self, run: DriverContext) -> Conversation:
        """Begins the conversation of a run. The caller closes it."""
        ...

    async def aclose(self) -> None: ...
