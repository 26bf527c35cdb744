"""The loop: perform what `decide` says, record what happened, let `apply` say what it means."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from toolspeak.agent.compaction import Plan, Window, characters, to_summarise, tokens_of
from toolspeak.agent.decide import AskModel, AwaitApproval, Compact, Finish, RunTools, decide
from toolspeak.agent.driver import Driver, TurnRequest, text_digest, tools_digest
from toolspeak.agent.history import call_id, hide_call, without_secrets
from toolspeak.agent.hold import holding
from toolspeak.agent.partial import PartialTurn
from toolspeak.agent.record import answered, call_of, doubts_of, step_of
from toolspeak.agent.state import RunState, apply
from toolspeak.agent.summary import LEFT_OUT, summarise
from toolspeak.data.deltas import CallCompleted, Delta, ToolProgress, TurnEnded
from toolspeak.data.events import (
    Event,
    HistoryCompacted,
    LimitReached,
    ModelAsked,
    ModelFailed,
    Record,
    RunFinished,
    RunPaused,
    UserMessageQueued,
)
from toolspeak.data.messages import (
    MalformedCall,
    Message,
    ToolCall,
    Usage,
)
from toolspeak.dialects import ParsedTurn, TurnCollector
from toolspeak.errors import ProviderError, RunError
from toolspeak.execute import Approver, BatchContext, Decision, Doubts, EarlyStart, Executor, InDoubt, RunScope, Secrets
from toolspeak.journal.base import Journal, Lease
from toolspeak.tools import Toolset

Watched: TypeAlias = Delta | Record
"""What `stream` yields: the transient pieces of a turn, and every record once it is durable."""

Load: TypeAlias = Callable[[], Awaitable[tuple[RunState, Sequence[Event], dict[str, Any]]]]
"""Reads where a run stands, once it is held, and says what is recorded first and what its tools remember."""

Publish: TypeAlias = Callable[[Watched], Awaitable[None]]
_FINAL = frozenset({"answered", "no_answer", "failed"})
_WRAP_UP_SECONDS = 60.0
_QUEUE = 256  # pieces a slow reader of `stream` may lag behind before the model is made to wait


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What an agent gives each of its runs."""

    driver: Driver
    toolset: Toolset
    executor: Executor
    journal: Journal
    secrets: Secrets = Secrets()
    approver: Approver | None = None
    instructions: str = ""
    agent: str = "agent"
    deps: Any = None
    principal: str | None = None
    traceparent: str | None = None
    parent_run_id: str | None = None
    early_start: bool = True
    in_doubt: InDoubt = "ask"
    window: Window | None = None
    clock: Callable[[], float] = time.time


