"""How many calls run at once: counters that calls queue at, within one event loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from toolspeak.data.values import quick
from toolspeak.errors import UsageError


@quick()
class Concurrency:
    """How many calls run at once; None is no limit.

    `batch` of one batch, `run` of all that goes on in a run (calls that start early, batches of the same scope),
    `threads` synchronous ones of a run: a batch of thousands must not become as many threads. A tool's own limit is
    `@tool(max_concurrent=…)`. Raises UsageError for a limit below 1.
    """

    batch: int | None = None
    run: int | None = None
    threads: int = 128

    def __post_init__(self) -> None:
        for name in ("batch", "run", "threads"):
            limit = getattr(self, name)
            if limit is not None and not (isinstance(limit, int) and limit >= 1):
                raise UsageError(f"Concurrency({name}={limit!r}): a number from 1 up, for one call must be able to run")


class Gate:
    """Lets `limit` calls through at a time; the others wait in their order.

    A call that was abandoned in its thread may keep its place: it is `lingering` then. When abandoned calls hold
    all places, whoever waits is let go to be told so: nobody knows when one of them ends.
    """

    __slots__ = ("_held", "_limit", "_lingering", "_waiting")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = self._lingering = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def free(self) -> bool:
        return self._held < self._limit

    @property
    def stuck(self) -> bool:
        return self._lingering >= self._limit

    def take(self) -> None:
        self._held += 1

    def release(self) -> None:
        self._held -= 1
        self._wake()

    def wait(self, go: Callable[[], None]) -> None:
        """Calls `go` when there may be a place; it takes one, or waits again."""
        self._waiting.append(go)

    def linger(self) -> None:
        """A place that is taken stays so, by a call nobody waits for any more."""
        self._lingering += 1
        if self.stuck:
            self._wake()

    def leave(self) -> None:
        """A lingering call has ended after all."""
        self._lingering -= 1
        self.release()

    def _wake(self) -> None:
        while self._waiting and (self.free or self.stuck):
            self._waiting.popleft()()
