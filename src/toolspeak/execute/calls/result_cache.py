"""The result cache: a repeated read is answered from memory while nothing has changed what it reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from toolspeak.data.messages import TextPart, ToolCall, ToolResult
from toolspeak.data.tools import EVERYTHING, UNVERSIONED, Effects
from toolspeak.execute.concurrency.schedule import Conflicts

_MOST_RESULTS = 256  # results of a run; the oldest go first
_NOTE = (
    "[This is the result of the same call made before ({earlier}): nothing has changed it since. "
    "Use it, or do something else.]\n"
)
ANSWERED_FROM = "answered_from"
"""The key in a result's `extra` that names the call it was taken from."""


class ResultCache:
    """The last results of a run's read-only calls that declare which resources they read."""

    __slots__ = ("_results",)

    def __init__(self) -> None:
        self._results: dict[str, tuple[Effects, ToolResult]] = {}

    def __bool__(self) -> bool:
        return bool(self._results)

    def answer(self, call: ToolCall, effects: Effects) -> ToolResult | None:
        """Returns the result of an earlier equal call, with a note for the model, if it still holds; else None."""
        if not self._results or not _tells(effects):
            return None
        earlier = self._results.get(_key(call))
        if earlier is None or earlier[0] != effects:  # its `version` included
            return None
        result = earlier[1]
        note = TextPart(_NOTE.format(earlier=result.call_id))
        extra = {**result.extra, ANSWERED_FROM: result.call_id}
        return replace(result, call_id=call.id, content=(note, *result.content), extra=extra)

    def learn(self, calls: Sequence[tuple[ToolCall, Effects, ToolResult | None]], *, ordered: bool) -> None:
        """Takes the results of a batch's calls, in call order; None for a call that began and has no result.

        `ordered`: calls that conflict ran one after the other, so a read holds unless a later call changed what it
        read.
        """
        if not self._results:
            for _, effects, _ in calls:
                if _tells(effects):
                    break
            else:
                return
        changes = Conflicts()
        fresh: dict[str, tuple[Effects, ToolResult]] = {}
        if not ordered:
            for index, (_, effects, _) in enumerate(calls):
                if effects.writes:
                    changes.add(index, effects)
        for index in range(len(calls) - 1, -1, -1):
            call, effects, result = calls[index]
            if ordered and effects.writes:
                changes.add(index, effects)
            if result is None or result.status != "success" or not _tells(effects) or ANSWERED_FROM in result.extra:
                continue
            key = _key(call)
            if key not in fresh and not changes.any_with(effects):
                fresh[key] = (effects, result)
        valid = {
            key: earlier
            for key, earlier in self._results.items()
            if key not in fresh and not changes.any_with(earlier[0])
        }
        self._results = {**valid, **fresh}
        while len(self._results) > _MOST_RESULTS:
            del self._results[next(iter(self._results))]


def _tells(effects: Effects) -> bool:
    """Whether the call's dependencies are all declared and versioned, and lie on this machine."""
    return (
        bool(effects.reads)
        and EVERYTHING not in effects.reads
        and effects.declared
        and effects.read_only
        and not effects.external
        and not effects.repeatable
        and effects.version != UNVERSIONED
    )


def _key(call: ToolCall) -> str:
    return f"{call.name} {json.dumps(call.arguments, sort_keys=True)}"
