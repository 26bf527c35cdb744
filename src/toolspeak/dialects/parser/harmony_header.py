"""A Harmony message's header: its role, its channel, and the recipient, which makes it a call."""

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

# Letters in front: found five times as fast. What stands before a tool of ours is no matter.
ADDRESSEE = re.compile(r"to=(?:(?<=\bto=)|(?<=assistantto=)|(?=functions\.))([^\s<]+)")
CHANNEL = re.compile(r"<\|channel\|>\s*([^\s<]*)")
ROLE = re.compile(r"<\|start\|>\s*([^\s<]*)")
_NAME = re.compile(NAME)


def _read_header(head: str, spaced: Sequence[str] = ()) -> Header | None:
    """`spaced` are the tools' names that have spaces, where a recipient otherwise ends."""
    for name in spaced:
        if f"to=functions.{name}" in head:
            return Header(name)
    name = last(ADDRESSEE, head).removeprefix("functions.")
    return Header(name) if _NAME.fullmatch(name) else None


@lru_cache(64)
def shape(names: tuple[str, ...]) -> NamedShape:
    spaced = [name for name in names if " " in name]
    return NamedShape(partial(_read_header, spaced=spaced), EXAMPLE, separator="<|message|>", others=ENDS)


@lru_cache(64)
def stripped_shape(names: tuple[str, ...]) -> NamedShape:
    spaced = [name for name in names if " " in name]
    return NamedShape(partial(_read_header, spaced=spaced), EXAMPLE, others=(*ENDS, *STARTS), unended=True)


def last(pattern: re.Pattern[str], head: str) -> str:
    matches = pattern.findall(head)
    return matches[-1] if matches else ""
