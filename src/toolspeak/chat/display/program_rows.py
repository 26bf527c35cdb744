"""The rows of a program that the model has written: its code, before it runs."""

from __future__ import annotations

from toolspeak.agent.program_runs import RUN_CODE
from toolspeak.chat.display.code_colours import colour_lines, lexer_of_language
from toolspeak.chat.display.styled_text import StyledLine
from toolspeak.data.messages import MalformedCall, ToolCall
from toolspeak.ui.format import printable

_INDENT: StyledLine = [("", "    ")]


def is_program(call: ToolCall | MalformedCall | None) -> bool:
    """Whether a call runs a program, whose code `program_rows` shows."""
    return isinstance(call, ToolCall) and call.name == RUN_CODE and isinstance(call.arguments.get("code"), str)


def program_rows(call: ToolCall | MalformedCall) -> list[StyledLine]:
    """The code of a program, all of it: its calls are asked about one by one. No rows for another call."""
    if not isinstance(call, ToolCall) or not is_program(call):
        return []
    lines = printable(str(call.arguments["code"])).strip("\n").expandtabs(4).split("\n")
    code = colour_lines(lines, lexer_of_language("python"))
    return [[("class:call", "▸ program")], *([*_INDENT, *line] for line in code)]
