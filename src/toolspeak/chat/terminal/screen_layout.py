"""Where the parts of the screen stand: the live rows, a question, the message, what completes it, the status line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout import ConditionalContainer, Dimension, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import AfterInput, ConditionalProcessor
from prompt_toolkit.widgets import SearchToolbar

from toolspeak.chat.display.styled_text import StyledLine, truncate
from toolspeak.chat.terminal.answer_input import AnswerInput

MOST_INPUT_ROWS = 10
"""The rows of the screen for a message, and for an answer."""

_ANSWER = "your answer"
_TO_ANSWER = "(Tab: answer here)"
_TO_MESSAGE = "Tab: write a message instead"
_TO_DRAFT = "(Tab: go on with this message)"
_WRITE_MESSAGE = "your message · Tab: answer the question"
"""What the inputs say while something is asked: which of them has the keys, and how the other one gets them."""


def screen_layout(
    *,
    message: Buffer,
    question: AnswerInput,
    rows: Callable[[], Sequence[StyledLine]],
    status: Callable[[], StyledLine],
    hints: Callable[[], Sequence[str]],
    columns: Callable[[], int],
) -> Layout:
    """The layout, with the message in focus.

    - `question`: the line for answers.
    - `rows`: returns the live rows.
    - `status`: returns the last row.
    - `hints`: returns what an empty message says, the longest first.
    """

    def live_text() -> StyleAndTextTuples:
        fragments: StyleAndTextTuples = []
        for number, line in enumerate(rows()):
            fragments += [("", "\n"), *line] if number else line
        return fragments

    def hint_text() -> str:
        if not question.is_open:
            texts = hints()
        elif question.has_keys:
            texts = [f"  {_TO_DRAFT}"] if message.text else [_TO_MESSAGE]
        else:
            texts = [] if message.text else [_WRITE_MESSAGE]
        room = columns() - 3 - len(message.document.lines[-1])
        return next((text for text in texts if len(text) < room), "")

    def answer_hint_text() -> str:
        if question.has_keys:
            text = "" if question.buffer.text else _ANSWER
        else:
            text = f"  {_TO_ANSWER}" if question.buffer.text else _TO_ANSWER
        return text if len(question.prompt or "") + len(question.buffer.text) + len(text) < columns() - 1 else ""

    live = Window(
        FormattedTextControl(live_text),
        height=lambda: Dimension(min=0, max=len(rows()), preferred=len(rows())),
        dont_extend_height=True,
    )
    answer = Window(
        BufferControl(
            question.buffer,
            focus_on_click=False,
            input_processors=[AfterInput(answer_hint_text, style="class:hint")],
        ),
        height=Dimension(min=1, max=MOST_INPUT_ROWS),
        dont_extend_height=True,
        wrap_lines=True,
        get_line_prefix=lambda line, wrap: (
            [("class:prompt.answer", question.prompt or "")] if line == wrap == 0 else [("", "  ")]
        ),
    )

    def search_prompt() -> str:
        text = search.search_buffer.text
        has_match = any(text in each for each in message.history.get_strings())
        return "earlier message: " if has_match or not text else "no earlier message has this: "

    search = SearchToolbar(backward_search_prompt=search_prompt)
    hint = AfterInput(hint_text, style="class:hint")
    # While earlier messages are searched the window shows one of them, and `message` is as it was.
    has_room_for_hint = Condition(lambda: question.is_open or not message.text) & ~is_searching
    written_text = Window(
        BufferControl(
            message,
            input_processors=[ConditionalProcessor(hint, has_room_for_hint)],
            search_buffer_control=search.control,
            preview_search=True,
        ),
        height=Dimension(min=1, max=MOST_INPUT_ROWS),
        dont_extend_height=True,
        wrap_lines=True,
        get_line_prefix=lambda line, wrap: [("class:prompt", "› " if line == wrap == 0 else "  ")],
    )
    return Layout(
        HSplit(
            [
                ConditionalContainer(live, Condition(lambda: bool(rows()))),
                ConditionalContainer(answer, Condition(lambda: question.is_open)),
                written_text,
                search,
                CompletionsMenu(max_height=8),
                Window(
                    FormattedTextControl(lambda: [*truncate(status(), columns() - 1)]), height=1, style="class:status"
                ),
                Window(height=Dimension(min=0, preferred=0)),  # takes what the rows above gave up
            ]
        ),
        focused_element=written_text,
    )
