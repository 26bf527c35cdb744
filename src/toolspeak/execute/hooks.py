"""Interceptors of every level (a call, a model request, a step, a run), and those of calls.

Every level has the hooks `before`, `around` and `after`, the same order, and the same treatment of errors. Interceptors
see placeholders, never secrets.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, cast

from toolspeak.data.events import InterceptorFailed, MetadataSet, UserMessageQueued
from toolspeak.data.messages import JSON, Message, ToolCall, ToolResult, failure, no_extra
from toolspeak.data.values import quick
from toolspeak.errors import AgentStop, ConfigurationError
from toolspeak.execute.batch_context import BatchContext
from toolspeak.execute.calls.result_limits import describe
from toolspeak.tools.context import StateView
from toolspeak.tools.crashes import log_crash
from toolspeak.tools.returned_values import jsonable

_LOG = logging.getLogger("toolspeak.execute")

ValueT = TypeVar("ValueT")
OutcomeT = TypeVar("OutcomeT")
Level: TypeAlias = Literal["call", "model", "step", "run"]
HookName: TypeAlias = Literal["before", "around", "after"]


@quick()
class Block:
    """It does not happen; the reason goes to the model where there is one to tell, else it ends the run."""

    reason: str


@quick()
class Answer:
    """It does not happen; the value stands for what would have come of it."""

    value: Any


Verdict: TypeAlias = ToolCall | Block | Answer

Proceed: TypeAlias = Callable[[ToolCall], Awaitable[ToolResult]]
"""Runs the call: the interceptors further in, then the function. Takes the call `around` was given."""


@quick()
class MetadataChange:
    """Metadata to keep: `fact` as the hook saw it, `change` what to make of the value there is when it is applied."""

    fact: MetadataSet
    change: Callable[[JSON], JSON] | None = None


@quick(frozen=False, eq=False)
class HookNotes:
    """What the hooks around one thing leave behind: metadata to keep, what is said to the model, and which failed.

    `current` is the metadata as the next hook sees it, `last` the interceptor that was asked last.
    """

    current: Mapping[str, JSON] = field(default_factory=no_extra)
    changes: list[MetadataChange] = field(default_factory=list[MetadataChange])
    failed: list[InterceptorFailed] = field(default_factory=list[InterceptorFailed])
    messages: list[str] = field(default_factory=list[str])
    last: str = ""


@dataclass(frozen=True, slots=True)
class HookContext:
    """The run as a hook may see it. `memory` is what the run's tools share."""

    run_id: str
    step: int
    deps: Any
    memory: dict[str, Any]
    state: StateView | None
    _notes: HookNotes = field(repr=False)
    _by: str = ""
    _call_id: str | None = None

    @property
    def metadata(self) -> Mapping[str, JSON]:
        """What interceptors have kept with the run so far, by key."""
        return self._notes.current

    def set(self, key: str, value: JSON) -> None:
        """Keeps a JSON value with the run: it is recorded, and later hooks and tools find it in the metadata.

        What `before` sets for a call holds from the next call on; what `around` and `after` set holds once the batch
        is over, in call order. Raises Unserialisable for what is no JSON.
        """
        self._keep(key, value, None)

    def update(self, key: str, change: Callable[[JSON], JSON]) -> None:
        """Keeps what `change` makes of the value (None if there is none): for counts and lists. Where several calls of
        a batch do so it is applied to each other's values, in call order, and so called more than once. Raises what
        `change` raises."""
        self._keep(key, change(self._notes.current.get(key)), change)

    def say(self, text: str) -> None:
        """Says something to the model, as the user: it is recorded, and read at the next step."""
        self._notes.messages.append(text)

    def _keep(self, key: str, value: JSON, change: Callable[[JSON], JSON] | None) -> None:
        new = jsonable(value)
        self._notes.current = {**self._notes.current, key: new}
        self._notes.changes.append(MetadataChange(MetadataSet({key: new}, self._by, self._call_id), change))


