"""A turn that its limit of tokens cut: its last call may lack its end, so it never runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from toolspeak.data.deltas import (
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallMalformed,
    CallStarted,
    Delta,
    PartEnded,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import JSON
from toolspeak.data.values import changed
from toolspeak.wire.token_limit import token_limit

CUT = (
    "the turn ended at its limit of tokens, so that the end of this call may be missing, and it did not run; make it "
    "again, in smaller pieces if it is long"
)

NO_CALL_ENDS = frozenset((TextDelta, ReasoningDelta, ArgumentsDelta, CallStarted, PartEnded))
"""Deltas that `LastCall` passes on as they are while nothing is `held`."""


def with_limit(ended: TurnEnded, options: Mapping[str, JSON]) -> TurnEnded:
    """The end of a turn with the limit that these options asked for, if its provider tells none."""
    if ended.limit is not None or not options:
        return ended
    limit = token_limit(options)
    return ended if limit is None else changed(ended, limit=limit)


class LastCall:
    """Takes the deltas of a turn with an API's own calls, gives them with the last call malformed if the turn was cut.

    An API gives arguments that are JSON whatever the model wrote: some servers close what was cut themselves, and say
    `tool_calls` for a turn that reached its limit (GitHub, vllm-project/vllm#53269, #47963, #57482). So where the turn
    was cut, by its finish reason or its usage (`TurnEnded.is_cut`), a call with nothing behind it does not count. Until
    that is known a call that is complete waits for the next delta but white space; nothing else does.
    """

    def __init__(self) -> None:
        self.held: list[Delta] | None = None
        """What waits, if anything does."""
        self._batch: BatchEnded | None = None

    def feed(self, delta: Delta) -> Sequence[Delta]:
        if type(delta) is CallCompleted:
            before, self.held = self.held, list[Delta]((delta,))
            return before or ()
        if type(delta) is BatchEnded:
            self._batch = delta
            return ()
        if type(delta) is TurnEnded:
            return self._cut(delta) if delta.is_cut else self._end(delta)
        if self.held and (type(delta) is PartEnded or (type(delta) is TextDelta and not delta.text.strip())):
            self.held.append(delta)
            return ()
        before, self.held = self.held, None
        return (delta,) if before is None else [*before, delta]

    def _cut(self, ended: TurnEnded) -> Sequence[Delta]:
        batch = self._batch
        if batch is not None and ended.finish != "length":
            ended = changed(ended, finish="length")
        if self.held and type(call := self.held[0]) is CallCompleted:
            raw = json.dumps(dict(call.arguments), ensure_ascii=False)
            self.held[0] = CallMalformed(call.index, raw, "truncated", CUT, 0, call.name)
            if batch is not None:
                selected = tuple(at for at in batch.selected if at != call.index)
                self._batch = BatchEnded(selected, False, batch.notes)
        return self._end(ended)

    def _end(self, ended: TurnEnded) -> Sequence[Delta]:
        batch = () if self._batch is None else (self._batch,)
        return [*(self.held or ()), *batch, ended]
