"""How many calls run at once, and the calls that go on although their time is over: a thread cannot be stopped."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import field

from toolspeak.data.tools import Effects
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError
from toolspeak.execute.concurrency.schedule import Conflicts


@quick()
class Concurrency:
    """How many calls run at once; None is no limit.

    `batch` of one batch, `run` of all that goes on in a run (calls that start early, batches of the same scope),
    `threads` synchronous ones of a run: a batch of thousands must not become as many threads. A tool's own limit is
    `@tool(max_concurrent=…)`. Raises ConfigurationError for a limit below 1.
    """

    batch: int | None = None
    run: int | None = None
    threads: int = 128

    def __post_init__(self) -> None:
        for name in ("batch", "run", "threads"):
            limit = getattr(self, name)
            if limit is not None and not (isinstance(limit, int) and limit >= 1):
                raise ConfigurationError(
                    f"Concurrency({name}={limit!r}): a number from 1 up, for one call must be able to run"
                )


class Limiter:
    """Lets `limit` calls run at a time: each holds a slot, the others wait in their order.

    A call that is orphaned in its thread may keep its slot. When orphaned calls hold all slots the limiter is
    `blocked`, and whoever waits is called to be told so: nobody knows when one of them ends.
    """

    __slots__ = ("_limit", "_orphaned", "_used", "_waiting")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = self._orphaned = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def has_slot(self) -> bool:
        return self._used < self._limit

    @property
    def blocked(self) -> bool:
        return self._orphaned >= self._limit

    def acquire(self) -> None:
        self._used += 1

    def release(self) -> None:
        self._used -= 1
        self._wake()

    def wait(self, start: Callable[[], None]) -> None:
        """Calls `start` when there may be a slot; it acquires one, or waits again."""
        self._waiting.append(start)

    def orphan(self) -> None:
        """The holder of a slot keeps it, although nobody waits for its call any more."""
        self._orphaned += 1
        if self.blocked:
            self._wake()

    def release_orphaned(self) -> None:
        """An orphaned call has ended after all."""
        self._orphaned -= 1
        self.release()

    def _wake(self) -> None:
        while self._waiting and (self.has_slot or self.blocked):
            self._waiting.popleft()()


class Flag:
    """Set once, in one thread, and read in others."""

    __slots__ = ("_on",)

    def __init__(self) -> None:
        self._on = False

    def set(self) -> None:
        self._on = True

    def is_set(self) -> bool:
        return self._on


@quick()
class OrphanedCall:
    """A synchronous call that nobody waits for any more; `ended` is set once its function has ended."""

    call_id: str
    tool: str
    effects: Effects
    ended: Flag


@quick(frozen=False, eq=False)
class OrphanedCalls:
    """The orphaned calls of a run, across its batches."""

    calls: list[OrphanedCall] = field(default_factory=list[OrphanedCall])

    def add(self, call: OrphanedCall) -> None:
        self._sweep()
        self.calls.append(call)

    def conflicting_tool(self, effects: Effects) -> str:
        """The tool of one that may still change what a call with these effects touches, "" if there is none."""
        if not self.calls:
            return ""
        self._sweep()
        conflicts = Conflicts()
        for index, call in enumerate(self.calls):
            # What an orphaned read still finds is dropped: it may go on beside anything.
            if not call.effects.read_only or call.effects.external:
                conflicts.add(index, call.effects)
        conflicting = conflicts.with_(effects)
        return self.calls[min(conflicting)].tool if conflicting else ""

    def running(self) -> tuple[OrphanedCall, ...]:
        self._sweep()
        return tuple(self.calls)

    def _sweep(self) -> None:
        if any(call.ended.is_set() for call in self.calls):
            self.calls = [call for call in self.calls if not call.ended.is_set()]
