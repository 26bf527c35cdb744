"""What a turn of a dialect may hold, and where it starts."""

from __future__ import annotations

from typing import Literal

from toolspeak.data.values import quick

Section = Literal["text", "reasoning"]
"""Where a turn starts: many chat templates open the reasoning block in the prompt already."""


@quick()
class BatchRule:
    """How many calls a turn may hold and which of them count.

    `counts="first_block"`: the calls of the turn's first block, known when it closes.
    `counts="last_call"`: the turn's last call, known only when the turn ends.
    `counts="all_calls"`: every call of the turn, known when it ends.

    Results that the model makes up end the turn in this sense: no call behind them counts.
    """

    counts: Literal["first_block", "last_call", "all_calls"]
    max_calls: int | None = None
