"""What is sent ahead of a conversation: the system text, and what a model is told of its tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from toolspeak.data.messages import TextMessage, ToolChoice
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick


@quick()
class Prompt:
    """`system` are the texts of system messages, sent first and in this order. `user` stands in front of the text of a
    message of the user: of the first one, or of the last one (`turn`). `name` is that of the first system message."""

    system: tuple[str, ...] = ()
    user: str = ""
    turn: Literal["first", "last"] = "first"
    name: str = ""

    @property
    def text(self) -> str:
        """All of it as one text."""
        return "\n\n".join([*self.system, self.user] if self.user else self.system)

    def before(self, history: Sequence[TextMessage], last: int | None = None) -> list[TextMessage]:
        """The messages to send. `last` is where in the history the user spoke last; None: look for it."""
        messages = [TextMessage("system", text, "" if i else self.name) for i, text in enumerate(self.system) if text]
        if not self.user:
            return [*messages, *history]
        places = [i for i, message in enumerate(history) if message.role == "user"]
        if not places:
            return [*messages, TextMessage("user", self.user), *history]
        at = places[0] if self.turn == "first" else places[-1] if last is None else last
        with_tools = TextMessage(history[at].role, self.user + history[at].text)
        return [*messages, *history[:at], with_tools, *history[at + 1 :]]


def joined(*parts: str) -> str:
    """Paragraphs, without those that are empty."""
    return "\n\n".join(part for part in parts if part)


def asks_text(names: Sequence[str], tools: Sequence[ToolSpec]) -> str:
    """The sentence that says which of the tools somebody may be asked about before a call runs; empty for none."""
    if not names:
        return ""
    *most, last = names
    which = "any tool" if len(names) == len(tools) > 1 else f"{', '.join(most)} or {last}" if most else last
    return f"A call of {which} may wait until the user has approved it."


def choice_text(choice: ToolChoice, tools: Sequence[ToolSpec]) -> str:
    """The sentence that asks for a tool choice; empty for `auto`."""
    match choice.mode:
        case "auto":
            return ""
        case "none":
            return "Do not call tools in this turn; answer in plain text."
        case "required":
            return "You must call at least one tool in this turn."
        case "specific":
            return f"You must call the tool {choice.name!r} in this turn."
