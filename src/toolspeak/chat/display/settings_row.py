"""How a conversation goes on, as the end of its status line: approvals, model, tokens, cost, dialect. Pure."""

from __future__ import annotations

from toolspeak.agent import RunState
from toolspeak.chat.display.styled_text import StyledLine
from toolspeak.project.run_setup import Setup
from toolspeak.ui.format import count, money, printable


def tokens_of_conversation(state: RunState | None, tokens_before: int) -> int:
    """The tokens that the next turn reads, as the model's last one counted them. A run estimates them until its first
    turn; `tokens_before`, those at the end of the last run, are nearer if they are more."""
    if state is None:
        return 0
    is_estimate = not state.totals.tokens and not state.context.compacted
    return max(state.context.tokens, tokens_before) if is_estimate else state.context.tokens


def settings_row(setup: Setup, dialect: str, tokens: int, window: int | None, cost: float | None) -> StyledLine:
    """The row.

    - `dialect`: how the model writes calls; "" before that is known.
    - `tokens`: of the conversation; 0 before it begins.
    - `window`: how many tokens the model reads, None if that is not known.
    - `cost`: in USD, None if that is not known.
    """
    row: StyledLine = []
    if setup.approve != "ask":  # first: a narrow terminal cuts the end
        row.append(("class:warning", f" · approves {setup.approve}"))
    row.append(("", f" · {printable(setup.model) or 'no model'}"))
    if tokens:
        share = f"{tokens:,} of {window:,} ({100 * tokens // window} %) tokens" if window else count(tokens, "token")
        row.append(("", f" · {share}"))
    if cost:
        row.append(("", f" · {money(cost)}"))
    if dialect:
        row.append(("", f" · {dialect}"))
    return row
