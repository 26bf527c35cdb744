"""What a turn of a dialect may hold, and where it starts."""

from __future__ import annotations

from typing import Literal

from toolspeak.data.values import quick

Section = Literal["text", "reasoning"]
"""Where a turn starts. Many chat templates open the reasoning block at the end of the prompt."""


@quick()
class BatchRule:
    """How many calls a turn may hold and which of them count. Calls after fabricated results never count."""

    counts: Literal["first_block", "last_call", "all_calls"]
    """Which calls count.

    - `first_block`: the calls of the turn's first block. The end of the block decides.
    - `last_call`: the turn's last call. The end of the turn decides.
    - `all_calls`: every call of the turn. The end of the turn decides.
    """
    max_calls: int | None = None
    """How many calls the prompt and the grammar allow in a turn; None: any number."""
