"""Attempts: calls that a model meant but that cannot be read, in contrast to prose about the format.

A marker of calls may precede a body that does not begin as the dialect writes it. It is an attempt if

- it begins a line, or follows the end of a sentence, and
- its end marker follows at the end of a line. If none comes within the characters of a candidate, one of these must
  follow directly: a line break, a word or bracket without a space, or the name of a known tool.

A reply that ends in an unmatched end marker is an attempt too. So is text before a call, or at the turn's end, that
ends in a call of a known tool with a damaged marker. All other text is text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

from toolspeak.data.messages import ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.prompts.schema_text import example_tools, sample_arguments
from toolspeak.dialects.readers.body import CUT_OFF_REASON
from toolspeak.dialects.text.block_delimiters import EndMarker, FirstTag
from toolspeak.dialects.text.markdown import Markdown
from toolspeak.dialects.text.markers import MarkerMatch
from toolspeak.dialects.text.scan import MAX_CANDIDATE, Problem

MAX_TAIL = 1 << 14
MAX_TAG = 64
"""The length limit of a tag, in characters."""

_LINE_OR_WORD = re.compile(r"""[ \t]*[\r\n]|(?!s\b)[\w"'\[{(<]""")
ESCAPE = re.compile(r"&(?:amp;)*(?:lt|#\d+);|\\u00[0-9a-f]{2}")
_MARKS = tuple("<>[]|")
_SAMPLE = ToolSpec("tool_name", "", {"type": "object", "properties": {"argument": {}}, "required": ["argument"]})


def end_of(pieces: list[str]) -> str:
    """The last `MAX_TAIL` characters of a text in pieces."""
    return "".join(pieces)[-MAX_TAIL:]


def may_attempt(here: Markdown) -> bool:
    """Whether a marker at this place may be an attempt: it begins a line, a numbered item or a sentence."""
    place = here.place
    return place == "line" or (place == "item" and here.last == ".") or (place == "sentence" and here.last == "…")


def is_attempt(
    match: MarkerMatch, end: EndMarker | None, window: str, names: Iterable[str], ending: bool
) -> bool | None:
    """Whether a marker at the beginning of a line is an attempt; None if more text is needed.

    `window`: the text from the marker on, which is no call.
    `names`: the known tools.
    `ending`: no text follows the window.
    """
    whole = ending or len(window) >= MAX_CANDIDATE
    if match.marker.begins_tag and match.length == len(window):
        return False if whole else None
    stop = _end_of(end, window, match.length) if end else -1
    if stop >= 0:
        return ends_line(window[stop:], whole)
    if not whole:
        return None
    if ending and not window[match.length :].strip():
        return True
    return bool(_LINE_OR_WORD.match(window, match.length)) or _begins_with(window[match.length :].lstrip(), names)


def ends_line(rest: str, ending: bool) -> bool | None:
    """Whether `rest` begins with the end of the line or another marker; None if more text is needed.

    `ending`: no text follows `rest`.
    """
    after = rest.lstrip(" \t")
    if not after:
        return True if ending or len(rest) >= MAX_CANDIDATE else None
    return after[0] in "\r\n<["


def is_open(end: str, text: str) -> bool:
    """Whether the element of this end marker is open in `text`: more of its tags begin than end."""
    return end.startswith("</") and text.count(f"<{end[2:-1]}") > text.count(end[:-1])


def _end_of(end: EndMarker, window: str, at: int) -> int:
    while (at := end.find_candidate(window, at)) >= 0:
        stop = end.match(window, at)
        if stop >= 0:
            return stop
        at += 1
    return -1


def _begins_with(text: str, names: Iterable[str]) -> bool:
    word = re.match(r"[\w.-]+", text)
    return word is not None and word[0] in names


def unreadable_block(match: MarkerMatch, example: str, truncated: bool) -> MarkerMatch:
    """The match of an unreadable block. `truncated`: because the turn was cut off."""
    marker = match.marker
    between = f"between {marker.text} and {marker.end}" if marker.end else f"after {marker.text}"
    unreadable = f"the text {between} cannot be read as a call, so nothing ran; write it like this:\n{example}"
    problem = Problem("truncated", CUT_OFF_REASON) if truncated else Problem("unreadable", unreadable)
    # A tag is part of its body.
    length = 0 if isinstance(marker.opening, FirstTag) else len(marker.text) if marker.begins_tag else match.length
    return MarkerMatch(marker, length, "", match.notes, match.reader, problem)


