"""The header of a Harmony message: its role, its channel, and the recipient, which makes the message a call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache, partial

from toolspeak.dialects.readers.named_calls import Header, NamedShape
from toolspeak.dialects.text.candidates import NAME

EXAMPLE = "<|start|>assistant<|channel|>commentary to=functions.name <|constrain|>json<|message|>{…}<|call|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|endoftext|>")
STARTS = ("<|start|>", "<|channel|>")
TOKENS = (*ENDS, *STARTS, "<|message|>", "<|constrain|>")

# A literal before the lookbehinds makes the search five times as fast. Any text may precede `to=functions.`.
ADDRESSEE = re.compile(r"to=(?:(?<=\bto=)|(?<=assistantto=)|(?=functions\.))([^\s<]+)")
CHANNEL = re.compile(r"<\|channel\|>\s*([^\s<]*)")
ROLE = re.compile(r"<\|start\|>\s*([^\s<]*)")
_NAME = re.compile(NAME)


def _read_header(head: str, names_with_spaces: Sequence[str] = ()) -> Header | None:
    """The tool's name in a header, or None. `names_with_spaces`: the tools' names at which other recipients end."""
    for name in names_with_spaces:
        if f"to=functions.{name}" in head:
            return Header(name)
    name = last(ADDRESSEE, head).removeprefix("functions.")
    return Header(name) if _NAME.fullmatch(name) else None


@lru_cache(64)
def shape(names: tuple[str, ...]) -> NamedShape:
    """How calls of these tools are written with special tokens."""
    names_with_spaces = [name for name in names if " " in name]
    return NamedShape(
        partial(_read_header, names_with_spaces=names_with_spaces), EXAMPLE, separator="<|message|>", others=ENDS
    )


@lru_cache(64)
def stripped_shape(names: tuple[str, ...]) -> NamedShape:
    """How calls of these tools are written without special tokens."""
    names_with_spaces = [name for name in names if " " in name]
    return NamedShape(
        partial(_read_header, names_with_spaces=names_with_spaces), EXAMPLE, others=(*ENDS, *STARTS), unended=True
    )


def last(pattern: re.Pattern[str], head: str) -> str:
    """The last match of the pattern in a header; empty without one."""
    matches = pattern.findall(head)
    return matches[-1] if matches else ""
