"""Which part of a long sweep `make test` runs. `make test-slow` runs the rest: every part that is marked slow, the
other cases of a test that has many, and the full number of hypothesis' examples. CI leaves out what is `long`, too.

SWEEPS chooses: `sample`, four cases of a test with more, or one in sixteen, and no test that takes over a second (`make
test`); `few`, one in eight cases of any test (another Python in CI); `cases`, all cases (CI); `whole`, all cases with
every example of hypothesis."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

SWEEPS = os.environ.get("SWEEPS")
"""Without the variable (`pytest FILE`) all cases run."""
SHARE = 4
"""`make test` draws one example of hypothesis of so many."""


def fewer(examples: int) -> int:
    """The number of examples that hypothesis draws: a quarter (`few`: an eighth), and all in `make test-slow`."""
    share = {"whole": 1, "few": 2 * SHARE}.get(SWEEPS or "", SHARE)
    return -(-examples // share)


def mark_more_cases(items: Sequence[pytest.Item]) -> None:
    """Marks the cases that `make test` leaves out as `more_cases`, and as slow the tests that this run leaves out."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if SWEEPS == "sample" and item.get_closest_marker("over_a_second"):
            item.add_marker("slow")
        if "callspec" in vars(item) and item.get_closest_marker("slow") is None:
            cases.setdefault(item.nodeid.split("[")[0], []).append(item)
    for name, each in cases.items():
        number = len(each)
        sample = _spread(name, number, max(4, number // 16))
        few = _spread(name, number, max(1, number // 8))
        for i, item in enumerate(each):
            if i not in sample:
                item.add_marker("more_cases")
            if (SWEEPS == "sample" and i not in sample) or (SWEEPS == "few" and i not in few):
                item.add_marker("slow")


def _spread(name: str, number: int, most: int) -> set[int]:
    """At most `most` numbers below `number`, far from each other. Each test begins elsewhere: else none would run with
    the second dialect."""
    first = zlib.crc32(name.encode())
    return {(first + i * number // most) % number for i in range(most)} if number > most else set(range(number))


def parts(number: int) -> Callable[[Any], Any]:
    """Parametrises `part`, for `cases[part::number]`: part 0 runs in `make test`, CI runs part 1 too, and
    `make test-slow` all others."""
    others = [
        pytest.param(part, marks=[pytest.mark.slow, pytest.mark.long][: min(part, 2)]) for part in range(1, number)
    ]
    return pytest.mark.parametrize("part", [0, *others])


@contextmanager
def case(*values: object) -> Iterator[None]:
    """A failure inside it shows these values. For a loop over cases so short that a test of each would cost more."""
    try:
        yield
    except Exception as error:
        error.add_note(f"The case: {', '.join(map(repr, values))}")
        raise


def grid(*axes: Iterable[Any], every: int, ids: Callable[[Any], str] | None = None) -> Sequence[Any]:
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
