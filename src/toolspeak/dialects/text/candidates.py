"""The search for what may be a marker, which most text ends at once: it holds none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from toolspeak.data.values import quick

WITHIN = ("_", "-", ".", "/", ":", '"', "'", "`")
"""What stands, beside letters and digits, before what is part of a longer name, or of a quotation."""

NESTED = 64
"""Groups in each other, as many as a name may have characters for OpenAI. Python's compiler takes over a hundred."""

NAME = r"[^\s<>{}\[\]\"'`]+"
"""A tool's name in a header: no white space, and nothing that begins a marker or a value."""

MAX_NAME = 160
"""Characters of a name that stands without a marker before it."""

_NAME_CHAR = r"[\w./-]"
_OTHER_CHAR = re.compile(rf"(?!{_NAME_CHAR}).", re.DOTALL)


@quick()
class Beginnings:
    """How markers begin: with one of the `texts`, with one of the `words` where a word begins, or as `patterns` say."""

    texts: AbstractSet[str]
    words: AbstractSet[str]
    patterns: AbstractSet[str]


def candidate_pattern(markers: Iterable[Beginnings], end: str) -> re.Pattern[str]:
    """Finds where one of these markers may begin, or what `end` is the pattern of, if it is not empty."""
    texts = {head for each in markers for head in _heads(each.texts)}
    words = {head for each in markers for head in _heads(each.words)}
    patterns = [beginning_of(texts), *([end] if end else [])]
    patterns += sorted({pattern for each in markers for pattern in each.patterns})
    for char, rest in _by_first(words).items():
        first = re.escape(char)
        # What stands before it is asked last, as most that begins so goes on in another way.
        before = rf"(?<![\w{re.escape(''.join(WITHIN))}]{first}"
        each = [f"{second}{before}{second}){_behind(behind)}" for second, behind in _by_first(rest).items()]
        patterns.append(f"{first}(?:{'|'.join(each)}|\\Z{before}))" if "" not in rest else f"{first}{before})")
    return re.compile("|".join(dict.fromkeys(patterns)))


def _heads(texts: Iterable[str]) -> Iterable[str]:
    """Their first two characters, or four letters, for words begin alike everywhere in prose."""
    return {text[: 4 if text[0].isalpha() else 2] for text in texts}


def beginning_of(texts: Iterable[str]) -> str:
    """A pattern that finds one of these texts, or what there is of it at the end. It begins with characters alone, for
    which a search looks in one loop."""
    return "|".join(re.escape(char) + _behind(rest) for char, rest in _by_first(texts).items())


def beginnings_of(texts: Iterable[str], depth: int = NESTED) -> str:
    """A pattern that matches what one of these texts begins with, from nothing to all of it."""
    heads = _by_first(texts)
    if depth == 0:
        return f"(?:{'|'.join(re.escape(text) for text in sorted(texts, key=len, reverse=True))})?" if heads else ""
    parts = [re.escape(char) + beginnings_of(rest, depth - 1) for char, rest in heads.items()]
    return f"(?:{'|'.join(parts)})?" if parts else ""


def _behind(texts: Iterable[str]) -> str:
    if "" in texts:
        return ""
    behind = {re.escape(char): _behind(rest) for char, rest in _by_first(texts).items()}
    last = "".join(char for char, rest in behind.items() if not rest)
    parts = [f"[{last}]"] if last else []
    parts += [char + rest for char, rest in behind.items() if rest]
    return f"(?:{'|'.join(parts)}|\\Z)"


def _by_first(texts: Iterable[str]) -> dict[str, list[str]]:
    """What follows the first character of these texts."""
    found: dict[str, list[str]] = {}
    for text in sorted({text for text in texts if text}):
        found.setdefault(text[0], []).append(text[1:])
    return found


def one_of(names: Sequence[str], before: str = "") -> re.Pattern[str]:
    """One of these names, whole, or the beginning of one where the text ends; maybe with a word `before` it."""
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) or NAME
    before = f"(?:{re.escape(before)})?+" if before else ""
    begun = "".join(
        rf"|{before}{re.escape(name[: other.end()])}{beginnings_of([name[other.end() :]])}\Z"
        for name in names
        if (other := _OTHER_CHAR.search(name))
    )
    return re.compile(rf"{before}(?:{known})(?!{_NAME_CHAR}|\Z)|{_NAME_CHAR}{{1,{MAX_NAME}}}+\Z{begun}")


def first_of(words: Sequence[str]) -> str:
    return "".join(sorted({word[0] for word in words}))
