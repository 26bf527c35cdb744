"""Where the parts of the screen stand: the live rows, a question, the message, what completes it, the status line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout import ConditionalContainer, Dimension, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import AfterInput, ConditionalProcessor
from prompt_toolkit.widgets import SearchToolbar

from toolspeak.chat.styled_text import StyledLine, truncate

MOST_INPUT_ROWS = 10
"""The rows of the screen for a message, and for an answer."""


def screen_layout(
    *,
    message: Buffer,
    answer: Buffer,
    answer_prompt: Callable[[], str | None],
    rows: Callable[[], Sequence[StyledLine]],
    status: Callable[[], StyledLine],
    hints: Callable[[], Sequence[str]],
    columns: Callable[[], int],
) -> Layout:
    """The layout, with the message in focus.

    - `answer_prompt`: returns what is asked; None without a question.
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
        return next((text for text in hints() if len(text) < columns() - 3), "")

    live = Window(
        FormattedTextControl(live_text),
        height=lambda: Dimension(min=0, max=len(rows()), preferred=len(rows())),
        dont_extend_height=True,
    )
    question = Window(
        BufferControl(answer, focus_on_click=False),
        height=Dimension(min=1, max=MOST_INPUT_ROWS),
        dont_extend_height=True,
        wrap_lines=True,
        get_line_prefix=lambda line, wrap: (
            [("class:prompt.answer", answer_prompt() or "")] if line == wrap == 0 else [("", "  ")]
        ),
    )

    def search_prompt() -> str:
        text = search.search_buffer.text
        has_match = any(text in each for each in message.history.get_strings())
        return "earlier message: " if has_match or not text else "no earlier message has this: "

    search = SearchToolbar(backward_search_prompt=search_prompt)
    hint = AfterInput(hint_text, style="class:hint")
    written_text = Window(
        BufferControl(
            message,
            input_processors=[ConditionalProcessor(hint, Condition(lambda: not message.text))],
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
                ConditionalContainer(question, Condition(lambda: answer_prompt() is not None)),
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
