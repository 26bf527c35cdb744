"""What a server leaves of a Harmony call when it drops the special tokens: `commentary to=functions.name json{…}`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

from toolspeak.dialects.text.candidates import beginning_of, beginnings_of
from toolspeak.dialects.text.scan import MAX_CANDIDATE

RECIPIENT = "to=functions."
BEGINNING = re.compile(beginning_of([RECIPIENT]))
_BEHIND = ("json", "code", "commentary", "analysis")
WORDS = ("assistant", "analysis", "commentary", "final")
"""What may stand before a header's first token: the rest of one that the prompt began, or filler."""

FIRST = frozenset("<acft")
"""How a header, or a call without tokens, begins, but for white space: with a token, one of `WORDS`, or `RECIPIENT`."""

FILLER = re.compile(r"\s*(?:assistant)?\s*(?:commentary|analysis|final)?\s*")


@lru_cache(64)
def _call_of(names: tuple[str, ...]) -> re.Pattern[str]:
    """Such a call of one of these tools, up to its arguments."""
    any_name = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"to=functions\.(?:{any_name})(?:\s*(?:{'|'.join(_BEHIND)}))*\s*(?=\{{)")


_COMING = re.compile(
    rf"to=functions\.[^\s<>{{}}]*(?:\s*(?:{'|'.join(_BEHIND)}))*\s*(?:{beginnings_of(_BEHIND)})|{beginnings_of([RECIPIENT])}"
)
FILLER_COMING = re.compile(
    rf"\s*(?:{beginnings_of(['assistant'])}|(?:assistant)?\s*(?:{beginnings_of(['commentary', 'analysis', 'final'])}))"
)


def beginnings_in(text: str, position: int, stop: int) -> list[int]:
    """Where such a call may begin in text[position:stop], whole or cut by its end."""
    places: list[int] = []
    at = text.find(RECIPIENT, position, stop)
    while at >= 0:
        places.append(at)
        at = text.find(RECIPIENT, at + 1, stop)
    partial = BEGINNING.search(text, max(position, stop - len(RECIPIENT) + 1), stop)
    return places if partial is None else [*places, partial.start()]


def decide(names: Iterable[str], text: str, at: int) -> int | Literal["text", "undecided"]:
    """Where the arguments begin of a call of one of these tools whose recipient stands at text[at]."""
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
