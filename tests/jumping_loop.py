"""An event loop whose time jumps: no timer is waited for, and none runs out early on a machine that stands still."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0 if timeout is not None else None)
        if not ready and timeout is not None and timeout > 0:
            self.time += timeout + 1e-6
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """Its time stands still while there is something to do, and then jumps to the next timer.

    For what happens in this process and in its event loop: a thread or another process would be overtaken.
    """

    def __init__(self) -> None:
        self._jumps = _JumpingSelector()
        super().__init__(self._jumps)

    def time(self) -> float:
        return self._jumps.time


def run_jumping(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(work)


def loop_clock() -> float:
    return asyncio.get_running_loop().time()
