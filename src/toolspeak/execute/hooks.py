"""Interceptors of every level (a call, a model request, a step, a run, a message, a compaction), and those of calls.

Every level has the hook `before`, the same order, and the same treatment of errors; what lasts has `around` and `after`
too. Interceptors see placeholders, never secrets.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, cast

from toolspeak.data.approvals import Decision, Escalate
from toolspeak.data.events import ApprovalDecided, InterceptorFailed, MetadataSet, RetryScheduled, UserMessageQueued
from toolspeak.data.messages import JSON, Message, ToolCall, ToolResult, failure, no_extra
from toolspeak.data.tools import Effects, ToolSpec
from toolspeak.data.values import quick
from toolspeak.errors import AgentStop, ConfigurationError
from toolspeak.execute.approval.approvers import check_decision
from toolspeak.execute.batch_context import BatchContext
from toolspeak.execute.calls.result_limits import describe
from toolspeak.tools.context import StateView
from toolspeak.tools.crashes import log_crash
from toolspeak.tools.returned_values import jsonable

_LOG = logging.getLogger("toolspeak.execute")

ValueT = TypeVar("ValueT")
OutcomeT = TypeVar("OutcomeT")
Level: TypeAlias = Literal["call", "model", "step", "run", "message", "compaction"]
"""What an interceptor wraps, or admits: a message that is said during a run, a compaction of its history."""
HookName: TypeAlias = Literal["before", "around", "after"]

_ANSWERABLE_LEVELS: frozenset[Level] = frozenset({"call", "model", "step", "run"})
"""The levels whose values have an outcome, which an `Answer` takes the place of."""


@quick()
class Block:
    """Stops the value. The model reads the reason; if there is no model to read it, it ends the run."""

    reason: str


@quick()
class Answer:
    """Stops the value. `value` is used as its outcome."""

    value: Any


Verdict: TypeAlias = ToolCall | Block | Answer

Proceed: TypeAlias = Callable[[ToolCall], Awaitable[ToolResult]]
"""Runs the call: the inner interceptors, then the function. Takes the call that `around` got."""


@quick()
class MetadataChange:
    """Metadata to record: `fact` as the hook set it, `change` to apply again to the metadata of that moment."""

    fact: MetadataSet
    change: Callable[[JSON], JSON] | None = None


@quick(frozen=False, eq=False)
class HookNotes:
    """What the hooks around one value record.

    - `current`: the metadata as the next hook sees it.
    - `changes`: the metadata that hooks set.
    - `failures`: the interceptors that failed.
    - `messages`: what hooks say to the model.
    - `decisions`: what hooks decide about the approval of calls, by call id.
    - `approvals`: why nobody is asked about calls: the decisions of hooks, the policy and rules that count, as facts.
    - `last`: the interceptor that was called last.
    - `outcome`: a call's result as the last hook returned it.
    """

    current: Mapping[str, JSON] = field(default_factory=no_extra)
    changes: list[MetadataChange] = field(default_factory=list[MetadataChange])
    failures: list[InterceptorFailed] = field(default_factory=list[InterceptorFailed])
    messages: list[str] = field(default_factory=list[str])
    decisions: dict[str, Decision | Escalate] = field(default_factory=dict[str, "Decision | Escalate"])
    approvals: list[ApprovalDecided] = field(default_factory=list[ApprovalDecided])
    last: str = ""
    outcome: ToolResult | None = None


@dataclass(frozen=True, slots=True)
class HookContext:
    """The run as a hook sees it.

    - `run_id`, `step`, `agent`: the run, its step, and the name of the agent that has the run.
    - `deps`: the caller's own dependencies, as passed to `Agent.run(deps=…)`.
    - `memory`: the memory of the run's tools.
    - `state`: the run before the batch, request or step: its `principal`, `messages`, `metadata` and more. Read-only.
      None in an executor without an agent, and before a run's first record.
    - `tool`, `effects`: the definition of the call's tool and the call's effects, in the `around` and `after` of a call
      that can run; else None.
    """

    run_id: str
    step: int
    deps: Any
    memory: dict[str, Any]
    state: StateView | None
    _notes: HookNotes = field(repr=False)
    _by: str = ""
    _call_id: str | None = None
    tool: ToolSpec | None = None
    effects: Effects | None = None
    agent: str = "agent"
    _record: Callable[[RetryScheduled], Awaitable[None]] | None = field(default=None, repr=False)

    @property
    def principal(self) -> str | None:
        """The person or key on whose behalf the run acts (`Agent.run(principal=…)`)."""
        return None if self.state is None else self.state.principal

    @property
    def metadata(self) -> Mapping[str, JSON]:
        """The metadata that interceptors set so far, by key."""
        return self._notes.current

    def set(self, key: str, value: JSON) -> None:
        """Sets metadata: the JSON value is recorded, and later hooks and tools see it.

        A value from a call's `before` holds from the next call on; one from `around` and `after` once the batch is
        over, in call order. Raises Unserialisable for a value that is not JSON.
        """
        self._keep(key, value, None)

    def update(self, key: str, change: Callable[[JSON], JSON]) -> None:
        """Sets metadata to `change(value)` of its present value (None without one): for counts and lists.

        When several calls of a batch do so, each change is applied to the result of the one before, in call order, so
        `change`
        is called more than once. Raises what `change` raises.
        """
        self._keep(key, change(self._notes.current.get(key)), change)

    def say(self, text: str) -> None:
        """Sends a message to the model, as the user. It is recorded, and the model reads it at the next step."""
        self._notes.messages.append(text)

    def decide(self, decision: Decision | Escalate) -> None:
        """Decides about the approval of the call, in the `before` of a call. The last decision counts.

        - An approval stands for that of a person. It does not stand against a refusal or a person's question of the
          agent's policy, and not for a call that was repaired and does more than read.
        - A refusal stands against everybody.
        - `Escalate` asks a person, whatever the rules and the effects say.

        The decision is recorded (`ApprovalDecided`) with its `by`, unless the call needed no approval. Raises
        ConfigurationError elsewhere, and for a decision that cannot be used.
        """
        if self._call_id is None or self.tool is not None:
            raise ConfigurationError("only the `before` of a call can decide about its approval")
        if isinstance(decision, Decision):
            check_decision(decision)
        self._notes.decisions[self._call_id] = decision

    async def retry(self, error: str, seconds: float, attempt: int, status: int | None = None) -> None:
        """Records that this attempt (from 1) failed and that another one follows after so many seconds
        (`RetryScheduled`). For an `around` that proceeds again. Raises ConfigurationError elsewhere."""
        if self._record is None:
            raise ConfigurationError("only the `around` of a call or of a model request can try again")
        await self._record(RetryScheduled(error, seconds, attempt, self._by, self._call_id, status))

    def _keep(self, key: str, value: JSON, change: Callable[[JSON], JSON] | None) -> None:
        new = jsonable(value)
        self._notes.current = {**self._notes.current, key: new}
        self._notes.changes.append(MetadataChange(MetadataSet({key: new}, self._by, self._call_id), change))


class HookError(Exception):
    """An interceptor raised an exception, or returned what it must not."""

    def __init__(self, interceptor: object, level: Level, hook: HookName, error: Exception, *, ran: bool) -> None:
        self.name = type(interceptor).__name__
        self.level: Level = level
        self.hook: HookName = hook
        self.error = error
        what = "the tool itself" if level == "call" else f"the {level}"
        suffix = f" ({what} had run)" if ran else ""
        super().__init__(f"the interceptor {self.name} failed{suffix}: {describe(error)}")
        log_crash(_LOG, f"the interceptor {self.name} failed in {hook!r} of a {level}", error)

    def fact(self, call_id: str | None = None) -> InterceptorFailed:
        return InterceptorFailed(self.name, self.level, self.hook, describe(self.error), call_id)


@dataclass(frozen=True, slots=True)
class InterceptorChain(Generic[ValueT, OutcomeT]):
    """The interceptors of a level, around one value.

    - `interceptors`: the outermost first.
    - `context`: makes the hook context for an interceptor's name.
    - `check`: returns the value that `before` returned, or raises ConfigurationError if it must not return that.
    - `own`: returns the outcome that a hook returned, changed if need be, or raises ConfigurationError.
    - `contain`: turns an error into the outcome of the value, or raises it.
    - `passed_values`: the value as each `before` let it pass, in their order.
    """

    interceptors: Sequence[Any]
    level: Level
    context: Callable[[str], HookContext]
    check: Callable[[object], ValueT]
    own: Callable[[object], OutcomeT]
    contain: Callable[[HookError], OutcomeT]
    passed_values: list[ValueT] = field(default_factory=list[ValueT])

    async def before(self, value: ValueT) -> ValueT | Block | Answer:
        """Returns the value to continue with, or what takes its place. Raises HookError."""
        for interceptor in self.interceptors:
            try:
                verdict = cast("object", await interceptor.before(value, self._for(interceptor)))
                if isinstance(verdict, Block) or (isinstance(verdict, Answer) and self.level in _ANSWERABLE_LEVELS):
                    return verdict
                value = self.check(verdict)
                self.passed_values.append(value)
            except AgentStop:
                raise
            except Exception as error:
                raise HookError(interceptor, self.level, "before", error, ran=False) from error
        return value

    async def around(self, value: ValueT, innermost: Callable[[], Awaitable[OutcomeT]]) -> OutcomeT:
        """Returns the outcome with every `around` around `innermost`, passed through every `after`."""
        return await self.after(value, await self.surround(value, innermost))

    async def surround(self, value: ValueT, innermost: Callable[[], Awaitable[OutcomeT]]) -> OutcomeT:
        """Returns the outcome with every `around` around `innermost`."""
        for interceptor in reversed(self.interceptors):
            innermost = self._around(interceptor, value, innermost)
        return await innermost()

    async def after(self, value: ValueT, outcome: OutcomeT, stops: list[AgentStop] | None = None) -> OutcomeT:
        """Returns the outcome, passed through every `after`.

        An AgentStop is raised, and the outer interceptors are not called; or it is added to `stops`, and they are.
        """
        for interceptor in reversed(self.interceptors):
            try:
                outcome = self.own(await interceptor.after(value, outcome, self._for(interceptor)))
            except AgentStop as stop:
                if stops is None:
                    raise
                stops.append(stop)
            except Exception as error:  # noqa: BLE001 - foreign code: whatever it raises is contained
                outcome = self.contain(HookError(interceptor, self.level, "after", error, ran=True))
        return outcome

    def _for(self, interceptor: object) -> HookContext:
        return self.context(type(interceptor).__name__)

    def _around(
        self, interceptor: Any, value: ValueT, inner: Callable[[], Awaitable[OutcomeT]]
    ) -> Callable[[], Awaitable[OutcomeT]]:
        async def run() -> OutcomeT:
            has_run = False
            inside: list[Exception] = []

            async def proceed(replacement: ValueT) -> OutcomeT:
                nonlocal has_run
                if replacement is not value and replacement != value:
                    raise ConfigurationError("around must proceed with the value it got; change it in before")
                try:
                    outcome = await inner()
                except Exception as error:
                    inside.append(error)
                    raise
                has_run = True
                return outcome

            try:
                return self.own(await interceptor.around(value, proceed, self._for(interceptor)))
            except (AgentStop, HookError):
                raise
            except Exception as error:
                if error in inside:  # what is inside failed, not the interceptor
                    raise
                return self.contain(HookError(interceptor, self.level, "around", error, ran=has_run))

        return run


def hook_facts(
    notes: Iterable[HookNotes | None], metadata: Mapping[str, JSON], level: Level, hide: Callable[[str], str]
) -> list[MetadataSet | InterceptorFailed | UserMessageQueued]:
    """Returns the facts of what the hooks around several concurrent values recorded, one value after the other."""
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
    """Returns the interceptors, the outermost first: by priority, equals in the order given."""
    return tuple(sorted(interceptors, key=lambda interceptor: -interceptor.priority)) if interceptors else ()


class Interceptor(Protocol):
    """Lets every call pass as it is. Subclass it and override, or have the same attributes.

    The highest `priority` is outermost: its `before` and `around` come first, its `after` last. Equals keep the order
    they were given in. An exception in one fails that call alone, with a message that names the interceptor's class; it
    is recorded (`InterceptorFailed`). `AgentStop` ends the run. While a run waits for approvals nothing is remembered
    of `before`: it is called again.

    `before` sees every call that can be read, also one of an unknown tool: it may name another. It does not see a call
    that is skipped before that, because of the run's limits or of a call that was blocked before it.

    `around` surrounds each function that is called. `after` gets every call that this interceptor's `before` let pass,
    also one whose function is not called, because its tool or arguments are wrong, an inner interceptor blocked or
    answered it, it was rejected, or the run ended (the result's `code` says why), and a repeated read that the run
    answers from an earlier result (`toolspeak.execute.ANSWERED_FROM` is in the result's `extra`; what `after` returns
    for it is not used, because it has changed the earlier result). Once the run's time is over, `after` has a second
    left. For a malformed call the `arguments` are empty, and `extra["malformed"]` is what the model wrote.
    """

    level: Level = "call"
    """What the interceptor wraps. Leave it as it is."""
    priority: int = 0
    """Any whole number; the highest is outermost. The ready interceptors have: `HumanFeedback` 40, `Cache` 30, `Retry`
    20, `RateLimit` 10, `Timeout` 0."""
    passes_reads: bool = False
    """Whether it lets calls that only read pass as they are. Then such a call may start before its turn is over."""

    async def before(self, call: ToolCall, context: HookContext) -> Verdict:
        """Returns the call to continue with (changed or not, with the same id), a Block or an Answer."""
        return call

    async def around(self, call: ToolCall, proceed: Proceed, context: HookContext) -> ToolResult:
        """Returns the call's result. The call that was approved is the one that runs: change a call in `before`."""
        return await proceed(call)

    async def after(self, call: ToolCall, result: ToolResult, context: HookContext) -> ToolResult:
        """Returns the result to record, whole: it is shortened for the model afterwards."""
        return result


def chain_of(
    call: ToolCall,
    interceptors: Sequence[Interceptor],
    context: BatchContext,
    notes: HookNotes,
    tool: ToolSpec | None = None,
    effects: Effects | None = None,
    record: Callable[[RetryScheduled], Awaitable[None]] | None = None,
) -> InterceptorChain[ToolCall, ToolResult]:
    """Returns the interceptors around a call. What they record is in `notes`; `record` takes the retries."""

    def context_for(name: str) -> HookContext:
        notes.last = name
        return HookContext(
            context.run_id,
            context.step,
            context.deps,
            context.memory,
            context.state,
            notes,
            name,
            call.id,
            tool,
            effects,
            context.agent,
            record,
        )

    def check(verdict: object) -> ToolCall:
        if not isinstance(verdict, ToolCall):
            raise ConfigurationError(
                f"before must return a ToolCall, a Block or an Answer, not {type(verdict).__name__}"
            )
        if verdict.id != call.id:
            raise ConfigurationError(f"before must keep the call's id {call.id!r}, not return {verdict.id!r}")
        if verdict.repaired_from != call.repaired_from:
            raise ConfigurationError("before must keep repaired_from")
        return verdict

    def own(result: object) -> ToolResult:
        if not isinstance(result, ToolResult):
            raise ConfigurationError(f"around and after must return a ToolResult, not {type(result).__name__}")
        if result.call_id != call.id or result.name != call.name:
            result = replace(result, call_id=call.id, name=call.name)
        notes.outcome = result
        return result

    def contain(error: HookError) -> ToolResult:
        notes.outcome = hook_failure(call, error, notes)
        return notes.outcome

    return InterceptorChain(interceptors, "call", context_for, check, own, contain)


def hook_failure(call: ToolCall, error: HookError, notes: HookNotes) -> ToolResult:
    """Notes the error, and returns the failure of its call."""
    notes.failures.append(error.fact(call.id))
    return failure(call, "exception", str(error))
