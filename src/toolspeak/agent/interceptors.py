"""Interceptors of model requests, steps and runs, which have the same methods as those of calls, and those of messages
and compactions, which have `before` alone.

- `before` changes the value, blocks it or answers it.
- `around` wraps what happens.
- `after` changes the outcome.

An interceptor that raises is recorded with its name (`InterceptorFailed`) and ends the run as failed: a broken guard
lets nothing pass. `AgentStop` ends the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from inspect import iscoroutinefunction, isroutine, unwrap
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from toolspeak.agent.drivers.base import TurnRequest
from toolspeak.agent.state.decide import Finish
from toolspeak.agent.state.state import RunState
from toolspeak.data.events import Event, MetadataSet, RunStarted, StopRequested
from toolspeak.data.messages import JSON, Message, TextPart, Usage, no_extra
from toolspeak.data.run_values import PAUSED_STATUSES
from toolspeak.data.values import quick
from toolspeak.dialects import ParsedTurn
from toolspeak.errors import AgentStop, ConfigurationError
from toolspeak.execute import (
    Answer,
    Block,
    HookContext,
    HookError,
    HookNotes,
    Interceptor,
    InterceptorChain,
    Level,
    Secrets,
    hook_facts,
    in_order,
)

ValueT = TypeVar("ValueT")
OutcomeT = TypeVar("OutcomeT")


@quick()
class Step:
    """A model turn and its batch of calls. Numbered from 1."""

    number: int


@quick()
class StepEnd:
    """The run after a step."""

    state: RunState
    say: tuple[str, ...] = ()
    """Texts that the model reads next, as the user's. With one the run continues, even if it had its answer."""


@quick()
class RunStart:
    """The messages that a run starts with, the task last. `session_id`: the run's session, None outside of one."""

    messages: tuple[Message, ...]
    session_id: str | None = None


@quick()
class Compaction:
    """The history of a run is about to be made shorter.

    - `trigger`: "auto" if it fills the model's window, "manual" if a person asks for it.
    - `tokens`: what the next turn would read.
    """

    trigger: Literal["auto", "manual"]
    tokens: int


class ModelInterceptor(Protocol):
    """Wraps each request to the model; subclass it and override, or have the same attributes."""

    level: Level = "model"
    priority: int = 0

    async def before(self, request: TurnRequest, context: HookContext) -> TurnRequest | Block | Answer:
        """Returns the request to send; its changes are for this turn alone. An Answer holds a text or a ParsedTurn in
        place of the model's turn. A Block ends the run."""
        return request

    async def around(
        self, request: TurnRequest, proceed: Callable[[TurnRequest], Awaitable[ParsedTurn]], context: HookContext
    ) -> ParsedTurn:
        """Returns the model's turn. `proceed` may raise ProviderError, and may then be called again."""
        return await proceed(request)

    async def after(self, request: TurnRequest, turn: ParsedTurn, context: HookContext) -> ParsedTurn:
        """Returns the turn to record. Its `message` holds the calls that will run."""
        return turn


class StepInterceptor(Protocol):
    """Wraps each step; subclass it and override, or have the same attributes."""

    level: Level = "step"
    priority: int = 0

    async def before(self, step: Step, context: HookContext) -> Step | Block | Answer:
        """Returns the step unchanged, an Answer with the run's answer, or a Block, which ends the run without one."""
        return step

    async def around(self, step: Step, proceed: Callable[[Step], Awaitable[StepEnd]], context: HookContext) -> StepEnd:
        """Returns how the step ended. A step that waits for approval ends with `state.status` "awaiting_approval", and
        is wrapped anew when the run continues."""
        return await proceed(step)

    async def after(self, step: Step, end: StepEnd, context: HookContext) -> StepEnd:
        """Called when the step is over. The model reads what it adds to `say`."""
        return end


class RunInterceptor(Protocol):
    """Wraps each run; subclass it and override, or have the same attributes."""

    level: Level = "run"
    priority: int = 0

    async def before(self, start: RunStart, context: HookContext) -> RunStart | Block | Answer:
        """Returns the messages to start with, or an Answer with the run's answer. Not called when a run is resumed."""
        return start

    async def around(
        self, start: RunStart, proceed: Callable[[RunStart], Awaitable[Finish]], context: HookContext
    ) -> Finish:
        """Returns how the run ends. A run that pauses proceeds to "awaiting_approval", and is wrapped anew when it goes
        on. The run does not see context variables that are set here."""
        return await proceed(start)

    async def after(self, start: RunStart, finish: Finish, context: HookContext) -> Finish:
        """Returns how the run ends: its status, answer and reason. It may give a failed run an answer."""
        return finish


class MessageInterceptor(Protocol):
    """Admits each message that is said while a run goes on (`Run.say`); subclass it and override, or have the same
    attributes. What a run starts with goes to `RunInterceptor.before`."""

    level: Level = "message"
    priority: int = 0

    async def before(self, message: Message, context: HookContext) -> Message | Block:
        """Returns the message that the model reads at its next step. A Block leaves it out, and the run goes on."""
        return message


