"""Which calls of a batch must wait for which: pure, from their effects alone; and what a declaration would improve."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Literal, get_args

from toolspeak.data.events import ToolStarted
from toolspeak.data.tools import EVERYTHING, Effects
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, suggest

ScheduleName = Literal["serializable", "parallel", "sequential"]
"""How the calls of a batch run: at once unless their effects conflict, all at once, or one by one."""
_SCHEDULES: tuple[ScheduleName, ...] = get_args(ScheduleName)


def check_schedule(name: str) -> None:
    """Raises ConfigurationError when no schedule has this name."""
    if name not in _SCHEDULES:
        raise ConfigurationError(f"no schedule is called {suggest(name, _SCHEDULES)}")


def plan(effects: Sequence[Effects], name: ScheduleName) -> tuple[tuple[int, ...], ...]:
    """Returns for each call the earlier calls it must wait for, as ascending indexes.

    - `parallel`: none.
    - `sequential`: the call before.
    - `serializable`: the calls it conflicts with, without those that an earlier write has waited for if the call waits
      for that write. So running every call as soon as its predecessors are done has the same outcome as running them
      one by one.

    Raises ConfigurationError for another name.
    """
    if name == "parallel":
        return ((),) * len(effects)
    if name == "sequential":
        return tuple((index - 1,) if index else () for index in range(len(effects)))
    if name != "serializable":
        check_schedule(name)
    earlier, waits = Conflicts(), list[tuple[int, ...]]()
    last = None
    for index, one in enumerate(effects):
        if one is not last or one.writes or _sends(one):
            waits.append(tuple(sorted(earlier.with_(one))))
            earlier.drop_covered(one)
        else:
            waits.append(waits[-1])  # the same read again: nothing was written in between
        earlier.add(index, one)
        last = one
    return tuple(waits)


class Conflicts:
    """A set of calls by what they touch. It finds the calls whose order with another call matters.

    Two calls conflict if one writes what the other touches. Two calls that send something out of the machine conflict
    too, unless they are idempotent; so do two calls that do not declare their effects.
    """

    def __init__(self) -> None:
        self._readers, self._writers = _Accesses(), _Accesses()
        self._senders: list[int] = []

    def add(self, index: int, effects: Effects) -> None:
        for key in effects.writes:
            self._writers.add(key, index)
        for key in effects.reads - effects.writes if effects.writes else effects.reads:
            self._readers.add(key, index)
        if _sends(effects):
            self._senders.append(index)

    def with_(self, effects: Effects) -> set[int]:
        """The calls so far that conflict with a call of these effects."""
        neighbours = set(self._senders) if _sends(effects) else set[int]()
        for key in effects.reads:
            neighbours.update(self._writers.near(key))
        for key in effects.writes:
            neighbours.update(self._writers.near(key))
            neighbours.update(self._readers.near(key))
        return neighbours

    def any_with(self, effects: Effects) -> bool:
        """Whether a call so far conflicts with a call of these effects."""
        return (
            (bool(self._senders) and _sends(effects))
            or any(next(self._writers.near(key), None) is not None for key in (*effects.reads, *effects.writes))
            or any(next(self._readers.near(key), None) is not None for key in effects.writes)
        )

    def drop_covered(self, effects: Effects) -> None:
        """Forgets the accesses that a call with these effects covers, once it waits for all it conflicts with.

        A later call that conflicts with an access below a key it writes conflicts with this write too, so keeping the
        access would only add an edge. This keeps barriers linear.
        """
        for key in effects.writes:
            self._readers.drop_below(key)
            self._writers.drop_below(key)
        if _sends(effects):
            self._senders.clear()


def _sends(effects: Effects) -> bool:
    return (effects.external or not effects.declared) and not effects.idempotent


class _Accesses:
    """The calls that read (or wrote) each resource, by its key, the keys above and the keys below."""

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
        """The calls that touched `key`, a key above it or a key below it."""
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


@lru_cache(maxsize=4096)
def _upwards(key: str) -> Iterable[str]:
    """Every key that covers `key`, itself included. The counterpart of `data.tools.covers`."""
    keys = {EVERYTHING: None, key: None}
    for end, character in enumerate(key):
        if character == "/":
            keys[key[:end]] = None
        if character in "/:":
            keys[key[: end + 1]] = None
    return tuple(keys)


@quick()
class Wait:
    """A call that had to wait for others of its batch, by id."""

    call_id: str
    name: str
    waited_for: tuple[str, ...]


def waits(start_events: Iterable[ToolStarted]) -> tuple[Wait, ...]:
    """Returns the calls that waited, in the order they started."""
    return tuple(Wait(each.call_id, each.name, each.waited_for) for each in start_events if each.waited_for)


def hints(start_events: Iterable[ToolStarted]) -> tuple[str, ...]:
    """Returns what to declare, for each tool whose calls waited, or were waited for, only because its declaration says
    too little."""
    calls = {each.call_id: each for each in start_events}
    vague: dict[tuple[str, str], set[str]] = {}
    for call in calls.values():
        for earlier in (calls[name] for name in call.waited_for if name in calls):
            for one in (call, earlier):
                what = _vague(one)
                if what:
                    vague.setdefault((one.name, what), set()).add(call.call_id)
    return tuple(_hint(name, what, len(waiting)) for (name, what), waiting in vague.items())


def _vague(call: ToolStarted) -> str:
    effects = call.effects
    if effects is None:
        return ""
    if not effects.declared:
        return "does not declare what it touches"
    return "may read anything" if EVERYTHING in effects.reads and effects.read_only else ""


def _hint(name: str, what: str, count: int) -> str:
    calls = "1 call" if count == 1 else f"{count} calls"
    remedy = "with @tool(effects=…) it would run beside calls that touch something else"
    return f"{name} {what}, so {calls} had to wait; {remedy}"
