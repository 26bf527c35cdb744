"""A run's deltas and records as events of AG-UI (the Agent User Interaction Protocol, version 1)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast

from ag_ui import core

from toolspeak.adapters.ag_ui_subagents import SubagentEvents
from toolspeak.agent.recording.recorder import StreamItem
from toolspeak.agent.state.state import RunState
from toolspeak.data.deltas import (
    ArgumentsDelta,
    CallCompleted,
    CallIgnored,
    CallMalformed,
    CallStarted,
    ReasoningDelta,
    TextAside,
    TextDelta,
    TextWasReasoning,
    ToolProgress,
    TurnRestarted,
)
from toolspeak.data.events import (
    ApprovalRequested,
    MetadataSet,
    ModelAnswered,
    ModelAsked,
    Record,
    RunFinished,
    RunPaused,
    ToolFinished,
)
from toolspeak.data.messages import MalformedCall, Message, ToolCall
from toolspeak.data.values import JSON

APPROVAL = "tool_approval"
"""The reason of an interrupt that asks whether a call may run."""

_ANSWER_SCHEMA: Mapping[str, JSON] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "reason": {"type": "string", "description": "Why the call is refused, for the model."},
        "arguments": {"type": "object", "description": "Other arguments for the call."},
    },
    "required": ["approved"],
}


class AgUiEvents:
    """Turns what one AG-UI run yields into its events, in order. It holds what is open: a message, a call, a step.

    - `thread_id`, `run_id`: the client's.
    - `messages`: the conversation as the client sent it.
    - `front_end_tools`: the names of the client's tools. Their results come from the client, so none is sent back.
    """

    def __init__(
        self,
        thread_id: str,
        run_id: str,
        messages: Sequence[core.Message] = (),
        front_end_tools: Collection[str] = (),
    ) -> None:
        self._thread_id, self._run_id = thread_id, run_id
        self._front_end_tools = front_end_tools
        self._messages: list[core.Message] = [*messages]
        self._step = ""
        self._turn_id = ""
        self._open: tuple[str, str] | None = None  # a message: "text" or "reasoning", and its id
        self._pieces = 0
        self._calls: dict[int, str] = {}  # the calls of this turn, by index
        self._started_ids: set[str] = set()
        self._ended_ids: set[str] = set()
        self._has_arguments: set[str] = set()
        self._is_retracted = False
        self._questions: dict[str, ApprovalRequested] = {}
        self._state: dict[str, JSON] | None = None  # what the client has; None: nothing yet
        self._subagents = SubagentEvents()

    def begin(self) -> core.RunStartedEvent:
        """The first event."""
        return core.RunStartedEvent(thread_id=self._thread_id, run_id=self._run_id)

    def of(self, item: StreamItem) -> Iterator[core.BaseEvent]:
        """The events of one item of `Run.stream`. Those of the run's end come from `end`."""
        match item:
            case TextDelta(text=text) | TextAside(text=text):
                yield from self._piece("text", text)
            case ReasoningDelta(text=text):
                yield from self._piece("reasoning", text)
            case CallStarted():
                yield from self._close_message()
                call_id = item.call_id or item.id or f"{self._turn_id}-{item.index}"
                self._calls[item.index] = call_id
                yield self._start_call(call_id, item.name)
            case ArgumentsDelta():
                if item.text and (call_id := self._calls.get(item.index)) is not None:
                    self._has_arguments.add(call_id)
                    yield core.ToolCallArgsEvent(tool_call_id=call_id, delta=item.text)
            case CallCompleted() | CallMalformed():
                yield from self._complete(item)
            case CallIgnored():
                if (call_id := self._calls.get(item.index)) is not None:
                    yield from self._end_call(call_id)
                    yield self._result(call_id, f"This call does not count and did not run: {item.reason}")
            case TextWasReasoning() | TurnRestarted():
                self._is_retracted = True
                yield from self._close_turn()
            case ToolProgress():
                value = {"toolCallId": item.call_id, "message": item.message}
                yield core.CustomEvent(name="tool_progress", value=value)
            case Record():
                yield from self._of_record(item) if item.parent_run_id is None else self._subagents.of(item)
            case _:
                pass

    def _of_record(self, record: Record) -> Iterator[core.BaseEvent]:
        match record.event:
            case ModelAsked():
                yield from self._end_step()
                self._step, self._turn_id = f"step {record.step}", f"{record.run_id}-{record.step}"
                yield core.StepStartedEvent(step_name=self._step)
            case ModelAnswered(message=message):
                self._turn_id = f"{record.run_id}-{record.step}"
                yield from self._answer(message)
            case ToolFinished(result=result):
                is_failure = result.status == "failure"
                if result.name not in self._front_end_tools:
                    yield from self._end_call(result.call_id)
                    yield self._result(result.call_id, result.text, error=result.text if is_failure else None)
            case ApprovalRequested() as question:
                self._questions[question.call_id] = question
            case MetadataSet(values=values):
                yield self._state_with(values)
            case RunPaused() | RunFinished():
                yield from self._end_step()
            case _:
                pass

    def restore(self, metadata: Mapping[str, JSON]) -> Iterator[core.BaseEvent]:
        """The event of the metadata that a run has before it goes on, if it has some."""
        if metadata:
            yield self._state_with(metadata)

    def _state_with(self, values: Mapping[str, JSON]) -> core.BaseEvent:
        """The state after a change: all of it the first time, then what is new."""
        before, self._state = self._state, {**(self._state or {}), **values}
        if before is None:
            return core.StateSnapshotEvent(snapshot=dict(self._state))
        operations: list[Any] = []
        for key, value in values.items():
            path = "/" + key.replace("~", "~0").replace("/", "~1")  # a JSON Pointer
            operations.append({"op": "replace" if key in before else "add", "path": path, "value": value})
        return core.StateDeltaEvent(delta=operations)

    def end(self, state: RunState) -> Iterator[core.BaseEvent]:
        """The last events, of the run as it stands when it has ended or paused."""
        yield from self._end_step()
        usage = state.totals.usage
        tokens = [
            core.TokenUsage(
                model=state.model,
                input_tokens=usage.input,
                output_tokens=usage.output,
                total_tokens=usage.total,
                reasoning_tokens=usage.reasoning,
            )
        ]
        if state.status in ("failed", "no_answer"):
            message = state.error or f"The run ended without an answer: {state.reason or 'no reason is known'}."
            yield core.RunErrorEvent(message=message, code=state.reason or state.status, usage=tokens)
            return
        interrupts = self._interrupts(state)
        if interrupts:
            outcome = core.RunFinishedInterruptOutcome(interrupts=interrupts)
        else:
            outcome = core.RunFinishedSuccessOutcome(pending_tool_call_ids=self._pending_ids(state) or None)
        yield core.RunFinishedEvent(
            thread_id=self._thread_id,
            run_id=self._run_id,
            result=state.answer or None,
            outcome=outcome,
            usage=tokens,
            metadata={"toolspeak": {"run_id": state.run_id, "status": state.status}},
        )

    def error(self, message: str, code: str) -> Iterator[core.BaseEvent]:
        """The last events of a run that broke off."""
        yield from self._end_step()
        yield core.RunErrorEvent(message=message, code=code)

    def _interrupts(self, state: RunState) -> list[core.Interrupt]:
        """What the run waits for, besides the results of the client's tools."""
        if state.status == "awaiting_approval":
            return [_approval(question) for question in state.approvals.open_requests.values()]
        waits = [call for call in self._waiting_calls(state) if call.name not in self._front_end_tools]
        if state.status == "waiting" and waits:
            return [
                core.Interrupt(
                    id=call.id,
                    reason="wait",
                    message=f"{call.name} waits for {state.pending.waits[call.id].event or 'a time'}.",
                    tool_call_id=call.id,
                )
                for call in waits
            ]
        if state.status in ("suspended", "queued"):
            return [core.Interrupt(id=state.run_id, reason=state.status, message="The run is suspended.")]
        return []

    def _pending_ids(self, state: RunState) -> list[str]:
        return [call.id for call in self._waiting_calls(state) if call.name in self._front_end_tools]

    def _waiting_calls(self, state: RunState) -> list[ToolCall]:
        waits = state.pending.waits
        return [call for call in state.pending.calls if isinstance(call, ToolCall) and call.id in waits]

    # --- messages -----------------------------------------------------------------------------------------------------

    def _piece(self, kind: str, text: str) -> Iterator[core.BaseEvent]:
        if not text:
            return
        if self._open is None or self._open[0] != kind:
            yield from self._close_message()
            self._pieces += 1
            message_id = self._turn_id if kind == "text" else f"{self._turn_id}-reasoning-{self._pieces}"
            if kind == "text" and message_id in self._ended_ids:
                message_id = f"{self._turn_id}-{self._pieces}"
            self._open = kind, message_id
            if kind == "text":
                yield core.TextMessageStartEvent(message_id=message_id, role="assistant")
            else:
                yield core.ReasoningStartEvent(message_id=message_id)
                yield core.ReasoningMessageStartEvent(message_id=message_id, role="reasoning")
        message_id = self._open[1]
        if kind == "text":
            yield core.TextMessageContentEvent(message_id=message_id, delta=text)
        else:
            yield core.ReasoningMessageContentEvent(message_id=message_id, delta=text)

    def _close_message(self) -> Iterator[core.BaseEvent]:
        if self._open is None:
            return
        kind, message_id = self._open
        self._open = None
        self._ended_ids.add(message_id)
        if kind == "text":
            yield core.TextMessageEndEvent(message_id=message_id)
        else:
            yield core.ReasoningMessageEndEvent(message_id=message_id)
            yield core.ReasoningEndEvent(message_id=message_id)

    def _close_turn(self) -> Iterator[core.BaseEvent]:
        """Ends what is open of a turn: a message, calls."""
        yield from self._close_message()
        for call_id in self._calls.values():
            yield from self._end_call(call_id)
        self._calls.clear()

    def _end_step(self) -> Iterator[core.BaseEvent]:
        yield from self._close_turn()
        if self._step:
            yield core.StepFinishedEvent(step_name=self._step)
            self._step = ""

    def _answer(self, message: Message) -> Iterator[core.BaseEvent]:
        """The rest of a turn that was read to its end: what no delta showed. After a retraction the client gets all
        messages anew."""
        yield from self._close_message()
        was_shown = self._turn_id in self._ended_ids
        if self._is_retracted:
            self._messages.append(self._as_message(message))
            yield core.MessagesSnapshotEvent(messages=[*self._messages])
            self._is_retracted = False
            for call in message.calls:
                self._started_ids.add(call.id)
                self._ended_ids.add(call.id)
            return
        if message.text and not was_shown and not self._started_ids.intersection(call.id for call in message.calls):
            yield from self._piece("text", message.text)
            yield from self._close_message()
        for call in message.calls:
            if call.id not in self._started_ids:
                yield self._start_call(call.id, call.name or "unknown")
            if call.id not in self._ended_ids and call.id not in self._has_arguments:
                yield core.ToolCallArgsEvent(tool_call_id=call.id, delta=_arguments_text(call))
            yield from self._end_call(call.id)
        self._messages.append(self._as_message(message))

    def _as_message(self, message: Message) -> core.AssistantMessage:
        calls = [core.ToolCall(id=call.id, function=_function_of(call)) for call in message.calls]
        return core.AssistantMessage(id=self._turn_id, content=message.text or None, tool_calls=calls or None)

    # --- calls --------------------------------------------------------------------------------------------------------

    def _start_call(self, call_id: str, name: str) -> core.BaseEvent:
        self._started_ids.add(call_id)
        return core.ToolCallStartEvent(tool_call_id=call_id, tool_call_name=name, parent_message_id=self._turn_id)

    def _complete(self, item: CallCompleted | CallMalformed) -> Iterator[core.BaseEvent]:
        yield from self._close_message()
        call_id = self._calls.get(item.index)
        if call_id is None:
            if item.call_id is None:
                return  # the record of the turn has it
            call_id = self._calls[item.index] = item.call_id
            yield self._start_call(call_id, item.name or "unknown")
        if call_id not in self._has_arguments:
            text = json.dumps(dict(item.arguments)) if isinstance(item, CallCompleted) else item.raw
            self._has_arguments.add(call_id)
            if text:
                yield core.ToolCallArgsEvent(tool_call_id=call_id, delta=text)
        yield from self._end_call(call_id)

    def _end_call(self, call_id: str) -> Iterator[core.BaseEvent]:
        if call_id in self._started_ids and call_id not in self._ended_ids:
            self._ended_ids.add(call_id)
            yield core.ToolCallEndEvent(tool_call_id=call_id)

    def _result(self, call_id: str, text: str, error: str | None = None) -> core.BaseEvent:
        message_id = f"{call_id}-result"
        self._messages.append(core.ToolMessage(id=message_id, content=text, tool_call_id=call_id, error=error))
        metadata = {"toolspeak": {"failed": True}} if error is not None else None
        return core.ToolCallResultEvent(message_id=message_id, tool_call_id=call_id, content=text, metadata=metadata)