class Run:
    """One run, from its first record to its last. Drive it with `finish`, `states` or `stream`, once.

    `opening` is recorded first: a new run's `RunStarted`, or what was decided while it waited. `memory` is
    what the tools keep between calls (which files were read, say). `before` are the messages of the runs it follows.
    `load` finds out where the run stands, in place of `state`, `opening` and `before`.
    """

    def __init__(
        self,
        settings: RunSettings,
        run_id: str,
        opening: Sequence[Event],
        state: RunState | None = None,
        memory: dict[str, Any] | None = None,
        before: Sequence[Message] = (),
        load: Load | None = None,
    ) -> None:
        self._settings = settings
        self._state = state
        self._opening = opening
        self._before = before
        self._load = load
        self._lease: Lease | None = None
        self._lock = asyncio.Lock()
        self._driven = self._ended = False
        self._publish: Publish | None = None
        self._progress: Callable[[Watched], None] | None = None
        self._inbox: list[Message] = []
        self._prompt = self._prompt_digest = ""
        self._counted = self._characters = 0  # of the history, for estimates
        self._memo: dict[str, Any] = {}
        self._partial: PartialTurn | None = None
        self._saving: asyncio.Task[None] | None = None
        self._error: ProviderError | None = None
        self._specs = tuple(settings.toolset.specs)
        self._digest = tools_digest(self._specs)
        self.run_id = run_id
        self.memory: dict[str, Any] = {} if memory is None else memory
        self._scope = RunScope()
        self._early: EarlyStart | None = None

    @property
    def journal(self) -> Journal:
        """Where this run's records are."""
        return self._settings.journal

    @property
    def state(self) -> RunState:
        if self._state is None:
            raise RunError(f"run {self.run_id} has not started; await finish() or iterate over it first")
        return self._state

    def say(self, text: str) -> None:
        """Queues a user message; the model reads it at the next step. Raises RunError once the run has ended or
        paused."""
        if self._state is not None and self._state.status != "running" and self._driven:
            raise RunError(
                f"run {self.run_id} is {self._state.status}; give `history` to a new run, or resume it first"
            )
        self._inbox.append(without_secrets(Message.user(text), self._settings.secrets))

    async def record(self, event: Event) -> None:
        """Makes an event durable, then true, then visible."""
        async with self._lock:
            state, settings = self._state, self._settings
            record = Record(
                event,
                self.run_id,
                seq=state.seq if state else 0,
                step=step_of(event, state),
                time=settings.clock(),
                agent=settings.agent,
                call_id=call_of(event),
                parent_run_id=state.parent_run_id if state else settings.parent_run_id,
                principal=state.principal if state else settings.principal,
                traceparent=state.traceparent if state else settings.traceparent,
            )
            await settings.journal.append(record, self._lease)
            self._state = apply(state, record, self._before)
            if self._publish is not None:  # inside the lock, so that a watcher sees the journal's order
                await self._publish(record)

    async def finish(self) -> RunState:
        """Runs to the end, or to where it waits for approval. Raises ProviderError when the model API fails."""
        async for _ in self.states():
            pass
        return self.state

    async def states(self) -> AsyncGenerator[RunState]:
        """The state after each step and at the end. Leaving the loop early stops the run where it is."""
        self._claim()
        async with aclosing(self._advance()) as states:
            async for state in states:
                yield state

    def _claim(self) -> None:
        if self._driven:
            raise RunError(f"run {self.run_id} has been driven already; a run is driven once, start another")
        self._driven = True

    async def _advance(self) -> AsyncGenerator[RunState]:
        try:
            async with holding(self.journal, self.run_id) as self._lease, aclosing(self._steps()) as steps:
                async for state in steps:
                    yield state
        finally:
            self._ended = True
            await self._drop_early()
            await self._saved()

    async def _steps(self) -> AsyncGenerator[RunState]:
        if self._load is not None:
            self._state, self._opening, remembered = await self._load()
            self.memory.update(remembered)
        for event in self._opening:
            await self.record(event)
        while self.state.status not in _FINAL:
            while self._inbox:
                await self.record(UserMessageQueued(self._inbox.pop(0)))
            action = decide(self.state, self._settings.window)
            match action:
                case AskModel():
                    await self._ask(action)
                    if self.state.batch:
                        continue
                    await self._drop_early()
                case Compact(plan):
                    await self._compact(plan)
                    continue
                case RunTools():
                    await self._run_tools(action)
                case AwaitApproval():
                    break
                case Finish(status, answer, reason):
                    await self.record(RunFinished(status, answer, reason))
            if self.state.status == "running":
                yield self.state
        yield self.state
        if self._error is not None:
            raise self._error

    async def stream(self) -> AsyncGenerator[Watched]:
        """Deltas as they come and records once they are durable. Leaving the loop early cancels the run."""
        self._claim()
        queue: asyncio.Queue[Watched | None] = asyncio.Queue(_QUEUE)
        self._publish = queue.put

        def progress(item: Watched) -> None:
            with contextlib.suppress(asyncio.QueueFull):  # a progress line may be lost, a fact may not
                queue.put_nowait(item)

        async def work() -> None:
            try:
                async for _ in self._advance():
                    pass
            finally:
                if self._publish is not None:
                    await queue.put(None)

        self._progress = progress
        task = asyncio.create_task(work())
        try:
            while (item := await queue.get()) is not None:
                yield item
            await task
        finally:
            self._publish = self._progress = None
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # a reader who left early does not want it, and asyncio would complain

    async def _ask(self, action: AskModel) -> None:
        if action.reached is not None:
            await self.record(action.reached)
        settings, choice = self._settings, action.choice
        request = TurnRequest(self.state.messages, self._specs, settings.instructions, choice, self._memo)
        prompt = settings.driver.prompt(request)
        if prompt is not self._prompt:
            self._prompt, self._prompt_digest = prompt, text_digest(prompt)
        await self.record(ModelAsked(settings.driver.name, self._digest, self._prompt_digest, choice))
        request = replace(request, messages=self.state.messages)
        wrapping_up = choice.mode == "none"
        scope = asyncio.timeout(_WRAP_UP_SECONDS if wrapping_up else self._seconds_left())
        try:
            async with scope:
                turn = await self._read_turn(request)
        except TimeoutError:
            if not scope.expired():
                raise
            # The turn is lost. The clock need not agree yet that the time is over: it is not asked.
            await self._keep_partial()
            if wrapping_up:
                await self.record(RunFinished("no_answer", "", self.state.limit or "seconds"))
            else:
                await self.record(self._time_is_over())
            return
        except ProviderError as error:
            self._error = error
            await self._keep_partial()
            await self.record(ModelFailed(settings.secrets.hide_text(str(error)), error.status))
            return
        usage, estimated = turn.usage, turn.usage.total is None
        if estimated:
            usage = self._estimate(turn)
        await self.record(answered(turn, usage, estimated, settings.secrets, wrapping_up=wrapping_up))

    async def _compact(self, plan: Plan) -> None:
        settings, window, summary, usage = self._settings, self._settings.window, "", Usage()
        if plan.upto:
            summary = LEFT_OUT
            if window is not None and window.summarise:
                old = to_summarise(self.state.history, plan, window)
                request = TurnRequest(old, self._specs, settings.instructions)
                summary, usage = await summarise(settings.driver, request, self._seconds_left())
                summary = settings.secrets.hide_text(summary)
        after = plan.tokens_after + tokens_of(Message.user(summary))
        await self.record(
            HistoryCompacted(plan.cleared, plan.upto, plan.kept, summary, plan.tokens_before, after, usage)
        )
        self._memo.clear()  # what the driver rendered is no longer what was said
        self._counted = self._characters = 0

    async def _read_turn(self, request: TurnRequest) -> ParsedTurn:
        turn = self.state.turns_before + self.state.step
        collector = TurnCollector(lambda index: call_id(turn, index))
        publish = self._publish
        settings, now = self._settings, asyncio.get_running_loop().time
        self._partial = partial = PartialTurn(settings.secrets, now())
        if settings.early_start and settings.driver.starts_early and request.choice.mode != "none":
            self._early = settings.executor.early(self._context())
        stream = cast("AsyncGenerator[Delta]", self._settings.driver.turn(request))
        async with aclosing(stream):
            async for delta in stream:
                collector.add(delta)
                partial.add(delta)
                piece = partial.due(now())
                if piece is not None:
                    await self._save(piece)
                if self._early is not None and isinstance(delta, CallCompleted):
                    self._offer(self._early, collector.call(delta.index))
                if publish is not None and not isinstance(delta, TurnEnded):
                    await publish(delta)
        return collector.turn()

    async def _save(self, event: Event) -> None:
        """Records a fact that a timeout may interrupt the wait for, and never the recording."""
        await self._saved()
        self._saving = asyncio.create_task(self.record(event))
        await asyncio.shield(self._saving)

    async def _saved(self) -> None:
        saving, self._saving = self._saving, None
        if saving is not None:
            await asyncio.wait([saving])
            if not self._ended:
                saving.result()
            elif not saving.cancelled():
                saving.exception()  # what ended the run has said more

    async def _keep_partial(self) -> None:
        await self._saved()
        piece = None if self._partial is None else self._partial.rest()
        if piece is not None:
            await self.record(piece)

    def _offer(self, early: EarlyStart, call: ToolCall | MalformedCall) -> None:
        if isinstance(call, ToolCall):
            early.offer(hide_call(call, self._settings.secrets))

    def _context(self) -> BatchContext:
        return BatchContext(
            run_id=self.run_id,
            step=self.state.step,
            deps=self._settings.deps,
            memory=self.memory,
            state=self.state,
            progress=self._report,
            scope=self._scope,
        )

    async def _drop_early(self) -> None:
        early, self._early = self._early, None
        if early is not None:
            await early.drop()

    async def _run_tools(self, action: RunTools) -> None:
        state, settings = self.state, self._settings
        early, self._early = self._early, None
        seconds, loop = self._seconds_left(), asyncio.get_running_loop()
        until = None if seconds is None else loop.time() + seconds
        batch = await settings.executor.run(
            action.calls,
            emit=self.record,
            context=self._context(),
            approver=settings.approver,
            decided={d.call_id: Decision(d.approved, d.reason, d.by) for d in state.decisions},
            finished={result.call_id: result for result in state.results},
            doubts=Doubts(doubts_of(state), settings.in_doubt),
            deadline=seconds,
            max_calls=action.max_calls,
            early=early,
        )
        if batch.pending:
            await self.record(RunPaused("awaiting_approval", tuple(pending.call.id for pending in batch.pending)))
        elif until is not None and loop.time() >= until + batch.waited:
            await self.record(self._time_is_over())

    def _estimate(self, turn: ParsedTurn) -> Usage:
        """Tokens at four characters each: the usual rule of thumb for English text and code."""
        history = self.state.history
        for i in range(self._counted, len(history)):
            self._characters += characters(history[i])
        self._counted = len(history)
        sent = len(self._prompt) + self._characters
        return Usage(sent // 4, (characters(turn.message) + len(turn.reasoning)) // 4)

    def _report(self, call_id: str, message: str) -> None:
        if self._progress is not None:
            self._progress(ToolProgress(call_id, message))

    def _time_is_over(self) -> LimitReached:
        state, allowed = self.state, self.state.limits.seconds or 0.0
        return LimitReached("seconds", max(allowed, self._settings.clock() - state.started), allowed)

    def _seconds_left(self) -> float | None:
        limit = self.state.limits.seconds
        return None if limit is None else max(0.0, self.state.started + limit - self._settings.clock())
