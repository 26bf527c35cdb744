"""A list that only grows, shared by all the states that saw part of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar, cast, overload

ItemT = TypeVar("ItemT")
_new: Any = object.__new__


class Log(Sequence[ItemT], Generic[ItemT]):
    """An immutable sequence with an O(1) `append` that gives a longer one.

    The items are shared: a log is its length. Appending twice to the same log copies once (a fork).
    """

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[ItemT] = ()) -> None:
        self._items = list(items)
        self._length = len(self._items)

    def append(self, item: ItemT) -> Log[ItemT]:
        items, length = self._items, self._length
        if not length or len(items) != length:
            items = items[:length]
        items.append(item)
        longer: Log[ItemT] = _new(Log)
        longer._items = items
        longer._length = length + 1
        return longer

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> ItemT: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ItemT]: ...
    def __getitem__(self, index: int | slice) -> ItemT | Sequence[ItemT]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            return self._items[start:stop] if step == 1 else [self._items[i] for i in range(start, stop, step)]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError("log index out of range")
        return self._items[index]

    def __iter__(self) -> Iterator[ItemT]:
        return islice(self._items, self._length)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(cast("Log[ItemT]", other)) if isinstance(other, Log) else NotImplemented

    __hash__ = None  # pyright: ignore[reportAssignmentType] - compared by content, so not hashable, like a list

    def __repr__(self) -> str:
        return f"Log({list(self)!r})"


NOTHING: Log[Any] = Log()
"""The empty log, one for all: what is appended to it begins a list of its own."""


def nothing() -> Log[Any]:
    """`NOTHING`, for fields."""
    return NOTHING
