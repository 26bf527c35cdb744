"""The loop: perform what `decide` says, record what happened, let `apply` say what it means."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any, Generic, cast

from toolspeak.agent.batches import pause_run, run_batch
from toolspeak.agent.child_runs import inactive_run
from toolspeak.agent.handoffs import settings_of
from toolspeak.agent.interceptors import InterceptorRunner, RunInterception, RunStart, Step, StepEnd, answering
from toolspeak.agent.recording.channel import Channel
from toolspeak.agent.recording.publisher import Publisher
from toolspeak.agent.recording.recorder import (
    BatchContextFactory,
    BatchRecorder,
    Recorder,
    RunEvent,
    StreamItem,
    UsageRollUp,
    sub_run_records,
)
from toolspeak.agent.recording.tracing import NO_TRACE, RunTrace, begin_trace
from toolspeak.agent.run_inputs import Inbox, configuration, facts_from_inputs, without_secrets_in
from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.decide import AskModel, AwaitApproval, AwaitExternal, Compact, Finish, RunTools, decide
from toolspeak.agent.state.history import without_secrets
from toolspeak.agent.state.output import AnswerT, AnswerType
from toolspeak.agent.state.state import FINAL, RunState
from toolspeak.agent.state.steps import RunRecords
from toolspeak.agent.storage.runs import LeaseKeeper, LoadRun
from toolspeak.agent.turns import TurnLeft, Turns
from toolspeak.agent.validation import check_priced
from toolspeak.data.events import AnswerRejected, Event, RunFinished, RunStarted, UserMessageQueued
from toolspeak.data.messages import Message, ToolCall
from toolspeak.data.run_values import PAUSED_STATUSES
from toolspeak.errors import ProviderError, RunError
from toolspeak.execute import Answer, ApprovalRequest, ToolExecution
from toolspeak.execute.sub_runs import CURRENT_SUB_RUNS
from toolspeak.journal.base import Journal


class Run(Generic[AnswerT]):
    """One run, from its first record to its last. Drive it with `finish`, `states` or `stream`, once.

    For type checkers a `Run[Town]` is a run whose answer is a `Town`; `Run` alone is one whose answer has no type.

    - `first_events`: recorded first: a new run's `RunStarted`, or the decisions made while the run waited.
    - `state`: the run's state; None for a new run.
    - `memory`: what the tools keep between calls (which files were read, say).
    - `before`: the messages of the runs that this one follows.
    - `load`: reads the run's state, instead of `state`, `first_events` and `before`.
    - `run_records`: the run's records until now.
    """

    def __init__(
        self,
        settings: RunSettings,
        run_id: str,
        first_events: Sequence[Event],
        state: RunState | None = None,
        memory: dict[str, Any] | None = None,
        before: Sequence[Message] = (),
        load: LoadRun | None = None,
        run_records: RunRecords | None = None,
    ) -> None:
        self._first = settings  # of the agent that starts the run: others may continue it
        self._recorder = recorder = Recorder(settings, run_id, state, before, run_records)
        self.record = recorder.record
        self._first_events, self._load, self._is_driven = first_events, load, False
        self._inbox, self.run_id = Inbox(), run_id
        self.take_back = self._inbox.take_back
        self._contexts = contexts = BatchContextFactory(settings, run_id, recorder, {} if memory is None else memory)
        self._pause = contexts.pause
        self._work_with(settings)
        self._run_interception: RunInterception | None = None
        self._lease = LeaseKeeper(settings.journal, run_id, contexts.pause.request)
        self._publisher: Publisher | None = None
        self._usage = UsageRollUp(run_id, recorder, settings.journal)
        self._call = CURRENT_SUB_RUNS.get()  # the call whose function drives this run, if one does
        self._pending: tuple[ApprovalRequest, ...] = ()
        self._trace: RunTrace = NO_TRACE

    def _work_with(self, settings: RunSettings) -> None:
        self._settings, contexts, recorder = settings, self._contexts, self._recorder
        self._interceptors = InterceptorRunner(settings.interceptors, settings.secrets, contexts.hook)
        self._turns = Turns(settings, self._interceptors, recorder, contexts)
        self._facts = BatchRecorder(settings, recorder, contexts, self._first)

    async def _hand_over(self, agent: str) -> None:
        """Goes on as another agent. Raises RunError if no hand-off leads to it."""
        settings = settings_of(self._first, agent)
        await self._turns.close()
        self._contexts.hand_over(settings)
        self._work_with(settings)

    @property
    def journal(self) -> Journal:
        """Where this run's records are."""
        return self._settings.journal

    @property
    def state(self) -> RunState:
        """The run's state. Raises RunError before its first record."""
        return self._recorder.state

    @property
    def answer_type(self) -> AnswerType | None:
        """The type of the agent's answer."""
        return self._settings.output

    @property
    def run_records(self) -> RunRecords:
        """The run's records until now, and its steps."""
        return self._recorder.run_records

    @property
    def memory(self) -> dict[str, Any]:
        """What the run's tools keep between calls."""
        return self._contexts.memory

    def say(self, message: str | Message) -> None:
        """Queues a user message for the next step. Raises RunError for a run that has ended or paused."""
        state = self._recorder.current
        if state is not None and state.status != "running" and self._is_driven:
            raise RunError(f"run {self.run_id} is {state.status}; give `history` to a new run, or resume it first")
        self._inbox.put(Message.user(message) if isinstance(message, str) else message)

    @property
    def unread(self) -> Sequence[Message]:
        """The messages of `say` that are not part of the run (yet). Those left at its end came too late."""
        return tuple(self._inbox.messages)

    def suspend(self) -> None:
        """Asks the run to stop before its next turn or call. Call it in the thread of the run's event loop.

        The turn and the calls that are under way come to their end and are recorded. The run's status is `suspended`
        then, unless it has ended or waits for approval. `Agent.resume` continues it.
        """
        self._pause.request()

    def drive_for(self, engine: str, *, takes_over: bool = False) -> None:
        """Names the engine that delivered the run, in the run's lease. `takes_over`: the engine knows that the worker
        that it delivered the run to before is gone."""
        self._lease.engine, self._lease.takes_over = engine, takes_over

    def step_aside(self) -> None:
        """As `suspend`, but the run is `queued` then: another worker continues it."""
        self._pause.request("queued")

    def _publish(self) -> None:
        """Shows deltas to the processes that follow the run, from the next turn on."""
        if self._publisher is None:
            recorder, journal = self._recorder, self._settings.journal
            watcher = cast("Any", recorder.watcher)
            self._publisher = Publisher(journal, self.run_id, watcher)
            recorder.watcher, self._contexts.show = self._publisher, self._publisher.offer

    async def finish(self) -> RunState:
        """Runs to the end, or until the run pauses. Raises ProviderError when the model API fails."""
        self._claim()
        return await self._drive()

    async def _drive(self) -> RunState:
        try:
            await self._begin()
            with self._trace.active():
                while await self._advance():
                    pass
        finally:
            await self._leave()
        return self._outcome()

    async def states(self) -> AsyncGenerator[RunState]:
        """Yields the state after each step and at the end. Leaving the loop early stops the run where it is."""
        self._claim()
        try:
            await self._begin()
            goes_on = True
            while goes_on:
                with self._trace.active():
                    goes_on = await self._advance()
                yield self.state
        finally:
            await self._leave()
        self._outcome()

    def _claim(self) -> None:
        if self._is_driven:
            raise RunError(f"run {self.run_id} has been driven already; a run is driven once, start another")
        self._is_driven = True

    async def _begin(self) -> None:
        """Takes the lease, reads the run's state, records how it begins, and enters the run's interceptors."""
        recorder, settings = self._recorder, self._settings
        self._lease.publish, self._lease.read = self._publish, self._inbox.look
        recorder.lease = await self._lease.acquire()
        if recorder.lease.followed:
            self._publish()
        self._usage.begin(settings.parent_run_id)
        if self._call is not None and settings.parent_run_id == self._call.run_id:
            self._call.begin(self.run_id)
        if self._load is not None:
            loaded_run = await self._load()
            recorder.current, self._first_events = loaded_run.state, loaded_run.first_events
            recorder.run_records.prepend(loaded_run.records, loaded_run.before)
            self.memory.update(loaded_run.memory)
            if loaded_run.state is not None:
                self._inbox.look()
        state = recorder.current
        self._usage.skip(state)
        if state is not None and state.step:  # without a step nothing is lost: the first turn fails
            check_priced(state.limits, settings.driver.name, settings.price)
        self._trace, self._first_events = begin_trace(recorder, settings, self.run_id, self._first_events)
        with self._trace.active():
            await self._open()
        if self._call is not None and self.state.parent_run_id == self._call.run_id:
            self._call.begin(self.run_id)

    async def _open(self) -> None:
        """Records how the run begins, and enters its interceptors."""
        recorder, settings, start = self._recorder, self._settings, RunStart(())
        state = recorder.current
        if state is None:
            first_events, start = await self._interceptors.before_run(self._first_events)
            await recorder.record_all(first_events)
        elif self._first_events:
            await recorder.resume([*await facts_from_inputs(settings, state, self._first_events), *self._first_events])
            if state.status == "queued" and state.seq == 1:
                submission = cast("RunStarted", self.run_records.records[0].event)
                (event, *facts), start = await self._interceptors.before_run([without_secrets_in(submission, settings)])
                await recorder.record_all(configuration(settings, self.state, submission, cast("RunStarted", event)))
                await recorder.record_all(facts)
        self._first_events = ()
        if "run" in self._interceptors.levels and self.state.stop is None and self.state.status not in FINAL:
            self._run_interception = RunInterception(self._interceptors, start, lambda: recorder.state.metadata)
            if not await self._run_interception.enter():
                await self._end(Finish("no_answer", "", ""))

    async def _leave(self) -> None:
        """Releases what the run holds while it is driven, however it ended."""
        self._trace.end(sys.exception())
        self._usage.end()
        if self._contexts.scope.timers is not None:
            self._contexts.scope.timers.close()
        try:
            await self._lease.release()
        finally:
            if self._call is not None:
                self._call.end(
                    inactive_run(self._recorder.current, self._settings, self.run_id, self._call, self._pending)
                )
            if self._publisher is not None:
                await self._publisher.close()
                self._recorder.watcher = self._contexts.show = None
            await self._usage.report(self._recorder.current, self._settings.agent)
            if self._run_interception is not None:
                await self._run_interception.leave()
            await self._turns.close()

    @property
    def is_sub_run(self) -> bool:
        """Whether the call whose function drives this run started it."""
        call, state = self._call, self._recorder.current
        return call is not None and state is not None and state.parent_run_id == call.run_id

    async def _advance(self) -> bool:
        """Goes on to the end of the next step. False once the run has ended or pauses."""
        recorder, state, stays_long = self._recorder, self._recorder.state, False
        while state.status not in FINAL:
            if self._inbox.messages or self._inbox.has_news:
                await self._inbox.read(self._settings, self._recorder, self._interceptors)
                state = recorder.state
            if state.agent is not None and state.agent != self._settings.agent:
                await self._hand_over(state.agent)
            output, action = self._settings.output, decide(state, None if stays_long else self._settings.window)
            if self._pause.is_requested and not isinstance(action, AwaitApproval | AwaitExternal | Finish):
                await self._suspend()
                break
            match action:
                case AskModel() if (
                    # Calls of the answering tool with wrong arguments count as rejected answers too.
                    output is not None and state.turn.rejected_answers > output.retries and state.limit is None
                ):
                    await self._end(Finish("no_answer", "", "invalid_output"))
                case AskModel() | RunTools() if "step" in self._interceptors.levels:
                    await self._intercepted_step(action)
                case AskModel() | RunTools():
                    await self._step(action)
                case Compact(plan):
                    stays_long = await self._turns.compact(plan, "auto", goes_on=True) is None
                    state = recorder.state
                    continue
                case AwaitApproval() | AwaitExternal():
                    break
                case Finish():
                    await self._accept(action)
            state = recorder.state
            if state.status == "running":
                return True
            if state.status in PAUSED_STATUSES:
                break
        if self._run_interception is not None and self.state.status in PAUSED_STATUSES:
            _, facts = await self._run_interception.end(Finish(self.state.status, "", ""))
            await recorder.record_all(facts)
        return False

    def _outcome(self) -> RunState:
        """The state at the end. Raises ProviderError if a failure of the model API ended the run."""
        if self._turns.error is not None and self.state.status == "failed":
            raise self._turns.error
        if self.is_sub_run and self.state.status == "failed" and self.state.error:
            raise ProviderError(self.state.error)  # the run had ended before its call was entered again
        return self.state

    async def _accept(self, finish: Finish) -> None:
        """Ends the run. An answer that is not of the agent's output type goes back to the model first."""
        output, state = self._settings.output, self.state
        if output is not None and finish.status == "answered" and (problems := output.check(finish.answer).problems):
            if state.turn.rejected_answers < output.retries and state.limit is None and state.stop is None:
                await self.record(AnswerRejected(self._settings.secrets.hide_text(output.correction(problems))))
                return
            finish = replace(finish, status="no_answer", reason="invalid_output")
        await self._end(finish)

    async def _end(self, finish: Finish) -> None:
        interception, self._run_interception = self._run_interception, None
        if interception is not None:
            finish_event, facts = await interception.end(finish)
            await self._recorder.record_all(facts)
            finish = finish_event or cast("Finish", decide(self.state))
        await self.record(RunFinished(finish.status, finish.answer, finish.reason))

    async def _intercepted_step(self, action: AskModel | RunTools) -> None:
        """`_step` inside the interceptors of steps."""
        step: Step | None = Step(self.state.step + isinstance(action, AskModel))
        if isinstance(action, AskModel):
            verdict, facts = await self._interceptors.before("step", step, self.state.metadata)
            if isinstance(verdict, Answer):
                facts = [*facts, answering(verdict.value)]
            await self._recorder.record_all(facts)
            if not isinstance(verdict, Step):
                return

        async def inner() -> StepEnd:
            await self._step(action)
            return StepEnd(self.state)

        end, facts = await self._interceptors.around(
            "step", step, inner, lambda: self.state.metadata, lambda end: end.state.status not in PAUSED_STATUSES
        )
        await self._recorder.record_all(facts)
        for text in () if end is None else end.say:
            await self.record(UserMessageQueued(without_secrets(Message.user(text), self._settings.secrets)))

    async def _step(self, action: AskModel | RunTools) -> None:
        """One turn and its batch, or what is left of them when the run continues after a pause."""
        if isinstance(action, AskModel):
            turn_end = await self._turns.ask(action, self._run_within)
            if turn_end is not None:
                await self._end(turn_end)
            if self._publisher is not None:
                self._inbox.look()  # who follows may say something during the last turn
            if self._inbox.messages or self._inbox.has_news:
                await self._inbox.read(self._settings, self._recorder, self._interceptors)
            state = self._recorder.state
            following = decide(state)
            if not state.pending.calls or not isinstance(following, RunTools):
                await self._turns.drop_early()
                return
            action = following
            if self._pause.is_requested:
                await self._suspend()
                return
        self._pending = await run_batch(action, self._recorder, self._turns, self._facts, self._contexts)

    async def _run_within(self, calls: Sequence[ToolCall]) -> tuple[ToolExecution, ...]:
        """Runs calls that a driver makes within its turn, as a step of the run. Raises TurnLeft if the run pauses or
        ends there."""
        if not calls:
            return ()
        await self._turns.begin_within(calls)
        action = decide(self.state)
        if isinstance(action, RunTools):
            self._pending = await run_batch(action, self._recorder, self._turns, self._facts, self._contexts)
        state = self.state
        ends = state.stop is not None or state.limit is not None or state.agent not in (None, self._settings.agent)
        if state.status != "running" or state.pending.calls or ends:
            raise TurnLeft
        await self._turns.go_on_within()
        return self.run_records.steps[-1].executions

    async def _suspend(self) -> None:
        await pause_run(self._recorder, self._turns, self._contexts)

    def stream(self, *, sub_runs: bool = False) -> AsyncGenerator[StreamItem]:
        """Yields deltas, and durable records (`sub_runs`: also theirs). Leaving the loop early cancels the run."""
        channel: Channel[StreamItem] = Channel()
        if sub_runs:
            self._recorder.observers += (sub_run_records(channel, self.run_id),)

        async def work() -> None:
            self._claim()
            self._recorder.watcher, self._contexts.show = channel, channel.offer
            try:
                await self._drive()
            finally:
                self._recorder.watcher = self._contexts.show = None

        return channel.read(work)

    def events(self) -> AsyncGenerator[RunEvent]:
        """Yields what observers get, of the run and its sub-runs. Leaving the loop early cancels the run."""
        channel: Channel[RunEvent] = Channel(lossless=True)
        self._recorder.observers += (channel.offer,)
        return channel.read(self.finish)
