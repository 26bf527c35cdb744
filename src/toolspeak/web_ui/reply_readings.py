"""The playground: what a dialect reads in a reply of a model, and after which character it knows it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Meta

from toolspeak.data.codec import dump
from toolspeak.data.deltas import CallCompleted, CallMalformed, CallStarted, Delta, TextAside, TextDelta
from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects import DIALECTS, Dialect, get_dialect, open_parser, section_of_reply
from toolspeak.web_ui.api_values import ShortText
from toolspeak.web_ui.run_views import ApiCall
from toolspeak.web_ui.text_spans import TextSpan, text_spans

MOST_READ = 20_000
"""The most characters of a reply that are read one by one."""


@quick()
class ReadingBody:
    """A reply of a model, and the dialect that reads it."""

    text: Annotated[str, Meta(max_length=MOST_READ)]
    dialect: ShortText = "auto"


@quick()
class ReadingStep:
    """A delta, and the number of characters after which it is certain."""

    offset: int
    delta: JSON


@quick()
class DialectReading:
    """What a dialect makes of a reply: the names of the calls that it sees, how many of them are complete, how many
    attempts it cannot read, and how many characters are text."""

    dialect: str
    calls: tuple[str, ...]
    completed: int
    malformed: int
    text: int


@quick()
class ReplyReadings:
    """What one dialect reads step by step, what its parser made of each character, and what each makes of the whole."""

    dialect: str
    steps: tuple[ReadingStep, ...]
    spans: tuple[TextSpan, ...]
    dialects: tuple[DialectReading, ...]


async def read_reply(call: ApiCall) -> ReplyReadings:
    """Reads a reply as the dialect does that the body names, character by character, and tells what each dialect makes
    of it. Raises UnknownDialect."""
    body: ReadingBody = call.body
    dialect = get_dialect(body.dialect)
    return await asyncio.to_thread(_readings, dialect, body.text)


def _readings(dialect: Dialect, text: str) -> ReplyReadings:
    deltas = [*steps_of(dialect, text, ())]
    steps = tuple(ReadingStep(offset, dump(delta)) for offset, delta in deltas)
    spans = text_spans(dialect, text, deltas)
    return ReplyReadings(dialect.name, steps, spans, tuple(_summary(each, text) for each in DIALECTS))


def steps_of(dialect: Dialect, text: str, tools: Sequence[ToolSpec]) -> Iterator[tuple[int, Delta]]:
    """The deltas of a reply, each with the number of characters after which it is certain."""
    parser = open_parser(dialect, tools, starts_in=section_of_reply(dialect, text, tools))
    for offset, character in enumerate(text, 1):
        for delta in parser.feed(character):
            yield offset, delta
    for delta in parser.close("stop"):
        yield len(text), delta


def _summary(dialect: Dialect, text: str) -> DialectReading:
    names: dict[int, str] = {}
    completed_calls, malformed_calls, characters = 0, 0, 0
    parser = open_parser(dialect, (), starts_in=section_of_reply(dialect, text, ()))
    for delta in [*parser.feed(text), *parser.close("stop")]:
        match delta:
            case CallStarted(index, name):
                names[index] = name
            case CallCompleted(index, name):
                names[index] = name
                completed_calls += 1
            case CallMalformed():
                malformed_calls += 1
            case TextDelta(piece) | TextAside(piece):
                characters += len(piece)
            case _:
                pass
    return DialectReading(dialect.name, tuple(names.values()), completed_calls, malformed_calls, characters)
