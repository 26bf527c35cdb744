"""Recording what happens in a run's batches: a result with what its call has changed in the tools' memory."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

from toolspeak.agent.recorder import Recorder
from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.memory import Memory
from toolspeak.data.events import Event, ToolFinished
from toolspeak.errors import ConfigurationError, ToolDefinitionError
from toolspeak.execute import Batch


class BatchFacts:
    """Records the facts of one run's batches; `values` is the mapping that its tools share."""

    def __init__(self, settings: RunSettings, recorder: Recorder, values: dict[str, Any]) -> None:
        self._settings = settings
        self._recorder = recorder
        self._values = values
        self._hooked = any(settings.pipelines.values())
        self._memory: Memory | None = None

    def emit(self, event: Event) -> Awaitable[None]:
        """Records a fact, a result with what has changed in the tools' memory."""
        if type(event) is ToolFinished:
            tool = self._settings.toolset.get(event.result.name)
            # What may have changed the memory: the tool, or an interceptor.
            if self._hooked or (tool is not None and "context" in tool.injected.values()):
                return self._with_memory(event)
        return self._recorder.record(event)

    async def complete(self, batch: Batch) -> None:
        """Records the results of a batch that an executor of the user's own has not recorded. Raises ConfigurationError
        if there is a call without one."""
        state = self._recorder.state
        known = {result.call_id for result in state.pending.results}
        given = {result.call_id: result for result in batch.results}
        missing = [call.id for call in state.pending.calls if call.id not in known | given.keys()]
        if missing:
            executor = type(self._settings.executor).__name__
            raise ConfigurationError(f"{executor}.run gave no result for {', '.join(missing)}: each call has one")
        for call in state.pending.calls:
            if call.id not in known:
                await self.emit(ToolFinished(given[call.id]))

    async def _with_memory(self, event: ToolFinished) -> None:
        if self._memory is None:
            self._memory = Memory(self._values, self._recorder.state.memory, self._settings.secrets)
        changes, refused = self._memory.changes()
        await self._recorder.record(replace(event, memory=changes) if changes else event)
        for key, reason in refused.items():
            raise ToolDefinitionError(
                f"the tool {event.result.name} keeps something in RunContext.memory[{key!r}] that is no JSON: {reason}."
                " What a run remembers is recorded with it, so that it survives; keep other things in `deps`"
            )
