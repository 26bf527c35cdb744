"""Finds tools by words: BM25 over their names, descriptions and parameters. Pure, and the same in every process."""

from __future__ import annotations

import math
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import cast

from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec

# A library (bm25s, rank-bm25) would bring NumPy, and still need these words: what decides here is how a name such as
# `getUserById` or `crm.contact_list` is split, not the formula.
_SATURATION = 1.2
_LENGTH_WEIGHT = 0.75
"""The usual parameters of BM25, k1 and b."""
_NAME_WEIGHT = 3
"""A word of the name counts as often as this."""
_MOST_REPEATS = 2
"""A word of the description and the parameters counts at most as often as this, and all of them make the text longer: a
tool that repeats words to be found for everything is not."""
_MOST_CHARACTERS = 4_000  # of a description
_MOST_WORDS = 400
_MOST_PARAMETERS = 60
_MOST_QUERY = 1_000

_WORD = re.compile(r"\d+|[^\W\d_]+")
_HUMPS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_RUN_WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)
"""Scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""
_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and any are as at be by can do for from has have how i if in into is it its me my need of on or our"
        " please some such than that the their them then there these they this those to tool use used using want was we"
        " what when where which who will with you your",
    )
)
_EXACT = re.compile(r"[^\s,;\"'`()\[\]{}]+")


class ToolIndex:
    """The words of some tools. The order of `specs` decides between tools that fit equally well."""

    def __init__(self, specs: Sequence[ToolSpec]) -> None:
        self._specs = specs
        self._numbers = {spec.name: number for number, spec in enumerate(specs)}
        self._lengths = array("I")
        self._places: dict[str, tuple[array[int], array[int]]] = {}  # of each word: the tools, and how often
        for number, spec in enumerate(specs):
            name, text = Counter(words(spec.name)), Counter(islice(_words_of_texts(spec), _MOST_WORDS))
            self._lengths.append(_NAME_WEIGHT * name.total() + text.total())
            for word in name | text:
                count = _NAME_WEIGHT * name[word] + min(text[word], _MOST_REPEATS)
                entry = self._places.get(word)
                if entry is None:
                    entry = self._places[word] = (array("I"), array("H"))
                entry[0].append(number)
                entry[1].append(count)
        self._mean = sum(self._lengths) / len(specs) if specs else 1.0

    def best(self, query: str, most: int, prefix: str = "") -> list[ToolSpec]:
        """The tools that fit best, at most `most`. A tool whose whole name is in the query comes first. `prefix`: only
        tools whose names begin so."""
        query = query[:_MOST_QUERY]
        first = [self._numbers[word] for word in _EXACT.findall(query) if word in self._numbers]
        scores: dict[int, float] = {}
        for word in dict.fromkeys(words(query)):
            entry = self._places.get(word)
            if entry is None:
                continue
            rarity = math.log(1 + (len(self._specs) - len(entry[0]) + 0.5) / (len(entry[0]) + 0.5))
            for number, count in zip(*entry, strict=True):
                length = 1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * self._lengths[number] / self._mean
                gain = rarity * count * (_SATURATION + 1) / (count + _SATURATION * length)
                scores[number] = scores.get(number, 0.0) + gain
        # Rounded: the order of additions must not decide between tools that fit equally well.
        ranking = sorted(scores, key=lambda number: (-round(scores[number], 9), number))
        fitting = [
            number for number in dict.fromkeys([*first, *ranking]) if self._specs[number].name.startswith(prefix)
        ]
        return [self._specs[number] for number in fitting[:most]]


def words(text: str) -> Iterator[str]:
    """The words of a text as they are compared: lower case, without accents and endings; names in snake_case, camelCase
    and with dots as several words; pairs of characters where a script has no spaces between words."""
    plain = "".join(
        character
        for character in unicodedata.normalize("NFKD", _HUMPS.sub(" ", text))
        if not unicodedata.combining(character)
    )
    for run in _WORD.findall(plain.casefold()):
        if run.isascii():
            if run not in _STOP_WORDS:
                yield _stem(run)
            continue
        at = 0
        for match in _RUN_WITHOUT_SPACES.finditer(run):
            if match.start() > at:
                yield run[at : match.start()]
            signs = match[0]
            yield from (signs[i : i + 2] for i in range(len(signs) - 1)) if len(signs) > 1 else signs
            at = match.end()
        if at < len(run):
            yield run[at:]


def _words_of_texts(spec: ToolSpec) -> Iterator[str]:
    """The words of a tool's description and of its parameters."""
    yield from words(spec.description[:_MOST_CHARACTERS])
    for name, schema in islice(spec.properties.items(), _MOST_PARAMETERS):
        yield from words(name)
        if isinstance(schema, Mapping):
            for text in _texts_of_parameter(cast("Mapping[str, JSON]", schema)):
                yield from words(text)


def _texts_of_parameter(schema: Mapping[str, JSON]) -> Iterable[str]:
    description, choices = schema.get("description"), schema.get("enum")
    texts = [description[:_MOST_CHARACTERS]] if isinstance(description, str) else []
    if isinstance(choices, list | tuple):
        texts += [each[:100] for each in cast("Sequence[JSON]", choices)[:20] if isinstance(each, str)]
    return texts


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    """An English word without its usual endings, so that `converts`, `converting` and `converter` are one word. Words
    of other languages lose the same endings everywhere, so they still match themselves."""
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 4 and word.endswith(("xes", "ches", "shes", "sses", "zes")):
        word = word[:-2]
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending, least in (("ing", 6), ("ed", 5), ("ion", 6), ("er", 7), ("or", 7), ("ly", 6)):
        if len(word) >= least and word.endswith(ending):
            word = word[: -len(ending)]
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if len(word) > 4 and word.endswith("e") else word
