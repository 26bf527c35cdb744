"""The runs of calls: started once, continued with a client's answers in any process, closed when the client leaves."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any

import anyio

from toolspeak.agent import Agent, Run, RunResult, result_of
from toolspeak.agent.run_inputs import ended_waits
from toolspeak.agent.state.history import without_secrets
from toolspeak.agent.storage.runs import close_run, load_whole
from toolspeak.agent.submission import stored_result
from toolspeak.data.approvals import ApprovalRequested, Decision
from toolspeak.data.deltas import ToolProgress
from toolspeak.data.events import Record, RunStarted, ToolStarted
from toolspeak.data.messages import Message
from toolspeak.data.run_values import UNFINISHED_STATUSES
from toolspeak.data.values import quick
from toolspeak.errors import RunBusy, RunError, ToolspeakError
from toolspeak.execute.calls.prepare import new_id
from toolspeak.journal import Journal

_LOOK_AGAIN = 0.2
"""Seconds between two looks at a run that another process, or an earlier request, drives."""

_LOOK_FOR_EVENTS = 0.5
"""Seconds between two looks for an event that a call waits for."""

ProgressSink = Callable[[str], None]
"""Takes a line of progress for the client."""


def run_id_of(caller: str, key: str) -> str:
    """The id of the run for a caller's own key of a call. Two callers cannot name each other's runs by it."""
    return hashlib.sha256(f"mcp\0{caller}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


@quick()
class CallRuns:
    """The runs of one served tool.

    - `agent`: has the tool, or is the tool.
    - `journal`: where its runs are recorded.
    """

    agent: Agent[Any, Any]
    journal: Journal

    async def start(
        self,
        task: str | Message,
        run_id: str | None,
        principal: str | None,
        deps: Any,
        report: ProgressSink,
        traceparent: str | None = None,
    ) -> RunResult[Any]:
        """Runs the task until it ends or pauses. If there is a run with this id already, goes on with it, or returns
        how it has ended.

        Raises RunConflict if that is a run of another task or principal, and what the run raises.
        """
        own_id = run_id or new_id()
        result = await self._drive_when_free(
            own_id,
            lambda: self.agent.start(task, run_id=own_id, principal=principal, deps=deps, traceparent=traceparent),
            report,
        )
        return await self._after_waits(result, deps, report)

    async def go_on(
        self,
        task: Message,
        run_id: str,
        principal: str | None,
        deps: Any,
        report: ProgressSink,
        decide: Callable[[tuple[ApprovalRequested, ...]], Mapping[str, Decision]],
    ) -> RunResult[Any]:
        """Goes on with a run that a client names. `decide` returns the client's decisions about open questions.

        A run that has ended is returned as it is, and one whose questions stay open too. Raises RunError if the client
        may not go on with it: there is no such run, or it is one of another task, agent or principal.
        """
        records = await self.journal.read(run_id)
        first = records[0] if records else None
        start = None if first is None else first.event
        if (
            first is None
            or not isinstance(start, RunStarted)
            or first.agent != self.agent.name
            or first.principal != principal
            or start.session_id is not None
            or start.messages != (without_secrets(task, self.agent.secrets),)
        ):
            raise RunError("no call of this tool with these arguments waits under this request state")
        while True:
            result = await stored_result(self.journal, await load_whole(self.journal, run_id))
            if result.status not in UNFINISHED_STATUSES:
                return await self._drive_when_free(
                    run_id, lambda: self.agent.start(task, run_id=run_id, principal=principal, deps=deps), report
                )
            decisions = decide(result.requests)
            if result.requests and not decisions:
                return result
            with suppress(RunBusy):
                result = await self._drive(run_id, self.agent.reopen(run_id, decisions, deps=deps), report)
                return await self._after_waits(result, deps, report)
            await asyncio.sleep(_LOOK_AGAIN)

    async def _after_waits(self, result: RunResult[Any], deps: Any, report: ProgressSink) -> RunResult[Any]:
        """The result once what the calls wait for (a time, an event from outside) has come, and they went on."""
        run_id = result.run_id
        try:
            while result.status == "waiting":
                until = result.state.until
                while not await ended_waits(self.journal, result.state, time.time()):
                    rest = _LOOK_FOR_EVENTS if until is None else max(0.0, until - time.time())
                    await asyncio.sleep(min(rest, _LOOK_FOR_EVENTS))
                with suppress(RunBusy):
                    result = await self._drive(run_id, self.agent.reopen(run_id, deps=deps), report)
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                await self.close(run_id)
            raise
        return result

    async def close(self, run_id: str) -> None:
        """Ends a run that nobody will go on with: its calls never run after that."""
        with suppress(ToolspeakError):  # it has ended, or another process drives it
            await close_run(self.journal, run_id)

    async def _drive_when_free(self, run_id: str, make: Callable[[], Run[Any]], report: ProgressSink) -> RunResult[Any]:
        while True:
            with suppress(RunBusy):
                return await self._drive(run_id, make(), report)
            await asyncio.sleep(_LOOK_AGAIN)

    async def _drive(self, run_id: str, run: Run[Any], report: ProgressSink) -> RunResult[Any]:
        """Drives the run. A client that cancels the call, or leaves, closes it."""

        async def drive() -> RunResult[Any]:
            async with aclosing(run.stream()) as items:
                async for item in items:
                    if isinstance(item, ToolProgress):
                        report(item.message)
                    elif isinstance(item, Record) and isinstance(item.event, ToolStarted):
                        report(f"calls {item.event.name}")
            return result_of(run)

        # A task of its own: the SDK cancels again and again, which would interrupt the end of the run, too.
        task = asyncio.create_task(drive())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                task.cancel()
                await asyncio.wait([task])
                await self.close(run_id)
            raise
