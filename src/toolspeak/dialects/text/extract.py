"""JSON found in what a model wrote around it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import cast

from toolspeak.data.messages import JSON

_FENCED = re.compile(r"```[\w+.-]*\s*(.*?)```", re.DOTALL)
_BRACKET = re.compile(r"[\[{]")
_THOUGHT_END = "</think>"
_MAX_PLACES = 64
"""Brackets in prose that are tried: each may be read to the end of the text before it turns out to begin nothing."""


def json_values(text: str) -> Iterator[JSON]:
    """Whatever JSON a text may be meant as, the likeliest first: the whole text, what stands in code fences, and what
    begins at a bracket. What a thought left in the text drafts is none if there is more behind it."""
    whole = [*_read(text)]
    yield from whole
    _, closed, behind = text.partition(_THOUGHT_END)
    if closed and not whole:
        found = False
        for value in (*_read(behind), *_within(behind)):
            found = True
            yield value
        if found:
            return
    yield from _within(text)


def _within(text: str) -> Iterator[JSON]:
    for match in _FENCED.finditer(text):
        yield from _read(match[1])
    decoder, tried, at = json.JSONDecoder(), 0, 0
    while tried < _MAX_PLACES and (match := _BRACKET.search(text, at)) is not None:
        tried, at = tried + 1, match.start() + 1
        try:
            value, at = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        yield value


def json_objects(text: str) -> Iterator[Mapping[str, JSON]]:
    """The objects among them, alone in a list or not."""
    for value in json_values(text):
        listed = cast("list[JSON]", value) if isinstance(value, list) else [value]
        if len(listed) == 1 and isinstance(listed[0], dict):
            yield cast("dict[str, JSON]", listed[0])


def json_object(text: str) -> Mapping[str, JSON] | None:
    """The first of them; None if there is none."""
    return next(json_objects(text), None)


def only_object(text: str) -> Mapping[str, JSON] | None:
    """The object that a text is, with or without a code fence around it; None if it is anything else."""
    fenced = _FENCED.fullmatch(text.strip())
    value = next(_read(fenced[1] if fenced else text), None)
    return cast("dict[str, JSON]", value) if isinstance(value, dict) else None


def _read(text: str) -> Iterator[JSON]:
    try:
        yield json.loads(text)
    except (ValueError, RecursionError):
        return
