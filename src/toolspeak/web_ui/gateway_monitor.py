"""Looks at a gateway for all who look at its page: one reading of its metrics for all of them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress

from toolspeak.errors import JournalError
from toolspeak.gateway.server import GatewayObserver
from toolspeak.gateway.usage.usage_store import UsageStore, open_usage
from toolspeak.gateway.usage.usage_values import Counts, KeyUsage, day_of
from toolspeak.web_ui.gateway_status import RECENT, gateway_status
from toolspeak.web_ui.gateway_values import GatewayStatus
from toolspeak.web_ui.metric_history import MetricHistory
from toolspeak.web_ui.record_json import json_of

_LOG = logging.getLogger("toolspeak.web_ui")

TICK_SECONDS = 2.0
"""How old what a reader gets may be."""

_SAMPLE_SECONDS = 10.0
"""Seconds between two samples while nobody looks."""


class GatewayMonitor:
    """How the gateway stands, read again while somebody looks. For one event loop."""

    def __init__(self, sight: GatewayObserver) -> None:
        self._sight = sight
        self._since = time.time()
        self._history = MetricHistory(RECENT)
        self._store: UsageStore | None = None
        self._store_place = ""
        self._newest: tuple[float, GatewayStatus, bytes] | None = None
        self._reading = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = asyncio.Event()

    def begin(self) -> None:
        """Begins to take samples, so that there is something to compare with when somebody looks."""
        self._task = asyncio.get_running_loop().create_task(self._sample())

    async def status(self) -> GatewayStatus:
        """How the gateway stands, or stood at most `TICK_SECONDS` ago."""
        return (await self._read())[0]

    async def events(self) -> AsyncGenerator[bytes]:
        """How the gateway stands, as server-sent events. A slow reader gets fewer of them."""
        while not self._is_closed.is_set():
            _, data = await self._read()
            yield b"event: gateway\ndata: %b\n\n" % data
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await self._is_closed.wait()

    def close_streams(self) -> None:
        """Ends all streams."""
        self._is_closed.set()

    async def aclose(self) -> None:
        """Ends the samples and all streams, and closes the store."""
        self.close_streams()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._store is not None:
            await self._store.aclose()

    async def _sample(self) -> None:
        while True:
            try:
                await self._read()
            except Exception:  # noqa: BLE001 - whatever it is, the next sample may succeed
                _LOG.exception("the metrics of the gateway could not be read")
            await asyncio.sleep(_SAMPLE_SECONDS)

    async def _read(self) -> tuple[GatewayStatus, bytes]:
        async with self._reading:
            now = time.monotonic()
            if self._newest is None or now - self._newest[0] >= TICK_SECONDS * 0.9:
                status = await self._new_status(now)
                self._newest = now, status, json_of(status)
            return self._newest[1:]

    async def _new_status(self, now: float) -> GatewayStatus:
        settings = self._sight.settings()
        # In a thread: the files of several workers take some milliseconds.
        points, window = await asyncio.to_thread(lambda: self._history.read(now, self._sight.metrics()))
        usage: Mapping[str, Counts] | None = None
        standings: Mapping[str, KeyUsage] = {}
        problem = ""
        if settings.usage is not None and settings.keys:
            try:
                store = await self._usage_store(settings.usage.store)
                rows = await store.rows(("key",), day_of(time.time()))
                usage, standings = {row.key: row.counts for row in rows}, await store.standings()
            except JournalError as error:
                _LOG.warning("the usage of keys could not be read: %s", error)
                problem = "The usage of keys is that since the start: their store failed. The log says why."
        return gateway_status(
            settings,
            points,
            time=time.time(),
            since=self._since,
            window=window,
            usage=usage,
            standings=standings,
            problem=problem,
            streams=await asyncio.to_thread(self._sight.streams),
        )

    async def _usage_store(self, place: str) -> UsageStore:
        if self._store is None or self._store_place != place:
            if self._store is not None:
                await self._store.aclose()
            self._store, self._store_place = open_usage(place), place
        return self._store
