"""What the batches of one run share."""

from __future__ import annotations

from dataclasses import field

from toolspeak.data.values import quick
from toolspeak.execute.gates import Concurrency, Gate
from toolspeak.execute.lingering import Lingering
from toolspeak.execute.observe import Aside
from toolspeak.execute.recall import Recall
from toolspeak.execute.timers import Timers
from toolspeak.tools.tool import Tool


@quick(frozen=False, eq=False)
class RunScope:
    """Lives in one event loop, as long as its run: the places for calls, the calls that were abandoned in their
    threads, the results of reads that still hold, what of the run's calls is in no record (`asides`, by call id), and
    the `timers`, if somebody closes them at the run's end (else each batch has its own)."""

    lingering: Lingering = field(default_factory=Lingering)
    recall: Recall = field(default_factory=Recall)
    timers: Timers | None = None
    asides: dict[str, Aside] = field(default_factory=dict[str, Aside])
    _run: Gate | None = None
    _threads: Gate | None = None
    _tools: dict[str, Gate] = field(default_factory=dict[str, Gate])

    def gates(self, tool: Tool, limits: Concurrency) -> tuple[Gate, ...]:
        """Where a call of this tool needs a place before it runs, besides its batch's; the tool's own is last."""
        found: tuple[Gate, ...] = ()
        if tool.is_async and tool.max_concurrent is None and limits.run is None:
            return found
        if limits.run is not None:
            if self._run is None:
                self._run = Gate(limits.run)
            found = (self._run,)
        if not tool.is_async:
            if self._threads is None:
                self._threads = Gate(limits.threads)
            found = (*found, self._threads)
        own = self.own_gate(tool)
        return found if own is None else (*found, own)

    def own_gate(self, tool: Tool) -> Gate | None:
        """The gate of a tool that limits itself."""
        if tool.max_concurrent is None:
            return None
        if tool.name not in self._tools:
            self._tools[tool.name] = Gate(tool.max_concurrent)
        return self._tools[tool.name]
