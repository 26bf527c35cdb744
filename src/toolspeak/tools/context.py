"""The parts of a run that a tool may get besides its arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeAlias

from typing_extensions import TypeVar

from toolspeak.data.messages import JSON, Message, ToolCall
from toolspeak.errors import ConfigurationError, RunError

DepsT = TypeVar("DepsT", default=Any, covariant=True)  # noqa: PLC0105 - users read the name


class StateView(Protocol):
    """The run as a tool sees it: read-only. A parameter annotated with it gets the run as it was when the call began
    (None outside a run)."""

    @property
    def run_id(self) -> str: ...

    @property
    def parent_run_id(self) -> str | None:
        """The run whose tool started this one; None if no run did."""
        ...

    @property
    def session_id(self) -> str | None:
        """The session of the run; None outside of one, and for a run that a tool started."""
        ...

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

    @property
    def found_tools(self) -> tuple[str, ...]:
        """The names of the deferred tools that the run has found."""
        ...

    @property
    def sources(self) -> Collection[str]:
        """From where on the web the model has read (`web:example.com`)."""
        ...

    @property
    def given_urls(self) -> Collection[str] | None:
        """If a model wrote the task that had read the web: the URLs in it that others wrote. None for other runs."""
        ...


def _ignore(_message: str) -> None:
    return None


def _never() -> bool:
    return False


def _no_memory() -> dict[str, Any]:
    return {}


def _no_wait(_event: str, _until: float | None, _seconds: float | None) -> tuple[JSON, bool]:
    raise RunError("only the function of a tool can wait, while it is called in an agent's run")


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
    - `is_cancelled`: whether a synchronous tool should give up.
    - `wait`: what `wait_for`, `wait_until` and `sleep` call.
    """

    deps: DepsT
    call: ToolCall
    idempotency_key: str = ""
    state: StateView | None = None
    memory: dict[str, Any] = field(default_factory=_no_memory)
    progress: Callable[[str], None] = _ignore
    is_cancelled: Callable[[], bool] = _never
    wait: Callable[[str, float | None, float | None], tuple[JSON, bool]] = _no_wait

    @property
    def run_id(self) -> str | None:
        """The run's id, None outside of an agent's run. Pass it to the runs that a tool starts:
        `agent.run(task, parent_run_id=ctx.run_id, principal=ctx.principal)`."""
        return None if self.state is None else self.state.run_id

    @property
    def principal(self) -> str | None:
        """The person or key on whose behalf the run acts."""
        return None if self.state is None else self.state.principal

    def wait_for(self, event: str, *, timeout: float | None = None) -> JSON:
        """Makes the call wait for an outside event, and returns the event's payload (`RunClient.deliver`).

        The call is over without a result, by an exception that the tool must not catch (CallWaits), and the run pauses:
        no process holds it. When the event has come, in whichever process, the function is called again with the same
        arguments, and this returns the payload. What the function did before happens again, so put what must happen
        once behind it, or under the `idempotency_key`. Several waits of one call must come in the same order again.

        - `event`: the name of the event. An event counts for one wait.
        - `timeout`: in seconds from the first time; None waits without a limit.

        Raises TimeoutError when the time is over, ConfigurationError for a name that is empty or too long.
        """
        check_event(event)
        payload, is_over = self.wait(event, None, timeout)
        if is_over:
            raise TimeoutError(f"{event} did not come in time")
        return payload

    def wait_until(self, time: float) -> None:
        """Makes the call wait until a time (Unix seconds), as `wait_for` does. The time of the first call counts."""
        self.wait("", float(time), None)

    def sleep(self, seconds: float) -> None:
        """Makes the call wait for so many seconds, as `wait_for` does."""
        self.wait("", None, float(seconds))


MOST_NAME = 200
"""The longest name of an event, in characters."""


def check_event(event: object) -> None:
    """Raises ConfigurationError for what is no name of an event."""
    if not isinstance(event, str) or not event or len(event) > MOST_NAME or "\0" in event:
        raise ConfigurationError(f"the name of an event is a text of 1 to {MOST_NAME} characters, not {event!r:.100}")


InjectedKind: TypeAlias = Literal["context", "call", "state"]
"""The value that a parameter gets by its type: the RunContext, its `call` or its `state`."""

INJECTED_KINDS: Mapping[type, InjectedKind] = {RunContext: "context", ToolCall: "call", StateView: "state"}


def injected_values(kinds: Mapping[str, InjectedKind], context: RunContext[Any] | None) -> dict[str, Any]:
    """The arguments that come from the run, by parameter; all None without a context."""
    if context is None:
        return dict.fromkeys(kinds)
    sources = {"context": context, "call": context.call, "state": context.state}
    return {name: sources[kind] for name, kind in kinds.items()}
