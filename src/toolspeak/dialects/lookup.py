"""Which dialect a model speaks, by the name under which a hub, a server or a file knows it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from toolspeak.dialects.base import Dialect
from toolspeak.errors import UnknownDialect

_DECIMAL = re.compile(r"(?<=\d)[_p](?=\d)")
"""Names that cannot hold a dot write `3p1` (Fireworks) or `3_3` (NVIDIA)."""
_WORD = re.compile(r"[a-z]+|\d+(?:\.\d+)*(?:\.x)?")
_VERSION = re.compile(r"(?<![a-z])v(?=\d)")

Words = tuple[str, ...]


def words_of(name: str) -> Words:
    """A name as its words and numbers: `hf.co/unsloth/Qwen3-Coder-30B-GGUF:Q4_K_M` begins `qwen`, `3`, `coder`.

    What stands before the last slash (an owner, a registry, a folder) says nothing of the model. Separators, case and
    the `v` of a version make no difference.
    """
    last = name.lower().rstrip("/").rpartition("/")[2]
    return tuple(_WORD.findall(_VERSION.sub("", _DECIMAL.sub(".", last))))


def find_dialect(model: str, dialects: Iterable[Dialect]) -> Dialect:
    """The dialect whose model family stands first in the model's name; of several there, the most exactly named.

    The first, because a fine-tune is named before what it was made from (`Hermes-3-Llama-3.1-8B`). A version is
    taken at its word, since minor versions change formats; `granite-3.x` covers all of them. Raises UnknownDialect
    if no family is in the name: a wrong dialect loses calls without a word.
    """
    words = words_of(model)
    best: tuple[tuple[int, int, int], Dialect] | None = None
    for dialect in dialects:
        for family in map(words_of, dialect.info.models):
            at = _find(words, family)
            exact = sum(not word.endswith(".x") for word in family)
            rank = (-at, len(family), exact)
            if at >= 0 and (best is None or rank > best[0]):
                best = rank, dialect
    if best is None:
        raise UnknownDialect(
            f"No dialect is known for the model {model!r}. Name the one it was trained on (`toolspeak dialects` lists "
            f"them and their models), or one of the protocols for any model (cogency-json), "
            f'or take "auto" without a model, which reads them all.'
        )
    return best[1]


def _find(words: Words, family: Words) -> int:
    """Where the family stands in a name, else -1."""
    size = len(family)
    for start in range(len(words) - size + 1):
        if all(map(_same, words[start : start + size], family)):
            return start
    return -1


def _same(word: str, known: str) -> bool:
    if known.endswith(".x"):
        return word == known[:-2] or word.startswith(known[:-1])
    return word == known or word == f"{known}.0"
