"""Finds calls of known tools that are text because one character of their beginning is wrong.

The dialect's example shows how a call begins, up to the first argument. A line whose beginning differs from that by at
most one missing, extra, changed or swapped character is meant as a call. White space does not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.parser.attempts import ESCAPE
from toolspeak.dialects.prompts.schema_text import sample_arguments
from toolspeak.dialects.text.markdown import Markdown

_LINES, _WINDOW, _TAG = 64, 256, 64
_SHORT, _LONG = 4, 24
"""Two lengths in characters. Up to the first, the text before a name may precede other words too. From the second
on, a beginning is unique, so the call may end in other ways."""

_SCHEMA = """["']?type["']:["']object["'],["']properties"""  # a listing of tools has the same keys
_ARGUMENT = re.compile(rf"""(?!{_SCHEMA})["']?[\w-]{{1,64}}["'=:|<>\[]|[)}}\]<]|\Z""")
_CALL_END = re.compile(r"(?:[}\]>]|[}\]]\)|</[\w:]{1,40})\Z")
_UNLIKELY = re.compile(r"[ \t]{4}|[ \t\r]*\n")  # code, or an empty line
_BARE = re.compile(r"\[?\{[\"'](?:tool_)?name[\"']:.*|\[[\w.-]+\(\Z")  # without the marker before it
_WORD = re.compile(r"[a-z]+(?=[\[{(])")  # a marker that is a word
_ID = re.compile(r"[0-9a-f]{9,10}(?=[<\[])")  # of the example's call


def nearly_called(
    text: str, tools: Sequence[ToolSpec], example: Callable[[Sequence[ToolSpec]], str], ends: Iterable[str]
) -> bool:
    """Whether one of the last lines of `text` begins like a call of one of the tools, with one character wrong.

    `text` must end like a call. `example` writes the dialect's example call; `ends` are the end markers of calls.
    """
    if not tools or _CALL_END.search(text) is None:
        return False
    least = 0 if text.endswith(("}", "]", *ends)) else _LONG
    leads = _leads(tools[0], example)
    compact_lines = ((start, "".join(text[start : start + _WINDOW].split())) for start in _last_lines(text))
    lines = {start: line for start, line in compact_lines if any(_may_begin(line, *each) for each in leads)}
    for tool in tools if lines else ():
        lines_with_name = [(start, line) for start, line in lines.items() if _names(line, tool.name)]
        head = _head(tool, example) if lines_with_name else ""
        bare, word = _BARE.search(head), _WORD.match(head)
        heads = [head] if len(head) >= max(least, 1) else []
        heads += [bare[0]] if bare and bare[0] != head and text[-1] in "}]" else []
        for start, line in lines_with_name:
            is_start = any(_begins(line, each) for each in heads)
            is_start = is_start or (word is not None and re.match(rf"{word[0]}[\[{{(]", line) is not None)
            if is_start and not _is_quoted(text, start):
                return True
    return False


def _last_lines(text: str) -> Iterator[int]:
    """The starts of the last lines that are neither empty nor indented like code."""
    stop = len(text)
    for _ in range(_LINES):
        start = text.rfind("\n", 0, stop) + 1
        if not _UNLIKELY.match(text, start):
            yield start
        if start == 0:
            return
        stop = start - 1


def _is_quoted(text: str, start: int) -> bool:
    """Whether the line at text[start] is in code, or repeats a result, in which calls are escaped."""
    here = Markdown()
    here.add(text[:start])
    escape = ESCAPE.search(text, max(start - _TAG, 0), start + _WINDOW)
    return escape is not None or here.in_block or here.in_inline_code


def _leads(tool: ToolSpec, example: Callable[[Sequence[ToolSpec]], str]) -> list[tuple[str, str]]:
    """The texts before the tool's name in a call's beginning, each with the character after the name."""
    head = _head(tool, example)
    bare = _BARE.search(head)
    return [
        (before, after[:1])
        for each in {head, bare[0] if bare else head}
        for before, _, after in (each.partition(tool.name),)
        if each
    ]


def _may_begin(line: str, lead: str, after: str) -> bool:
    """Whether the line may begin with `lead`, a name and `after`, with one character wrong."""
    half = len(lead) // 2
    if not line.startswith(lead[: max(half - 1, 0)]) and lead[half:] not in line[: len(lead) + 1]:
        return False
    return len(lead) >= _SHORT or line[:1] == lead[:1] or after in line[:_TAG]


def _names(line: str, name: str) -> bool:
    """Whether the line holds a third of the name, as it does if at most two characters of the name are wrong."""
    third = len(name) // 3
    return name[:third] in line or name[third : 2 * third] in line or name[2 * third :] in line


def _head(tool: ToolSpec, example: Callable[[Sequence[ToolSpec]], str]) -> str:
    """The beginning of a call of the tool up to its first argument's name, without white space."""
    sample = example([tool])
    at = sample.find(tool.name) + len(tool.name)
    if at < len(tool.name):
        return ""  # the dialect changes the name
    keys = "|".join(map(re.escape, sample_arguments(tool)))
    first = re.compile(rf"(?<![\w-])(?:{keys})(?![\w-])").search(sample, at) if keys else None
    head = "".join(sample[: first.start() if first else len(sample)].split())
    id_match = _ID.search(head)
    return head[: id_match.start()] if id_match else head


def _begins(line: str, head: str) -> bool:
    """Whether the line begins with `head`, with one character wrong, and an argument or the call's end follows.

    A line in quotation marks, in parentheses or in a block quote does not count.
    """
    size = len(head)
    in_quotes = line[0] != head[0] and not line[0].isalnum() and line.startswith(head, 1)
    return not in_quotes and any(
        _ARGUMENT.match(line, stop) and one_apart(line[:stop], head)
        for stop in (size - 1, size, size + 1)
        if 0 < stop <= len(line)
    )


def one_apart(shorter: str, longer: str) -> bool:
    """Whether two texts differ by at most one edit: a missing, extra or changed character, or two swapped ones."""
    if shorter == longer:
        return True
    if len(shorter) > len(longer):
        shorter, longer = longer, shorter
    at = next((i for i, char in enumerate(shorter) if char != longer[i]), len(shorter))
    if len(shorter) < len(longer):
        return len(shorter) + 1 == len(longer) and shorter[at:] == longer[at + 1 :]
    swapped_pair = longer[at + 1 : at + 2] + longer[at : at + 1]
    return shorter[at + 1 :] == longer[at + 1 :] or (
        shorter[at : at + 2] == swapped_pair and shorter[at + 2 :] == longer[at + 2 :]
    )
