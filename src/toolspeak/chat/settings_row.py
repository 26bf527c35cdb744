"""How a conversation goes on, as the end of its status line: model, dialect, tokens, cost. Pure."""

from __future__ import annotations

from toolspeak.agent import RunState
from toolspeak.chat.styled_text import StyledLine
from toolspeak.project.run_setup import Setup
from toolspeak.ui.format import money, printable


def settings_row(
    setup: Setup, dialect: str, state: RunState | None, window: int | None, cost: float | None
) -> StyledLine:
    """The row.

    - `dialect`: how the model writes calls; "" before that is known.
    - `state`: of the last run, or the one under way.
    - `window`: how many tokens the model reads, None if that is not known.
    - `cost`: in USD, None if that is not known.
    """
    row: StyledLine = [("", f" · {printable(setup.model) or 'no model'}")]
    if dialect:
        row.append(("", f" · {dialect}"))
    if state is not None and state.context.tokens:
        share = f" of {window:,} ({100 * state.context.tokens // window} %)" if window else ""
        row.append(("", f" · {state.context.tokens:,}{share} tokens"))
    if cost:
        row.append(("", f" · {money(cost)}"))
    if setup.approve != "ask":
        row.append(("class:warning", f" · approves {setup.approve}"))
    return row
