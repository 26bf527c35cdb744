"""Finds JSON in a text that a model wrote around it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import cast

from toolspeak.data.messages import JSON

_FENCE = re.compile(r"```[\w+.-]*\s*(.*?)```", re.DOTALL)
_BRACKET = re.compile(r"[\[{]")
_THOUGHT_END = "</think>"
_MAX_PLACES = 64
"""How many brackets in prose are tried: for each, the decoder may read to the end of the text and fail."""


def json_values(text: str) -> Iterator[JSON]:
    """The JSON values that a text may mean, most likely first.

    These are the whole text, then the contents of code fences, then what begins at a bracket. Reasoning up to
    `</think>` counts only if no JSON follows it.
    """
    whole = [*_read(text)]
    yield from whole
    _, end_tag, after = text.partition(_THOUGHT_END)
    if end_tag and not whole:
        has_value = False
        for value in (*_read(after), *_within(after)):
            has_value = True
            yield value
        if has_value:
            return
    yield from _within(text)


def _within(text: str) -> Iterator[JSON]:
    for match in _FENCE.finditer(text):
        yield from _read(match[1])
    decoder, attempts, at = json.JSONDecoder(), 0, 0
    while attempts < _MAX_PLACES and (match := _BRACKET.search(text, at)) is not None:
        attempts, at = attempts + 1, match.start() + 1
        try:
            value, at = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        yield value


def json_objects(text: str) -> Iterator[Mapping[str, JSON]]:
    """The objects among `json_values`; an object that is the only item of a list counts too."""
    for value in json_values(text):
        items = cast("list[JSON]", value) if isinstance(value, list) else [value]
        if len(items) == 1 and isinstance(items[0], dict):
            yield cast("dict[str, JSON]", items[0])


def json_object(text: str) -> Mapping[str, JSON] | None:
    """The first of `json_objects`, or None."""
    return next(json_objects(text), None)


def only_object(text: str) -> Mapping[str, JSON] | None:
    """The JSON object that is the whole text, with or without a code fence around it; else None."""
    fence = _FENCE.fullmatch(text.strip())
    value = next(_read(fence[1] if fence else text), None)
    return cast("dict[str, JSON]", value) if isinstance(value, dict) else None


def _read(text: str) -> Iterator[JSON]:
    try:
        yield json.loads(text)
    except (ValueError, RecursionError):
        return
