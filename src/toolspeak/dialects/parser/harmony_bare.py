"""Harmony calls from servers that drop the special tokens: `commentary to=functions.name json{…}`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

from toolspeak.dialects.text.candidates import beginning_of, beginnings_of
from toolspeak.dialects.text.scan import MAX_CANDIDATE

RECIPIENT = "to=functions."
BEGINNING = re.compile(beginning_of([RECIPIENT]))
_HEADER_WORDS = ("json", "code", "commentary", "analysis")
WORDS = ("assistant", "analysis", "commentary", "final")
"""Words before a header's first token: the rest of a header that the prompt began, or filler."""

FIRST = frozenset("<acft")
"""The first characters of a header or of a call without tokens: of a token, of `WORDS`, or of `RECIPIENT`."""

FILLER = re.compile(r"\s*(?:assistant)?\s*(?:commentary|analysis|final)?\s*")


@lru_cache(64)
def _call_of(names: tuple[str, ...]) -> re.Pattern[str]:
    """The pattern of a call without tokens, of one of these tools, up to its arguments."""
    any_name = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"to=functions\.(?:{any_name})(?:\s*(?:{'|'.join(_HEADER_WORDS)}))*\s*(?=\{{)")


_COMING = re.compile(
    rf"to=functions\.[^\s<>{{}}]*(?:\s*(?:{'|'.join(_HEADER_WORDS)}))*\s*(?:{beginnings_of(_HEADER_WORDS)})|{beginnings_of([RECIPIENT])}"
)
FILLER_COMING = re.compile(
    rf"\s*(?:{beginnings_of(['assistant'])}|(?:assistant)?\s*(?:{beginnings_of(['commentary', 'analysis', 'final'])}))"
)


def beginnings_in(text: str, position: int, stop: int) -> list[int]:
    """Where calls without tokens may begin in text[position:stop], which may cut the last one."""
    places: list[int] = []
    at = text.find(RECIPIENT, position, stop)
    while at >= 0:
        places.append(at)
        at = text.find(RECIPIENT, at + 1, stop)
    partial = BEGINNING.search(text, max(position, stop - len(RECIPIENT) + 1), stop)
    return places if partial is None else [*places, partial.start()]


def decide(names: Iterable[str], text: str, at: int) -> int | Literal["text", "undecided"]:
    """Where a call's arguments begin. Its recipient, one of these tools, is at text[at]."""
    match = None
    if text.startswith(RECIPIENT, at):
        match = _call_of(tuple(names)).match(text, at, at + MAX_CANDIDATE)
    if match:
        return match.end()
    rest = text[at : at + MAX_CANDIDATE]
    return "undecided" if len(rest) < MAX_CANDIDATE and _COMING.fullmatch(rest) else "text"


def is_filler(text: str, *, whole: bool) -> bool:
    """Whether `text` can start a header: only words of the format and a recipient. `whole`: `text` is complete."""
    words = text.split()
    last = "" if whole or not words or text[-1].isspace() else words.pop()
    if not all(word in WORDS or word.startswith("to=") for word in words):
        return False
    return last.startswith("to=") or any(word.startswith(last) for word in ("to=", *WORDS))
