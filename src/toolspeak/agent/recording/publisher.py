"""Shows a run's deltas to other processes that follow it, through the run's journal."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any, cast

from toolspeak.agent.recording.channel import Channel
from toolspeak.data.codec import dumps, load
from toolspeak.data.deltas import ArgumentsDelta, Delta, ReasoningDelta, TextAside, TextDelta, TurnRestarted
from toolspeak.data.events import ModelTextReceived, Record
from toolspeak.data.values import evolve
from toolspeak.errors import JournalError
from toolspeak.journal.base import Journal

EVERY = 0.1
"""Seconds between two texts that are published."""

_LARGEST = 7_000  # characters of one text: PostgreSQL's NOTIFY takes up to 8,000 bytes
_MOST = 32  # texts that are published at once; what is beyond is lost to those who follow
_JOINABLE_DELTAS = (TextDelta, TextAside, ReasoningDelta, ArgumentsDelta)


class Publisher:
    """A watcher of a run, in place of its channel: passes on what it gets, and publishes it.

    `inner`: the channel of a reader in this process.
    """

    def __init__(self, journal: Journal, run_id: str, inner: Channel[Any] | None) -> None:
        self._journal = journal
        self._run_id = run_id
        self._last_record = -1
        self._inner = inner
        self._pieces: list[tuple[int, Delta | TurnRestarted]] = []
        self._has_records = False
        self._timer: asyncio.TimerHandle | None = None
        self._publishing: asyncio.Task[None] | None = None

    def put(self, item: Delta | TurnRestarted | Record) -> bool:
        """Takes a delta or a record. Returns whether the writer must await `drain`."""
        self._add(item)
        return self._inner is not None and self._inner.put(item)

    def offer(self, item: Delta) -> bool:
        """Takes a line of progress."""
        self._add(item)
        return self._inner is None or self._inner.offer(item)

    async def drain(self) -> None:
        """Waits for the reader in this process. Those that follow are not waited for."""
        if self._inner is not None:
            await self._inner.drain()

    def _add(self, item: Delta | TurnRestarted | Record) -> None:
        if isinstance(item, Record):
            self._has_records = True
            if is_boundary(item):
                self._last_record = item.seq
        else:
            seq, last = self._last_record, self._pieces[-1] if self._pieces else (-1, None)
            joined_piece = _join(last[1], item) if last[0] == seq else None
            if joined_piece is not None:
                self._pieces[-1] = (seq, joined_piece)
            else:
                self._pieces.append((seq, item))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(EVERY, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._publishing is not None and not self._publishing.done():
            self._timer = asyncio.get_running_loop().call_later(EVERY, self._on_timer)
        else:
            self._publishing = asyncio.ensure_future(self._publish())

    async def _publish(self) -> None:
        pieces, self._pieces, self._has_records = self._pieces, [], False
        texts = _texts(pieces)[:_MOST]
        # What is published is not durable, so a journal that fails here loses nothing.
        with suppress(JournalError):
            for text in texts or [""]:
                await self._journal.publish(self._run_id, text)

    async def close(self) -> None:
        """Publishes the rest."""
        if self._timer is not None:
            self._timer.cancel()
        if self._publishing is not None:
            await asyncio.wait([self._publishing])
        if self._pieces or self._has_records:
            await self._publish()


def is_boundary(record: Record) -> bool:
    """Whether pieces before the record are over with it. A checkpoint of a turn has a part of its pieces again."""
    return not isinstance(record.event, ModelTextReceived)


def _join(first: Delta | TurnRestarted | None, second: Delta | TurnRestarted) -> Delta | None:
    """Two pieces of one text as one, None if they belong to different texts."""
    if (
        type(first) is not type(second)
        or not isinstance(second, _JOINABLE_DELTAS)
        or not isinstance(first, _JOINABLE_DELTAS)
    ):
        return None
    if len(first.text) + len(second.text) > _LARGEST // 8:
        return None
    longer = evolve(first, text=first.text + second.text)
    return longer if evolve(longer, text=second.text) == second else None


def _texts(pieces: list[tuple[int, Delta | TurnRestarted]]) -> list[str]:
    """The pieces as texts to publish: `[number of the record before, piece, …]` as JSON. Leaves out those that are too
    large."""
    texts: list[str] = []
    seq, size, group = -1, 0, list[str]()
    for number, piece in pieces:
        text = dumps(piece)
        if len(text) > _LARGEST:
            continue
        if group and (number != seq or size + len(text) > _LARGEST):
            texts.append(f"[{seq},{','.join(group)}]")
            size, group = 0, []
        seq, size = number, size + len(text) + 1
        group.append(text)
    return [*texts, f"[{seq},{','.join(group)}]"] if group else texts


def published_pieces(text: str) -> tuple[int, list[Delta | TurnRestarted]]:
    """The pieces of a text that was published, and the number of the record before them (see `is_boundary`)."""
    seq, *pieces = cast("list[object]", json.loads(text))
    return cast("int", seq), [load(piece) for piece in pieces]
