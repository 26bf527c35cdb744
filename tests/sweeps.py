"""Which part of a long sweep `make test` runs. `make test-slow` runs the rest: every part that is marked slow, and the
full number of hypothesis' examples."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

IS_WHOLE = os.environ.get("SWEEPS") == "whole"
SHARE = 4
"""`make test` draws one example of so many."""


def fewer(examples: int) -> int:
    """The number of examples that hypothesis draws: a quarter, and all of them in `make test-slow`."""
    return examples if IS_WHOLE else -(-examples // SHARE)


def parts(number: int) -> Callable[[Any], Any]:
    """Parametrises `part`, for `cases[part::number]`: part 0 runs in `make test`, the others in `make test-slow`."""
    others = [pytest.param(part, marks=pytest.mark.slow) for part in range(1, number)]
    return pytest.mark.parametrize("part", [0, *others])


@contextmanager
def case(*values: object) -> Iterator[None]:
    """A failure inside it shows these values. For a loop over cases so short that a test of each would cost more."""
    try:
        yield
    except Exception as error:
        error.add_note(f"The case: {', '.join(map(repr, values))}")
        raise


def crossed(*axes: Iterable[Any], every: int, ids: Callable[[Any], str] | None = None) -> Sequence[Any]:
    """Each combination of the values of two axes, for `parametrize`. `make test` runs one of `every` in each row, and
    with the next row the next one, so that each value of both axes is in it."""
    first, second = map(list, axes)
    return [
        pytest.param(
            one,
            other,
            marks=[pytest.mark.slow] if (i + j) % every else [],
            id=None if ids is None else f"{ids(one)}-{ids(other)}",
        )
        for i, one in enumerate(first)
        for j, other in enumerate(second)
    ]
