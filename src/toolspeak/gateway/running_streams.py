"""The requests that are answered now, as an operator sees them: without what they say, and those of all workers."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import msgspec

from toolspeak.data.values import quick

MOST_STREAMS = 200
"""The most requests that are listed: those that began first."""

_EVERY_SECONDS = 1.0
"""How often a worker writes its list while somebody looks."""

_WATCHED_SECONDS = 6.0
"""How long after the last look a worker goes on writing, and how old a list may be that is shown."""

_WATCH_FILE = "streams.watched"


@quick()
class RunningStream:
    """A request that a model answers now.

    - `id`: that of the request, as in the log.
    - `upstream`: the last one that it was sent to.
    - `key`: the name of its key; "" without one.
    - `is_streamed`: the client gets the answer as it comes.
    - `began`: when the request came (Unix seconds).
    - `tokens`: how many the model has written so far; an estimate.
    """

    id: str
    model: str
    upstream: str
    key: str
    is_streamed: bool
    began: float
    tokens: int


StreamTable: TypeAlias = dict[Callable[[], RunningStream], None]
"""The requests that a process answers now, in the order in which they began: an ordered set of functions, each of which
describes a request. Ids are no keys, as clients choose them."""


def oldest_streams(streams: StreamTable) -> Sequence[RunningStream]:
    """The requests that began first. May be called in any thread."""
    return [describe() for describe in list(streams)[:MOST_STREAMS]]


@asynccontextmanager
async def publish_streams(streams: StreamTable, folder: str) -> AsyncGenerator[None]:
    """During the context, writes this worker's list into the folder of all workers, while somebody looks."""

    async def write() -> None:
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            with suppress(OSError):  # the folder goes with the gateway
                _write(streams, Path(folder))

    writing = asyncio.get_running_loop().create_task(write())
    try:
        yield
    finally:
        writing.cancel()


def _write(streams: StreamTable, folder: Path) -> None:
    if time.time() - (folder / _WATCH_FILE).stat().st_mtime <= _WATCHED_SECONDS:
        draft = folder / f"streams-{os.getpid()}.new"
        # json escapes a lone surrogate in a model's name, which msgspec refuses
        draft.write_text(json.dumps(msgspec.to_builtins(oldest_streams(streams))), "utf-8")
        draft.replace(draft.with_suffix(".json"))


def streams_of_workers(folder: str) -> Sequence[RunningStream]:
    """The requests of all workers, those that began first. The workers write them from the first look on."""
    Path(folder, _WATCH_FILE).touch()
    streams: list[RunningStream] = []
    for path in Path(folder).glob("streams-*.json"):
        with suppress(OSError):  # a worker has just ended
            if time.time() - path.stat().st_mtime <= _WATCHED_SECONDS:
                streams += msgspec.convert(json.loads(path.read_bytes()), list[RunningStream])
    return sorted(streams, key=lambda each: each.began)[:MOST_STREAMS]
