"""Records the calls of another framework's turn as a run in a journal."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from toolspeak.agent.storage.runs import LeaseKeeper, close_run
from toolspeak.data.events import Event, ModelAnswered, ModelAsked, Record, RunFinished, RunStarted
from toolspeak.data.messages import Message, ToolCall
from toolspeak.errors import ToolspeakError
from toolspeak.execute import BatchContext
from toolspeak.journal.base import Journal, Lease
from toolspeak.tools import Toolset


class TurnRecord:
    """Records one batch as a separate run: its calls, decisions and results. Without a journal it does nothing.

    The conversation belongs to the framework and is not recorded. If a turn breaks off, its run is closed: each call
    without a result gets a result that says so. If the process is killed, the run stays open and shows the calls that
    started.
    """

    def __init__(
        self, journal: Journal | None, framework: str, context: BatchContext, tools: Toolset, calls: Sequence[ToolCall]
    ) -> None:
        self._journal = journal
        self._framework = framework
        self._context = context
        self._tools = tools
        self._calls = tuple(calls)
        self._run_id = uuid.uuid4().hex
        self._lease: Lease | None = None
        self._keeper: LeaseKeeper | None = None
        self._seq = 0
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        if self._journal is not None:
            self._keeper = LeaseKeeper(self._journal, self._run_id, lambda: None)
            self._lease = await self._keeper.acquire()
            try:
                framework, context = self._framework, self._context
                title = Message.user(f"{framework}: run {context.run_id}, step {context.step}")
                setup = {"framework": framework, "run_id": context.run_id, "step": context.step}
                await self.add(RunStarted((title,), framework, setup=setup))
                await self.add(ModelAsked(framework, self._tools.digest, ""))
                await self.add(ModelAnswered(Message("assistant", self._calls), "tool_calls"))
            except BaseException:
                await self._keeper.release()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._journal is None or self._keeper is None:
            return
        try:
            if error is None:
                await self.add(RunFinished("no_answer", "", "batch_ended"))
        finally:
            await self._keeper.release()
        if error is not None:
            try:
                await close_run(self._journal, self._run_id)
            except ToolspeakError as journal_error:  # for instance the journal itself has failed
                error.add_note(f"the run {self._run_id} stays open in the journal: {journal_error}")

    async def add(self, event: Event) -> None:
        """Appends a fact; returns once it is durable."""
        if self._journal is None:
            return
        async with self._lock:
            step = 0 if self._seq == 0 else 1
            call_id: str | None = getattr(event, "call_id", None)
            record = Record(event, self._run_id, self._seq, step, time.time(), self._framework, call_id)
            await self._journal.append(record, self._lease)
            self._seq += 1
