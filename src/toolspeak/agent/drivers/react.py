"""ReAct: the model writes a thought and a decision as JSON; for any model that can write JSON.

Source: InstructorPHP, "Tool Calling Internals", ReActDriver.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import cast

from toolspeak.agent.drivers.base import NO_RUN, DriverContext, TurnRequest
from toolspeak.agent.drivers.react_decision import (
    EXTRACTION,
    BadDecision,
    ReActDecision,
    choice_instruction,
    decision_schema,
    react_message,
    react_prompt,
    read_decision,
)
from toolspeak.agent.drivers.text import TOOK_CALLS, with_words
from toolspeak.data.deltas import (
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallMalformed,
    CallStarted,
    Delta,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import JSON, NORMAL_END, TextMessage, Usage
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.prompt import asks_text
from toolspeak.errors import ConfigurationError, ProviderError
from toolspeak.execute.calls.observe import (
    DecisionExtractionFailed,
    DecisionTaken,
    DecisionValidationFailed,
)
from toolspeak.providers.base import Provider
from toolspeak.wire.base import ModelRequest, OutputSchema

_FINAL = "Return only the final answer as plain text."


class ReActDriver:
    """Implements `Driver`: one decision a turn, extracted from the reply and checked.

    A reply that is no decision goes back to the model with what is wrong, up to `max_retries` times; one more is a call
    of the pseudo-tool `decision_extraction` or `decision_validation` that failed, and the run continues. With
    `final_via_inference` the answer is asked for once more, as plain text and streamed, of `final_model` if given.
    The run's observers get every decision. All requests of a turn have the price of `provider`.

    `prompt` gives the text that teaches the model to decide, of the tools (`react_prompt` is the default); `schema` the
    JSON Schema of a decision, for APIs that answer by one (`decision_schema`). A decision of another form than
    `thought`, `type`, `tool`, `args`, `answer` is turned into that by `read`; further keys may be there, and are told
    (`DecisionTaken`).
    """

    def __init__(
        self,
        provider: Provider,
        *,
        max_retries: int = 2,
        final_via_inference: bool = False,
        final_model: Provider | None = None,
        prompt: Callable[[Sequence[ToolSpec]], str] = react_prompt,
        schema: Callable[[Sequence[ToolSpec]], Mapping[str, JSON]] = decision_schema,
        read: Callable[[Mapping[str, JSON]], Mapping[str, JSON]] | None = None,
    ) -> None:
        if max_retries < 0:
            raise ConfigurationError("max_retries: a number from 0 up")
        if final_model is not None and not final_via_inference:
            raise ConfigurationError("final_model goes with final_via_inference=True")
        self.provider = provider
        self.max_retries = max_retries
        self.final = (final_model or provider) if final_via_inference else None
        """The provider that writes the answer, if a second request asks for it."""
        self.read = read
        self._teach, self._schema = prompt, schema
        self._last_prompt: tuple[Sequence[ToolSpec], str, str] | None = None

    @property
    def name(self) -> str:
        return self.provider.name

    @property
    def starts_early(self) -> bool:
        return False

    @property
    def is_usual(self) -> bool:
        """Whether the driver's own text teaches decisions, and its own schema describes them."""
        return self._teach is react_prompt and self._schema is decision_schema

    def prompt(self, request: TurnRequest) -> str:
        last = self._last_prompt
        if last is None or last[0] is not request.tools or last[1] != request.instructions:
            approval_text = asks_text(
                [spec.name for spec in request.tools if request.needs_approval(spec)], request.tools
            )
            parts = [request.instructions, self._teach(request.tools), approval_text]
            last = self._last_prompt = request.tools, request.instructions, "\n\n".join(part for part in parts if part)
        return last[2]

    def output(self, tools: Sequence[ToolSpec]) -> OutputSchema | None:
        """The form of a decision, for an API that answers by one. The arguments depend on the tool, so that their
        object is open."""
        can = self.provider.capabilities
        if not can.output or can.output_closed:
            return None
        return OutputSchema("decision", self._schema(tools), strict=False)

    def open(self, run: DriverContext = NO_RUN) -> ReActConversation:
        return ReActConversation(self, run)

    async def aclose(self) -> None:
        await self.provider.aclose()
        if self.final is not None and self.final is not self.provider:
            await self.final.aclose()


