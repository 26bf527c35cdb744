"""Calls and results as clients tell them: their ids, which may be missing or come again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from toolspeak.data.messages import MalformedCall, ToolCall
from toolspeak.errors import FormatError


class GivenCalls:
    """The calls of a conversation by the ids that their client gave them. An id may come again: some servers count anew
    in each turn, and some in the same turn."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}
        self._newest: dict[str, tuple[int, deque[ToolCall | MalformedCall], ToolCall | MalformedCall]] = {}

    def own_id(self, given: str) -> str:
        """`given`, unless there is none or another call has it; linear in the number of calls, whatever their ids."""
        found, number = given, self._next.get(given, 1)
        while not found or found in self._taken:
            found, number = f"{given or 'call'}-{number}", number + 1
        self._next[given] = number
        self._taken.add(found)
        return found

    def add(self, given: str, call: ToolCall | MalformedCall, turn: int) -> None:
        """A call, and the number of the model's turn that made it."""
        if not given:
            return
        known = self._newest.get(given)
        unanswered = known[1] if known is not None and known[0] == turn else deque[ToolCall | MalformedCall]()
        unanswered.append(call)
        self._newest[given] = (turn, unanswered, call)

    def answered(self, given: str) -> ToolCall | MalformedCall | None:
        """The call whose result names `given`: of the newest turn that has such calls, the first without a result, else
        the last. None if no call has the id."""
        known = self._newest.get(given)
        if known is None:
            return None
        _, unanswered, last = known
        return unanswered.popleft() if unanswered else last


class Awaiting:
    """The calls of a conversation: each gets an id of its own, and each result finds its call.

    A result without an id is that of the first call of its name in the turn before it that has none yet; one without
    a name either, of the first call.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._open: list[ToolCall] = []

    def id_of(self, given: str) -> str:
        """`given`, unless there is none or another call has it."""
        number = len(self._taken)
        found = given
        while not found or found in self._taken:
            found = f"{given or 'call'}_{number}"
            number += 1
        self._taken.add(found)
        return found

    def begin(self, calls: Iterable[ToolCall]) -> None:
        """A new turn of the model: results belong to its calls from now on."""
        self._open = [*calls]

    def take(self, given: str, name: str, place: str) -> ToolCall:
        """The call of a result that names `given` as its call and `name` as its tool; both may be empty.

        Raises FormatError if no call awaits one.
        """
        named = [call for call in self._open if given and given == (call.provider_id or call.id)]
        if not named:
            named = [call for call in self._open if name == call.name or not (name or given)]
        if not named:
            which = f" of {name!r}" if name else ""
            raise FormatError(
                f"{place}: no call{which} awaits this result; send it right behind the turn with its call"
            )
        self._open.remove(named[0])
        return named[0]