def _approval(question: ApprovalRequested) -> core.Interrupt:
    details = "\n".join(part for part in (question.reason, question.preview) if part)
    return core.Interrupt(
        id=question.call_id,
        reason=APPROVAL,
        message=f"May {question.call.name} run?" + (f"\n{details}" if details else ""),
        tool_call_id=question.call_id,
        response_schema=dict(_ANSWER_SCHEMA),
        metadata={
            "toolspeak": {
                "name": question.call.name,
                "arguments": dict(question.call.arguments),
                "digest": question.digest,
                "writes": sorted(question.effects.writes),
                "external": question.effects.external,
            }
        },
    )


def _function_of(call: ToolCall | MalformedCall) -> core.FunctionCall:
    return core.FunctionCall(name=call.name or "unknown", arguments=_arguments_text(call))


def _arguments_text(call: ToolCall | MalformedCall) -> str:
    return json.dumps(dict(call.arguments)) if isinstance(call, ToolCall) else call.raw


def encode_event(event: core.BaseEvent) -> bytes:
    """The event as a server-sent event. A lone surrogate, which UTF-8 cannot hold, becomes U+FFFD."""
    try:
        return b"data: %b\n\n" % event.model_dump_json(by_alias=True).encode()
    except ValueError:
        text = json.dumps(_plain(event.model_dump(by_alias=True)), ensure_ascii=False, default=str)
        return b"data: %b\n\n" % text.encode("utf-8", "replace")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: _plain(each) for key, each in fields.items() if each is not None}
    if isinstance(value, list):
        return [_plain(each) for each in cast("list[Any]", value)]
    return getattr(value, "value", value)