class CompactionInterceptor(Protocol):
    """Admits each compaction; subclass it and override, or have the same attributes."""

    level: Level = "compaction"
    priority: int = 0

    async def before(self, compaction: Compaction, context: HookContext) -> Compaction | Block:
        """Returns the compaction unchanged. A Block leaves the history as it is: the model reads the whole of it at its
        next step, and the next compaction is another question."""
        return compaction


AnyInterceptor: TypeAlias = (
    Interceptor | ModelInterceptor | StepInterceptor | RunInterceptor | MessageInterceptor | CompactionInterceptor
)
"""What an agent takes as `interceptors`."""


_LEVELS: tuple[Level, ...] = ("call", "model", "step", "run", "message", "compaction")

_NONE: Mapping[Level, tuple[Any, ...]] = MappingProxyType(dict.fromkeys(_LEVELS, ()))


def by_level(interceptors: Sequence[AnyInterceptor]) -> Mapping[Level, tuple[Any, ...]]:
    """The interceptors of each level, the outermost first. Raises ConfigurationError for one of an unknown level, and
    for a hook that is not async."""
    if not interceptors:
        return _NONE
    for each in interceptors:
        if getattr(each, "level", None) not in _LEVELS:
            raise ConfigurationError(
                f"{type(each).__name__}.level must be one of {', '.join(_LEVELS)}; subclass Interceptor, "
                "ModelInterceptor, StepInterceptor, RunInterceptor, MessageInterceptor or CompactionInterceptor"
            )
        for name in ("before", "around", "after"):
            hook = getattr(each, name, None)
            if isroutine(hook) and not iscoroutinefunction(unwrap(hook)):
                raise ConfigurationError(f"{type(each).__name__}.{name} is not async; write `async def {name}`")
    return {level: in_order([each for each in interceptors if each.level == level]) for level in _LEVELS}


@quick(eq=False)
class InterceptorRunner:
    """Calls a run's interceptors of model requests, steps and the run. It returns what is to be recorded, and records
    nothing itself.

    - `levels`: the interceptors of each level that has any, the outermost first.
    - `hook_context`: makes the context of the interceptor of this name.
    """

    levels: Mapping[Level, tuple[Any, ...]]
    secrets: Secrets
    hook_context: Callable[[HookNotes, str], HookContext]

    async def before(
        self, level: Level, value: ValueT, metadata: Mapping[str, JSON] = no_extra()
    ) -> tuple[ValueT | Answer | None, list[Event]]:
        """Returns the value to continue with, an Answer instead, or None if the run is to end; and the events to
        record."""
        notes = HookNotes(metadata)
        verdict, facts = await self._verdict(level, notes, value, metadata)
        if isinstance(verdict, Block):
            stop = StopRequested("blocked", self.secrets.hide_text(verdict.reason), by=notes.last)
            return None, [*facts, stop]
        return verdict, facts

    async def admit(
        self, level: Level, value: ValueT, metadata: Mapping[str, JSON]
    ) -> tuple[ValueT | Block | None, list[Event]]:
        """As `before`, for a value that a Block leaves out while the run goes on: the Block is returned. None if an
        interceptor ends the run."""
        verdict, facts = await self._verdict(level, HookNotes(metadata), value, metadata)
        assert not isinstance(verdict, Answer), "the chain refuses it"
        return verdict, facts

    async def _verdict(
        self, level: Level, notes: HookNotes, value: ValueT, metadata: Mapping[str, JSON]
    ) -> tuple[ValueT | Block | Answer | None, list[Event]]:
        try:
            verdict = await self._chain(level, notes, value).before(value)
        except (HookError, AgentStop) as error:
            return None, self._facts(level, notes, metadata, error)
        return verdict, self._facts(level, notes, metadata)

    async def before_run(self, first_events: Sequence[Event]) -> tuple[Sequence[Event], RunStart]:
        """Returns the events to record where a run begins, and the messages that it starts with, both as the
        interceptors changed them."""
        events, facts, start = list[Event](), list[Event](), RunStart(())
        if "run" not in self.levels:
            return first_events, start
        for event in first_events:
            if isinstance(event, RunStarted):
                start = RunStart(event.messages, event.session_id)
                verdict, facts = await self.before("run", start)
                if isinstance(verdict, RunStart):
                    start = verdict
                elif verdict is not None:
                    facts = [*facts, answering(verdict.value)]
                event = replace(event, messages=start.messages)
            events.append(event)
        return [*events, *facts], start

    async def around(
        self,
        level: Level,
        value: object,
        inner: Callable[[], Awaitable[OutcomeT]],
        metadata: Callable[[], Mapping[str, JSON]],
        is_over: Callable[[OutcomeT], bool] = lambda _: True,
    ) -> tuple[OutcomeT | None, list[Event]]:
        """Returns the outcome of `inner`, None if the run is to end; and the events to record. `after` sees an outcome
        only if it `is_over`."""
        notes = HookNotes(metadata())
        chain: InterceptorChain[Any, Any] = self._chain(level, notes, value)
        try:
            outcome = await chain.surround(value, inner)
            if is_over(outcome):
                changes = [
                    fact
                    for fact in hook_facts([notes], metadata(), level, self.secrets.hide_text)
                    if isinstance(fact, MetadataSet)
                ]
                notes.current = {**metadata(), **{key: fact.values[key] for fact in changes for key in fact.values}}
                outcome = await chain.after(value, outcome)
        except (HookError, AgentStop) as error:
            return None, self._facts(level, notes, metadata(), error)
        return outcome, self._facts(level, notes, metadata())

    def _chain(self, level: Level, notes: HookNotes, value: object) -> InterceptorChain[Any, Any]:
        def context_for(name: str) -> HookContext:
            notes.last = name
            return self.hook_context(notes, name)

        def check(verdict: object) -> object:
            if type(verdict) is not type(value):
                expected = (
                    f"a {type(value).__name__}{', a Block or an Answer' if level in _OUTCOMES else ' or a Block'}"
                )
                raise ConfigurationError(f"before returns {expected}, not {type(verdict).__name__}")
            return verdict

        def own(outcome: object) -> object:
            outcome_types = _OUTCOMES[level]
            if not isinstance(outcome, outcome_types):
                raise ConfigurationError(
                    f"around and after return a {outcome_types.__name__}, not {type(outcome).__name__}"
                )
            return outcome

        def contain(error: HookError) -> object:
            raise error

        return InterceptorChain(self.levels[level], level, context_for, check, own, contain)

    def _facts(
        self, level: Level, notes: HookNotes, metadata: Mapping[str, JSON], error: HookError | AgentStop | None = None
    ) -> list[Event]:
        facts: list[Event] = [*hook_facts([notes], metadata, level, self.secrets.hide_text)]
        if isinstance(error, HookError):
            fact = error.fact()
            facts.append(replace(fact, error=self.secrets.hide_text(fact.error)))
            facts.append(StopRequested("interceptor_failure", self.secrets.hide_text(str(error)), by=error.name))
        elif error is not None:
            facts.append(stop_of(error, self.secrets.hide_text, notes.last))
        return facts


