"""What a tool may ask for besides its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeAlias

from typing_extensions import TypeVar

from toolspeak.data.messages import JSON, Message, ToolCall

DepsT = TypeVar("DepsT", default=Any)


class StateView(Protocol):
    """The run as a tool may see it: read-only. Annotate a parameter with it to receive the run as it was when the call
    was entered (None where a batch belongs to no run)."""

    @property
    def run_id(self) -> str: ...

    @property
    def principal(self) -> str | None:
        """On whose behalf the run acts."""
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
    """Annotate a parameter of a tool with it (`ctx: RunContext[MyDeps]`) to receive it.

    The parameter is not part of the tool's schema and cannot collide with the model's arguments.
    `idempotency_key` is the same when the same call is run again after a crash. `memory` is a mutable
    mapping shared by the calls of one run (the file tools keep there what the run has read). What a call changes in it
    is recorded with its result and is there when the run is resumed, so it holds JSON: other things belong in `deps`.
    `state` is the run as it was when the call was entered; for a read that started early that is before its turn.
    `progress` reports a line to whoever watches; `cancelled` tells a synchronous tool to give up.
    """

    deps: DepsT
    call: ToolCall
    idempotency_key: str = ""
    state: StateView | None = None
    memory: dict[str, Any] = field(default_factory=_no_memory)
    progress: Callable[[str], None] = _ignore
    cancelled: Callable[[], bool] = _never


Injected: TypeAlias = Literal["context", "call", "state"]
"""What a parameter gets from the run because of its type: the RunContext, its `call`, its `state`."""

INJECTED: Mapping[type, Injected] = {RunContext: "context", ToolCall: "call", StateView: "state"}


def injected(wanted: Mapping[str, Injected], context: RunContext[Any] | None) -> dict[str, Any]:
    """The arguments that come from the run, by parameter; all None without a context."""
    if context is None:
        return dict.fromkeys(wanted)
    sources = {"context": context, "call": context.call, "state": context.state}
    return {name: sources[kind] for name, kind in wanted.items()}
