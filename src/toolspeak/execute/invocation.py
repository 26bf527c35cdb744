"""Entering one tool's function: its context, its thread or coroutine, its time."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Mapping
from inspect import isawaitable
from typing import Any

from toolspeak.data.values import quick
from toolspeak.execute.batch_context import BatchContext
from toolspeak.execute.calls.prepare import PreparedCall
from toolspeak.execute.calls.secrets import Secrets
from toolspeak.execute.concurrency.limits import Flag
from toolspeak.execute.concurrency.threads import ThreadOutcome, call_in_loop, in_thread
from toolspeak.execute.concurrency.timers import Timers
from toolspeak.execute.sub_runs import ENTERED, SubRuns
from toolspeak.tools.context import RunContext, injected


@quick(frozen=False)
class Invocation:
    """One call of a tool's function. `seconds` is its time limit, None for none.

    `sub_runs` are the runs that the function starts, of a tool that knows its run. `is_over` is what
    `RunContext.cancelled` tells, if the tool asks for it; `ended` tells whether a synchronous function has ended, and
    if nobody waits for it any more `on_end` is called in the loop then.
    """

    prepared: PreparedCall
    seconds: float | None
    context: BatchContext
    secrets: Secrets
    is_over: Flag | None = None
    ended: Flag | None = None
    on_end: Callable[[], None] | None = None
    sub_runs: SubRuns | None = None

    async def run(self, timers: Timers) -> tuple[ThreadOutcome, bool]:
        """What the function returned or raised, and whether it was told to stop because its time was over.

        An async function is cancelled then, and has ended when this returns; a synchronous one is orphaned in its
        thread. Raises CancelledError alone.
        """
        tool, arguments, entered = self.prepared.tool, self.prepared.arguments, None
        if tool.injected:
            self.sub_runs = SubRuns(self.context.run_id, self.prepared.call.id)
            entered = ENTERED.set(self.sub_runs)
            self.is_over = Flag()
            arguments = {**arguments, **injected(tool.injected, self._run_context(self.is_over))}
        limit = None if self.seconds is None or self.seconds == math.inf else timers.start(self.seconds)
        try:
            if tool.is_async:
                outcome = ThreadOutcome(await tool.function(**arguments))
            else:
                outcome = await self._in_thread(arguments)
        except asyncio.CancelledError as error:
            if limit is None or not limit.stop():
                raise
            outcome = ThreadOutcome(error=error)
        except BaseException as error:  # noqa: BLE001 - the executor decides what each exception means
            outcome = ThreadOutcome(error=error)
        finally:
            if entered is not None:
                ENTERED.reset(entered)
            if self.is_over is not None:
                self.is_over.set()
            if limit is not None:
                limit.stop()
        return outcome, limit is not None and limit.expired

    async def _in_thread(self, arguments: Mapping[str, Any]) -> ThreadOutcome:
        function, ended = self.prepared.tool.function, Flag()
        self.ended = ended

        def entered() -> Any:
            try:
                return function(**arguments)
            finally:
                ended.set()

        outcome = await in_thread(entered, self._orphan_ended)
        return ThreadOutcome(await outcome.value) if isawaitable(outcome.value) else outcome

    def _orphan_ended(self) -> None:
        if self.on_end is not None:
            self.on_end()

    def _run_context(self, is_over: Flag) -> RunContext[Any]:
        context = self.context
        return RunContext(
            deps=context.deps,
            call=self.prepared.call,
            idempotency_key=self.prepared.idempotency_key,
            state=context.state,
            memory=context.memory,
            progress=self._progress(is_over),
            cancelled=is_over.is_set,
        )

    def _progress(self, is_over: Flag) -> Callable[[str], None]:
        loop, home = asyncio.get_running_loop(), threading.get_ident()
        report, secrets, call_id = self.context.progress, self.secrets, self.prepared.call.id

        def progress(message: str) -> None:
            if is_over.is_set():
                return
            message = secrets.hide_text(message)
            if threading.get_ident() == home:
                report(call_id, message)
            else:
                call_in_loop(loop, report, call_id, message)

        return progress


def seconds_of(prepared: PreparedCall, default: float | None) -> float | None:
    """How long the call may take: what its tool says, else the default; None is no limit."""
    tool = prepared.tool
    seconds = None if tool.timeout is None else tool.seconds(prepared.arguments)
    return default if seconds is None else seconds
