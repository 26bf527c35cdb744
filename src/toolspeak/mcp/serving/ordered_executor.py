"""The executor of calls that arrive one by one: their order by effects, across the runs of one process."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from toolspeak.data.messages import MalformedCall, ToolCall
from toolspeak.data.tools import UNDECLARED_EFFECTS, Effects
from toolspeak.execute import BatchContext, Executor
from toolspeak.execute.batch_context import BatchResult
from toolspeak.execute.concurrency.limits import OrphanedCalls
from toolspeak.execute.concurrency.schedule import Conflicts
from toolspeak.tools.files.files_read import KEY as FILES_READ
from toolspeak.tools.files.files_read import LINES_KEY as LINES_READ
from toolspeak.tools.stored_results import KEY as STORED_RESULTS

CALLER: ContextVar[str] = ContextVar("toolspeak_mcp_caller", default="")
"""Whose calls these are: a connection, a session, or a principal."""

_MOST_CALLERS = 256
_MOST_FILES = 100
"""Each run records the memory, so it must not grow with the life of a connection."""


class OrderedExecutor(Executor):
    """Runs batches of several runs at once as if their calls were of one batch, in the order of their arrival.

    A call waits for the calls before it that its effects conflict with, whichever run they belong to, and for those
    whose run has stopped waiting for them. The calls of one `CALLER` share the tools' memory.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._line = ConflictQueue()
        self._orphans = OrphanedCalls()
        self._memories: OrderedDict[str, dict[str, Any]] = OrderedDict()

    async def run(
        self, calls: Sequence[ToolCall | MalformedCall], *, context: BatchContext | None = None, **options: Any
    ) -> BatchResult:
        """As `Executor.run`."""
        context = BatchContext() if context is None else context
        context.scope.orphans = self._orphans
        async with self._line.place([self._effects_of(call) for call in calls if isinstance(call, ToolCall)]):
            memory = self._memory_of(CALLER.get())
            context.memory.update(memory)
            try:
                return await super().run(calls, context=context, **options)
            finally:
                memory.update({key: value for key, value in context.memory.items() if key != STORED_RESULTS})
                for files in (memory.get(FILES_READ, {}), memory.get(LINES_READ, {})):
                    while len(files) > _MOST_FILES:
                        del files[next(iter(files))]

    def _memory_of(self, caller: str) -> dict[str, Any]:
        memory = self._memories.setdefault(caller, {})
        self._memories.move_to_end(caller)
        if len(self._memories) > _MOST_CALLERS:
            self._memories.popitem(last=False)
        return memory

    def _effects_of(self, call: ToolCall) -> Effects:
        tool = self.tools.get(call.name)
        arguments = () if tool is None else tool.read_arguments(call.arguments)
        if tool is None or isinstance(arguments, tuple):
            return Effects(declared=True)  # it does not run
        try:
            return tool.effects_of(arguments)
        except Exception:  # noqa: BLE001 - the admission of the call reports what the user's function raises
            return UNDECLARED_EFFECTS


class ConflictQueue:
    """The calls under way and those that wait for them, in the order of their arrival."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[Sequence[Effects], asyncio.Future[None]]] = {}
        self._next = 0

    @asynccontextmanager
    async def place(self, effects: Sequence[Effects]) -> AsyncGenerator[None]:
        """Holds a place for calls with these effects. Enters once no conflicting place before it is held."""
        conflicts = Conflicts()
        for number, (earlier, _) in self._places.items():
            for each in earlier:
                conflicts.add(number, each)
        blockers = {number for each in effects for number in conflicts.with_(each)}
        number, end = self._next, asyncio.get_running_loop().create_future()
        waiting = [self._places[blocker][1] for blocker in blockers]
        self._next += 1
        self._places[number] = (effects, end)
        try:
            if waiting:
                await asyncio.wait(waiting)
            yield
        finally:
            del self._places[number]
            end.set_result(None)
