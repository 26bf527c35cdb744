"""Running a command's coroutine, so that whatever ends the command ends its children too."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Any, TypeVar, cast

ResultT = TypeVar("ResultT")

_PATIENCE = 10.0
"""Seconds from a Ctrl-C until another ends the command where it stands. What is to be ended takes 5 at the most."""


def run_to_end(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """`asyncio.run`, with Ctrl-C, SIGTERM and SIGHUP ending it, however often they come. Raises KeyboardInterrupt
    then."""

    async def main() -> ResultT:
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        loop = asyncio.get_running_loop()

        def end() -> None:
            if not task.cancelling():  # a second one would cut short what the first has begun
                task.cancel()

        for name in ("SIGTERM", "SIGHUP"):
            # Without this, commands that the model started would live on. (Windows has no such handlers.)
            with suppress(AttributeError, NotImplementedError):
                number = getattr(signal, name)
                if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
                    loop.add_signal_handler(number, end)
        with ExitStack() as handlers:
            before = signal.getsignal(signal.SIGINT)
            if before not in (None, signal.SIG_IGN) and threading.current_thread() is threading.main_thread():
                handlers.callback(signal.signal, signal.SIGINT, before)
                signal.signal(signal.SIGINT, _interrupting(loop, end))
            return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _interrupting(loop: asyncio.AbstractEventLoop, end: Callable[[], None]) -> Callable[[int, FrameType | None], None]:
    """A handler in place of asyncio's, whose second Ctrl-C leaves running what the first has told to end."""
    first: float | None = None

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        nonlocal first
        first = time.monotonic() if first is None else first
        if time.monotonic() - first > _PATIENCE:
            raise KeyboardInterrupt
        loop.call_soon_threadsafe(end)

    return interrupted