def lone_end(read: Markdown, ends: Iterable[str]) -> str:
    """The unmatched end marker of calls at the end of a reply; empty without one, or if a sentence mentions it."""
    text = read.tail.rstrip()
    end = max((end for end in ends if text.endswith(end)), key=len, default="")  # one end marker may end in another one
    if not end or read.in_block or read.in_inline_code:
        return ""
    front = Markdown()
    front.add("x" * read.is_cut + text.removesuffix(end))
    return end if not text.removesuffix(end).strip() or front.place == "line" else ""


def lone_end_problem(end: str, example: str) -> Problem:
    reason = f"the reply ends with {end}, but the start of its call cannot be read, so nothing ran; write it like this:"
    return Problem("no_start", f"{reason}\n{example}")


def _nearly(word: str) -> Iterable[str]:
    """Patterns of a word with one letter missing or replaced."""
    return [word[:i] + r"\w?" + word[i + 1 :] for i in range(len(word))]


_KEYS = "|".join(["args", *_nearly("arguments"), *_nearly("parameters")])


@lru_cache(64)
def _heads(names: tuple[str, ...]) -> re.Pattern[str]:
    """The pattern of the beginning of a call of these tools after its marker: JSON, name outside of JSON, or tags."""
    name = f"(?:{'|'.join(map(re.escape, sorted(names, key=len, reverse=True)))})"
    gap = r"\s{0,9}"
    quoted_name, key = rf"[\"']{name}[\"']", rf"[\"']?(?:{_KEYS})[\"']?"
    brackets = rf"(?:[\[{{]{gap}){{0,3}}(?:[\"']tool_call_id[\"']{gap}:{gap}[\"'][^\"']{{0,64}}[\"']{gap},{gap})?"
    half = rf"[\"']?(?:tool_)?name[\"']?{gap}:?{gap}[\"']?{name}[\"']?"  # a name with missing quotes
    # A listing of tools has the same keys as a call.
    schema = rf"(?!{gap}\{{{gap}\"type\"{gap}:{gap}\"object\"{gap},{gap}\"properties\")"
    token = rf"(?:[\[<][^\[\]<>\n]{{1,40}}[\]>]{gap}(?:\w{{1,16}}{gap}(?=[\[<]))?)"
    return re.compile(
        rf"{brackets}(?:(?:[\"']?\w{{1,16}}[\"']?{gap}:?{gap})?{quoted_name}|{half}){gap},?{gap}{key}{gap}(?::{schema}|\{{)"
        rf"|{brackets}\{{{gap}{quoted_name}{gap}:{gap}\{{"
        rf"|(?<![a-z\d.-])(?:functions\.)?{name}(?::\d+)?{gap}{token}{{0,4}}{gap}\{{{gap}[\"'}}]"
        rf"|<?[\w:|｜ ]{{1,40}}(?:=|\b(?:name|tool)=[\"']){name}[\"'>]"
        rf"|<function{name}>{gap}\{{|<tool_name>{gap}{name}{gap}<"
        rf"|(?:<\w{{1,40}}|(?<![\w.-])){name}\({gap}(?:\w{{1,64}}{gap}[=:\"']|\))"
        rf"|call:{name}{gap}\{{"
    )


def unmarked(text: str, names: Collection[str], ends: Iterable[str]) -> bool:
    """Whether a text ends in the call of a known tool without a marker, or with a damaged one."""
    content = text.rstrip(" \t\r\n,;")
    if not names or not content.endswith(("}", "]", *ends)):
        return False
    for head in _heads(tuple(names)).finditer(content):
        before = content[: head.start()]
        if ESCAPE.search(content, max(0, before.rfind("\n") + 1 - MAX_TAG), head.end()):
            continue  # an escaped call is the repetition of a result
        line = before[before.rfind("\n") + 1 :].lstrip(",;")  # a separator may follow another call
        here = Markdown()
        here.add(line)
        if may_attempt(here) or line.lstrip().startswith(_MARKS) or line.rstrip().endswith(_MARKS):
            return True
    return False


def unmarked_problem(example: str) -> Problem:
    reason = "this text looks like a call, but its marker cannot be read, so it did not run"
    return Problem("no_start", f"{reason}; write it like this:\n{example}")


def sample_call(tools: Sequence[ToolSpec]) -> tuple[ToolCall, list[ToolSpec]]:
    """An example call for the model, and the tools to render it with."""
    examples = example_tools(tools)[:1] or [_SAMPLE]
    return ToolCall("call_1", examples[0].name, sample_arguments(examples[0])), examples
