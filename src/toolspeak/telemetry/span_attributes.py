"""Attributes that live spans and exported ones share."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.data.events import ModelAnswered
from toolspeak.data.messages import MalformedCall, Message, ToolResult, Usage
from toolspeak.telemetry import convention_names as names
from toolspeak.telemetry.message_content import messages_json, result_json
from toolspeak.telemetry.span_contexts import Attributes


def usage_attributes(usage: Usage, cost: float | None) -> Attributes:
    """The attributes of the tokens and the cost of a turn or a run."""
    counts = {
        names.INPUT_TOKENS: usage.input,
        names.OUTPUT_TOKENS: usage.output,
        names.CACHED_TOKENS: usage.cached,
        names.CACHE_WRITE_TOKENS: usage.cache_write,
        names.REASONING_TOKENS: usage.reasoning,
        names.COST: cost,
    }
    return {name: count for name, count in counts.items() if count is not None}


def chat_attributes(
    run_id: str, agent: str, driver: str, dialect: str, step: int, history: Sequence[Message] | None
) -> Attributes:
    """The attributes of a model turn that are known when it is asked for. `history`: for content, else None."""
    provider, model = names.provider_and_model(driver)
    attributes: Attributes = {
        names.OPERATION: "chat",
        names.PROVIDER: provider,
        names.REQUEST_MODEL: model,
        names.AGENT: agent,
        names.RUN: run_id,
        names.STEP: step,
        names.DIALECT: dialect,
    }
    return attributes if history is None else {**attributes, names.INPUT_MESSAGES: messages_json(history)}


def answer_attributes(event: ModelAnswered, *, content: bool) -> Attributes:
    """The attributes of a model turn that are known at its end."""
    malformed_count = sum(isinstance(call, MalformedCall) for call in event.message.calls)
    return {
        names.FINISH_REASONS: [event.finish],
        names.CALLS: len(event.message.calls),
        **usage_attributes(event.usage, event.cost),
        **({names.USAGE_ESTIMATED: True} if event.usage_estimated else {}),
        **({names.MALFORMED_CALLS: malformed_count} if malformed_count else {}),
        **({names.OUTPUT_MESSAGES: messages_json([event.message], event.finish)} if content else {}),
    }


def call_attributes(run_id: str, agent: str, call_id: str, tool: str) -> Attributes:
    """The attributes of a call that are known when it starts."""
    return {
        names.OPERATION: "execute_tool",
        names.TOOL: tool,
        names.TOOL_TYPE: "function",
        names.CALL_ID: call_id,
        names.AGENT: agent,
        names.RUN: run_id,
    }


def result_attributes(result: ToolResult, *, content: bool) -> Attributes:
    """The attributes of a call's result; with `error.type` for a failure."""
    status = result.code or result.status
    return {
        names.CALL_STATUS: status,
        **({names.ERROR: status} if result.status == "failure" else {}),
        **({names.RESULT: result_json(result)} if content else {}),
    }
