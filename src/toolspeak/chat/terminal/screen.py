"""The terminal of the conversation: what is said goes to its scrollback, and below it are the live rows and the input.

What was written above is final. Only the rows below are drawn again, at most thirty times a second for the model's text
and at once for a key.
"""

from __future__ import annotations

import asyncio
import importlib
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from prompt_toolkit.application import Application, in_terminal, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, get_common_complete_suffix
from prompt_toolkit.filters import Condition, Filter, has_focus, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.renderer import print_formatted_text
from prompt_toolkit.styles import Style

from toolspeak.chat.display.styled_text import StyledLine
from toolspeak.chat.display.theme import STYLES
from toolspeak.chat.terminal.answer_input import MESSAGE_KEYS, AnswerInput
from toolspeak.chat.terminal.command_list import BUSY_HINTS, HINTS
from toolspeak.chat.terminal.front import NEXT, PREVIOUS, ResultT
from toolspeak.chat.terminal.message_input import MessageCompleter, Pastes, history_text
from toolspeak.chat.terminal.screen_layout import MOST_INPUT_ROWS, screen_layout
from toolspeak.chat.terminal.steady_output import SteadyOutput
from toolspeak.errors import ConfigurationError
from toolspeak.sandbox.processes import stop_program

_PAUSE = 1 / 30
"""Seconds between two drawings of what the model writes."""

_TWICE = 2.0
"""Seconds in which a second Ctrl-C leaves."""

_ESCAPE_SECONDS = 0.05
"""How long a terminal may take for the rest of a key that begins with Esc."""


