"""Which dialect a model writes, by its name on a hub, a server or in a file."""

from __future__ import annotations

import re
from collections.abc import Iterable

from toolspeak.dialects.base import Dialect
from toolspeak.errors import UnknownDialect

_DECIMAL = re.compile(r"(?<=\d)(?:[_p](?=\d)|-(?=\d(?:[-:]|$)))")
"""Names that cannot hold a dot write `3p1` (Fireworks), `3_3` (NVIDIA) or `3-1` (Bedrock)."""
_WORD = re.compile(r"[a-z]+|\d+(?:\.\d+)*(?:\.x)?")
_VERSION = re.compile(r"(?<![a-z])v(?=\d)")

Words = tuple[str, ...]
Rank = tuple[int, int, int]
"""How well a model's name fits a family; greater is better."""


def words_of(name: str) -> Words:
    """A name as its words and numbers: `hf.co/unsloth/Qwen3-Coder-30B-GGUF:Q4_K_M` begins `qwen`, `3`, `coder`.

    The part before the last slash (an owner, a registry, a folder) does not count, nor do separators, case and the `v`
    of a version.
    """
    last = name.lower().rstrip("/").rpartition("/")[2]
    return tuple(_WORD.findall(_VERSION.sub("", _DECIMAL.sub(".", last))))


def find_dialect(model: str, dialects: Iterable[Dialect]) -> Dialect:
    """The dialect whose model family comes first in the model's name; of several there, the longest name.

    A fine-tune's name precedes that of its base model (`Hermes-3-Llama-3.1-8B`). A version has to be the same, because
    minor versions change formats; `granite-3.x` covers all of them. Raises UnknownDialect if the name holds no family:
    a wrong dialect would lose calls silently.
    """
    words = words_of(model)
    best: tuple[Rank, Dialect] | None = None
    for dialect in dialects:
        rank = family_rank(words, dialect.info.models)
        if rank is not None and (best is None or rank > best[0]):
            best = rank, dialect
    if best is None:
        raise UnknownDialect(
            f"No dialect is known for the model {model!r}. Name the one it was trained on (`toolspeak dialects` lists "
            f"them and their models), or one of the protocols for any model (cogency-json), "
            f'or use "auto" without a model, which reads them all.'
        )
    return best[1]


def family_rank(words: Words, families: Iterable[str]) -> Rank | None:
    """How well a model's name fits the best of these families, None if it fits none."""
    best: Rank | None = None
    for family in map(words_of, families):
        at = _find(words, family)
        exact = sum(not word.endswith(".x") for word in family)
        rank = (-at, len(family), exact)
        if at >= 0 and (best is None or rank > best):
            best = rank
    return best


def named_family(name: str, dialects: Iterable[Dialect]) -> Dialect | None:
    """The dialect of the family with exactly this name: `glm-4.5`, not `glm-4.5-air`."""
    words = words_of(name)
    for dialect in dialects:
        for family in map(words_of, dialect.info.models):
            if len(words) == len(family) and _find(words, family) == 0:
                return dialect
    return None


def newest_of(name: str, dialects: Iterable[Dialect]) -> Dialect | None:
    """The dialect of the newest models whose families' names begin with this one: `mistral`, `gemma`."""
    words = words_of(name)
    candidates = [
        (_version(family), dialect)
        for dialect in dialects
        for family in map(words_of, dialect.info.models)
        if words and family[: len(words)] == words
    ]
    return max(candidates, key=lambda each: each[0])[1] if candidates else None


def _version(family: Words) -> tuple[int, ...]:
    """The first number of a family's name that is neither a size (`7b`) nor a date (`2407`), else the empty tuple."""
    for word, after in zip(family, (*family[1:], ""), strict=True):
        numbers = tuple(int(each) for each in word.removesuffix(".x").split(".") if each.isdigit())
        if numbers and after != "b" and numbers[0] < 100:
            return numbers
    return ()


def _find(words: Words, family: Words) -> int:
    """The position of a family in a name, else -1."""
    size = len(family)
    for start in range(len(words) - size + 1):
        if all(map(_same, words[start : start + size], family)):
            return start
    return -1


def _same(word: str, family_word: str) -> bool:
    if family_word.endswith(".x"):
        return word == family_word[:-2] or word.startswith(family_word[:-1])
    return word == family_word or word == f"{family_word}.0"
