"""Why runs end, in words."""

from __future__ import annotations

from collections.abc import Mapping

from toolspeak.data.run_values import RunStatus

END_REASONS: Mapping[str, str] = {
    "empty_answer": "the model's replies were empty",
    "forged_results": "the model repeatedly made up results of tools",
    "invalid_output": "the model's answers do not match the output type",
    "no_answer": "an interceptor ended the run before its first step",
    "content_filter": "the model API withheld the answer (content filter)",
    "refusal": "the model refused to answer",
    "cancelled": "the model API cancelled the turn",
}
"""By the reason of a run that the model gave no answer."""

_ENDS: Mapping[str, str] = {
    **END_REASONS,
    "length": "the answer was cut off by the token limit",
    "model_error": "the model's API failed",
    "tool_failure": "a tool failed",
    "interceptor_failure": "an interceptor failed",
    "blocked": "an interceptor blocked it",
    "terminated": "a person's decision ended it",
    "stopped": "the program stopped it",
    "seconds": "the time limit was reached",
    "repeats": "the calls were repeated without progress",
    "failures": "the calls failed again and again",
    **{name: f"the limit of {name} was reached" for name in ("steps", "calls", "tokens", "cost")},
}


def end_words(status: RunStatus, reason: str) -> str:
    """How a run ended, in words. The usual reason of an answer is left out."""
    words = status.replace("_", " ")
    return words if reason in ("", "answer") else f"{words}: {_ENDS.get(reason, reason.replace('_', ' '))}"