class Screen:
    """The terminal, with a line editor at its bottom.

    - `take`: gets each message or command that the person sends.
    - `folder`: what the paths of `@` are relative to.
    - `live`: returns the rows above the input, for a width and at most so many rows.
    - `status`: returns the last row, for a width.
    - `interrupt`: ends what the model does. Returns whether there was something to end.
    - `take_back`: takes back the newest message that waits, and returns it.
    - `show_thoughts`: shows or hides the model's thoughts.
    - `arguments_of`: returns what may follow a command.
    """

    def __init__(
        self,
        take: Callable[[str], None],
        folder: Path,
        *,
        history: History | None = None,
        terminal_input: Input | None = None,
        output: SteadyOutput,
    ) -> None:
        self.live: Callable[[int, int], list[StyledLine]] = lambda _columns, _rows: []
        self.status: Callable[[int], StyledLine] = lambda _columns: []
        self.interrupt: Callable[[], bool] = lambda: False
        self.take_back: Callable[[], str] = lambda: ""
        self.show_thoughts: Callable[[], None] = lambda: None
        self.arguments_of: Callable[[str], Iterable[str]] = lambda _name: ()
        self.is_busy = False
        """Whether the model works: the empty input says what a message does then."""
        self.note = ""
        """A word about the last key, in the status line until the next key."""
        self._take = take
        self._output = output
        self._pastes = Pastes()
        self._above: list[StyledLine] = []  # lines that are not on the screen yet
        self._rows: list[StyledLine] = []
        self._timer: asyncio.TimerHandle | None = None
        self._interrupted_at = -_TWICE
        self._is_lent = False  # whether another program has the terminal
        self._completer = MessageCompleter(folder, lambda name: self.arguments_of(name))
        self._message = Buffer(
            multiline=True,
            history=InMemoryHistory() if history is None else history,
            completer=self._completer,
            complete_while_typing=True,
        )
        self._question = AnswerInput(self._message, lambda: self._application.layout)
        self._style = Style.from_dict(dict(STYLES))
        self._application: Application[None] = Application(
            layout=screen_layout(
                message=self._message,
                question=self._question,
                rows=lambda: self._rows,
                status=self._status,
                hints=lambda: BUSY_HINTS if self.is_busy else HINTS,
                columns=lambda: self.columns,
            ),
            key_bindings=self._keys(),
            style=self._style,
            input=terminal_input,
            output=output,
            erase_when_done=True,
        )
        self._application.ttimeoutlen = _ESCAPE_SECONDS
        self._application.timeoutlen = _ESCAPE_SECONDS

    @property
    def columns(self) -> int:
        """The width of the terminal."""
        return max(1, self._output.get_size().columns)

    @property
    def rows(self) -> int:
        """The height of the terminal."""
        return max(1, self._output.get_size().rows)

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Shows the screen until the person leaves or the work ends. Leaving cancels the work."""

        async def work_then_leave() -> None:
            try:
                await work()
            finally:
                self.leave()

        task: asyncio.Task[None] | None = None

        def begin() -> None:
            nonlocal task
            task = asyncio.get_running_loop().create_task(work_then_leave())

        try:
            await self._application.run_async(pre_run=begin, set_exception_handler=False)
        finally:
            self._stop_timer()
            if task is not None:
                if not task.done():
                    task.cancel()
                await asyncio.wait([task])
                if self._above:
                    self._write_above()
                if not task.cancelled():
                    task.result()

    def leave(self) -> None:
        """Ends `run`."""
        if self._application.is_running and not self._application.is_done:
            self._application.exit()

    def print(self, lines: Iterable[StyledLine]) -> None:
        """Adds lines above the input, for good. The terminal wraps those that are too long."""
        self._above += lines
        self.refresh()

    def refresh(self) -> None:
        """Draws the live rows and the status line again soon."""
        if self._timer is None and self._application.is_running:
            self._timer = asyncio.get_running_loop().call_later(_PAUSE, self.draw)

    def draw(self) -> None:
        """Draws now what `print` and `refresh` have left for later."""
        self._stop_timer()
        application = self._application
        if self._is_lent or not application.is_running or application.is_done or application.context is None:
            return
        self._rows = self.live(self.columns, self._most_rows())
        if not self._above:
            application.invalidate()
            return
        with self._output.at_once():
            application.renderer.erase(leave_alternate_screen=False)
            self._write_above()
            application.render_counter += 1  # the layout's parts are computed once for each number
            application.context.copy().run(application.renderer.render, application, application.layout)

    def clear(self) -> None:
        """Empties the terminal."""
        self._application.renderer.clear()
        self.refresh()

    def use_styles(self, styles: Mapping[str, str]) -> None:
        """Shows each class of `theme.STYLES` in this style."""
        self._style = self._application.style = Style.from_dict(dict(styles))
        self.refresh()

    async def ask(self, prompt: str, text: str = "", *, arrows: bool = False, can_leave: bool = False) -> str | None:
        """Asks for a line below the live rows, as `Front.ask`. A message that the person is writing keeps the keys
        until Tab or its end."""
        try:
            return await self._question.ask(prompt, text, arrows=arrows, can_leave=can_leave, draw=self.draw)
        finally:
            self.refresh()

    def reply(self, text: str) -> None:
        """Answers the question that is open in the person's place."""
        self._question.reply(text)

    async def lend(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Gives the terminal to another program, such as an editor, while the work goes on."""
        async with in_terminal():
            self._is_lent = True  # what is said meanwhile is drawn afterwards: it would stand in the other's picture
            try:
                return await work()
            finally:
                self._is_lent = False
                self.refresh()

    def write_message(self, text: str) -> None:
        """Puts a text into the input, before what is there: a message that was not sent."""
        before, is_writing = self._message.text, self._question.is_writing
        self._message.text = f"{self._pastes.fold(text)}\n{before}" if before else self._pastes.fold(text)
        self._message.cursor_position = len(self._message.text)
        self._question.is_writing = is_writing
        self.refresh()

    # --- drawing -------------------------------------------------------------------------------------------------

    def _write_above(self) -> None:
        fragments: StyleAndTextTuples = []
        for line in self._above:
            fragments += line
            fragments.append(("", "\n"))
        self._above = []
        print_formatted_text(self._output, fragments, self._style, color_depth=self._application.color_depth)

    def _status(self) -> StyledLine:
        if self.note:
            return [("class:warning", self.note)]
        if self._question.is_open and not self._question.has_keys:
            return [("class:status.asks", MESSAGE_KEYS)]
        return self.status(self.columns - 1)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _most_rows(self) -> int:
        """How many live rows fit above the input and the status line."""
        return max(1, self.rows - 4 - min(MOST_INPUT_ROWS, self._message.document.line_count))

    # --- keys ----------------------------------------------------------------------------------------------------

    def _keys(self) -> KeyBindings:
        question = self._question
        in_message = has_focus(self._message)
        asks, in_answer = Condition(lambda: question.is_open), Condition(lambda: question.has_keys)
        takes_arrows = Condition(lambda: question.takes_arrows)
        always = ~is_searching
        actions: list[tuple[Sequence[str], Filter, Callable[[], object]]] = [
            (["enter"], in_message, self._send),
            (["enter"], in_answer, lambda: question.reply(question.buffer.text)),
            (["up"], takes_arrows, lambda: question.reply(PREVIOUS)),
            (["down"], takes_arrows, lambda: question.reply(NEXT)),
            (["up"], in_message & Condition(lambda: not self._message.text), self._take_back),
            (["escape", "enter"], always, self._begin_line),
            (["c-j"], always, self._begin_line),
            (["tab"], asks, question.change_focus),
            (["tab"], in_message & ~asks, self._complete),
            (["s-tab"], in_message, self._message.complete_previous),
            (["escape"], always, self._escape),
            (["c-c"], always, self._stop),
            ([Keys.SIGINT], always, self._stop),
            (["c-d"], always, self._delete_or_leave),
            (["c-t"], always, lambda: self.show_thoughts()),
            (["c-l"], always, self.clear),
            (["c-g"], always, self._open_editor),
            (["c-z"], always, self._suspend),
        ]
        keys = KeyBindings()
        for names, condition, action in actions:
            keys.add(*names, filter=condition)(partial(_act, action))
        keys.add(Keys.BracketedPaste)(self._paste)
        return keys

    def _take_back(self) -> None:
        if text := self.take_back():
            self.write_message(text)
        else:
            self._message.auto_up()

    def _begin_line(self) -> None:
        self._application.current_buffer.newline(copy_margin=False)

    def _complete(self) -> None:
        buffer = self._message
        state = buffer.complete_state
        if state is not None and len(state.completions) > 1:
            buffer.complete_next()
            return
        event = CompleteEvent(completion_requested=True)
        completions = list(self._completer.get_completions(buffer.document, event))
        if len(completions) == 1:
            buffer.apply_completion(completions[0])
        elif completions:
            buffer.insert_text(get_common_complete_suffix(buffer.document, completions))
            buffer.start_completion()

    def _escape(self) -> None:
        if self._message.complete_state is not None:
            self._message.cancel_completion()
        elif not self._question.leave() and not self.interrupt():
            self._say("Nothing to interrupt. Ctrl-D leaves.")

    def _open_editor(self) -> None:
        if self._application.layout.has_focus(self._message):
            self._application.create_background_task(self._edit_message())
        else:
            self._say("Ctrl-G opens your message: Tab goes to it. Here the answer e edits the call.")

    async def _edit_message(self) -> None:
        try:
            text = self._pastes.unfold(self._message.text)
            room = importlib.import_module("toolspeak.ui.argument_editor")  # not at the top: it imports the agent
            edited_text: str | None = await self.lend(lambda: room.edit(text, "", ".md"))
        except (ValueError, ConfigurationError) as error:
            self._say(str(error))
            return
        if edited_text is not None:
            self._message.text = self._pastes.fold(edited_text.removesuffix("\n"))
            self._message.cursor_position = len(self._message.text)

    def _stop(self) -> None:
        text = self._application.current_buffer.text
        if time.monotonic() - self._interrupted_at < _TWICE and not text:  # what was written since is emptied first
            self.leave()
            return
        self._interrupted_at = time.monotonic()
        if text:
            self._application.current_buffer.reset()
        else:
            self.interrupt()
        self._say("Ctrl-C again leaves.")

    def _suspend(self) -> None:
        if hasattr(signal, "SIGTSTP"):  # not on Windows
            run_in_terminal(stop_program)

    def _delete_or_leave(self) -> None:
        if self._application.current_buffer.text:
            self._application.current_buffer.delete()
        else:
            self.leave()

    def _paste(self, event: KeyPressEvent) -> None:
        text = event.data
        if self._application.layout.has_focus(self._message):
            self._message.insert_text(self._pastes.fold(text))
        else:
            self._question.buffer.insert_text(text.replace("\r\n", "\n").replace("\r", "\n"))

    def _say(self, text: str) -> None:
        """Shows a note in the status line until the next change of the input."""
        self.note = text

        def forget(_buffer: Buffer) -> None:
            self.note = ""
            for buffer in (self._message, self._question.buffer):
                buffer.on_text_changed -= forget

        for buffer in (self._message, self._question.buffer):
            buffer.on_text_changed += forget

    def _send(self) -> None:
        buffer = self._message
        line = buffer.text
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None
            if not line.startswith("/"):
                return  # the key took the path that was chosen
        if not line.strip():
            self._question.take_keys()
            return
        if objection := self._question.objection():
            self._say(objection)
            return
        try:
            text = self._pastes.unfold(line)
        except ValueError as error:
            self._say(str(error))
            return
        buffer.history.append_string(history_text(line, text))
        buffer.reset()
        self._question.take_keys()
        self._take(text)


def _act(action: Callable[[], object], _event: KeyPressEvent) -> None:
    action()
