"""The parts of a run that a tool may get besides its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeAlias

from typing_extensions import TypeVar

from toolspeak.data.messages import JSON, Message, ToolCall

DepsT = TypeVar("DepsT", default=Any, covariant=True)  # noqa: PLC0105 - users read the name


class StateView(Protocol):
    """The run as a tool sees it: read-only. A parameter annotated with it gets the run as it was when the call began
    (None outside a run)."""

    @property
    def run_id(self) -> str: ...

    @property
    def principal(self) -> str | None:
        """The person or key on whose behalf the run acts."""
        ...

    @property
    def step(self) -> int: ...

    @property
    def messages(self) -> Sequence[Message]: ...

    @property
    def metadata(self) -> Mapping[str, JSON]: ...


def _ignore(_message: str) -> None:
    return None


def _never() -> bool:
    return False


def _no_memory() -> dict[str, Any]:
    return {}


# Without slots: on Python 3.11 `RunContext[Deps](…)` fails for a frozen, slotted and generic dataclass.
@dataclass(frozen=True)
class RunContext(Generic[DepsT]):
    """The run of a call. A tool's parameter annotated with it (`ctx: RunContext[MyDeps]`) receives it.

    The parameter is not part of the tool's schema, and cannot collide with the model's arguments.

    - `deps`: the caller's own dependencies.
    - `call`: the call. Without a name for the agent's instructions, which no call asks for.
    - `idempotency_key`: stays the same when the same call runs again after a crash.
    - `state`: the run as it was when the call began; for a read that started early, before its turn.
    - `memory`: a mutable mapping that the calls of one run share. Its changes are recorded with the call's result and
      are there when the run is resumed, so it holds JSON; other things belong in `deps`.
    - `progress`: reports a line of text to those who watch the run.
    - `cancelled`: whether a synchronous tool should give up.
    """

    deps: DepsT
    call: ToolCall
    idempotency_key: str = ""
    state: StateView | None = None
    memory: dict[str, Any] = field(default_factory=_no_memory)
    progress: Callable[[str], None] = _ignore
    cancelled: Callable[[], bool] = _never


Injected: TypeAlias = Literal["context", "call", "state"]
"""The value that a parameter gets by its type: the RunContext, its `call` or its `state`."""

INJECTED: Mapping[type, Injected] = {RunContext: "context", ToolCall: "call", StateView: "state"}


def injected(kinds: Mapping[str, Injected], context: RunContext[Any] | None) -> dict[str, Any]:
    """The arguments that come from the run, by parameter; all None without a context."""
    if context is None:
        return dict.fromkeys(kinds)
    sources = {"context": context, "call": context.call, "state": context.state}
    return {name: sources[kind] for name, kind in kinds.items()}
