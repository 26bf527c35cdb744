"""Reads Python calls with literal arguments: `[f(a='x', n=2), g()]`, or one call on each line."""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolspeak.data.deltas import Delta
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.readers.body import known_name, skip_space
from toolspeak.dialects.readers.open_call import json_string
from toolspeak.dialects.readers.python_arguments import PythonArguments
from toolspeak.dialects.readers.python_literals import RUNS, WORDS
from toolspeak.dialects.readers.whole_call import GAP, WholeCall, whole_call
from toolspeak.dialects.text.scan import Caps, shorten

NAME = r"[^\W\d][\w.:/-]*"
KEY = r"[^\W\d][\w-]*"
VALUE_START = r"['\"\w+.\-\[{(]"


def _whole(end: str) -> WholeCall:
    """The patterns of a call whose values are strings in plain quotes, integers and words."""
    # A quote after one backslash is content. A pattern with alternatives for escapes would take six times as long.
    strings = (rf"{quote}[^{quote}]*+(?:(?<=[^\\]\\){quote}[^{quote}]*+)*+(?<!\\){quote}" for quote in RUNS)
    values = "|".join((*strings, "-?(?:0|[1-9][0-9]{0,15}+)", "True", "False", "None"))
    argument = f"(?P<key>[A-Za-z_][A-Za-z0-9_-]{{0,99}}+)=(?P<value>{values})"
    name = r"([A-Za-z_][A-Za-z0-9_.:/-]{0,99}+)\("
    return whole_call(name, argument, end, rf"{GAP}(?:,{GAP}|(?=\)))")


_IN_LIST, _ON_LINES = _whole(rf"\)(?={GAP}[,\]])"), _whole(r"\)")


class PythonCalls(PythonArguments):
    """Implements `Body`. `brackets`: the calls are in a list; otherwise there is one on each line. Both forms are
    accepted."""

    _name_run = re.compile(r"[\w.:/-]*")

    def __init__(
        self, brackets: bool, first_index: int, caps: Caps, tools: Mapping[str, ToolSpec] | None = None
    ) -> None:
        super().__init__(brackets, first_index, caps)
        self._expected = brackets
        self._tools = tools or {}

    def end(self, out: list[Delta]) -> None:
        between = self._state in (self._between, self._after_call)
        self.is_complete = between and not self._brackets and bool(self.calls)

    def _start(self, text: str, position: int, out: list[Delta]) -> int:
        position = skip_space(text, position)
        if position == len(text):
            return position
        self._brackets = text[position] == "["
        if self._brackets != self._expected:
            self.notes = ("array" if self._brackets else "single_object",)
        self._state = self._between
        return position + 1 if self._brackets else position

    def _between(self, text: str, position: int, out: list[Delta]) -> int:
        """Before a call."""
        position = skip_space(text, position)
        if position == len(text):
            return position
        char = text[position]
        if char == "<" and not self._brackets and self.calls:
            self.is_complete = True
        elif char == "]" and self._brackets and self.calls:
            self.is_complete = True
            return position + 1
        elif char == "_" or char.isalpha():
            stop = self._take_whole(_IN_LIST if self._brackets else _ON_LINES, text, position, out)
            if stop > position:
                self._state = self._after_call
                return stop
            self._begin_raw(position)
            self._state = self._call_name
        elif char in "<]" and not self.calls:
            return self._fail("empty_batch", "there is no call here; write name(argument=value)", position)
        else:
            return self._fail_expected("a call such as name(argument=value)", text, position)
        return position

    def _tool_name(self, name: str) -> str:
        """The tool's name. Llama 3 writes the tools of its training as methods: `brave_search.call(query="…")`."""
        short_name = name.removesuffix(".call")
        return short_name if name not in self._tools and short_name in self._tools else known_name(name, self._tools)

    def _whole_value(self, text: str) -> str | None:
        quote, content = text[0], text[1:-1]
        if quote not in RUNS:
            return WORDS.get(text, text)
        if "\\" not in content:
            return json_string(content)
        # With escapes the text is a valid JSON string or fails to decode. Only `\/` has another meaning in JSON.
        return None if "\\/" in content or (quote == "'" and '"' in content) else f'"{content}"'

    def _call_open(self, text: str, position: int, out: list[Delta]) -> int:
        position = skip_space(text, position)
        if position == len(text):
            return position
        if text[position] != "(":
            return self._fail_expected(f"'(' after the name {shorten(self._word)}", text, position)
        self._begin_arguments(out)
        return position + 1

    def _after_call(self, text: str, position: int, out: list[Delta]) -> int:
        position = skip_space(text, position)
        if position == len(text):
            return position
        if text[position] in ",;":
            self._state = self._between
            return position + 1
        if self._brackets and text[position] != "]":
            return self._fail_expected("',' or ']' after a call", text, position)
        self._state = self._between
        return position
