"""The promises of docs/design.md 4.1 as checks for the dialects in function notation, with made-up calls and texts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import cast

from dialect_strategies import PIECES, TOOLS, joined_surrogates
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from toolspeak.data.messages import FinishReason, Message, ToolCall
from toolspeak.dialects import Dialect, Section
from toolspeak.testing import check_deltas, check_splits, chunks, parse_pieces

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def examples(count: int) -> settings:
    return settings(deadline=None, max_examples=count, suppress_health_check=SLOW)


def soup(fragments: Sequence[str]) -> st.SearchStrategy[str]:
    return st.lists(st.one_of(st.sampled_from(fragments), st.sampled_from(fragments), PIECES), max_size=20).map(
        lambda pieces: joined_surrogates("".join(pieces))
    )


def check_any_text(dialect: Dialect, text: str, finish: str, starts_in: Section, cut: Sequence[str]) -> None:
    splits = [tuple(chunks(text, 1)), tuple(chunks(text, 4)), cut]
    check_splits(dialect, text, TOOLS, cast("FinishReason", finish), starts_in=starts_in, splits=splits)


def written(dialect: Dialect, *calls: ToolCall) -> str:
    return "\n".join(entry.text for entry in dialect.render([Message("assistant", calls)], TOOLS))


def check_cut_off(dialect: Dialect, text: str) -> None:
    """Cut anywhere by the token limit, no call is completed that was not closed."""
    for stop in range(len(text)):
        deltas = parse_pieces(dialect, [text[:stop]], TOOLS, "length")
        check_deltas(deltas)


def seconds(dialect: Dialect, text: str, size: int) -> float:
    parser = dialect.parser(TOOLS)
    pieces = list(chunks(text, size))
    start = time.process_time()
    for piece in pieces:
        parser.feed(piece)
    parser.close("stop")
    return time.process_time() - start


def growth(dialect: Dialect, start: str, unit: str, size: int) -> float:
    """How much longer twice the text takes; the best of two, tried again longer before it counts."""
    found = 0.0
    for length in (12_000, 48_000):
        short, long = (start + unit * (total // len(unit)) for total in (length, 2 * length))
        once = min(seconds(dialect, short, size) for _ in range(2))
        twice = min(seconds(dialect, long, size) for _ in range(2))
        found = twice / max(once, 0.002)
        if found < 3.2:
            break
    return found
