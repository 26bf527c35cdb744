"""The messages that a model reads: the prompt before a conversation, with its tools, and the turns after it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from toolspeak.data.messages import Message, ReasoningPart, TextMessage, ToolChoice
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


# --- the turns after it ----------------------------------------------------------------------------------------------


def append_message(messages: list[TextMessage], message: TextMessage) -> None:
    """Appends a message. Joins neighbouring user messages, and leaves out an assistant message without text.

    Many chat templates insist on turns that alternate, and many servers refuse an assistant message without text (a
    turn with only reasoning).
    """
    if message.role == "assistant" and not message.text:
        return
    if message.role == "user" and messages and messages[-1].role == "user":
        messages[-1] = TextMessage("user", f"{messages[-1].text}\n\n{message.text}")
    else:
        messages.append(message)


@quick()
class EarlierThoughts:
    """How the model's chat template shows the model its thoughts of earlier turns, before each turn's text."""

    before: str
    """The text before the thoughts."""
    after: str
    """The text after the thoughts."""
    keep: Literal["run", "always"] = "run"
    """Which turns show their thoughts: those after the last user message (`run`), or all (`always`)."""
    calls_only: bool = False
    """Only turns with calls show their thoughts."""


class AssistantTurns:
    """Adds the turns of the model to `messages`, with the thoughts that its chat template shows it again.

    Where thoughts are shown for one run (`EarlierThoughts.keep`), the next user message removes those before it. Until
    then messages are only appended, so that a server's prompt cache holds. In thoughts the first character of each
    `live` marker becomes a character reference.
    """

    def __init__(self, messages: list[TextMessage], earlier: EarlierThoughts | None, live: re.Pattern[str]) -> None:
        self._messages = messages
        self._earlier = earlier
        self._marker_pattern = live
        self._thoughtful: list[tuple[int, str]] = []  # this run's turns with thoughts: position, text without thoughts

    def add(self, message: Message, text: str) -> None:
        """Adds a turn of the model; `text` is the turn without its thoughts."""
        earlier, thought = self._earlier, ""
        if earlier is not None and (message.calls or not earlier.calls_only):
            thought = "\n".join(part.text for part in message.parts if isinstance(part, ReasoningPart)).strip()
        if earlier is None or not thought or (earlier.keep == "run" and not text):
            append_message(self._messages, TextMessage("assistant", text))
            return
        if earlier.keep == "run":
            self._thoughtful.append((len(self._messages), text))
        escaped_thought = self._marker_pattern.sub(lambda char: character_reference(char[0]), thought)
        append_message(
            self._messages, TextMessage("assistant", f"{earlier.before}{escaped_thought}{earlier.after}{text}")
        )

    def end_run(self) -> None:
        """Removes the thoughts of a run, which ends with a user message."""
        for at, text in self._thoughtful:
            self._messages[at] = TextMessage("assistant", text)
        self._thoughtful.clear()


def character_reference(char: str) -> str:
    """`&lt;` for '<'; `&#91;` and similar for other characters."""
    return "&lt;" if char == "<" else f"&#{ord(char)};"
