"""Runs as streams of server-sent events (WHATWG HTML, 9.2): one reader of the journal for all who look at a run."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import TypeAlias

from toolspeak.agent.recording.publisher import published_pieces
from toolspeak.data.codec import dump
from toolspeak.data.events import Record, RunFinished
from toolspeak.data.run_values import UNFINISHED_STATUSES
from toolspeak.errors import JournalError, ToolspeakError
from toolspeak.journal.base import Journal
from toolspeak.web_ui.record_json import json_of, record_item

PING_SECONDS = 15.0
"""After so many seconds of silence a comment is sent, so that proxies hold the connection open."""

_PAGE = 50
_MOST_FRAMES = 400
"""The frames that wait for a slow reader; what is beyond it reads from the journal, or loses."""

_AGAIN_SECONDS = 1.0
_RETRY = b"retry: 1000\n\n"
_PING = b": ping\n\n"

LiveFrame: TypeAlias = tuple[int | None, bytes, bool]
"""A record's number (None: deltas), its event, and whether the run ends with it."""


class LiveRuns:
    """The runs that somebody looks at."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._feeds: dict[str, _Feed] = {}

    async def events(self, run_id: str, start: int) -> AsyncGenerator[bytes]:
        """The events of a run: each record from number `start` on, once and in order, with its number as the event's
        id, and the deltas of the turn under way as they come. Ends with the run.

        `live` says that the reader has all records until now, at first and after a gap. Deltas are not stored: of a
        turn that began before it some may be missing, and the checkpoints among the records have what they said.
        """
        reader = _LiveReader()
        feed = self._feeds.get(run_id)
        if feed is None:
            feed = self._feeds[run_id] = _Feed(self._journal, run_id)
        feed.readers.add(reader)
        try:
            yield _RETRY
            position = start
            while True:
                async for record in self._from_journal(run_id, position):
                    position = record.seq + 1
                    yield record_frame(record)
                    if isinstance(record.event, RunFinished):
                        return
                if position == start and await self._has_ended(run_id, position):
                    yield b"event: end\ndata: {}\n\n"
                    return
                feed.begin(position)
                # Deltas count from a turn that begins after this: of one before, some may be lost.
                yield b"event: live\ndata: {}\n\n"
                while not reader.has_lost:
                    frame = await reader.next(PING_SECONDS)
                    if frame is None:
                        if reader.is_closed:
                            return
                        yield _PING
                        continue
                    seq, data, is_end = frame
                    if seq is not None:
                        if seq < position:
                            continue
                        if seq > position:
                            break  # a record between was lost: the journal has it
                        position = seq + 1
                    yield data
                    if is_end:
                        return
                reader.restart()
        finally:
            feed.readers.discard(reader)
            if not feed.readers and self._feeds.get(run_id) is feed:
                del self._feeds[run_id]
                await feed.close()

    async def _from_journal(self, run_id: str, start: int) -> AsyncGenerator[Record]:
        while True:
            page = await self._journal.read(run_id, start, _PAGE)
            for record in page:
                yield record
            start += len(page)
            if len(page) < _PAGE:
                return

    async def _has_ended(self, run_id: str, position: int) -> bool:
        info = await self._journal.run(run_id)
        return info is None or (info.status not in UNFINISHED_STATUSES and info.records <= position)

    async def aclose(self) -> None:
        """Ends all streams."""
        for feed in tuple(self._feeds.values()):
            await feed.close()
            for reader in feed.readers:
                reader.close()


class _LiveReader:
    """The frames that wait for one reader."""

    def __init__(self) -> None:
        self._frames: deque[LiveFrame] = deque()
        self._news = asyncio.Event()
        self.has_lost = False
        self.is_closed = False

    def offer(self, frame: LiveFrame) -> None:
        if len(self._frames) >= _MOST_FRAMES:
            self.has_lost = True
            self._frames.clear()
        if not self.has_lost:
            self._frames.append(frame)
        self._news.set()

    def restart(self) -> None:
        """Takes frames again."""
        self.has_lost = False

    def close(self) -> None:
        """Ends the stream after the frames that wait."""
        self.is_closed = True
        self._news.set()

    async def next(self, seconds: float) -> LiveFrame | None:
        """The next frame; None after so many seconds without one, or if some were lost."""
        if not self._frames and not self.is_closed:
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()
        return self._frames.popleft() if self._frames else None


class _Feed:
    """Reads a run from the journal for all its readers."""

    def __init__(self, journal: Journal, run_id: str) -> None:
        self.readers: set[_LiveReader] = set()
        self._journal = journal
        self._run_id = run_id
        self._position = 0
        self._task: asyncio.Task[None] | None = None

    def begin(self, position: int) -> None:
        """Begins to read at a record, unless it reads already."""
        if self._task is None:
            self._position = position
            self._task = asyncio.ensure_future(self._work())

    async def close(self) -> None:
        """Stops reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _work(self) -> None:
        while True:
            try:
                async with aclosing(self._journal.follow(self._run_id)) as texts:
                    async for text in texts:
                        if await self._read():
                            return
                        if text:
                            self._send((None, _deltas_frame(text), False))
            except JournalError:
                await asyncio.sleep(_AGAIN_SECONDS)  # the database may be back by then

    async def _read(self) -> bool:
        """Sends the new records. Returns whether the run has ended."""
        while page := await self._journal.read(self._run_id, self._position, _PAGE):
            for record in page:
                self._position = record.seq + 1
                is_end = isinstance(record.event, RunFinished)
                self._send((record.seq, record_frame(record), is_end))
                if is_end:
                    return True
        return False

    def _send(self, frame: LiveFrame) -> None:
        for reader in self.readers:
            reader.offer(frame)


def record_frame(record: Record) -> bytes:
    """A record as an event, with its number as the id."""
    end = b"event: end\ndata: {}\n\n" if isinstance(record.event, RunFinished) else b""
    return b"id: %d\nevent: record\ndata: %b\n\n%b" % (record.seq, json_of(record_item(record)), end)


def _deltas_frame(text: str) -> bytes:
    """Pieces that were published, as an event. `after` is the number of the record before them."""
    try:
        after, pieces = published_pieces(text)
        content = {"after": after, "pieces": [dump(piece) for piece in pieces]}
    except (ValueError, TypeError, ToolspeakError):  # of a later version
        return b": unknown pieces\n\n"
    return b"event: deltas\ndata: %b\n\n" % json.dumps(content).encode()
