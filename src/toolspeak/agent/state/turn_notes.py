"""What a run tells the model about its turns, apart from results."""

from __future__ import annotations

WRAP_UP = {
    "steps": "The limit of {allowed:g} steps is reached.",
    "calls": "The limit of {allowed:g} tool calls is reached.",
    "seconds": "The time limit of {allowed:g} seconds is reached.",
    "tokens": "The limit of {allowed:g} tokens is reached.",
    "cost": "The limit of {allowed:g} US dollars is reached.",
    "repeats": "The same calls brought the same results {used:g} times in a row: there is no progress.",
    "failures": "Every call of the last {used:g} steps failed: there is no progress.",
}
WRAP_UP_TASK = "Do not call any more tools. Answer now with what you have, and say what is not done."
EMPTY_TURN = "Your reply was empty. Call a tool, or give your answer in plain text."
NO_CALLS_NOW = "No tool can be called now. Give your answer in plain text."
REMINDER = "You must call {what} before you answer. Call it now."
FORGED_TURN = (
    "You wrote a block of results yourself. Only the system writes results: nothing was executed, and what you wrote "
    "there is not true. Call a tool, or answer without such a block."
)
