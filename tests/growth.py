"""How the cost of something grows with its input: the one way in which tests look at time."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

LINEAR = 3.0
"""A `growth` below it is that of linear time, which is about 2; that of a square is 4."""

_FLOOR = 0.002
"""Seconds; below them a tick of the clock decides."""


def growth(prepare: Callable[[int], Callable[[], object]], size: int) -> float:
    """How many times longer twice the size takes. `prepare` makes the input of a size, and returns what is measured.

    CPU time, and the least of several tries: what disturbs a measurement makes it longer. What looks like a square is
    tried again, at last with four times the size, before it counts.
    """
    ratio = 0.0
    # The garbage collector passes over what earlier tests left. It stays frozen: `unfreeze` would thaw the collected
    # tests too (conftest.py).
    gc.collect()
    gc.freeze()
    for length, tries in ((size, 1), (size, 3), (4 * size, 3)):
        once, twice = (min(_seconds(prepare(total)) for _ in range(tries)) for total in (length, 2 * length))
        ratio = twice / max(once, _FLOOR)
        if ratio < LINEAR:
            break
    return ratio


def _seconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start
