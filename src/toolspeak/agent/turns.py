"""The model's turns of one run: requests, reads and records them, and shortens a long history."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from inspect import isawaitable
from typing import Any, Literal, cast

from toolspeak.agent.cassettes.recording import TurnCutOff
from toolspeak.agent.drivers.base import Conversation, DriverContext, ToolRunner, TurnRequest
from toolspeak.agent.drivers.request_parts import NO_PARTS, RecordedParts
from toolspeak.agent.drivers.text import text_digest
from toolspeak.agent.history_summary import LEFT_OUT, NoSummary, summary_of
from toolspeak.agent.interceptors import Compaction, InterceptorRunner, turn_of
from toolspeak.agent.recording.recorder import BatchContextFactory, Recorder
from toolspeak.agent.redact import Redactor
from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.decide import AskModel, Finish, seconds_left, time_is_over
from toolspeak.agent.state.history import Plan, Window, hide_call, summary_message
from toolspeak.agent.state.state import RunState
from toolspeak.agent.state.steps import memory_after
from toolspeak.agent.turn_checkpoint import TurnAnswers, TurnCheckpoint, UnrecordedText
from toolspeak.agent.validation import check_deps, check_submitted_options, checked_choice, toolset_of
from toolspeak.data.deltas import CallCompleted, CallMalformed, CallStarted, Delta, TurnEnded, TurnRestarted
from toolspeak.data.events import HistoryCompacted, ModelAnswered, ModelAsked, ModelFailed, RetryScheduled
from toolspeak.data.messages import Message, ToolCall, ToolChoice, Usage, tokens_of
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import evolve
from toolspeak.dialects import ParsedTurn, TurnCollector
from toolspeak.errors import ConfigurationError, ProviderError
from toolspeak.execute import Answer, EarlyStart
from toolspeak.providers.base import BODY_LISTENER, RETRY_RECORDER
from toolspeak.providers.trace_context import RETRY_LISTENER
from toolspeak.tools import RunContext
from toolspeak.tools.toolset import tools_digest

_WRAP_UP_SECONDS = 60.0
_NO_CALL = ToolCall("", "", {})
_DELTAS_WITH_ID = frozenset({CallStarted, CallCompleted, CallMalformed})


class TurnLeft(Exception):
    """A driver that ran tools within its turn cannot continue it: the run pauses, or ends."""


class Turns:
    """Asks for the run's turns, one after the other, in one conversation with the driver.

    Two buffers hold a turn while it comes. The `TurnCheckpoint` holds what the provider sent and no record has yet. A
    `TurnCollector` holds what the driver read of it: a call in text is text in the one and a call in the other. Calls
    that start early come from the collector (`take_early` hands them over).
    """

    def __init__(
        self,
        settings: RunSettings,
        interceptors: InterceptorRunner,
        recorder: Recorder,
        contexts: BatchContextFactory,
    ) -> None:
        self._settings = settings
        self._interceptors = interceptors
        self._recorder = recorder
        self._contexts = contexts
        self._instructions = settings.instructions
        self._prompt = self._prompt_digest = ""
        self._answers = TurnAnswers(settings)
        self._conversation: Conversation | None = None
        self._context: DriverContext | None = None
        self._checkpoint = TurnCheckpoint(settings.secrets, recorder.record)
        self._specs, self._tools_digest = settings.toolset.specs, settings.toolset.digest
        self._price = settings.price
        self._early: EarlyStart | None = None
        self._offer_count = 0  # calls of the turn that may have started early
        self._starting: asyncio.Handle | None = None
        self._last_asked: ModelAsked | None = None
        self._parts = RecordedParts(settings.driver if settings.keeps else None, settings.secrets.hide_text)
        self._last_tools: Sequence[ToolSpec] = ()
        self._last_terms: tuple[Any, ...] = ()  # of the last request, without its messages and tools
        self._request_digest = ""  # of the current turn
        self._raw_end: UnrecordedText | None = None  # of the current turn
        self._reads = 0  # of the current turn: interceptors may proceed more than once
        self.error: ProviderError | None = None
        """The failure of the model's API that ended the run."""

    async def ask(self, action: AskModel, run_tools: ToolRunner) -> Finish | None:
        """Asks for a turn and records it. Returns how the run ends if the turn did not come and no other may follow.

        `run_tools` is for drivers that run tools within their turn. It raises TurnLeft where they cannot continue.
        """
        recorder, settings, driver, choice = self._recorder, self._settings, self._settings.driver, action.choice
        if action.limit_reached is not None:
            await recorder.record(action.limit_reached)
        if self._context is None:
            self._context = DriverContext(self._checkpoint.add_raw, recorder.tell, run_tools)
        output = settings.output.schema if settings.output is not None and settings.output.mode == "native" else None
        before = recorder.state
        if settings.instructions_of is not None:
            await self._compute_instructions(before)
        if settings.tools_of is not None:
            await self._compute_tools(before, self._contexts.memory)
            checked_choice(choice, self._contexts.toolset)
        request = TurnRequest(
            before.history, self._specs, self._instructions, choice, output, settings.needs_approval, state=before
        )
        ready, own_messages = None, False
        is_intercepted = "model" in self._interceptors.levels
        if is_intercepted:
            full_request = replace(request, messages=(*before.history, *before.queued_messages))
            verdict, facts = await self._interceptors.before("model", full_request, before.metadata)
            await recorder.record_all(facts)
            if verdict is None:
                return None
            ready = turn_of(verdict.value) if isinstance(verdict, Answer) else None
            request = full_request if isinstance(verdict, Answer) else verdict
            own_messages = request.messages is not full_request.messages
        prompt = driver.prompt(request)
        if prompt is not self._prompt:
            self._prompt, self._prompt_digest = prompt, text_digest(prompt)
        digest = self._tools_digest if request.tools is self._specs else tools_digest(request.tools)
        self._reads, self._request_digest, self._raw_end = 0, "", None
        terms = (request.instructions, request.output, request.needs_approval, request.parallel, request.options)
        is_as_before = request.tools is self._last_tools and terms == self._last_terms
        self._last_tools, self._last_terms = request.tools, terms
        parts = NO_PARTS if is_as_before else self._parts.changes(request)
        self._last_asked = ModelAsked(driver.name, digest, self._prompt_digest, request.choice, parts)
        await recorder.record(self._last_asked)
        state = recorder.state
        if not own_messages and request.messages is not state.history:
            request = replace(request, messages=state.history)
        wrapping_up = state.limit is not None
        scope = None
        if wrapping_up or state.limits.seconds is not None:  # a timeout costs more than a microsecond
            scope = asyncio.timeout(_WRAP_UP_SECONDS if wrapping_up else seconds_left(state, settings.clock))
        try:
            if choice.mode in ("required", "specific") or state.limits.cost is not None:
                agents = (settings, *settings.family.values())
                prices = [(each.driver.name, each.price) for each in agents]
                check_submitted_options(choice, settings.all_tools, state.limits, prices)
            if scope is None and not is_intercepted:
                turn = await self._read_turn(request)
            else:
                async with scope or nullcontext():
                    if ready is not None:
                        turn = ready
                    elif not is_intercepted:
                        turn = await self._read_turn(request)
                    else:
                        turn, facts = await self._interceptors.around(
                            "model",
                            request,
                            lambda: self._read_turn(request, own_messages),
                            lambda: recorder.state.metadata,
                        )
                        await recorder.record_all(facts)
        except TurnLeft:
            return None
        except (TimeoutError, TurnCutOff) as error:
            is_limited = wrapping_up or state.limits.seconds is not None
            is_expired = scope is not None and scope.expired()
            if not (is_limited if isinstance(error, TurnCutOff) else is_expired):
                raise
            # The turn is lost. The clock need not agree yet that the time is over: it is not asked.
            if wrapping_up:
                return Finish("no_answer", "", recorder.state.limit or "seconds")
            await recorder.record(time_is_over(recorder.state, settings.clock))
            return None
        except ProviderError as error:
            self.error = error
            message = settings.secrets.hide_text(str(error))
            await recorder.record(ModelFailed(message, error.status, self._request_digest))
            return None
        if turn is None:
            return None
        # A turn that an interceptor gave in the model's place costs nothing.
        event = self._answers.event(
            turn,
            recorder.state.history,
            self._prompt,
            self._request_digest,
            self._raw_end,
            costs=ready is None,
            wrapping_up=choice.mode == "none",
        )
        await recorder.record(event)
        return None

    def _hear_body(self, body: bytes) -> None:
        self._request_digest = hashlib.sha256(body).hexdigest()

    async def _record_retry(self, error: ProviderError, seconds: float, attempt: int) -> None:
        await self._contexts.record_retry(RetryScheduled(str(error), seconds, attempt, status=error.status))

    async def _read_turn(self, request: TurnRequest, own_messages: bool = False) -> ParsedTurn:
        """Reads a turn of the model. `own_messages`: the request's messages are for this turn alone, so the turn gets a
        conversation of its own."""
        settings, checkpoint, watcher = self._settings, self._checkpoint, self._recorder.watcher
        conversation = None if own_messages else self._conversation
        if conversation is None:
            assert self._context is not None, "`ask` makes it"
            conversation = settings.driver.open(self._context)
            if not own_messages:
                self._conversation = conversation
        collector = TurnCollector(self._call_id)
        redactor = Redactor(settings.secrets) if watcher is not None and settings.secrets else None
        if self._early is not None or self._starting is not None:
            await self.drop_early()
        self._offer_count = 0
        self._reads += 1
        if self._reads > 1 and watcher is not None:
            watcher.put(TurnRestarted())
        if self._reads > 1 and (note_retry := RETRY_LISTENER.get()) is not None:
            note_retry(None)
        starts_early = settings.driver.starts_early and request.choice.mode != "none"
        stream = cast("AsyncGenerator[Delta]", conversation.turn(request))
        token = BODY_LISTENER.set(self._hear_body if settings.keeps else None)
        retry_token = RETRY_RECORDER.set(self._record_retry)
        try:
            try:
                async for delta in stream:
                    collector.add(delta)
                    if not checkpoint.is_raw:
                        checkpoint.add_read(delta)
                    if checkpoint.is_due:
                        await checkpoint.save()
                    if starts_early and type(delta) is CallCompleted and self._starting is None:
                        # As soon as the event loop goes round: most turns with an API's own calls are over by then.
                        loop = asyncio.get_running_loop()
                        self._starting = loop.call_soon(self._start_early, collector, self._recorder.state)
                    if watcher is None:
                        continue
                    is_full = False
                    if type(delta) in _DELTAS_WITH_ID:
                        call = cast("CallStarted | CallCompleted | CallMalformed", delta)
                        delta = evolve(call, call_id=self._call_id(call.index))
                    if redactor is not None:
                        for piece in redactor.feed(delta):
                            is_full = watcher.put(piece)
                    elif type(delta) is not TurnEnded:
                        is_full = watcher.put(delta)
                    if is_full:
                        await watcher.drain()
            finally:
                BODY_LISTENER.reset(token)
                RETRY_RECORDER.reset(retry_token)
                await stream.aclose()
                if own_messages:
                    await conversation.aclose()
        except (Exception, asyncio.CancelledError):
            if self._starting is not None:
                self._starting.cancel()
                self._starting = None
            await checkpoint.save_rest()
            raise
        self._raw_end = await checkpoint.end()
        return collector.turn()

    def _call_id(self, index: int) -> str:
        """The id of a call of the current turn. The ids count on from `turns_before`."""
        state = self._recorder.state
        return f"call_{state.turns_before + state.step}_{index}"

    async def go_on_within(self) -> None:
        """Records that the driver's turn continues after the calls it made."""
        if self._last_asked is not None:
            await self._recorder.record(self._last_asked)

    async def begin_within(self, calls: Sequence[ToolCall]) -> None:
        """Records calls that a driver makes within its turn, as a turn of their own."""
        calls_with_ids = tuple(evolve(call, id=self._call_id(index)) for index, call in enumerate(calls))
        safe_calls = tuple(hide_call(call, self._settings.secrets) for call in calls_with_ids)
        await self._recorder.record(
            ModelAnswered(Message("assistant", safe_calls), "tool_calls", Usage(0, 0), cost=0.0)
        )

    def _start_early(self, collector: TurnCollector, before: RunState) -> None:
        """Starts the complete calls of a turn that continues, those that may start before its end."""
        settings = self._settings
        self._starting = None
        if self._early is None:
            early = getattr(settings.executor, "early", None)
            self._early = None if early is None else early(self._contexts.batch(before))
        if self._early is not None:
            for call in collector.complete_calls(self._offer_count):
                self._offer_count += 1
                if type(call) is ToolCall:
                    hides = settings.secrets.has_values
                    self._early.offer(hide_call(call, settings.secrets) if hides else call)

    def take_early(self) -> EarlyStart | None:
        """The calls of the turn that started early, for the batch that continues them. No more start early."""
        if self._starting is not None:
            self._starting.cancel()
            self._starting = None
        early, self._early = self._early, None
        return early

    async def drop_early(self) -> None:
        """Cancels calls that started early and that no batch takes over."""
        early = self.take_early()
        if early is not None:
            await early.drop()

    async def compact(
        self, plan: Plan, trigger: Literal["auto", "manual"], *, goes_on: bool = False
    ) -> HistoryCompacted | None:
        """Makes the history shorter for the model, unless an interceptor keeps it or ends the run: then None. The model
        writes a summary if the plan needs one.

        If there is no summary, the history stays as it is, and this raises ProviderError. `goes_on`: the run goes on in
        any case. Then this returns None; old messages that do not fit into the window are left out without a summary,
        unless the model's API failed: it may be back at the next turn.
        """
        settings = self._settings
        if "compaction" in self._interceptors.levels:
            compaction = Compaction(trigger, plan.tokens_before)
            verdict, facts = await self._interceptors.admit("compaction", compaction, self._recorder.state.metadata)
            await self._recorder.record_all(facts)
            if not isinstance(verdict, Compaction):
                return None
        summary, usage, cost, window = "", Usage(), 0.0, settings.window
        if plan.upto:
            summary = LEFT_OUT
            if window is not None and window.summarise:
                try:
                    summary, usage = await self._summary(plan, window)
                    cost = None if self._price is None else self._price.cost(usage)
                except ProviderError as error:
                    if not goes_on:
                        raise error.with_message(f"the conversation could not be summarised: {error}") from error
                    if plan.tokens_before <= window.tokens or not isinstance(error, NoSummary):
                        return None
        after = plan.tokens_after + tokens_of(summary_message(summary)) if plan.upto else plan.tokens_after
        if after >= plan.tokens_before and not goes_on:
            raise NoSummary("the conversation could not be summarised: the summary is no shorter than what was said")
        event = HistoryCompacted(
            plan.cleared_ids, plan.upto, plan.pinned_indices, summary, plan.tokens_before, after, usage, cost
        )
        await self._recorder.record(event)
        await self._end_conversation()  # its messages are no longer those of the run
        self._answers.count_again()
        return event

    async def _summary(self, plan: Plan, window: Window) -> tuple[str, Usage]:
        """The model's summary of the messages of the plan."""
        settings, state = self._settings, self._recorder.state
        if settings.instructions_of is not None:
            await self._compute_instructions(state)
        if settings.tools_of is not None:  # the summary is written in the prompt of the next turn
            await self._compute_tools(state, self._contexts.memory)
        request = TurnRequest(
            (), self._specs, self._instructions, ToolChoice("none"), needs_approval=settings.needs_approval
        )
        seconds = seconds_left(state, settings.clock)
        summary, usage = await summary_of(settings.driver, request, state.history, plan, window, seconds)
        return settings.secrets.hide_text(summary), usage

    async def _compute_instructions(self, state: RunState) -> None:
        settings = self._settings
        assert settings.instructions_of is not None, "else nothing is computed"
        text = await self._compute(settings.instructions_of, state, self._contexts.memory)
        if not isinstance(text, str):
            raise ConfigurationError(f"instructions: the function must return a string, not a {type(text).__name__}")
        text = "\n\n".join(filter(None, (settings.secrets.hide_text(text), settings.instructions)))
        if text != self._instructions:
            await self._end_conversation()  # it begins with the instructions of before
            self._instructions = text

    async def _compute_tools(self, state: RunState, memory: dict[str, Any]) -> None:
        """Asks the agent's function for the tools of a turn. `state`, `memory`: the run before it."""
        settings = self._settings
        assert settings.tools_of is not None, "else nothing is computed"
        own = toolset_of(await self._compute(settings.tools_of, state, memory), "tools: the function must return ")
        toolset = own + settings.toolset if len(settings.toolset) else own
        check_deps(toolset, settings.deps)
        self._contexts.offer(toolset)
        if toolset.specs != self._specs:  # else the same list, for which a driver has its prompt already
            self._specs = toolset.specs
        self._tools_digest = toolset.digest

    async def _compute(
        self, function: Callable[[RunContext[Any]], Any], state: RunState, memory: dict[str, Any]
    ) -> Any:
        """What a function of the run returns."""
        context = self._contexts.batch(state).run_context(_NO_CALL)
        # A copy: what a tool keeps is recorded with its result, and this function has none.
        value = function(replace(context, memory=deepcopy(memory)))
        return await value if isawaitable(value) else value

    async def compute_tools_again(self) -> None:
        """Computes the tools of a turn that another process asked for, from the run as it was before the turn."""
        before = self._recorder.run_records.before_turn()
        await self._compute_tools(before, memory_after(before.memory))

    async def _end_conversation(self) -> None:
        conversation, self._conversation = self._conversation, None
        if conversation is not None:
            await conversation.aclose()

    async def close(self) -> None:
        """The run has ended: nothing runs and nothing is being recorded any more."""
        await self.drop_early()
        await self._checkpoint.close()
        await self._end_conversation()
        self._context = None
