"""One event loop in a thread, for callers that have none or are inside of one (Jupyter)."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


class _LoopThread:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="toolspeak-loop", daemon=True).start()
            return self._loop


_THREAD = _LoopThread()


def run_sync(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Runs a coroutine in the process-wide loop and waits for it. Ctrl-C cancels it and waits until it has ended."""
    future = asyncio.run_coroutine_threadsafe(work, _THREAD.loop())
    try:
        return future.result()
    except KeyboardInterrupt:
        future.cancel()
        concurrent.futures.wait([future])
        raise
