"""What formats whose calls come whole share in their tests: a turn as what it says, however it was cut."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from toolspeak.data.deltas import (
    ArgumentsDelta,
    CallCompleted,
    CallStarted,
    Delta,
    ReasoningDelta,
    TextDelta,
)


def joined_deltas(deltas: Iterable[Delta]) -> dict[str, Any]:
    """Text, reasoning and each call's arguments joined; what else came, in order, the calls' own deltas apart."""
    summary: dict[str, Any] = {"text": "", "reasoning": "", "started": [], "completed": [], "others": []}
    arguments: dict[int, str] = {}
    for delta in deltas:
        match delta:
            case TextDelta(text):
                summary["text"] += text
            case ReasoningDelta(text):
                summary["reasoning"] += text
            case CallStarted():
                summary["started"].append(delta)
            case ArgumentsDelta(index, text):
                arguments[index] = arguments.get(index, "") + text
            case CallCompleted():
                summary["completed"].append(delta)
            case _:
                summary["others"].append(delta)
    summary["arguments"] = {index: json.loads(text) for index, text in arguments.items()}
    return summary
