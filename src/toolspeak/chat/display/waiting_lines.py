"""What the person sent during a turn, and nothing has taken yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolspeak.chat.display.styled_text import StyledLine, truncate
from toolspeak.data.messages import Message
from toolspeak.ui.format import one_line, shorten

_MOST_ROWS = 3


class WaitingLines:
    """The messages and commands that wait. `keep`: gets the messages each time when there are other ones."""

    def __init__(self, keep: Callable[[Sequence[str]], object]) -> None:
        self._keep = keep
        self._last_kept: list[str] = []
        self._for_run: list[tuple[Message, str]] = []  # the model reads them at its next step
        self._later: list[str] = []  # the next turn begins with them
        self.commands: list[str] = []
        """The commands that follow after the turn."""

    def add_said(self, message: Message, text: str) -> None:
        """Adds a message of the run, and what the person wrote."""
        self._for_run.append((message, text))
        self.store()

    def add_later(self, text: str) -> None:
        """Adds a message that came too late for the run."""
        self._later.append(text)
        self.store()

    def take(self, message: Message) -> tuple[Message, str]:
        """Removes a message that the model reads now. Returns it as it was added, and what the person wrote."""
        for entry in self._for_run:
            if message.parts[: len(entry[0].parts)] == entry[0].parts:  # a hook may add to it
                self._for_run.remove(entry)
                self.store()
                return entry
        return message, message.text

    def texts(self, unread: Sequence[Message]) -> list[str]:
        """The messages that nobody has read and no hook has left out. `unread`: those of the run."""
        return [*(text for message, text in self._for_run if any(each is message for each in unread)), *self._later]

    def end_run(self, unread: Sequence[Message]) -> None:
        """Keeps what the run has not read for the next turn."""
        self._later, self._for_run = self.texts(unread), []
        self.store()

    def take_later(self) -> list[str]:
        """Removes the messages that a turn begins with, and returns them. They stay in store until the next change."""
        texts, self._later = self._later, []
        return texts

    def take_back(self, withdraw: Callable[[Message], bool], *, newest: bool = False) -> str:
        """Removes the messages, or the newest one alone, and returns them. `withdraw`: removes one from the run, unless
        the model reads it already."""
        texts, self._later = self._later[-1:] if newest else self._later, self._later[:-1] if newest else []
        for entry in reversed(self._for_run.copy()):
            if not (newest and texts) and withdraw(entry[0]):
                self._for_run.remove(entry)
                texts = [entry[1], *texts]
        self.store()
        return "\n\n".join(texts)

    def store(self) -> None:
        """Gives `keep` the messages, if there are other ones than before."""
        texts = [*(text for _, text in self._for_run), *self._later]
        if texts != self._last_kept:
            self._last_kept = texts
            self._keep(texts)

    def rows(self, unread: Sequence[Message], columns: int) -> list[StyledLine]:
        """A row for each, the newest last."""
        entries = [("⧗ queued: ", text) for text in self.texts(unread)]
        entries += [("⧗ after this turn (Esc interrupts it): ", command) for command in self.commands]
        return [
            truncate([("class:user", sign), ("class:note", one_line(shorten(text, 200)))], columns)
            for sign, text in entries[-_MOST_ROWS:]
        ]
