"""The prompt before a conversation: the system text, the tools, and sentences about both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from toolspeak.data.messages import TextMessage, ToolChoice
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick


@quick()
class Prompt:
    """The texts before a conversation."""

    system: tuple[str, ...] = ()
    """The texts of the system messages, which are sent first, in this order."""
    user: str = ""
    """Text before a user message."""
    turn: Literal["first", "last"] = "first"
    """Which user message that is."""
    name: str = ""
    """The name of the first system message."""

    @property
    def text(self) -> str:
        """The whole prompt as one text."""
        return "\n\n".join([*self.system, self.user] if self.user else self.system)

    def before(self, history: Sequence[TextMessage], last: int | None = None) -> list[TextMessage]:
        """The messages to send. `last` is the position of the last user message in the history; None: search for it."""
        messages = [TextMessage("system", text, "" if i else self.name) for i, text in enumerate(self.system) if text]
        if not self.user:
            return [*messages, *history]
        places = [i for i, message in enumerate(history) if message.role == "user"]
        if not places:
            return [*messages, TextMessage("user", self.user), *history]
        at = places[0] if self.turn == "first" else places[-1] if last is None else last
        with_tools = TextMessage(history[at].role, self.user + history[at].text)
        return [*messages, *history[:at], with_tools, *history[at + 1 :]]


def join_paragraphs(*parts: str) -> str:
    """The paragraphs that are not empty, as one text."""
    return "\n\n".join(part for part in parts if part)


def asks_text(names: Sequence[str], tools: Sequence[ToolSpec]) -> str:
    """The sentence about tools whose calls may wait for approval (`names`); empty if there are none."""
    if not names:
        return ""
    *most, last = names
    which = "any tool" if len(names) == len(tools) > 1 else f"{', '.join(most)} or {last}" if most else last
    return f"A call of {which} may wait until the user has approved it."


def choice_text(choice: ToolChoice, tools: Sequence[ToolSpec]) -> str:
    """The sentence that asks the model for a tool choice; empty for `auto`."""
    match choice.mode:
        case "auto":
            return ""
        case "none":
            return "Do not call tools in this turn; answer in plain text."
        case "required":
            return "You must call at least one tool in this turn."
        case "specific":
            return f"You must call the tool {choice.name!r} in this turn."
