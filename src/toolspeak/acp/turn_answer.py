"""The answer to a prompt, as the protocol has it: why the turn ended, and its tokens. Pure."""

from __future__ import annotations

from typing import Any

from toolspeak.acp.call_presentation import JsonObject
from toolspeak.acp.permission_requests import CLOSED_QUESTION
from toolspeak.agent import RunResult
from toolspeak.data.run_values import PAUSED_STATUSES


def answer_to_prompt(result: RunResult[Any]) -> tuple[JsonObject, str]:
    """The answer, and a text for what the protocol has no word for; "" if it has."""
    usage = result.usage
    answer: JsonObject = {"stopReason": "end_turn"}
    text = ""
    if usage.input is not None and usage.output is not None:
        counts = {
            "inputTokens": usage.input,
            "outputTokens": usage.output,
            "totalTokens": usage.input + usage.output,
        }
        others = {
            "thoughtTokens": usage.reasoning,
            "cachedReadTokens": usage.cached,
            "cachedWriteTokens": usage.cache_write,
        }
        answer["usage"] = {**counts, **{name: count for name, count in others.items() if count}}
    if result.status == "awaiting_approval":
        names = ", ".join(each.call.name if each.call else each.call_id for each in result.requests)
        text = f"\n\n*Waiting for approval: {names}. Your next message asks the question again.*"
    elif result.status in PAUSED_STATUSES:
        text = f"\n\n*The turn is {result.status}. Your next message continues it.*"
    elif result.reason == "answer_cut":
        answer["stopReason"] = "max_tokens"
    elif result.state.limit is not None:
        answer["stopReason"] = "max_turn_requests"
    elif result.state.stop is not None and result.state.stop.message == CLOSED_QUESTION:
        answer["stopReason"] = "cancelled"
    elif result.reason in ("refusal", "content_filter"):
        answer["stopReason"] = "refusal"
    if result.error and answer["stopReason"] in ("end_turn", "refusal"):
        text = f"\n\n*There is no answer: {result.error}*"
    return answer, text
