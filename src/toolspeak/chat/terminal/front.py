"""What the conversation needs of the terminal it is held at."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from toolspeak.chat.display.styled_text import StyledLine

ResultT = TypeVar("ResultT")

PREVIOUS, NEXT = "\0up", "\0down"
"""What `Front.ask` returns for the arrow keys."""

AGAIN = "\0again"
"""What `Front.reply` gets if what is asked may be decided by now."""


class ChatTerminal(Protocol):
    """A terminal: a screen that is drawn again, or plain lines."""

    live: Callable[[int, int], list[StyledLine]]
    """Returns the rows above the input, for a width and at most so many rows."""
    status: Callable[[int], StyledLine]
    """Returns the last row, for a width."""
    interrupt: Callable[[], bool]
    """Ends what the model does. Returns whether there was something to end."""
    take_back: Callable[[], str]
    """Takes back the newest message that waits, and returns it; "" if there is none."""
    show_thoughts: Callable[[], None]
    """Shows or hides the model's thoughts."""
    arguments_of: Callable[[str], Iterable[str]]
    """Returns what may follow a command."""
    is_busy: bool
    """Whether the model works."""

    @property
    def columns(self) -> int: ...

    @property
    def rows(self) -> int: ...

    def print(self, lines: Iterable[StyledLine]) -> None:
        """Adds lines for good."""
        ...

    def refresh(self) -> None:
        """Draws what may change again soon."""
        ...

    async def ask(self, prompt: str, text: str = "", *, arrows: bool = False, can_leave: bool = False) -> str | None:
        """Asks for a line, which holds `text` at first. None: the person leaves. `arrows`: an arrow key in an empty
        line is an answer, too. `can_leave`: Esc leaves this question, and does not interrupt the model."""
        ...

    def reply(self, text: str) -> None:
        """Answers the question that is open in the person's place."""
        ...

    async def lend(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Gives the terminal to another program while the work goes on."""
        ...

    def write_message(self, text: str) -> None:
        """Gives a message back that was not sent."""
        ...

    def clear(self) -> None:
        """Empties the terminal."""
        ...

    def use_styles(self, styles: Mapping[str, str]) -> None:
        """Shows each class of `theme.STYLES` in this style."""
        ...

    def leave(self) -> None:
        """Ends the conversation at this terminal."""
        ...
