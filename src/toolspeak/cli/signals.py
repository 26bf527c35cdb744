"""Runs a command's coroutine, so that a signal that ends the command ends its children too."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Any, TypeVar, cast

from toolspeak.sandbox.processes import stop_program

ResultT = TypeVar("ResultT")

_PATIENCE = 10.0
"""Seconds after a Ctrl-C in which another one has no effect; a later one ends the command at once. Ending the children
takes at most 5."""


def run_to_end(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Like `asyncio.run`, but Ctrl-C, SIGTERM and SIGHUP cancel the coroutine, and repeated ones do not interrupt its
    cleanup. Raises KeyboardInterrupt after one of them. Ctrl-Z stops the commands of tools, too."""

    async def main() -> ResultT:
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        loop = asyncio.get_running_loop()

        def end() -> None:
            if not task.cancelling():  # a second one would interrupt the cleanup
                task.cancel()

        for name in ("SIGTERM", "SIGHUP"):
            # Without this, the model's commands would outlive the process. (Windows has no such handlers.)
            with suppress(AttributeError, NotImplementedError):
                number = getattr(signal, name)
                if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
                    loop.add_signal_handler(number, end)
        with suppress(AttributeError, NotImplementedError):
            if signal.getsignal(signal.SIGTSTP) == signal.SIG_DFL:
                loop.add_signal_handler(signal.SIGTSTP, stop_program)
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
    """A handler to replace asyncio's, with which a second Ctrl-C would stop the cleanup that the first one started."""
    first: float | None = None

    def handle_interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal first
        first = time.monotonic() if first is None else first
        if time.monotonic() - first > _PATIENCE:
            raise KeyboardInterrupt
        loop.call_soon_threadsafe(end)

    return handle_interrupt
