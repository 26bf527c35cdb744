"""What a model reads of what it thought in earlier turns: as its chat template writes it, or nothing."""

from __future__ import annotations

import re

from toolspeak.data.messages import Message, ReasoningPart, TextMessage
from toolspeak.dialects.base import EarlierThoughts
from toolspeak.dialects.prompts.rendering import append_message


class AssistantTurns:
    """Adds the turns of a history, and takes back the thoughts in them that their model reads no longer.

    Where thoughts are kept for a run alone (`EarlierThoughts.keep`), the next user message takes those before it out
    of the history; until then messages are only added, so that a server's prompt cache holds. In thoughts each
    character that would begin a `live` marker is a character reference.
    """

    def __init__(self, messages: list[TextMessage], earlier: EarlierThoughts | None, live: re.Pattern[str]) -> None:
        self._messages = messages
        self._earlier = earlier
        self._live = live
        self._thoughtful: list[tuple[int, str]] = []  # those with thoughts of this run, and without these

    def add(self, message: Message, text: str) -> None:
        """A turn of the model, with the `text` it has without its thoughts."""
        earlier = self._earlier
        thought = "" if earlier is None or (earlier.calls_only and not message.calls) else _thought_of(message)
        if earlier is None or not thought or (earlier.keep == "run" and not text):
            append_message(self._messages, TextMessage("assistant", text))
            return
        if earlier.keep == "run":
            self._thoughtful.append((len(self._messages), text))
        shown = self._live.sub(_reference, thought)
        append_message(self._messages, TextMessage("assistant", f"{earlier.opening}{shown}{earlier.closing}{text}"))

    def end_run(self) -> None:
        """A user message comes."""
        for at, text in self._thoughtful:
            self._messages[at] = TextMessage("assistant", text)
        self._thoughtful.clear()


def _thought_of(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if isinstance(part, ReasoningPart)).strip()


def _reference(found: re.Match[str]) -> str:
    return "&lt;" if found[0] == "<" else f"&#{ord(found[0])};"
