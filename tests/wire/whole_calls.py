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
    found: dict[str, Any] = {"text": "", "reasoning": "", "started": [], "completed": [], "others": []}
    arguments: dict[int, str] = {}
    for delta in deltas:
        match delta:
            case TextDelta(text):
                found["text"] += text
            case ReasoningDelta(text):
                found["reasoning"] += text
            case CallStarted():
                found["started"].append(delta)
            case ArgumentsDelta(index, text):
                arguments[index] = arguments.get(index, "") + text
            case CallCompleted():
                found["completed"].append(delta)
            case _:
                found["others"].append(delta)
    found["arguments"] = {index: json.loads(text) for index, text in arguments.items()}
    return found
