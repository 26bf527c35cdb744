"""What a turn of a dialect may hold, and where it starts."""

from __future__ import annotations

from typing import Literal

from toolspeak.data.values import quick

Section = Literal["text", "reasoning"]
"""Where a turn starts: many chat templates open the reasoning block at the end of the prompt."""


@quick()
class BatchRule:
    """How many calls a turn may hold and which of them count.

    - `first_block`: the calls of the turn's first block; they are certain when it closes.
    - `last_call`: the turn's last call, which is certain when the turn ends.
    - `all_calls`: every call of the turn; they are certain when it ends.

    No call behind results that the model makes up counts.
    """

    counts: Literal["first_block", "last_call", "all_calls"]
    max_calls: int | None = None
