"""The input for answers: the question that is open, what the person types to it, and which of the two inputs has the
keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.layout import Layout

MESSAGE_KEYS = "You write a message here · Tab goes to the question"
"""What the status line says when a message has the keys and a question is open."""

_CAME_BETWEEN = "A question has come: Tab answers it, Enter again sends your message."


class AnswerInput:
    """The line for an answer. It shares the keys with the input for messages.

    A question takes the keys, unless the person has typed into the message since the last answer. Then the first Enter
    only says that a question is there: what is typed for one of the two never reaches the other.

    - `message`: the input for messages.
    - `layout`: returns the layout of both.
    """

    def __init__(self, message: Buffer, layout: Callable[[], Layout]) -> None:
        self.buffer = Buffer(multiline=True)
        self.is_writing = False
        """Whether the person has typed into the message since the last answer."""
        self._message, self._layout = message, layout
        self._answer: asyncio.Future[str | None] | None = None
        self._prompt = ""
        self._arrows = self._can_leave = self._came_between = False
        message.on_text_changed += self._watch_message

    @property
    def is_open(self) -> bool:
        """Whether something is asked."""
        return self._answer is not None

    @property
    def prompt(self) -> str | None:
        """What is asked; None without a question."""
        return self._prompt if self.is_open else None

    @property
    def has_keys(self) -> bool:
        """Whether the keys go to the answer."""
        return self.is_open and self._layout().has_focus(self.buffer)

    @property
    def takes_arrows(self) -> bool:
        """Whether an arrow key is an answer."""
        return self.has_keys and self._arrows and not self.buffer.text

    async def ask(
        self, prompt: str, text: str, *, arrows: bool, can_leave: bool, draw: Callable[[], None]
    ) -> str | None:
        """Waits for an answer, as `Front.ask`. `draw`: shows the question."""
        self._answer = asyncio.get_running_loop().create_future()
        self._prompt, self._arrows, self._can_leave = prompt, arrows, can_leave
        self.buffer.reset()
        self.buffer.insert_text(text)
        self._came_between = self.is_writing = self.is_writing and bool(self._message.text)
        if not self.is_writing:
            self._layout().focus(self.buffer)
        draw()
        try:
            return await self._answer
        finally:
            self._answer = None
            self.buffer.reset()
            self._layout().focus(self._message)

    def reply(self, text: str | None) -> None:
        """Answers the question; None leaves it."""
        if self._answer is not None and not self._answer.done():
            self.is_writing = self.is_writing and not self.has_keys
            self._answer.set_result(text)

    def leave(self) -> bool:
        """Leaves a question that can be left and has the keys. Returns whether there was one."""
        if not (self.has_keys and self._can_leave):
            return False
        self.reply(None)
        return True

    def take_keys(self) -> None:
        """Has the keys go to the answer, if something is asked."""
        self.is_writing = self._came_between = False
        if self.is_open:
            self._layout().focus(self.buffer)

    def change_focus(self) -> None:
        """Has the keys go to the other one of the two inputs."""
        if self.has_keys:
            self._layout().focus(self._message)
        else:
            self.take_keys()

    def objection(self) -> str:
        """Why the message is not sent by this Enter: a question came while it was written. "" if it may be sent."""
        came_between, self._came_between = self.is_open and self._came_between, False
        return _CAME_BETWEEN if came_between else ""

    def _watch_message(self, _buffer: Buffer) -> None:
        self.is_writing = bool(self._message.text) and self._layout().has_focus(self._message)