class HookError(Exception):
    """An interceptor raised, or gave back what it must not."""

    def __init__(self, interceptor: object, level: Level, hook: HookName, error: Exception, *, ran: bool) -> None:
        self.name = type(interceptor).__name__
        self.level: Level = level
        self.hook: HookName = hook
        self.error = error
        what = {"call": "the tool itself", "model": "the model", "step": "the step", "run": "the run"}[level]
        suffix = f" ({what} had run)" if ran else ""
        super().__init__(f"the interceptor {self.name} failed{suffix}: {describe(error)}")
        log_crash(_LOG, f"the interceptor {self.name} failed in {hook!r} of a {level}", error)

    def fact(self, call_id: str | None = None) -> InterceptorFailed:
        return InterceptorFailed(self.name, self.level, self.hook, describe(self.error), call_id)


@dataclass(frozen=True, slots=True)
class InterceptorChain(Generic[ValueT, OutcomeT]):
    """One value on its way through the interceptors of a level, the outermost first in `interceptors`.

    `check` raises ConfigurationError for a value that `before` must not give back, `own` for an outcome that is none;
    it may change it. `contain` turns an error into the outcome of what it happened to, or raises it.
    """

    interceptors: Sequence[Any]
    level: Level
    context: Callable[[str], HookContext]
    check: Callable[[object], ValueT]
    own: Callable[[object], OutcomeT]
    contain: Callable[[HookError], OutcomeT]

    async def before(self, value: ValueT) -> ValueT | Block | Answer:
        """The value to go on with, or what takes its place. Raises HookError."""
        for interceptor in self.interceptors:
            try:
                verdict = cast("object", await interceptor.before(value, self._for(interceptor)))
                if isinstance(verdict, Block | Answer):
                    return verdict
                value = self.check(verdict)
            except AgentStop:
                raise
            except Exception as error:
                raise HookError(interceptor, self.level, "before", error, ran=False) from error
        return value

    async def around(self, value: ValueT, innermost: Callable[[], Awaitable[OutcomeT]]) -> OutcomeT:
        """The outcome with every `around` around `innermost`, then through every `after`."""
        return await self.after(value, await self.surround(value, innermost))

    async def surround(self, value: ValueT, innermost: Callable[[], Awaitable[OutcomeT]]) -> OutcomeT:
        """The outcome with every `around` around `innermost`."""
        for interceptor in reversed(self.interceptors):
            innermost = self._wrapped(interceptor, value, innermost)
        return await innermost()

    async def after(self, value: ValueT, outcome: OutcomeT) -> OutcomeT:
        """The outcome through every `after`."""
        for interceptor in reversed(self.interceptors):
            try:
                outcome = self.own(await interceptor.after(value, outcome, self._for(interceptor)))
            except AgentStop:
                raise
            except Exception as error:  # noqa: BLE001 - foreign code: whatever it raises is contained
                outcome = self.contain(HookError(interceptor, self.level, "after", error, ran=True))
        return outcome

    def _for(self, interceptor: object) -> HookContext:
        return self.context(type(interceptor).__name__)

    def _wrapped(
        self, interceptor: Any, value: ValueT, inner: Callable[[], Awaitable[OutcomeT]]
    ) -> Callable[[], Awaitable[OutcomeT]]:
        async def run() -> OutcomeT:
            ran = False
            inside: list[Exception] = []

            async def proceed(replacement: ValueT) -> OutcomeT:
                nonlocal ran
                if replacement is not value and replacement != value:
                    raise ConfigurationError("around proceeds with what it was given; change it in before")
                try:
                    outcome = await inner()
                except Exception as error:
                    inside.append(error)
                    raise
                ran = True
                return outcome

            try:
                return self.own(await interceptor.around(value, proceed, self._for(interceptor)))
            except (AgentStop, HookError):
                raise
            except Exception as error:
                if error in inside:  # what is inside failed, not the interceptor
                    raise
                return self.contain(HookError(interceptor, self.level, "around", error, ran=ran))

        return run


