"""Running a command's coroutine, so that whatever ends the command ends its children too."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar, cast

ResultT = TypeVar("ResultT")


def run_to_end(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """`asyncio.run`, with SIGTERM and SIGHUP ending it as Ctrl-C does. Raises KeyboardInterrupt then."""

    async def main() -> ResultT:
        end = cast("asyncio.Task[Any]", asyncio.current_task()).cancel
        for name in ("SIGTERM", "SIGHUP"):
            # Without this, commands that the model started would live on. (Windows has no such handlers.)
            with suppress(AttributeError, NotImplementedError):
                number = getattr(signal, name)
                if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
                    asyncio.get_running_loop().add_signal_handler(number, end)
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
