"""ReAct: the model writes a thought and a decision as JSON; for any model that can write JSON.

Source: InstructorPHP, "Tool Calling Internals", ReActDriver.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import cast

from toolspeak.agent.drivers.driver import TOOK_CALLS, TurnRequest, with_words
from toolspeak.agent.drivers.react_decision import (
    EXTRACTION,
    BadDecision,
    Decision,
    asked_choice,
    decision_schema,
    observed,
    react_prompt,
    read_decision,
)
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
from toolspeak.data.values import quick
from toolspeak.dialects.schema_text import asks_text
from toolspeak.errors import ConfigurationError, ProviderError
from toolspeak.execute.calls.observe import (
    DecisionExtractionFailed,
    DecisionTaken,
    DecisionValidationFailed,
)
from toolspeak.providers.base import Provider
from toolspeak.wire.base import ModelRequest, OutputSchema

_FINAL = "Return only the final answer as plain text."


@quick(frozen=False)
class _History:
    prompt: str
    messages: list[TextMessage]
    known: int = 0


class ReActDriver:
    """Implements `Driver`: one decision a turn, extracted from the reply and checked.

    A reply that is no decision goes back to the model with what is wrong, up to `max_retries` times; one more is a call
    of the pseudo-tool `decision_extraction` or `decision_validation` that failed, and the run goes on. With
    `final_via_inference` the answer is asked for once more, as plain text and streamed, of `final_model` if given.
    The run's observers are told of every decision. All of a turn has the price of `provider`.

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
        self._max_retries = max_retries
        self._final = (final_model or provider) if final_via_inference else None
        self._prompt, self._schema, self._read = prompt, schema, read
        self._prompted: tuple[Sequence[ToolSpec], str, str] | None = None

    @property
    def name(self) -> str:
        return self.provider.name

    @property
    def starts_early(self) -> bool:
        return False

    def prompt(self, request: TurnRequest) -> str:
        known = self._prompted
        if known is None or known[0] is not request.tools or known[1] != request.instructions:
            asked = asks_text([spec.name for spec in request.tools if request.asks(spec)], request.tools)
            parts = [request.instructions, self._prompt(request.tools), asked]
            known = self._prompted = request.tools, request.instructions, "\n\n".join(part for part in parts if part)
        return known[2]

    async def turn(self, request: TurnRequest) -> AsyncIterator[Delta]:
        history = self._messages(request)
        messages = with_words(history, asked_choice(request.choice))
        tried: list[TextMessage] = []
        used, ended, text = list[Usage](), TurnEnded("stop"), ""
        decision: Decision | BadDecision = BadDecision(EXTRACTION, ())
        for attempt in range(1, self._max_retries + 2):
            text, ended = await self._ask(request, [*messages, *tried])
            used.append(ended.usage)
            if ended.finish in ("content_filter", "refusal", "cancelled"):
                yield TextDelta(text)
                yield TurnEnded(ended.finish, Usage.of_one_turn(used), ended.model)
                return
            decision = read_decision(text, request.tools, request.choice, self._read)
            if isinstance(decision, Decision):
                request.tell(DecisionTaken(decision.thought, decision.type, decision.tool, decision.written, attempt))
                break
            self._report(request, decision, attempt, text)
            cut = "" if ended.finish in NORMAL_END else " (it was cut off: be shorter)"
            again = f"That was no valid decision{cut}: {decision.reason}. Write the corrected JSON object alone."
            tried = [TextMessage("assistant", text), TextMessage("user", again)]
        if isinstance(decision, BadDecision):
            yield CallMalformed(0, text, decision.stage, decision.reason, 0, decision.stage)
            yield BatchEnded((), ok=False)
        elif decision.type == "call_tool":
            for delta in _called(decision):
                yield delta
        else:
            if decision.thought:
                yield ReasoningDelta(decision.thought)
            if self._final is None:
                yield TextDelta(decision.answer)
            else:
                async with aclosing(cast("AsyncGenerator[Delta]", self._answer(self._final, history))) as deltas:
                    async for delta in deltas:
                        waits = request.heard(delta)
                        if waits is not None:
                            await waits
                        if isinstance(delta, TurnEnded):
                            used, ended = [*used, delta.usage], delta
                        else:
                            yield delta
        yield TurnEnded("stop" if ended.finish in NORMAL_END else ended.finish, Usage.of_one_turn(used), ended.model)

    async def _ask(self, request: TurnRequest, messages: Sequence[TextMessage]) -> tuple[str, TurnEnded]:
        """The whole text of a reply: JSON says nothing before its end."""
        can = self.provider.capabilities  # the arguments depend on the tool: their object is open
        output = None
        if can.output and not can.output_closed:
            output = OutputSchema("decision", self._schema(request.tools), strict=False)
        pieces: list[str] = []
        asked = ModelRequest(messages, output=output, options=request.options)
        async with aclosing(cast("AsyncGenerator[Delta]", self.provider.stream(asked))) as stream:
            async for delta in stream:
                waits = request.heard(delta)
                if waits is not None:
                    await waits
                match delta:
                    case TextDelta(text):
                        pieces.append(text)
                    case TurnEnded():
                        return "".join(pieces), delta
                    case CallStarted() | CallMalformed():
                        raise ProviderError(TOOK_CALLS)
                    case _:
                        pass
        raise ProviderError(f"{self.name} ended its turn without saying so; ask again", retryable=True)

    async def _answer(self, provider: Provider, messages: Sequence[TextMessage]) -> AsyncIterator[Delta]:
        asked = [*messages, TextMessage("user", _FINAL)]
        async with aclosing(cast("AsyncGenerator[Delta]", provider.stream(ModelRequest(asked)))) as stream:
            async for delta in stream:
                yield delta

    def _messages(self, request: TurnRequest) -> Sequence[TextMessage]:
        prompt = self.prompt(request)
        history = cast("_History | None", request.memo.get("react"))
        if history is None or history.prompt != prompt:
            history = request.memo["react"] = _History(prompt, [TextMessage("system", prompt)])
        for i in range(history.known, len(request.messages)):
            history.messages.append(observed(request.messages[i]))
        history.known = len(request.messages)
        return history.messages

    def _report(self, request: TurnRequest, bad: BadDecision, attempt: int, raw: str) -> None:
        most = self._max_retries + 1
        if bad.stage == EXTRACTION:
            request.tell(DecisionExtractionFailed(bad.reason, raw, attempt, most))
        else:
            request.tell(DecisionValidationFailed(bad.errors, raw, attempt, most))

    async def aclose(self) -> None:
        await self.provider.aclose()
        if self._final is not None and self._final is not self.provider:
            await self._final.aclose()


def _called(decision: Decision) -> Sequence[Delta]:
    thought = [ReasoningDelta(decision.thought)] if decision.thought else []
    return [
        *thought,
        CallStarted(0, decision.tool),
        ArgumentsDelta(0, json.dumps(dict(decision.args), ensure_ascii=False)),
        CallCompleted(0, decision.tool, decision.args),
        BatchEnded((0,), ok=True),
    ]
