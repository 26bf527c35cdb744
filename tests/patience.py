"""Tests of time limits, on a machine that may stand still for seconds."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def in_time(attempt: Callable[[float], T], *limits: float) -> T:
    """What `attempt` returns with the first of these limits (seconds) with which it does not fail.

    For a test in which something has to happen before a limit is over: a machine that stands still just then fails it
    with the short limit, and a fault fails it with each.
    """
    for seconds in limits[:-1]:
        try:
            return attempt(seconds)
        except Exception:  # noqa: BLE001 - the last attempt decides
            traceback.print_exc()
    return attempt(limits[-1])
