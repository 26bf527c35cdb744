"""A turn that begins after a marker which the prompt ends with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from toolspeak.data.deltas import CallMalformed, Delta
from toolspeak.data.messages import FinishReason
from toolspeak.dialects.base import Parser
from toolspeak.dialects.text.scan import MAX_CANDIDATE

Opens = Callable[[str], bool | None]
"""Whether a turn with this beginning continues what the prompt's marker opened; None asks for more text."""


class PrefilledParser:
    """Implements `Parser`. It puts the prompt's `marker` before a turn that `opens` recognises."""

    def __init__(self, inner: Parser, marker: str, opens: Opens) -> None:
        self._inner = inner
        self._marker = marker
        self._opens = opens
        self._start: str | None = ""  # the beginning of the turn until `opens` decides
        self._added_length = 0  # the number of characters added before it

    @property
    def shown_chars(self) -> int:
        """The count of the inner parser (`BlockState.shown_chars`)."""
        return getattr(self._inner, "shown_chars", 0)

    def around(self, inner: Parser) -> PrefilledParser:
        """The same wrapper around another parser."""
        return PrefilledParser(inner, self._marker, self._opens)

    def feed(self, chunk: str) -> Iterable[Delta]:
        if self._start is None:
            return self._place(self._inner.feed(chunk)) if self._added_length else self._inner.feed(chunk)
        text = self._start + chunk
        continues = self._opens(text[:MAX_CANDIDATE]) if text else None
        if continues is None and len(text) < MAX_CANDIDATE:
            self._start = text
            return []
        return self._decide(text, continues is True)

    def close(self, reason: FinishReason) -> list[Delta]:
        out = self._decide(self._start, continues=False) if self._start else []
        return out + self._place(self._inner.close(reason))

    def keep_reasoning(self) -> None:
        self._inner.keep_reasoning()

    def _decide(self, text: str, continues: bool) -> list[Delta]:
        self._start, self._added_length = None, len(self._marker) if continues else 0
        return self._place(self._inner.feed(self._marker + text if continues else text))

    def _place(self, deltas: Iterable[Delta]) -> list[Delta]:
        return [
            replace(delta, offset=max(delta.offset - self._added_length, 0))
            if isinstance(delta, CallMalformed)
            else delta
            for delta in deltas
        ]
