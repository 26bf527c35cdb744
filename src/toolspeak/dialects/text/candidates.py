"""Patterns that find where a marker may begin. Most text holds no candidate, so one search is enough."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from toolspeak.data.values import quick

WITHIN = ("_", "-", ".", "/", ":", '"', "'", "`")
"""Characters that, like letters and digits, precede a part of a longer name or of a quotation."""

GROUP_DEPTH = 64
"""The nesting depth of groups: OpenAI's limit for the length of a name. Python's compiler takes over a hundred."""

NAME = r"[^\s<>{}\[\]\"'`]+"
"""The pattern of a tool's name in a header: no white space, and no character that begins a marker or a value."""

MAX_NAME = 160
"""The length limit, in characters, of a name without a marker before it."""

_NAME_CHAR = r"[\w./-]"
_OTHER_CHAR = re.compile(rf"(?!{_NAME_CHAR}).", re.DOTALL)


@quick()
class Beginnings:
    """How markers begin."""

    texts: AbstractSet[str]
    """Texts that count anywhere."""
    words: AbstractSet[str]
    """Texts that count where a word begins."""
    patterns: AbstractSet[str]
    """Regular expressions."""


def candidate_pattern(markers: Iterable[Beginnings], end: str) -> re.Pattern[str]:
    """A pattern that finds where one of these markers may begin, or where the pattern `end` matches.

    An empty `end` matches nowhere.
    """
    texts = {head for each in markers for head in _heads(each.texts)}
    words = {head for each in markers for head in _heads(each.words)}
    patterns = [beginning_of(texts), *([end] if end else [])]
    patterns += sorted({pattern for each in markers for pattern in each.patterns})
    for char, rest in _by_first(words).items():
        first = re.escape(char)
        # The lookbehind comes last: most text that begins alike differs in the following characters.
        before = rf"(?<![\w{re.escape(''.join(WITHIN))}]{first}"
        each = [f"{second}{before}{second}){_rest_pattern(after)}" for second, after in _by_first(rest).items()]
        patterns.append(f"{first}(?:{'|'.join(each)}|\\Z{before}))" if "" not in rest else f"{first}{before})")
    return re.compile("|".join(dict.fromkeys(patterns)))


def _heads(texts: Iterable[str]) -> Iterable[str]:
    """The first two characters of each text; four where it begins with a letter, as words in prose often share two."""
    return {text[: 4 if text[0].isalpha() else 2] for text in texts}


def beginning_of(texts: Iterable[str]) -> str:
    """A pattern that finds one of these texts, or the beginning of one at the end of the searched text.

    Each alternative begins with a literal character, which Python's search finds in one loop.
    """
    return "|".join(re.escape(char) + _rest_pattern(rest) for char, rest in _by_first(texts).items())


def beginnings_of(texts: Iterable[str], depth: int = GROUP_DEPTH) -> str:
    """A pattern that matches every beginning of these texts, from the empty one to the whole text."""
    heads = _by_first(texts)
    if depth == 0:
        return f"(?:{'|'.join(re.escape(text) for text in sorted(texts, key=len, reverse=True))})?" if heads else ""
    parts = [re.escape(char) + beginnings_of(rest, depth - 1) for char, rest in heads.items()]
    return f"(?:{'|'.join(parts)})?" if parts else ""


def _rest_pattern(texts: Iterable[str]) -> str:
    if "" in texts:
        return ""
    after = {re.escape(char): _rest_pattern(rest) for char, rest in _by_first(texts).items()}
    last = "".join(char for char, rest in after.items() if not rest)
    parts = [f"[{last}]"] if last else []
    parts += [char + rest for char, rest in after.items() if rest]
    return f"(?:{'|'.join(parts)}|\\Z)"


def _by_first(texts: Iterable[str]) -> dict[str, list[str]]:
    """The rests of these texts after their first character, by that character."""
    rests: dict[str, list[str]] = {}
    for text in sorted({text for text in texts if text}):
        rests.setdefault(text[0], []).append(text[1:])
    return rests


def one_of(names: Sequence[str], before: str = "") -> re.Pattern[str]:
    """A pattern of one of these names, or of the beginning of one at the end of the text.

    `before` is a word that may precede the name.
    """
    whole = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) or NAME
    before = f"(?:{re.escape(before)})?+" if before else ""
    prefixes = "".join(
        rf"|{before}{re.escape(name[: other.end()])}{beginnings_of([name[other.end() :]])}\Z"
        for name in names
        if (other := _OTHER_CHAR.search(name))
    )
    return re.compile(rf"{before}(?:{whole})(?!{_NAME_CHAR}|\Z)|{_NAME_CHAR}{{1,{MAX_NAME}}}+\Z{prefixes}")


def first_of(words: Sequence[str]) -> str:
    return "".join(sorted({word[0] for word in words}))
