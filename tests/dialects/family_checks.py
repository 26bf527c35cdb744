"""The promises of docs/design.md 4.1 as checks for the dialects in function notation, with made-up calls and texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from dialect_strategies import PIECES, TOOLS, joined_surrogates
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from growth import growth
from sweeps import fewer
from toolspeak.data.deltas import ArgumentsDelta, CallCompleted, CallMalformed
from toolspeak.data.messages import FinishReason, Message, TextPart, ToolCall, ToolResult
from toolspeak.dialects import Dialect, Section
from toolspeak.testing import check_deltas, check_splits, chunks, parse_pieces

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def examples(count: int) -> settings:
    return settings(deadline=None, max_examples=fewer(count), suppress_health_check=SLOW)


def soup(fragments: Sequence[str]) -> st.SearchStrategy[str]:
    return st.lists(st.one_of(st.sampled_from(fragments), st.sampled_from(fragments), PIECES), max_size=20).map(
        lambda pieces: joined_surrogates("".join(pieces))
    )


def check_any_text(dialect: Dialect, text: str, finish: str, starts_in: Section, cut: Sequence[str]) -> None:
    splits = [tuple(chunks(text, 1)), tuple(chunks(text, 4)), cut]
    check_splits(dialect, text, TOOLS, cast("FinishReason", finish), starts_in=starts_in, splits=splits)


def call_text(dialect: Dialect, *calls: ToolCall) -> str:
    return "\n".join(entry.text for entry in dialect.render([Message("assistant", calls)], TOOLS))


def check_cut_off(dialect: Dialect, text: str) -> None:
    """Cut anywhere by the token limit, no call is completed that was not closed."""
    for stop in range(len(text)):
        deltas = parse_pieces(dialect, [text[:stop]], TOOLS, "length")
        check_deltas(deltas)


def check_never_completed(dialect: Dialect, cut: str) -> None:
    """A call that the token limit cut off is malformed, at its end, and the report says that it was cut off."""
    deltas = parse_pieces(dialect, [cut], TOOLS, "length")
    assert isinstance(deltas[-2], CallMalformed)
    assert deltas[-2].code == "truncated"
    assert not [delta for delta in deltas if isinstance(delta, CallCompleted)]


def check_leaves_as_it_comes(dialect: Dialect, start: str, piece: str, fragment: str) -> None:
    """Inside a string that `start` opens, each chunk leaves at once, as this fragment of JSON."""
    parser = dialect.parser(TOOLS)
    list(parser.feed(start))
    for _ in range(100):
        deltas = parser.feed(piece)
        assert "".join(delta.text for delta in deltas if isinstance(delta, ArgumentsDelta)) == fragment


def parsing(dialect: Dialect, start: str, unit: str, size: int) -> Callable[[int], Callable[[], object]]:
    """For `growth`: reading as many units as make up a length, after the start, in pieces of this size."""

    def prepare(length: int) -> Callable[[], object]:
        parser, pieces = dialect.parser(TOOLS), list(chunks(start + unit * (length // len(unit)), size))

        def read() -> None:
            for piece in pieces:
                parser.feed(piece)
            parser.close("stop")

        return read

    return prepare


def results_of(dialect: Dialect, start: str, unit: str) -> Callable[[int], Callable[[], object]]:
    """For `growth`: writing a result that has as many units as make up a length after the start."""

    def prepare(length: int) -> Callable[[], object]:
        text = start + unit * (length // len(unit))
        return lambda: dialect.render_results([ToolResult("1", "read", "success", (TextPart(text),))])

    return prepare


def parse_growth(dialect: Dialect, start: str, unit: str, size: int, length: int = 12_000) -> float:
    return growth(parsing(dialect, start, unit, size), length)
