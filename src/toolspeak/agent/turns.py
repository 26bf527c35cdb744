"""The model's turns of one run: asked for, read as they come, recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from toolspeak.agent.cassettes.recording import TurnCutOff
from toolspeak.agent.drivers.driver import ToolRunner, TurnRequest, text_digest
from toolspeak.agent.drivers.partial import PartialTurn
from toolspeak.agent.interceptors import Stage, turn_of
from toolspeak.agent.recorder import Recorder
from toolspeak.agent.redact import Shown
from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.compaction import Plan
from toolspeak.agent.state.decide import AskModel, Finish
from toolspeak.agent.state.history import call_id, hide_call
from toolspeak.agent.state.record import Estimate, answered, seconds_left, time_is_over
from toolspeak.agent.state.state import RunState
from toolspeak.agent.summary import compact
from toolspeak.data.deltas import CallCompleted, Delta, TurnEnded
from toolspeak.data.events import ModelAnswered, ModelAsked, ModelFailed
from toolspeak.data.messages import MalformedCall, Message, ToolCall, Usage
from toolspeak.data.prices import cost
from toolspeak.data.values import changed
from toolspeak.dialects import ParsedTurn, TurnCollector
from toolspeak.errors import ProviderError
from toolspeak.execute import Answer, BatchContext, EarlyStart
from toolspeak.tools.toolset import tools_digest

_WRAP_UP_SECONDS = 60.0


class TurnLeft(Exception):
    """A driver that ran tools within its turn cannot go on with it: the run pauses, or ends."""


class Turns:
    """Asks for the run's turns, one after the other. What begins early of a turn's calls is in `take_early`.

    `error` is the failure of the model's API that ended the run.
    """

    def __init__(
        self,
        settings: RunSettings,
        stage: Stage,
        recorder: Recorder,
        batch_context: Callable[[RunState], BatchContext],
    ) -> None:
        self._settings = settings
        self._stage = stage
        self._run = recorder
        self._batch_context = batch_context
        self._prompt = self._prompt_digest = ""
        self._estimate: Estimate | None = None  # where the provider does not say what a turn took
        self._memo: dict[str, Any] = {}
        self._partial = PartialTurn(settings.secrets, recorder.record)
        self._specs = settings.toolset.specs
        self._hear = self._partial.hear
        self._early: EarlyStart | None = None
        self._offered: list[ToolCall] = []  # complete calls of a turn that goes on
        self._starting: asyncio.Handle | None = None
        self._last_asked: ModelAsked | None = None
        self.error: ProviderError | None = None

    async def ask(self, action: AskModel, run_tools: ToolRunner) -> Finish | None:
        """Asks for a turn and records it; what the run ends with if the turn did not come and none may follow.
        `run_tools` is for drivers that run tools within their turn, and raises TurnLeft where they cannot go on."""
        run, settings, choice = self._run, self._settings, action.choice
        if action.reached is not None:
            await run.record(action.reached)
        output = settings.output.schema if settings.output is not None and settings.output.mode == "native" else None
        heard, intercepted = self._hear, "model" in self._stage.levels
        before = run.state
        request = TurnRequest(
            before.history,
            self._specs,
            settings.instructions,
            choice,
            self._memo,
            heard,
            output,
            settings.asks,
            state=before,
            tell=run.tell,
            run_tools=run_tools,
        )
        ready, own_messages = None, False
        if intercepted:
            sent = replace(request, messages=(*before.history, *before.queued))
            given, facts = await self._stage.before("model", sent, before.metadata)
            await run.record_all(facts)
            if given is None:
                return None
            ready = turn_of(given.value) if isinstance(given, Answer) else None
            request = sent if isinstance(given, Answer) else given
            own_messages = request.messages is not sent.messages
        self._last_asked = self._asked(request)
        await run.record(self._last_asked)
        state = run.state
        # A driver keeps what it has rendered of a run's messages: it must not take others for those.
        if own_messages:
            request = replace(request, memo={})
        elif request.messages is not state.history:
            request = replace(request, messages=state.history)
        if request.heard is not heard:  # an interceptor's own
            request = replace(request, heard=heard)
        wrapping_up = state.limit is not None
        seconds = _WRAP_UP_SECONDS if wrapping_up else seconds_left(state, settings.clock)
        scope = None if seconds is None else asyncio.timeout(seconds)
        try:
            if scope is None:
                turn = await (self._turn(request, ready) if intercepted else self._read_turn(request))
            else:
                async with scope:
                    turn = await self._turn(request, ready)
        except TurnLeft:
            return None
        except (TimeoutError, TurnCutOff) as error:
            limited = wrapping_up or state.limits.seconds is not None
            over = scope is not None and scope.expired()
            if not (limited if isinstance(error, TurnCutOff) else over):
                raise
            # The turn is lost. The clock need not agree yet that the time is over: it is not asked.
            if wrapping_up:
                return Finish("no_answer", "", run.state.limit or "seconds")
            await run.record(time_is_over(run.state, settings.clock))
            return None
        except ProviderError as error:
            self.error = error
            await run.record(ModelFailed(settings.secrets.hide_text(str(error)), error.status))
            return None
        if turn is None:
            return None
        usage, estimated = turn.usage, turn.usage.total is None
        if estimated:
            if self._estimate is None:
                self._estimate = Estimate()
            usage = self._estimate.of(run.state.history, self._prompt, turn)
        # A turn that an interceptor gave in the model's place costs nothing.
        spent = cost(usage, settings.driver.name, settings.prices) if ready is None else 0.0
        await run.record(answered(turn, usage, estimated, spent, settings.secrets, wrapping_up=choice.mode == "none"))
        return None

    def _asked(self, request: TurnRequest) -> ModelAsked:
        driver = self._settings.driver
        prompt = driver.prompt(request)
        if prompt is not self._prompt:
            self._prompt, self._prompt_digest = prompt, text_digest(prompt)
        tools = self._settings.toolset
        digest = tools.digest if request.tools is self._specs else tools_digest(request.tools)
        return ModelAsked(driver.name, digest, self._prompt_digest, request.choice)

    async def _turn(self, request: TurnRequest, ready: ParsedTurn | None) -> ParsedTurn | None:
        """The turn with what surrounds it; None when the run is to end. `ready` stands for the model's."""
        if "model" not in self._stage.levels:
            return await self._read_turn(request)
        if ready is not None:
            return ready
        turn, facts = await self._stage.around(
            "model", request, lambda: self._read_turn(request), lambda: self._run.state.metadata
        )
        await self._run.record_all(facts)
        return turn

    async def _read_turn(self, request: TurnRequest) -> ParsedTurn:
        settings, publish = self._settings, self._run.publish
        collector, so_far = TurnCollector(self._call_id), self._partial
        show = publish
        if publish is not None and settings.secrets:
            show = Shown(settings.secrets, publish).put
        if self._early is not None or self._starting is not None:
            await self.drop_early()
        so_far.begin()
        starts_early = settings.early_start and settings.driver.starts_early and request.choice.mode != "none"
        stream = cast("AsyncGenerator[Delta]", settings.driver.turn(request))
        try:
            try:
                async for delta in stream:
                    collector.add(delta)
                    if not so_far.heard and (waits := so_far.add(delta)) is not None:
                        await waits
                    if starts_early and type(delta) is CallCompleted:
                        self._offer(collector.call(delta.index))
                    if show is not None and (show is not publish or type(delta) is not TurnEnded):
                        waits = show(delta)
                        if waits is not None:
                            await waits
            finally:
                await stream.aclose()
        except (Exception, asyncio.CancelledError):
            self._withdraw()
            await so_far.keep()
            raise
        waits = so_far.end()
        if waits is not None:
            await waits
        return collector.turn()

    def _call_id(self, index: int) -> str:
        state = self._run.state
        return call_id(state.turns_before + state.step, index)

    async def go_on_within(self) -> None:
        """Records that the driver's turn goes on behind the calls it made."""
        if self._last_asked is not None:
            await self._run.record(self._last_asked)

    async def begin_within(self, calls: Sequence[ToolCall]) -> None:
        """Records calls that a driver makes within its turn, as a turn of their own."""
        named = tuple(changed(call, id=self._call_id(index)) for index, call in enumerate(calls))
        hidden = tuple(hide_call(call, self._settings.secrets) for call in named)
        await self._run.record(ModelAnswered(Message("assistant", hidden), "tool_calls", Usage(0, 0), cost=0.0))

    def _offer(self, call: ToolCall | MalformedCall) -> None:
        """Has a complete call begin early, if it may, as soon as the event loop goes round. Most turns with an API's
        own calls are over by then: of those nothing is early."""
        if type(call) is not ToolCall:
            return
        self._offered.append(call)
        if self._starting is None:
            self._starting = asyncio.get_running_loop().call_soon(self._begin_early, self._run.state)

    def _begin_early(self, before: RunState) -> None:
        settings, offered = self._settings, self._offered
        self._starting, self._offered = None, []
        if self._early is None:
            early = getattr(settings.executor, "early", None)
            self._early = None if early is None else early(self._batch_context(before))
        if self._early is not None:
            for call in offered:
                self._early.offer(hide_call(call, settings.secrets))

    def _withdraw(self) -> None:
        """From here on no call of the turn begins early."""
        if self._starting is not None:
            self._starting.cancel()
            self._starting, self._offered = None, []

    def take_early(self) -> EarlyStart | None:
        """What has begun of the turn's calls, for the batch that goes on with it."""
        self._withdraw()
        early, self._early = self._early, None
        return early

    async def drop_early(self) -> None:
        """Cancels what has begun of calls that no batch goes on with."""
        early = self.take_early()
        if early is not None:
            await early.drop()

    async def compact(self, plan: Plan) -> None:
        """Makes the history shorter for the model."""
        settings, state = self._settings, self._run.state
        request = TurnRequest(state.history, self._specs, settings.instructions, asks=settings.asks)
        await self._run.record(await compact(plan, settings, request, seconds_left(state, settings.clock)))
        self._memo.clear()  # what the driver rendered is no longer what was said
        self._estimate = None

    async def close(self) -> None:
        """The run has ended: nothing goes on and nothing is being recorded any more."""
        await self.drop_early()
        await self._partial.close()
