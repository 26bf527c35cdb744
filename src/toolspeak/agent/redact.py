"""Hides secrets in the deltas of a turn as it streams, also those that are split over several deltas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from toolspeak.data.deltas import (
    ArgumentsDelta,
    CallCompleted,
    CallMalformed,
    CallStarted,
    Delta,
    ForgedResults,
    ReasoningDelta,
    TextAside,
    TextDelta,
    TurnEnded,
)
from toolspeak.execute import Secrets

_Prose = TextDelta | TextAside | ReasoningDelta


class Redactor:
    """Returns the deltas of one turn with placeholders for secrets, without `TurnEnded`.

    An end of text, reasoning or arguments that may be the beginning of a secret waits for what follows. Nothing else
    waits, and the order stays: waiting text and reasoning come before the next delta of another kind, waiting arguments
    before their call is complete.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._prose: _Prose | None = None
        self._arguments: dict[int, str] = {}

    def feed(self, delta: Delta) -> Iterator[Delta]:
        """Takes the next delta of the turn; yields the deltas that can be shown."""
        hide, hide_name = self._secrets.hide_text, self._secrets.hide_name
        if isinstance(delta, _Prose):
            yield from self._add_prose(delta)
            return
        yield from self._end_prose()
        match delta:
            case ArgumentsDelta(index, text):
                yield from self._add_arguments(index, text)
            case TurnEnded():
                for index in tuple(self._arguments):
                    yield from self._end_arguments(index)
            case CallStarted(name=name, id=call_id):
                yield replace(delta, name=hide_name(name), id=None if call_id is None else hide_name(call_id))
            case CallCompleted(index, name=name, id=call_id):
                yield from self._end_arguments(index)
                yield replace(
                    delta,
                    name=hide_name(name),
                    arguments=self._secrets.hide(delta.arguments),
                    id=None if call_id is None else hide_name(call_id),
                    repaired_from=None if delta.repaired_from is None else hide(delta.repaired_from),
                )
            case CallMalformed(index, name=name):
                yield from self._end_arguments(index)
                name = None if name is None else hide_name(name)
                yield replace(delta, raw=hide(delta.raw), reason=hide(delta.reason), name=name)
            case ForgedResults(raw):
                yield ForgedResults(hide(raw))
            case _:
                yield delta

    def _add_prose(self, delta: _Prose) -> Iterator[Delta]:
        waiting, text = self._prose, delta.text
        if waiting is not None and type(waiting) is type(delta):
            text = waiting.text + text
        else:
            yield from self._end_prose()
        certain = self._secrets.certain(text)
        self._prose = replace(delta, text=text[certain:]) if certain < len(text) else None
        if certain:
            yield replace(delta, text=self._secrets.hide_text(text[:certain]))

    def _end_prose(self) -> Iterator[Delta]:
        waiting, self._prose = self._prose, None
        if waiting is not None:
            yield replace(waiting, text=self._secrets.hide_text(waiting.text))

    def _add_arguments(self, index: int, text: str) -> Iterator[Delta]:
        text = self._arguments.pop(index, "") + text
        certain = self._secrets.certain(text)
        if certain < len(text):
            self._arguments[index] = text[certain:]
        if certain:
            yield ArgumentsDelta(index, self._secrets.hide_text(text[:certain]))

    def _end_arguments(self, index: int) -> Iterator[Delta]:
        waiting = self._arguments.pop(index, "")
        if waiting:
            yield ArgumentsDelta(index, self._secrets.hide_text(waiting))