class ReActConversation:
    """A run's turns with a `ReActDriver`."""

    def __init__(self, driver: ReActDriver, run: DriverContext) -> None:
        self._driver = driver
        self._run = run
        self._prompt = ""
        self._messages: list[TextMessage] = []  # as they are sent, the prompt in front
        self._count = 0  # messages of the request that are in `_messages`

    async def turn(self, request: TurnRequest) -> AsyncIterator[Delta]:
        driver, notify = self._driver, self._run.notify
        model_request = self.model_request(request)
        history, retry = self._messages, list[TextMessage]()
        usages, turn_end, text = list[Usage](), TurnEnded("stop"), ""
        decision: ReActDecision | BadDecision = BadDecision(EXTRACTION, ())
        for attempt in range(1, driver.max_retries + 2):
            again = replace(model_request, messages=[*model_request.messages, *retry]) if retry else model_request
            text, turn_end = await self._ask(again)
            usages.append(turn_end.usage)
            if turn_end.finish in ("content_filter", "refusal", "cancelled"):
                yield TextDelta(text)
                yield TurnEnded(turn_end.finish, Usage.of_one_turn(usages), turn_end.model)
                return
            decision = read_decision(text, request.tools, request.choice, driver.read)
            if isinstance(decision, ReActDecision):
                notify(DecisionTaken(decision.thought, decision.type, decision.tool, decision.as_written, attempt))
                break
            attempts = driver.max_retries + 1
            if decision.stage == EXTRACTION:
                notify(DecisionExtractionFailed(decision.reason, text, attempt, attempts))
            else:
                notify(DecisionValidationFailed(decision.errors, text, attempt, attempts))
            cut_note = "" if turn_end.finish in NORMAL_END else " (it was cut off: be shorter)"
            words = f"That was no valid decision{cut_note}: {decision.reason}. Write the corrected JSON object alone."
            retry = [TextMessage("assistant", text), TextMessage("user", words)]
        if isinstance(decision, BadDecision):
            yield CallMalformed(0, text, decision.stage, decision.reason, 0, decision.stage)
            yield BatchEnded((), ok=False)
        elif decision.type == "call_tool":
            if decision.thought:
                yield ReasoningDelta(decision.thought)
            yield CallStarted(0, decision.tool)
            yield ArgumentsDelta(0, json.dumps(dict(decision.args), ensure_ascii=False))
            yield CallCompleted(0, decision.tool, decision.args)
            yield BatchEnded((0,), ok=True)
        else:
            if decision.thought:
                yield ReasoningDelta(decision.thought)
            if driver.final is None:
                yield TextDelta(decision.answer)
            else:
                final_request = ModelRequest([*history, TextMessage("user", _FINAL)])
                async with aclosing(cast("AsyncGenerator[Delta]", driver.final.stream(final_request))) as deltas:
                    async for delta in deltas:
                        self._run.on_raw_delta(delta)
                        if isinstance(delta, TurnEnded):
                            usages, turn_end = [*usages, delta.usage], delta
                        else:
                            yield delta
        yield TurnEnded(
            "stop" if turn_end.finish in NORMAL_END else turn_end.finish, Usage.of_one_turn(usages), turn_end.model
        )

    def model_request(self, request: TurnRequest) -> ModelRequest:
        """The first request to the provider for a turn."""
        messages = with_words(self._request_messages(request), choice_instruction(request.choice))
        return ModelRequest(messages, output=self._driver.output(request.tools), options=request.options)

    async def _ask(self, model_request: ModelRequest) -> tuple[str, TurnEnded]:
        """The whole text of a reply: JSON says nothing before its end."""
        driver, pieces = self._driver, list[str]()
        async with aclosing(cast("AsyncGenerator[Delta]", driver.provider.stream(model_request))) as stream:
            async for delta in stream:
                self._run.on_raw_delta(delta)
                match delta:
                    case TextDelta(text):
                        pieces.append(text)
                    case TurnEnded():
                        return "".join(pieces), delta
                    case CallStarted() | CallMalformed():
                        raise ProviderError(TOOK_CALLS)
                    case _:
                        pass
        raise ProviderError(f"{driver.name} ended its turn without saying so; ask again", retryable=True)

    def _request_messages(self, request: TurnRequest) -> Sequence[TextMessage]:
        """The conversation as it is sent, with the messages that are new."""
        prompt = self._driver.prompt(request)
        if not self._messages or self._prompt != prompt:
            self._prompt, self._messages, self._count = prompt, [TextMessage("system", prompt)], 0
        for i in range(self._count, len(request.messages)):
            self._messages.append(react_message(request.messages[i]))
        self._count = len(request.messages)
        return self._messages

    async def aclose(self) -> None:
        self._messages = []