def applied(
    notes: Iterable[HookNotes | None], metadata: Mapping[str, JSON], level: Level, hide: Callable[[str], str]
) -> list[MetadataSet | InterceptorFailed | UserMessageQueued]:
    """What the hooks around several things that ran at once keep and say, one thing after the other."""
    facts: list[MetadataSet | InterceptorFailed | UserMessageQueued] = []
    current, changed_notes = dict(metadata), [each for each in notes if each is not None]
    for one in (one for each in changed_notes for one in each.changes):
        fact = one.fact
        try:
            if one.change is not None:
                values = {key: jsonable(one.change(current.get(key))) for key in fact.values}
                fact = MetadataSet(values, fact.by, fact.call_id)
        except Exception as error:  # noqa: BLE001 - foreign code: whatever it raises is contained
            facts.append(InterceptorFailed(fact.by, level, "after", describe(error), fact.call_id))
            continue
        current.update(fact.values)
        facts.append(fact)
    facts += [UserMessageQueued(Message.user(hide(text))) for each in changed_notes for text in each.messages]
    return facts


def in_order(interceptors: Sequence[Any]) -> tuple[Any, ...]:
    """The interceptors, the outermost first: by priority, equals as they were given."""
    return tuple(sorted(interceptors, key=lambda interceptor: -interceptor.priority)) if interceptors else ()


class Interceptor(Protocol):
    """Lets every call pass as it is; subclass it and override, or have the same attributes.

    The highest `priority` is outermost: its `before` and `around` come first, its `after` last; equals keep
    the order they were given in. An exception in one fails that call alone, with a message that names the
    interceptor's class; it is recorded (`InterceptorFailed`). `AgentStop` ends the run. Nothing is remembered of
    `before` while a run waits for approvals: it is asked again.

    `before` sees every call that can be read, one of an unknown tool too: it may name another. `after` sees every call
    that was let pass, also one that could not run (the result's `code` says why): of what cannot be read as a call
    `arguments` are empty, and `extra["malformed"]` is what the model wrote.
    """

    level: Level = "call"
    priority: int = 0

    async def before(self, call: ToolCall, context: HookContext) -> Verdict:
        """The call to go on with (changed or not, with the same id), a Block or an Answer."""
        return call

    async def around(self, call: ToolCall, proceed: Proceed, context: HookContext) -> ToolResult:
        """The call's result. What runs is what was approved: a call is changed in `before`."""
        return await proceed(call)

    async def after(self, call: ToolCall, result: ToolResult, context: HookContext) -> ToolResult:
        """The result to record, whole: it is shortened for the model afterwards."""
        return result


def chain_of(
    call: ToolCall, interceptors: Sequence[Interceptor], context: BatchContext, notes: HookNotes
) -> InterceptorChain[ToolCall, ToolResult]:
    """The call's way through the interceptors; what they leave behind is in `notes`."""

    def seen_by(name: str) -> HookContext:
        notes.last = name
        return HookContext(
            context.run_id, context.step, context.deps, context.memory, context.state, notes, name, call.id
        )

    def check(verdict: object) -> ToolCall:
        if not isinstance(verdict, ToolCall):
            raise ConfigurationError(f"before returns a ToolCall, a Block or an Answer, not {type(verdict).__name__}")
        if verdict.id != call.id:
            raise ConfigurationError(f"before keeps the call's id {call.id!r}, it gave {verdict.id!r}")
        if verdict.repaired_from != call.repaired_from:
            raise ConfigurationError("before keeps repaired_from: what was repaired stays so")
        return verdict

    def own(result: object) -> ToolResult:
        if not isinstance(result, ToolResult):
            raise ConfigurationError(f"around and after return a ToolResult, not {type(result).__name__}")
        if result.call_id == call.id and result.name == call.name:
            return result
        return replace(result, call_id=call.id, name=call.name)

    def contain(error: HookError) -> ToolResult:
        return hook_failure(call, error, notes)

    return InterceptorChain(interceptors, "call", seen_by, check, own, contain)


def hook_failure(call: ToolCall, error: HookError, notes: HookNotes) -> ToolResult:
    """The failure of a call whose interceptor failed; noted."""
    notes.failed.append(error.fact(call.id))
    return failure(call, "exception", str(error))
