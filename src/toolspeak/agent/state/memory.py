"""The memory of a run's tools, as events: what a call changes of it is recorded with the call's result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from toolspeak.data.events import MemoryChanged
from toolspeak.data.messages import JSON
from toolspeak.execute import Secrets
from toolspeak.tools.returned_values import Unserialisable, jsonable
from toolspeak.tools.stored_results import KEY

_PLAIN = frozenset({str, int, bool, float, type(None)})
_MISSING = object()


class Memory:
    """Finds the changes of `values`, the mapping that the run's tools share. `recorded`: the changes in the run's
    records.

    A value that is a mapping with string keys is compared entry by entry, so that one that grows with the run (the
    files it has read) is not recorded anew with every call. Results for `read_result` are left out: they are recorded
    as such.
    """

    def __init__(self, values: dict[str, Any], recorded: Iterable[MemoryChanged], secrets: Secrets) -> None:
        self.values = values
        self._secrets = secrets
        # Not from `values`: the caller may have changed those since they were recorded.
        self._recorded = cast("dict[str, Any]", secrets.reveal(remembered(recorded)))

    def changes(self) -> tuple[tuple[MemoryChanged, ...], dict[str, str]]:
        """The changes since the last call, and the keys whose value is not JSON, with the reason."""
        changes: list[MemoryChanged] = []
        refused: dict[str, str] = {}
        now = {key: value for key, value in dict(self.values).items() if key != KEY}
        for key in self._recorded.keys() - now.keys():
            del self._recorded[key]
            changes.append(self._changed(key, forgotten=True))
        for key, value in now.items():
            try:
                changes += self._of(key, value)
            except Unserialisable as error:
                refused[key] = str(error)
        return tuple(changes), refused

    def _of(self, key: str, value: object) -> Iterable[MemoryChanged]:
        recorded = self._recorded.get(key, _MISSING)
        entries = _entries(value)
        if entries is None or (recorded is not _MISSING and type(recorded) is not dict):
            plain = _differs(value, recorded)
            if plain is not _MISSING:
                self._recorded[key] = plain
                yield self._changed(key, value=plain)
            return
        if recorded is _MISSING and entries:
            recorded = self._recorded[key] = {}
        here = cast("dict[str, Any]", recorded if recorded is not _MISSING else {})
        for name in here.keys() - entries.keys():
            del here[name]
            yield self._changed(key, name, forgotten=True)
        for name, item in entries.items():
            plain = _differs(item, here.get(name, _MISSING))
            if plain is not _MISSING:
                here[name] = plain
                yield self._changed(key, name, value=plain)

    def _changed(self, *path: str, value: Any = None, forgotten: bool = False) -> MemoryChanged:
        return MemoryChanged(tuple(map(self._secrets.hide_text, path)), self._secrets.hide(value), forgotten)


def remembered(changes: Iterable[MemoryChanged]) -> dict[str, JSON]:
    """The memory after these changes."""
    memory: dict[str, Any] = {}
    for change in changes:
        *inner, last = change.path
        place = memory
        for key in inner:
            place = place.setdefault(key, {})
        if change.forgotten:
            place.pop(last, None)
        else:
            place[last] = change.value
    return memory


def _entries(value: object) -> dict[str, Any] | None:
    """A copy of the entries of a mapping with string keys, else None. A tool in a thread may go on writing."""
    if type(value) is not dict:
        return None
    entries = dict(cast("dict[Any, Any]", value))
    return entries if all(type(name) is str for name in entries) else None


def _differs(value: Any, recorded: Any) -> Any:
    """A copy of the value in the types of JSON, if it differs from the recorded one; else `_MISSING`."""
    if value is recorded and type(value) in _PLAIN:
        return _MISSING
    plain = value if type(value) in _PLAIN - {float} else jsonable(value)
    return _MISSING if type(plain) is type(recorded) and plain == recorded else plain