_OUTCOMES: Mapping[Level, type] = {"model": ParsedTurn, "step": StepEnd, "run": Finish}


def stop_of(stop: AgentStop, hide: Callable[[str], str], by: str) -> StopRequested:
    """The event of an AgentStop."""
    return StopRequested("stopped", hide(str(stop)), answer=None if stop.answer is None else hide(stop.answer), by=by)


def answering(value: object, by: str = "") -> StopRequested:
    """The event of a run that an interceptor answered."""
    return StopRequested("stopped", "answered by an interceptor", answer=str(value), by=by)


def turn_of(value: object) -> ParsedTurn:
    """A turn instead of the model's: the value itself if it is a ParsedTurn, else a turn with its text. Costs
    nothing."""
    if isinstance(value, ParsedTurn):
        return value
    text = str(value)
    message = Message("assistant", (TextPart(text),) if text else ())
    return ParsedTurn(text, "", message, (), (), (), (), "stop", Usage(0, 0), None)


class RunInterception:
    """The `around` and `after` of a run's interceptors, from before the first step (`enter`) to the run's end (`end`).

    `Run.states` yields between steps, so `around` continues in a task of its own.
    """

    def __init__(
        self, interceptors: InterceptorRunner, start: RunStart, metadata: Callable[[], Mapping[str, JSON]]
    ) -> None:
        self._interceptors = interceptors
        self._start = start
        self._metadata = metadata
        self._entry = asyncio.Event()
        self._pauses = False
        self._finish: asyncio.Future[Finish] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[tuple[Finish | None, list[Event]]] | None = None

    async def enter(self) -> bool:
        """Waits until all interceptors have proceeded: True. False if one has not, which ends the run."""
        around = self._interceptors.around("run", self._start, self._inner, self._metadata, lambda _: not self._pauses)
        self._task = asyncio.create_task(around)
        entry_wait = asyncio.create_task(self._entry.wait())
        try:
            await asyncio.wait({self._task, entry_wait}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            entry_wait.cancel()
        return not self._task.done()

    async def end(self, finish: Finish) -> tuple[Finish | None, list[Event]]:
        """Returns how the run ends, as the interceptors changed it, None if one of them stopped the run; and the events
        to record."""
        if self._task is None:
            return finish, []
        if not self._finish.done():
            self._pauses = finish.status in PAUSED_STATUSES
            self._finish.set_result(finish)
        return await self._task

    async def leave(self) -> None:
        """Cancels interceptors that still run."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _inner(self) -> Finish:
        self._entry.set()
        return await self._finish
