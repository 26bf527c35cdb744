"""What goes to the model with the person's next message besides its text."""

from __future__ import annotations

from dataclasses import replace

from toolspeak.data.messages import Message, TextPart


class NextMessage:
    """Texts that the model reads with the next message."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def add(self, text: str) -> None:
        """Adds a text."""
        self._texts.append(text)

    def complete(self, message: Message) -> Message:
        """The message with the texts. They stay until `clear`: the message may not reach the model."""
        return replace(message, parts=(*message.parts, *(TextPart(f"\n\n{text}") for text in self._texts)))

    def clear(self) -> None:
        """Forgets the texts: a message has taken them along."""
        self._texts = []
