"""The loop: perform what `decide` says, record what happened, let `apply` say what it means."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

from toolspeak.agent.channel import Channel
from toolspeak.agent.child_runs import UsageRollUp, ask_for_sub_runs, at_rest
from toolspeak.agent.interceptors import RunFrame, RunStart, Stage, Step, StepEnd, answering
from toolspeak.agent.recorder import BatchRecorder, Recorder, RunContexts, RunEvent, Watched
from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.decide import AskModel, AwaitApproval, Compact, Finish, RunTools, decide
from toolspeak.agent.state.history import without_secrets
from toolspeak.agent.state.state import FINAL, RunState
from toolspeak.agent.state.steps import Trail
from toolspeak.agent.storage.lease_keeper import LeaseKeeper
from toolspeak.agent.storage.load import LoadedRun
from toolspeak.agent.turns import TurnLeft, Turns, seconds_left, time_is_over
from toolspeak.agent.validation import check_priced
from toolspeak.data.events import (
    PAUSED,
    AnswerRejected,
    Event,
    RunFinished,
    RunPaused,
    RunStarted,
    UserMessageQueued,
)
from toolspeak.data.messages import Message, ToolCall
from toolspeak.errors import AgentStop, ProviderError, RunError, ToolFailed
from toolspeak.execute import NONE_IN_DOUBT, Answer, ApprovalRequest, BatchPaused, ToolExecution
from toolspeak.execute.approval.approvers import decision_of
from toolspeak.execute.recovery import calls_in_doubt
from toolspeak.execute.sub_runs import ENTERED, BatchHeld
from toolspeak.journal.base import Journal

Load: TypeAlias = Callable[[], Awaitable[LoadedRun]]
"""Reads where a run stands, once it is held."""


class Run:
    """One run, from its first record to its last. Drive it with `finish`, `states` or `stream`, once.

    `opening` is recorded first: a new run's `RunStarted`, or what was decided while it waited. `memory` is
    what the tools keep between calls (which files were read, say). `before` are the messages of the runs it follows.
    `load` finds out where the run stands, in place of `state`, `opening` and `before`. `trail` are its records
    until now.
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
        trail: Trail | None = None,
    ) -> None:
        self._settings = settings
        self._recorder = recorder = Recorder(settings, run_id, state, before, trail)
        self.record = recorder.record
        self._opening = opening
        self._load = load
        self._driven = self._ended = False
        self._inbox: list[Message] = []
        self.run_id = run_id
        self._contexts = contexts = RunContexts(settings, run_id, recorder, {} if memory is None else memory)
        self._pause = contexts.pause
        self._stage = Stage(settings.pipelines, settings.secrets, contexts)
        self._turns = Turns(settings, self._stage, recorder, contexts.batch)
        self._frame: RunFrame | None = None
        self._lease = LeaseKeeper(settings.journal, run_id, contexts.pause.ask)
        self._usage = UsageRollUp(run_id, recorder, settings.journal)
        self._call = ENTERED.get()  # whose function started this run, or goes on with it
        self._pending: tuple[ApprovalRequest, ...] = ()
        self._facts = BatchRecorder(settings, recorder, contexts.memory)

    @property
    def journal(self) -> Journal:
        """Where this run's records are."""
        return self._settings.journal

    @property
    def state(self) -> RunState:
        """Where the run stands. Raises RunError before it has started."""
        return self._recorder.state

    @property
    def trail(self) -> Trail:
        """The run's records until now, and its steps."""
        return self._recorder.trail

    @property
    def memory(self) -> dict[str, Any]:
        """What the run's tools keep between calls."""
        return self._contexts.memory

    def say(self, text: str) -> None:
        """Queues a user message; the model reads it at the next step. Raises RunError once the run has ended or
        paused."""
        state = self._recorder.current
        if state is not None and state.status != "running" and self._driven:
            raise RunError(f"run {self.run_id} is {state.status}; give `history` to a new run, or resume it first")
        self._inbox.append(without_secrets(Message.user(text), self._settings.secrets))

    def suspend(self) -> None:
        """Asks the run to stop where nothing is under way, in its event loop's thread: no new turn or call is begun,
        the turn or the calls that are under way come to their end and are recorded. Its status is `suspended` then,
        unless it has ended or waits for approval, and `Agent.resume` goes on with it."""
        self._pause.ask()

    async def finish(self) -> RunState:
        """Runs to the end, or to where it waits for approval. Raises ProviderError when the model API fails."""
        self._claim()
        return await self._drive()

    async def _drive(self) -> RunState:
        try:
            await self._begin()
            while await self._advance():
                pass
        finally:
            await self._leave()
        return self._outcome()

    async def states(self) -> AsyncGenerator[RunState]:
        """The state after each step and at the end. Leaving the loop early stops the run where it is."""
        self._claim()
        try:
            await self._begin()
            while await self._advance():
                yield self.state
            yield self.state
        finally:
            await self._leave()
        self._outcome()

    def _claim(self) -> None:
        if self._driven:
            raise RunError(f"run {self.run_id} has been driven already; a run is driven once, start another")
        self._driven = True

    async def _begin(self) -> None:
        self._recorder.lease = await self._lease.acquire()
        self._usage.begin(self._settings.parent_run_id)
        if self._call is not None and self._settings.parent_run_id == self._call.run_id:
            self._call.begin(self.run_id)
        await self._open()
        if self._call is not None and self.state.parent_run_id == self._call.run_id:
            self._call.begin(self.run_id)

    async def _leave(self) -> None:
        """Gives back what the run has while it is driven, however it ended."""
        self._usage.end()
        if self._contexts.scope.timers is not None:
            self._contexts.scope.timers.close()
        try:
            await self._lease.release()
        finally:
            self._ended = True
            if self._call is not None:
                self._call.rest(at_rest(self._recorder.current, self._settings, self.run_id, self._call, self._pending))
            await self._usage.report(self._recorder.current, self._settings.agent)
            if self._frame is not None:
                await self._frame.leave()
            await self._turns.close()

    @property
    def is_sub_run(self) -> bool:
        """Whether it was started by the call whose function is running here."""
        call, state = self._call, self._recorder.current
        return call is not None and state is not None and state.parent_run_id == call.run_id

    async def _advance(self) -> bool:
        """Goes on until there is a step more; False once the run has come to its end, or to rest."""
        recorder = self._recorder
        state = recorder.state
        while state.status not in FINAL:
            if self._inbox:
                await self._read_inbox()
                state = recorder.state
            action = decide(state, self._settings.window)
            if self._pause.is_requested and not isinstance(action, AwaitApproval | Finish):
                await self._suspend()
                break
            match action:
                case AskModel() if self._out_of_answers():
                    await self._end(Finish("no_answer", "", "invalid_output"))
                case AskModel() | RunTools():
                    await (self._step(action) if "step" in self._stage.levels else self._take_step(action))
                case Compact(plan):
                    await self._turns.compact(plan)
                    state = recorder.state
                    continue
                case AwaitApproval():
                    break
                case Finish():
                    await self._accept(action)
            state = recorder.state
            if state.status == "running":
                return True
            if state.status == "suspended":
                break
        if self._frame is not None and self.state.status in PAUSED:
            await self._recorder.record_all((await self._frame.end(Finish(self.state.status, "", "")))[1])
        return False

    def _outcome(self) -> RunState:
        """The state at the end. Raises ProviderError if the model API ended the run."""
        if self._turns.error is not None and self.state.status == "failed":
            raise self._turns.error
        if self.is_sub_run and self.state.status == "failed" and self.state.error:
            raise ProviderError(self.state.error)  # of a run that was found as it had ended
        return self.state

    async def _open(self) -> None:
        """Records how the run begins, and enters what surrounds it."""
        if self._load is not None:
            loaded = await self._load()
            self._recorder.current, self._opening = loaded.state, loaded.opening
            self._recorder.trail.goes_on(loaded.records, loaded.before)
            self.memory.update(loaded.memory)
        state = self._recorder.current
        if state is not None:
            check_priced(state.limits, self._settings.driver.name, self._settings.prices)
        self._usage.skip(state)
        start, facts = RunStart(()), list[Event]()
        for event in self._opening:
            if isinstance(event, RunStarted):
                start = RunStart(event.messages)
                if "run" in self._stage.levels:
                    verdict, facts = await self._stage.before("run", start)
                    if isinstance(verdict, RunStart):
                        start = verdict
                    elif verdict is not None:
                        facts = [*facts, answering(verdict.value)]
                    event = replace(event, messages=start.messages)
            await self.record(event)
        self._opening = ()
        await self._recorder.record_all(facts)
        if "run" in self._stage.levels and self.state.stop is None and self.state.status not in FINAL:
            recorder = self._recorder
            self._frame = RunFrame(self._stage, start, lambda: recorder.state.metadata)
            if not await self._frame.enter():
                await self._end(Finish("no_answer", "", ""))

    async def _accept(self, finish: Finish) -> None:
        """Ends the run, unless its answer is not of the type asked for: then the model answers again."""
        output, state = self._settings.output, self.state
        problem = None
        if output is not None and finish.status == "answered":
            problem = output.problem(finish.answer)
        if output is not None and problem is not None:
            if state.turn.rejected_answers < output.retries and state.limit is None and state.stop is None:
                await self.record(AnswerRejected(self._settings.secrets.hide_text(problem)))
                return
            finish = replace(finish, status="no_answer", reason="invalid_output")
        await self._end(finish)

    def _out_of_answers(self) -> bool:
        """Whether the tool that answers was called with wrong arguments once more than may be."""
        output = self._settings.output
        if output is None:
            return False
        state = self.state
        return state.turn.rejected_answers > output.retries and state.limit is None

    async def _end(self, finish: Finish) -> None:
        frame, self._frame = self._frame, None
        if frame is not None:
            ended, facts = await frame.end(finish)
            await self._recorder.record_all(facts)
            finish = ended or cast("Finish", decide(self.state))
        await self.record(RunFinished(finish.status, finish.answer, finish.reason))

    async def _read_inbox(self) -> None:
        while self._inbox:
            await self.record(UserMessageQueued(self._inbox.pop(0)))

    async def _step(self, action: AskModel | RunTools) -> None:
        """A step with what surrounds it."""
        step: Step | None = Step(self.state.step + isinstance(action, AskModel))
        if isinstance(action, AskModel):
            verdict, facts = await self._stage.before("step", step, self.state.metadata)
            if isinstance(verdict, Answer):
                facts = [*facts, answering(verdict.value)]
            await self._recorder.record_all(facts)
            if not isinstance(verdict, Step):
                return

        async def inner() -> StepEnd:
            await self._take_step(action)
            return StepEnd(self.state)

        end, facts = await self._stage.around(
            "step", step, inner, lambda: self.state.metadata, lambda end: end.state.status not in PAUSED
        )
        await self._recorder.record_all(facts)
        for text in () if end is None else end.say:
            await self.record(UserMessageQueued(without_secrets(Message.user(text), self._settings.secrets)))

    async def _take_step(self, action: AskModel | RunTools) -> None:
        """One turn and its batch; what remains of them when the run goes on after a pause."""
        if isinstance(action, AskModel):
            ended = await self._turns.ask(action, self._run_within)
            if ended is not None:
                await self._end(ended)
            if self._inbox:
                await self._read_inbox()
            state = self._recorder.state
            following = decide(state)
            if not state.pending.calls or not isinstance(following, RunTools):
                await self._turns.drop_early()
                return
            action = following
            if self._pause.is_requested:
                await self._suspend()
                return
        await self._run_tools(action)

    async def _run_within(self, calls: Sequence[ToolCall]) -> tuple[ToolExecution, ...]:
        """Runs calls that a driver makes within its turn, as a step. Raises TurnLeft if the run rests or ends there."""
        if not calls:
            return ()
        await self._turns.begin_within(calls)
        action = decide(self.state)
        if isinstance(action, RunTools):
            await self._run_tools(action)
        state = self.state
        if state.status != "running" or state.pending.calls or state.stop is not None or state.limit is not None:
            raise TurnLeft
        executions = self.trail.steps[-1].executions
        await self._turns.go_on_within()
        return executions

    async def _suspend(self) -> None:
        await self._turns.drop_early()
        await self.record(RunPaused("suspended"))

    def stream(self) -> AsyncGenerator[Watched]:
        """Deltas as they come and records once they are durable. Leaving the loop early cancels the run."""
        channel: Channel[Watched] = Channel()

        async def work() -> None:
            self._claim()
            self._recorder.watcher, self._contexts.show = channel, channel.offer
            try:
                await self._drive()
            finally:
                self._recorder.watcher = self._contexts.show = None

        return channel.read(work)

    def events(self) -> AsyncGenerator[RunEvent]:
        """All that happens in the run, and in those that its tools start, as observers are told of it. Leaving the loop
        early cancels the run."""
        channel: Channel[RunEvent] = Channel(lossless=True)
        self._recorder.observers += (channel.offer,)

        async def work() -> None:
            self._claim()
            await self._drive()

        return channel.read(work)

    async def _run_tools(self, action: RunTools) -> None:
        """Runs a batch; what is left of it again once questions of runs that its calls started were answered."""
        settings, loop = self._settings, asyncio.get_running_loop()
        while True:
            state = self._recorder.state
            pending, decisions = state.pending, state.approvals.decisions
            seconds, early = seconds_left(state, settings.clock), self._turns.take_early()
            until = None if seconds is None else loop.time() + seconds
            try:
                batch = await settings.executor.run(
                    action.calls,
                    emit=self._facts.emit,
                    context=self._contexts.batch(state),
                    approver=settings.approver,
                    decisions={one.call_id: decision_of(one) for one in decisions} if decisions else {},
                    finished={one.call_id: one for one in pending.results} if pending.results else {},
                    doubtful_calls=(
                        calls_in_doubt(pending.in_doubt, settings.in_doubt) if pending.started else NONE_IN_DOUBT
                    ),
                    deadline=seconds,
                    max_calls=action.max_calls,
                    early=early,
                    stop=state.stop,
                )
            except BatchPaused:
                await self._suspend()
                return
            except BatchHeld as waits:
                self._pending, suspended = await ask_for_sub_runs(self._recorder, settings, self._pause, waits.held)
                if suspended:
                    await self._suspend()
                following = decide(self.state)
                if self.state.status != "running" or not isinstance(following, RunTools):
                    return
                action = following
                continue
            except (AgentStop, ToolFailed) as stop:
                batch = stop.batch  # that the run is to end is recorded
            break
        if self._recorder.state.pending.calls and not batch.pending:
            await self._facts.complete(batch)
        if batch.pending:
            self._pending = batch.pending
            await self.record(RunPaused("awaiting_approval", tuple(pending.call.id for pending in batch.pending)))
        elif until is not None and loop.time() >= until + batch.waited:
            await self.record(time_is_over(self.state, settings.clock))
