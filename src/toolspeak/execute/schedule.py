"""Which calls of a batch must wait for which: pure, from their effects alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, get_args

from toolspeak.data.tools import EVERYTHING, Effects
from toolspeak.errors import UsageError, suggest

ScheduleName = Literal["serializable", "parallel", "sequential"]


def check_schedule(name: str) -> None:
    """Raises UsageError when no schedule has this name."""
    known = get_args(ScheduleName)
    if name not in known:
        raise UsageError(f"no schedule is called {suggest(name, known)}")


def plan(effects: Sequence[Effects], name: ScheduleName) -> tuple[tuple[int, ...], ...]:
    """For each call, the earlier calls it must wait for, as ascending indexes.

    `parallel`: none. `sequential`: the one before. `serializable`: the ones it conflicts with, less those that
    a write above them, which it also waits for, has waited for; so running every call as soon as its
    predecessors are done gives what running them one by one gives. Raises UsageError for another name.
    """
    check_schedule(name)
    if name == "parallel":
        return ((),) * len(effects)
    if name == "sequential":
        return tuple((index - 1,) if index else () for index in range(len(effects)))
    readers, writers = _Accesses(), _Accesses()
    return tuple(_admit(index, one, readers, writers) for index, one in enumerate(effects))


def _admit(index: int, effects: Effects, readers: _Accesses, writers: _Accesses) -> tuple[int, ...]:
    waits: set[int] = set()
    for key in effects.reads:
        waits.update(writers.near(key))
    for key in effects.writes:
        waits.update(writers.near(key))
        waits.update(readers.near(key))
    for key in effects.writes:
        # Whoever conflicts later with an access below this key conflicts with this write too, and this write
        # waits for that access: keeping it would only add an edge. This is what keeps barriers linear.
        readers.drop_below(key)
        writers.drop_below(key)
    for key in effects.writes:
        writers.add(key, index)
    for key in effects.reads - effects.writes:
        readers.add(key, index)
    return tuple(sorted(waits))


class _Accesses:
    """The calls that read (or that wrote) each resource, found from above and from below."""

    def __init__(self) -> None:
        self._at: dict[str, list[int]] = {}
        self._keys_below: dict[str, dict[str, None]] = {}

    def add(self, key: str, index: int) -> None:
        if key not in self._at:
            self._at[key] = []
            for upper in _upwards(key):
                self._keys_below.setdefault(upper, {})[key] = None
        self._at[key].append(index)

    def near(self, key: str) -> Iterator[int]:
        """The calls that touched `key`, something above it or something below it."""
        for upper in _upwards(key):
            yield from self._at.get(upper, ())
        for lower in self._keys_below.get(key, ()):
            yield from self._at[lower]

    def drop_below(self, key: str) -> None:
        for lower in tuple(self._keys_below.get(key, ())):
            del self._at[lower]
            for upper in _upwards(lower):
                below = self._keys_below[upper]
                del below[lower]
                if not below:
                    del self._keys_below[upper]


def _upwards(key: str) -> Iterable[str]:
    """Every key that covers `key`, itself included: the counterpart of `data.tools.covers`."""
    found = {EVERYTHING: None, key: None}
    for end, character in enumerate(key):
        if character == "/":
            found[key[:end]] = None
        if character in "/:":
            found[key[: end + 1]] = None
    return found
