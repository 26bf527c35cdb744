"""Synchronous calls that were given up and go on in their threads: a thread cannot be stopped."""

from __future__ import annotations

from dataclasses import field

from toolspeak.data.tools import Effects
from toolspeak.data.values import quick
from toolspeak.execute.schedule import Conflicts


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
class Abandoned:
    """A call that nobody waits for any more; `ended` is set once its function has."""

    call_id: str
    tool: str
    effects: Effects
    ended: Flag


@quick(frozen=False, eq=False)
class Lingering:
    """The abandoned calls of a run, across its batches."""

    calls: list[Abandoned] = field(default_factory=list[Abandoned])

    def add(self, call: Abandoned) -> None:
        self._sweep()
        self.calls.append(call)

    def in_the_way_of(self, effects: Effects) -> str:
        """The tool of one that may still change what a call with these effects touches, or ""."""
        if not self.calls:
            return ""
        self._sweep()
        conflicts = Conflicts()
        for index, call in enumerate(self.calls):
            # What an abandoned read still finds is dropped: it may go on beside anything.
            if not call.effects.read_only or call.effects.external:
                conflicts.add(index, call.effects)
        found = conflicts.with_(effects)
        return self.calls[min(found)].tool if found else ""

    def running(self) -> tuple[Abandoned, ...]:
        self._sweep()
        return tuple(self.calls)

    def _sweep(self) -> None:
        if any(call.ended.is_set() for call in self.calls):
            self.calls = [call for call in self.calls if not call.ended.is_set()]
